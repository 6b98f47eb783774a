"""What treq's client is given so that it does no more than is asked: no cookies, no compression, one deadline.

For the clients of other services (`remote.py`); notifications go out over `exchange.py`.
"""

from __future__ import annotations

from typing import Any

from treq.cookies import IndexableCookieJar
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.web.client import Agent
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgent, IBodyProducer, IResponse
from zope.interface import implementer


class TimeLimit:
    """One deadline over several waits: cancels the one that is pending when it comes."""

    def __init__(self, clock: IReactorTime, seconds: float) -> None:
        self.passed = False
        self._pending: Deferred[Any] | None = None
        self._timer = clock.callLater(seconds, self._pass)

    def bound(self, work: Deferred[Any]) -> Deferred[Any]:
        """`work` itself, under the deadline."""
        self._pending = work
        if self.passed:
            work.cancel()
        return work

    def end(self) -> None:
        """All waits are over."""
        if self._timer.active():
            self._timer.cancel()

    def _pass(self) -> None:
        self.passed = True
        if self._pending is not None:
            self._pending.cancel()


class NoCookies(IndexableCookieJar):
    """Cookies of a far end are never stored, nor sent to another."""

    def add_cookie_header(self, request: Any) -> None:
        """Nothing to add."""

    def extract_cookies(self, response: Any, request: Any) -> None:
        """Nothing to keep."""


@implementer(IAgent)
class PlainAgent:
    """Asks for no compressed answers and unpacks none (a small answer could unpack to a huge one)."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def request(
        self, method: bytes, uri: bytes, headers: Headers | None = None, bodyProducer: IBodyProducer | None = None
    ) -> Deferred[IResponse]:
        """Twisted: send."""
        if headers is not None:
            headers.removeHeader(b"accept-encoding")
        return self._agent.request(method, uri, headers, bodyProducer).addCallback(_as_it_came)


def _as_it_came(response: Any) -> Any:
    response.headers.removeHeader(b"content-encoding")
    return response
