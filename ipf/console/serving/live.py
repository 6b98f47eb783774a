"""What is live on the pages: server-sent events out of one poll of the engine that all open pages share.

While at least one page listens, the hub asks the engine twice a second, and sends each page what is new for it: the
state, or rows of the message list.  So 50 open consoles cost the engine as much as one.  A page that does not read is
closed, and connects again by itself; so is the page of a session that has ended, which then is refused.

Source: https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from klein import Klein
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.web.iweb import IRequest
from twisted.web.resource import IResource

from ipf.console.people.sessions import Session
from ipf.console.serving.backend import BackendDown, BackendRefused
from ipf.console.serving.web import Console, session_of
from ipf.fhir.model.json import dumps
from ipf.wire.http.serving import base_url_of, header_fields, parameters

log = Logger()

EVERY_SECONDS = 0.5
MOST_ROWS = 100
_MOST_WAITING = 256 * 1024
"""Bytes that may wait for a page that does not read."""
_KEEP_ALIVE = 30

Row = Mapping[str, Any]
Poll = Callable[[int], Awaitable[tuple[Mapping[str, Any], Sequence[Row]]]]
"""The state to show, and so many of the newest messages."""


class Listener(Protocol):
    """What one page is sent.  `rows`: how many of the newest messages it looks at."""

    rows: int

    def event(self, state: bytes, newest: Sequence[Row]) -> bytes:
        """The event after a poll; b"" for nothing new.  `state`: the state as an event, the same for all pages."""


class StateListener:
    """A page that shows the state."""

    rows = 0

    def __init__(self) -> None:
        self._last = b""

    def event(self, state: bytes, newest: Sequence[Row]) -> bytes:
        """See `Listener.event`."""
        if state == self._last:
            return b""
        self._last = state
        return state


class _Page:
    def __init__(self, web: Any, listener: Listener, is_open: Callable[[], bool]) -> None:
        self.web = web
        self.listener = listener
        self.is_open = is_open
        self.quiet = 0


class LiveHub:
    """`poll`: asks the engine; `clock`: callLater."""

    def __init__(self, poll: Poll, clock: IReactorTime) -> None:
        self._poll = poll
        self._clock = clock
        self._pages: dict[Any, _Page] = {}
        self._timer: Any = None
        self._is_polling = False

    @property
    def pages(self) -> int:
        """Open pages."""
        return len(self._pages)

    def add(self, web: Any, listener: Listener, is_open: Callable[[], bool]) -> None:
        """A page begins to listen.  `is_open`: whether its session still is."""
        self._pages[web] = _Page(web, listener, is_open)
        web.notifyFinish().addBoth(lambda _: self._pages.pop(web, None))
        if self._timer is None and not self._is_polling:
            self._timer = self._clock.callLater(0, self._begin)

    def close(self) -> None:
        """End all pages' connections; they connect again when the console is back."""
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        for web in list(self._pages):
            web.finish()
        self._pages.clear()

    def _begin(self) -> None:
        self._timer, self._is_polling = None, True
        Deferred.fromCoroutine(self._once())

    async def _once(self) -> None:
        newest: Sequence[Row] = ()
        try:
            found, newest = await self._poll(max((one.listener.rows for one in self._pages.values()), default=0))
            state = {"up": True, **found}
        except (BackendDown, BackendRefused) as problem:
            state = {"up": False, "reason": str(problem)}
        try:
            self._send(b"event: state\ndata: " + dumps(state) + b"\n\n", newest)
        except Exception:
            log.failure("event=live_state_not_sent")
        self._is_polling = False
        if self._pages:
            self._timer = self._clock.callLater(EVERY_SECONDS, self._begin)

    def _send(self, state: bytes, newest: Sequence[Row]) -> None:
        for page in list(self._pages.values()):
            if not page.is_open():
                page.web.finish()
            elif _waiting(page.web) > _MOST_WAITING:
                page.web.loseConnection()
            else:
                content = page.listener.event(state, newest)
                page.quiet = 0 if content else page.quiet + 1
                if content or page.quiet % _KEEP_ALIVE == 0:
                    page.web.write(content or b": still here\n\n")


def _waiting(web: Any) -> int:
    transport = getattr(web.channel, "transport", None)
    return len(getattr(transport, "dataBuffer", b"")) + getattr(transport, "_tempDataLen", 0)


Listen = Callable[[Console, Session, Mapping[str, str], Mapping[str, str]], Listener]
"""Makes the listener of a page from its session, its headers and its parameters."""


def resource(console: Console, hub: LiveHub, listeners: Mapping[str, Listen]) -> IResource:
    """`GET /live/NAME`: the streams of signed-in people; `GET /live/pulse`: whether the engine answers."""
    app = Klein()
    app.url_map.strict_slashes = False

    @app.route("/pulse", methods=["GET"])
    async def pulse(web: IRequest) -> bytes:
        """Whether the engine answers, for every page; asking is no use of the session."""
        request: Any = web
        headers = header_fields(request.requestHeaders.getAllRawHeaders())
        found = console.settings.base_url or base_url_of(request, headers.get("host", ""), ())
        if session_of(console, headers, found, is_use=False) is None:
            request.setResponseCode(401)
            return b""
        request.responseHeaders.setRawHeaders("Content-Type", ["application/json"])
        request.responseHeaders.setRawHeaders("Cache-Control", ["no-store"])
        engine = console.backend.pulse
        return dumps({"up": await engine.lives(), "since": engine.answered_at.isoformat(timespec="milliseconds")})

    @app.route("/<name>", methods=["GET"])
    def stream(web: IRequest, name: str) -> Any:
        request: Any = web
        headers = header_fields(request.requestHeaders.getAllRawHeaders())
        found = console.settings.base_url or base_url_of(request, headers.get("host", ""), ())
        session = session_of(console, headers, found)
        if session is None or name not in listeners:
            request.setResponseCode(401 if session is None else 404)
            return b""
        query = dict(parameters(request.uri.partition(b"?")[2].decode("latin-1"), "replace"))
        listener = listeners[name](console, session, headers, query)
        request.responseHeaders.setRawHeaders("Content-Type", ["text/event-stream"])
        request.responseHeaders.setRawHeaders("Cache-Control", ["no-store"])
        request.responseHeaders.setRawHeaders("X-Accel-Buffering", ["no"])
        request.write(b"retry: 2000\n\n")
        hub.add(request, listener, lambda: console.sessions.is_open(session))
        return Deferred()  # Klein ends a request when its route has ended; this one ends with the connection

    return app.resource()
