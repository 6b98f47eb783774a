"""The `websocket` channel at `/websocket`: clients come here, say what they listen to, and are told.

Text messages (interface specification "WebSocket"; Backport guide, "Channels"):

    client                          server
    bind <subscription id>          bound <subscription id>, then at each event: ping <subscription id> [, content]
    bind-with-token <token>         a handshake Bundle for each subscription of the token, then notification Bundles
    bind-with-token: <token>        the same; also {"bind-with-token": "<token>"}
    anything else                   error <reason>

A client proves who it is with a bearer token: in the `Authorization` header, or, since browsers cannot set that, as
`Sec-WebSocket-Protocol: bearer-<token>` (or the pair `bearer, <token>`).  Who brings a bad one is refused with 401
before the connection is opened.  A binding token speaks for itself.

A client that does not read is cut off when `WAITING_BYTES` wait for it; it asks `$events` for what it missed.  One that
sends what is too long, or nothing but errors, is cut off too.

Source: RFC 6455; https://hl7.org/fhir/R4/subscription.html ("websocket").
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from autobahn.twisted.resource import WebSocketResource
from autobahn.twisted.websocket import WebSocketServerFactory, WebSocketServerProtocol
from autobahn.websocket.types import ConnectionDeny
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IPushProducer
from twisted.internet.protocol import connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from ipf.errors import Category, Problem
from ipf.ports import ANONYMOUS, AuditBinding, Authenticate, BindingAttempt, Session, WebsocketClient, WebsocketHub
from ipf.telemetry import correlation

log = Logger()

WAITING_BYTES = 1024 * 1024
LONGEST_MESSAGE = 16 * 1024
MOST_BINDINGS = 1000
MOST_ERRORS = 20
PING_SECONDS = 30
OPENING_SECONDS = 10
MOST_CLIENTS = 10_000

_NOBODY = Session(caller=ANONYMOUS)
_PREFIX = "bearer-"
_TOKEN = re.compile(r"bind-with-token\s*:?\s+(\S+)", re.IGNORECASE)


class Upgrade:
    """Takes the connection of a request over."""

    def __init__(self, hub: WebsocketHub, reactor: Any, authenticate: Authenticate, note: AuditBinding | None) -> None:
        make: Any = WebSocketResource
        self._factory = SocketFactory(hub, reactor, authenticate, note)
        self._resource = make(self._factory)

    def render(self, request: Any) -> Any:
        """As a resource of Twisted; the connection still counts as one of the HTTP listener's."""
        self._factory.leave = request.channel.hand_over()
        return self._resource.render(request)


class SocketFactory(WebSocketServerFactory):
    """Twisted: makes a connection for each client."""

    noisy = False
    leave: Callable[[], None]

    def __init__(self, hub: WebsocketHub, reactor: Any, authenticate: Authenticate, note: AuditBinding | None) -> None:
        super().__init__(reactor=reactor, server="")  # type: ignore[no-untyped-call]  # Autobahn has no hints here
        self.protocol = SocketConnection
        options: Any = self
        options.setProtocolOptions(
            maxFramePayloadSize=LONGEST_MESSAGE,
            maxMessagePayloadSize=LONGEST_MESSAGE,
            openHandshakeTimeout=OPENING_SECONDS,
            closeHandshakeTimeout=OPENING_SECONDS,
            autoPingInterval=PING_SECONDS,
            autoPingTimeout=PING_SECONDS,
            maxConnections=MOST_CLIENTS,
        )
        self.hub = hub
        self.authenticate = authenticate
        self.note = note

    def buildProtocol(self, addr: Any) -> Any:
        """Twisted: the protocol of the connection that is handed over."""
        made: Any = super().buildProtocol(addr)
        made.took_over(self.leave)
        return made


@dataclass(slots=True)
class Attempt:
    """To bind, for the audit trail; `what` is empty as long as a message is none."""

    began: datetime
    what: str
    subscriptions: Sequence[str]
    session: Session


def nothing() -> None:
    """Nobody is to be told."""


@implementer(IPushProducer)
class SocketConnection(WebSocketServerProtocol):
    """One client.  Messages that it sends are worked on one after another."""

    factory: SocketFactory

    def __init__(self) -> None:
        super().__init__()
        self._session: Session | None = None
        self._asked: deque[bytes] = deque()
        self._is_answering = False
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._is_paused = False
        self._errors = 0
        self._bindings = 0
        self._is_cut = False
        self._correlation_id = ""
        self._leave: Callable[[], None] = nothing

    def took_over(self, leave: Callable[[], None]) -> None:
        """`leave` is to be called when the connection is gone."""
        self._leave = leave

    # -- who it is

    def onConnect(self, request: Any) -> Any:
        """Autobahn: a client opens; the answer is the subprotocol that is spoken."""
        offered = list(request.protocols)
        self._correlation_id = correlation.of(lambda name: request.headers.get(name.lower()))
        bearer = bearer_of(request.headers.get("authorization"), offered)
        return Deferred.fromCoroutine(self._admit(bearer, offered))

    async def _admit(self, bearer: str | None, offered: Sequence[str]) -> str | None:
        if bearer is not None:
            began = datetime.now(UTC)
            try:
                self._session = await self.factory.authenticate(bearer)
            except Problem as refused:
                status = refused.rendering.http_status
                self._note(Attempt(began, "websocket", (), _NOBODY), status)
                deny: Any = ConnectionDeny
                raise deny(status, refused.text) from refused
        return chosen_of(offered)

    def onOpen(self) -> None:
        """Autobahn: the connection is there; whatever watched its write buffer before was the HTTP server."""
        transport: Any = self.transport
        transport.unregisterProducer()
        transport.registerProducer(self, True)

    # -- what it says

    def onMessage(self, payload: bytes, isBinary: bool) -> None:
        """Autobahn: a message."""
        if len(self._asked) >= MOST_BINDINGS:
            self._cut()
            return
        self._asked.append(payload)
        if not self._is_answering:
            Deferred.fromCoroutine(self._answer_all())

    async def _answer_all(self) -> None:
        self._is_answering = True
        try:
            while self._asked:
                await self._answer(self._asked.popleft().decode("utf-8", "replace").strip())
        finally:
            self._is_answering = False

    async def _answer(self, text: str) -> None:
        attempt = Attempt(datetime.now(UTC), "", (), self._session or _NOBODY)
        status = 200
        try:
            self._bindings += 1
            if self._bindings > MOST_BINDINGS:
                raise Problem(Category.BUSINESS_RULE, "too many bindings on one connection")
            await self._bind(text, attempt)
        except Problem as problem:
            status = problem.rendering.http_status
            self._error(problem.text)
        except Exception:
            status = 500
            log.failure("a websocket client could not be bound")
            self._error("the server failed")
        if attempt.what:
            self._note(attempt, status)

    async def _bind(self, text: str, attempt: Attempt) -> None:
        hub, token = self.factory.hub, token_of(text)
        if token is not None:
            attempt.what = "websocket bind-with-token"
            bound = await hub.bind_with_token(self, token)
            attempt.session, attempt.subscriptions = bound.session, bound.found or bound.asked
            if not bound.found:
                raise Problem(Category.NOT_FOUND, "the token binds no websocket subscription")
            return
        verb, _, subscription_id = text.partition(" ")
        subscription_id = subscription_id.strip().removeprefix("Subscription/")
        if verb.lower() != "bind" or not subscription_id:
            raise Problem(Category.VALUE, "say 'bind <subscription id>' or 'bind-with-token <token>'")
        attempt.what, attempt.subscriptions = "websocket bind", (subscription_id,)
        if self._session is None:
            self._session = await self.factory.authenticate(None)
        attempt.session = self._session
        await hub.bind(self, self._session, subscription_id)
        self.send([f"bound {subscription_id}".encode()])

    def _note(self, attempt: Attempt, status: int) -> None:
        if self.factory.note is not None:
            transport: Any = self.transport
            address = str(getattr(transport.getPeer(), "host", ""))
            self.factory.note(
                BindingAttempt(
                    attempt.session, attempt.what, attempt.subscriptions, status, address, self._correlation_id,
                    attempt.began,
                )
            )  # fmt: skip

    def _error(self, reason: str) -> None:
        self._errors += 1
        self.send([f"error {reason}".encode()])
        if self._errors >= MOST_ERRORS:
            self.end("too many errors")

    # -- what it is told

    def send(self, texts: Sequence[bytes]) -> bool:
        """See `ports.WebsocketClient.send`."""
        if self._is_cut or self.state != self.STATE_OPEN:
            return False
        if not self._is_paused:
            for text in texts:
                self._say(text)
            return True
        self._waiting.extend(texts)
        self._waiting_bytes += sum(map(len, texts))
        if self._waiting_bytes > WAITING_BYTES:
            self._cut()
            return False
        return True

    def end(self, reason: str) -> None:
        """See `ports.WebsocketClient.end`."""
        if self.state == self.STATE_OPEN:
            self.sendClose(1000, reason)

    def _cut(self) -> None:
        self._is_cut = True
        self._waiting.clear()
        self.dropConnection(abort=True)

    def pauseProducing(self) -> None:
        """Twisted: its socket takes no more."""
        self._is_paused = True

    def resumeProducing(self) -> None:
        """Twisted: it takes more again."""
        self._is_paused = False
        while self._waiting and not self._is_paused:
            text = self._waiting.popleft()
            self._waiting_bytes -= len(text)
            self._say(text)

    def _say(self, text: bytes) -> None:
        self.sendMessage(text)  # type: ignore[no-untyped-call]  # Autobahn has no hints here

    def stopProducing(self) -> None:
        """Twisted: the connection is gone."""

    def onClose(self, wasClean: bool, code: int | None, reason: str | None) -> None:
        """Autobahn: the connection has ended."""
        self._asked.clear()
        self._waiting.clear()
        self.factory.hub.leave(self)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Twisted: its socket is closed."""
        super().connectionLost(reason)
        leave, self._leave = self._leave, nothing
        leave()


_client: type[WebsocketClient] = SocketConnection


def bearer_of(authorization: str | None, offered: Sequence[str]) -> str | None:
    """The bearer token that a client brings, in a header or among the subprotocols that it offers."""
    scheme, _, token = (authorization or "").strip().partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    for number, name in enumerate(offered):
        if name.lower().startswith(_PREFIX):
            return name[len(_PREFIX) :]
        if name.lower() == "bearer" and number + 1 < len(offered):
            return offered[number + 1]
    return None


def chosen_of(offered: Sequence[str]) -> str | None:
    """The subprotocol to answer: the first that is no token, else the first, since browsers insist on one."""
    for number, name in enumerate(offered):
        is_token = number > 0 and offered[number - 1].lower() == "bearer"
        if not name.lower().startswith(_PREFIX) and not is_token:
            return name
    return offered[0] if offered else None


def token_of(text: str) -> str | None:
    """The token of a `bind-with-token` message in any of its forms; None when it is another message."""
    found = _TOKEN.fullmatch(text)
    if found is not None:
        return found.group(1)
    if not text.startswith("{"):
        return None
    try:
        said = json.loads(text)
    except ValueError:
        return None
    if not isinstance(said, dict):
        return None
    token = said.get("bind-with-token") or (said.get("token") if said.get("type") == "bind-with-token" else None)
    return token if isinstance(token, str) else None
