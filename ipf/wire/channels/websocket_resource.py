"""The door of `/websocket`, and the channel of those who come in by it; what is spoken inside stands in `websocket`.

Autobahn is imported for the first client, in a thread: it is 6 MiB, and many services never see a websocket.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread
from twisted.web.resource import IResource, Resource
from twisted.web.server import NOT_DONE_YET

from ipf.ports import AuditBinding, Authenticate, Channel, Delivered, Notification, Session, WebsocketHub
from ipf.telemetry import correlation


class Websocket:
    """`Channel` for what is not sent to an endpoint: clients are told by the hub (`pipeline/deliver/websockets.py`)."""

    unavailable = None

    def destination(self, endpoint: str) -> str:
        """Nothing is shared."""
        return "websocket"

    async def send(self, notification: Notification) -> Delivered:
        """Acknowledged: there is nobody to ask.  A handshake goes to each client when it binds."""
        return Delivered(None, 0, None, is_done=True)


_: type[Channel] = Websocket


async def everybody(bearer: str | None) -> Session:
    """`Authenticate` where requests to /fhir are not authenticated either."""
    return Session()


def resource(
    hub: WebsocketHub, reactor: Any, authenticate: Authenticate = everybody, note: AuditBinding | None = None
) -> IResource:
    """The resource to mount at `/websocket`.  `note`: told of each attempt to bind, for the audit trail."""

    def inside() -> Any:
        from ipf.wire.channels.websocket import Upgrade

        return Upgrade(hub, reactor, authenticate, note)

    async def run_in_thread() -> Any:
        return await deferToThread(inside)

    return Upgrades(run_in_thread, is_open=authenticate is everybody)


class Upgrades(Resource):
    """Requests that ask for a websocket; all others are answered 426, like every other refusal of the service.

    `inside`: makes what takes connections over, for the first client.  `is_open`: everybody may listen, so pages of
    other sites may not (a browser lets them open websockets anywhere); where tokens are asked for, they have none.
    """

    isLeaf = True

    def __init__(self, inside: Callable[[], Awaitable[Any]], is_open: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Twisted has no types here
        self._is_open = is_open
        self._make = inside
        self._inside: Any = None

    def render(self, request: Any) -> Any:
        """Twisted: answer a request, or hand its connection over."""
        if (request.getHeader("upgrade") or "").strip().lower() != "websocket" or request.method != b"GET":
            return _refused(request)
        if self._is_open and not _is_ours(request):
            return _forbidden(request)
        if self._inside is not None:
            return self._inside.render(request)
        Deferred.fromCoroutine(self._render_later(request))
        return NOT_DONE_YET

    async def _render_later(self, request: Any) -> None:
        gone: list[object] = []
        request.notifyFinish().addErrback(gone.append)
        made = await self._make()
        self._inside = self._inside or made
        if gone:
            return
        body = self._inside.render(request)
        if body is not NOT_DONE_YET:
            request.write(body)
            request.finish()


def _is_ours(request: Any) -> bool:
    """Whether no page asks, or one of this very host, or one of an origin that is named."""
    origin = request.getHeader("origin")
    if origin is None or not {origin, "*"}.isdisjoint(request.origins):
        return True
    return bool(origin.partition("://")[2].lower() == (request.getHeader("host") or "").lower())


def _forbidden(request: Any) -> bytes:
    request.setResponseCode(403)
    request.setHeader("Content-Type", "application/json")
    request.setHeader(correlation.HEADER, correlation.of(request.getHeader))
    return b'{"error":"forbidden","message":"pages of other sites may not listen here"}'


def _refused(request: Any) -> bytes:
    request.setResponseCode(426)
    for name, value in (("Upgrade", "websocket"), ("Content-Type", "application/json")):
        request.setHeader(name, value)
    request.setHeader(correlation.HEADER, correlation.of(request.getHeader))
    return b'{"error":"bad_request","message":"a websocket is opened here: send Upgrade: websocket"}'
