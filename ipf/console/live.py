"""What is live on the pages: server-sent events out of one poll of the engine that all open pages share.

While at least one page listens, the hub asks the engine once a second, compares the answer with the last one, and sends
what changed to everybody.  So 50 open consoles cost the engine as much as one.  A page that does not read is closed: it
connects again by itself and gets the present state first.

Source: https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from klein import Klein
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.web.iweb import IRequest
from twisted.web.resource import IResource

from ipf.console.backend import BackendDown, BackendRefused
from ipf.console.web import Console, session_of
from ipf.fhir.model.json import dumps
from ipf.wire.http.serving import base_url_of, header_fields

log = Logger()

EVERY_SECONDS = 1.0
_MOST_WAITING = 64 * 1024
"""Bytes that may wait for a page that does not read."""
_KEEP_ALIVE = 15


class LiveHub:
    """`poll`: the state to show, as JSON; `clock`: callLater."""

    def __init__(self, poll: Callable[[], Awaitable[Any]], clock: IReactorTime) -> None:
        self._poll = poll
        self._clock = clock
        self._pages: dict[Any, None] = {}
        self._timer: Any = None
        self._last = b""
        self._quiet = 0

    @property
    def pages(self) -> int:
        """Open pages."""
        return len(self._pages)

    def add(self, web: Any) -> None:
        """A page begins to listen; it gets the last state at once."""
        self._pages[web] = None
        web.notifyFinish().addBoth(lambda _: self._remove(web))
        if self._last:
            web.write(self._last)
        if self._timer is None:
            self._timer = self._clock.callLater(0, self._begin)

    def close(self) -> None:
        """End all pages' connections; they connect again when the console is back."""
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        for web in list(self._pages):
            web.finish()
        self._pages.clear()

    def _remove(self, web: Any) -> None:
        self._pages.pop(web, None)

    def _begin(self) -> None:
        Deferred.fromCoroutine(self._once())

    async def _once(self) -> None:
        self._timer = None
        try:
            state = {"up": True, **await self._poll()}
        except (BackendDown, BackendRefused) as problem:
            state = {"up": False, "reason": str(problem)}
        try:
            self._send(b"event: state\ndata: " + dumps(state) + b"\n\n")
        except Exception:
            log.failure("event=live_state_not_sent")
        if self._pages:
            self._timer = self._clock.callLater(EVERY_SECONDS, self._begin)

    def _send(self, event: bytes) -> None:
        self._quiet = 0 if event != self._last else self._quiet + 1
        if self._quiet and self._quiet % _KEEP_ALIVE:
            return
        content = event if event != self._last else b": still here\n\n"
        self._last = event
        for web in list(self._pages):
            if _waiting(web) > _MOST_WAITING:
                web.loseConnection()
            else:
                web.write(content)


def _waiting(web: Any) -> int:
    transport = getattr(web.channel, "transport", None)
    return len(getattr(transport, "dataBuffer", b"")) + getattr(transport, "_tempDataLen", 0)


def resource(console: Console, hub: LiveHub) -> IResource:
    """`GET /live`: the stream of a signed-in person."""
    app = Klein()
    app.url_map.strict_slashes = False

    @app.route("/", methods=["GET"])
    def stream(web: IRequest) -> Any:
        request: Any = web
        headers = header_fields(request.requestHeaders.getAllRawHeaders())
        found = console.settings.base_url or base_url_of(request, headers.get("host", ""), ())
        if session_of(console, headers, found) is None:
            request.setResponseCode(401)
            return b""
        request.responseHeaders.setRawHeaders("Content-Type", ["text/event-stream"])
        request.responseHeaders.setRawHeaders("X-Accel-Buffering", ["no"])
        request.write(b"retry: 2000\n\n")
        hub.add(request)
        return Deferred()  # Klein ends a request when its route has ended; this one ends with the connection

    return app.resource()
