"""The HTTP resource of `/websocket`, and the `websocket` channel; `websocket.py` holds the protocol.

Autobahn (6 MiB) is imported for the first client, in a thread: many services never have one.
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
    """`Channel` without an endpoint: the hub sends notifications to its clients (`pipeline/deliver/websockets.py`)."""

    unavailable = None

    def destination(self, endpoint: str) -> str:
        """All websocket subscriptions share one name."""
        return "websocket"

    async def send(self, notification: Notification) -> Delivered:
        """Acknowledged: there is no endpoint.  Each client receives a handshake when it binds."""
        return Delivered(None, 0, None, is_done=True)


_: type[Channel] = Websocket


async def allow_anonymous(bearer: str | None) -> Session:
    """`Authenticate` for services without authentication: everybody may bind every subscription."""
    return Session()


def resource(
    hub: WebsocketHub, reactor: Any, authenticate: Authenticate = allow_anonymous, audit: AuditBinding | None = None
) -> IResource:
    """The resource to mount at `/websocket`.  `audit`: called with each attempt to bind."""

    def import_autobahn() -> Any:
        from ipf.wire.channels.websocket import WebsocketUpgrade

        return WebsocketUpgrade(hub, reactor, authenticate, audit)

    async def load() -> Any:
        return await deferToThread(import_autobahn)

    return WebsocketResource(load)


class WebsocketResource(Resource):
    """Upgrades requests for a websocket; other requests are answered 426.

    `load`: returns the `WebsocketUpgrade`, for the first client.  Pages of other sites are refused before
    (`wire/http/origin.py`), since a browser lets them open websockets to any host.
    """

    isLeaf = True

    def __init__(self, load: Callable[[], Awaitable[Any]]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Twisted has no types here
        self._load = load
        self._upgrade: Any = None

    def render(self, request: Any) -> Any:
        """Twisted: answer a request, or upgrade its connection."""
        if (request.getHeader("upgrade") or "").strip().lower() != "websocket" or request.method != b"GET":
            return _refused(request)
        if self._upgrade is not None:
            return self._upgrade.render(request)
        Deferred.fromCoroutine(self._render_later(request))
        return NOT_DONE_YET

    async def _render_later(self, request: Any) -> None:
        closed: list[object] = []
        request.notifyFinish().addErrback(closed.append)
        upgrade = await self._load()
        self._upgrade = self._upgrade or upgrade
        if closed:
            return
        body = self._upgrade.render(request)
        if body is not NOT_DONE_YET:
            request.write(body)
            request.finish()


def _refused(request: Any) -> bytes:
    request.setResponseCode(426)
    for name, value in (("Upgrade", "websocket"), ("Content-Type", "application/json")):
        request.setHeader(name, value)
    request.setHeader(correlation.HEADER, correlation.of(request.getHeader))
    return b'{"error":"bad_request","message":"this path is a websocket: send Upgrade: websocket"}'
