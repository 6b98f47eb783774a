"""The `websocket` channel at `/websocket`: clients connect, bind subscriptions, and receive notifications.

Text messages (interface specification "WebSocket"; Backport guide, "Channels"):

    client                          server
    bind <subscription id>          bound <subscription id>, then at each event: ping <subscription id> [, content]
    bind-with-token <token>         a handshake Bundle for each subscription of the token, then notification Bundles
    bind-with-token: <token>        the same; also {"bind-with-token": "<token>"}
    anything else                   error <reason>

A client authenticates with a bearer token: in the `Authorization` header, or, since browsers cannot set that, as
`Sec-WebSocket-Protocol: bearer-<token>` (or the pair `bearer, <token>`).  An invalid token is refused with 401 before
the connection is opened.  A binding token needs no bearer token.

A client that does not read is disconnected when `MAX_UNSENT_BYTES` wait for it; `$events` returns what it missed.  A
client that sends oversized messages or too many errors is disconnected as well.

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

MAX_UNSENT_BYTES = 1024 * 1024
MAX_MESSAGE_BYTES = 16 * 1024
MAX_BINDINGS = 1000
MAX_ERRORS = 20
PING_SECONDS = 30
HANDSHAKE_SECONDS = 10
MAX_CLIENTS = 10_000

_NO_SESSION = Session(caller=ANONYMOUS)
_PREFIX = "bearer-"
_TOKEN = re.compile(r"bind-with-token\s*:?\s+(\S+)", re.IGNORECASE)


class WebsocketUpgrade:
    """Upgrades the connection of an HTTP request to a websocket."""

    def __init__(self, hub: WebsocketHub, reactor: Any, authenticate: Authenticate, audit: AuditBinding | None) -> None:
        make: Any = WebSocketResource
        self._factory = WebsocketFactory(hub, reactor, authenticate, audit)
        self._resource = make(self._factory)

    def render(self, request: Any) -> Any:
        """As a Twisted resource; the connection still counts in the connection limit of the HTTP listener."""
        self._factory.leave = request.channel.hand_over()
        return self._resource.render(request)


class WebsocketFactory(WebSocketServerFactory):
    """Twisted: makes the protocol of each client."""

    noisy = False
    leave: Callable[[], None]

    def __init__(self, hub: WebsocketHub, reactor: Any, authenticate: Authenticate, audit: AuditBinding | None) -> None:
        super().__init__(reactor=reactor, server="")  # type: ignore[no-untyped-call]  # Autobahn has no hints here
        self.protocol = WebsocketConnection
        options: Any = self
        options.setProtocolOptions(
            maxFramePayloadSize=MAX_MESSAGE_BYTES,
            maxMessagePayloadSize=MAX_MESSAGE_BYTES,
            openHandshakeTimeout=HANDSHAKE_SECONDS,
            closeHandshakeTimeout=HANDSHAKE_SECONDS,
            autoPingInterval=PING_SECONDS,
            autoPingTimeout=PING_SECONDS,
            maxConnections=MAX_CLIENTS,
        )
        self.hub = hub
        self.authenticate = authenticate
        self.audit = audit

    def buildProtocol(self, addr: Any) -> Any:
        """Twisted: the protocol for an upgraded connection."""
        made: Any = super().buildProtocol(addr)
        made.on_close(self.leave)
        return made


@dataclass(slots=True)
class Attempt:
    """An attempt to bind, for the audit trail; `what` is empty when a message is no such attempt."""

    began: datetime
    what: str
    subscriptions: Sequence[str]
    session: Session


def do_nothing() -> None:
    """The callback of a connection that was not upgraded."""


@implementer(IPushProducer)
class WebsocketConnection(WebSocketServerProtocol):
    """One client.  Its messages are processed one after another."""

    factory: WebsocketFactory

    def __init__(self) -> None:
        super().__init__()
        self._session: Session | None = None
        self._received: deque[bytes] = deque()
        self._is_processing = False
        self._unsent: deque[bytes] = deque()
        self._unsent_bytes = 0
        self._is_paused = False
        self._errors = 0
        self._bindings = 0
        self._is_disconnected = False
        self._correlation_id = ""
        self._leave: Callable[[], None] = do_nothing

    def on_close(self, leave: Callable[[], None]) -> None:
        """Call `leave` when the connection is closed."""
        self._leave = leave

    # -- opening

    def onConnect(self, request: Any) -> Any:
        """Autobahn: a client connects; returns the subprotocol."""
        offered = list(request.protocols)
        self._correlation_id = correlation.of(lambda name: request.headers.get(name.lower()))
        bearer = bearer_of(request.headers.get("authorization"), offered)
        return Deferred.fromCoroutine(self._authenticate(bearer, offered))

    async def _authenticate(self, bearer: str | None, offered: Sequence[str]) -> str | None:
        if bearer is not None:
            began = datetime.now(UTC)
            try:
                self._session = await self.factory.authenticate(bearer)
            except Problem as refused:
                status = refused.rendering.http_status
                self._record(Attempt(began, "websocket", (), _NO_SESSION), status)
                deny: Any = ConnectionDeny
                raise deny(status, refused.text) from refused
        return subprotocol_of(offered)

    def onOpen(self) -> None:
        """Autobahn: the connection is open; take over its flow control from the HTTP server."""
        transport: Any = self.transport
        transport.unregisterProducer()
        transport.registerProducer(self, True)

    # -- messages of the client

    def onMessage(self, payload: bytes, isBinary: bool) -> None:
        """Autobahn: a message."""
        if len(self._received) >= MAX_BINDINGS:
            self._disconnect()
            return
        self._received.append(payload)
        if not self._is_processing:
            Deferred.fromCoroutine(self._process_all())

    async def _process_all(self) -> None:
        self._is_processing = True
        try:
            while self._received:
                await self._process(self._received.popleft().decode("utf-8", "replace").strip())
        finally:
            self._is_processing = False

    async def _process(self, text: str) -> None:
        attempt = Attempt(datetime.now(UTC), "", (), self._session or _NO_SESSION)
        status = 200
        try:
            self._bindings += 1
            if self._bindings > MAX_BINDINGS:
                raise Problem(Category.BUSINESS_RULE, "too many bindings on one connection")
            await self._bind(text, attempt)
        except Problem as problem:
            status = problem.rendering.http_status
            self._error(problem.text)
        except Exception:
            status = 500
            log.failure("binding a websocket client failed")
            self._error("internal error")
        if attempt.what:
            self._record(attempt, status)

    async def _bind(self, text: str, attempt: Attempt) -> None:
        hub, token = self.factory.hub, token_of(text)
        if token is not None:
            attempt.what = "websocket bind-with-token"
            binding = await hub.bind_with_token(self, token)
            attempt.session, attempt.subscriptions = binding.session, binding.bound or binding.requested
            if not binding.bound:
                raise Problem(Category.NOT_FOUND, "the token binds no websocket subscription")
            return
        verb, _, subscription_id = text.partition(" ")
        subscription_id = subscription_id.strip().removeprefix("Subscription/")
        if verb.lower() != "bind" or not subscription_id:
            raise Problem(Category.VALUE, "expected 'bind <subscription id>' or 'bind-with-token <token>'")
        attempt.what, attempt.subscriptions = "websocket bind", (subscription_id,)
        if self._session is None:
            self._session = await self.factory.authenticate(None)
        attempt.session = self._session
        await hub.bind(self, self._session, subscription_id)
        self.send([f"bound {subscription_id}".encode()])

    def _record(self, attempt: Attempt, status: int) -> None:
        if self.factory.audit is not None:
            transport: Any = self.transport
            address = str(getattr(transport.getPeer(), "host", ""))
            self.factory.audit(
                BindingAttempt(
                    attempt.session, attempt.what, attempt.subscriptions, status, address, self._correlation_id,
                    attempt.began,
                )
            )  # fmt: skip

    def _error(self, reason: str) -> None:
        self._errors += 1
        self.send([f"error {reason}".encode()])
        if self._errors >= MAX_ERRORS:
            self.end("too many errors")

    # -- messages to the client

    def send(self, texts: Sequence[bytes]) -> bool:
        """See `ports.WebsocketClient.send`."""
        if self._is_disconnected or self.state != self.STATE_OPEN:
            return False
        if not self._is_paused:
            for text in texts:
                self._send_text(text)
            return True
        self._unsent.extend(texts)
        self._unsent_bytes += sum(map(len, texts))
        if self._unsent_bytes > MAX_UNSENT_BYTES:
            self._disconnect()
            return False
        return True

    def end(self, reason: str) -> None:
        """See `ports.WebsocketClient.end`."""
        if self.state == self.STATE_OPEN:
            self.sendClose(1000, reason)

    def _disconnect(self) -> None:
        self._is_disconnected = True
        self._unsent.clear()
        self.dropConnection(abort=True)

    def pauseProducing(self) -> None:
        """Twisted: the socket accepts no more bytes."""
        self._is_paused = True

    def resumeProducing(self) -> None:
        """Twisted: the socket accepts bytes again."""
        self._is_paused = False
        while self._unsent and not self._is_paused:
            text = self._unsent.popleft()
            self._unsent_bytes -= len(text)
            self._send_text(text)

    def _send_text(self, text: bytes) -> None:
        self.sendMessage(text)  # type: ignore[no-untyped-call]  # Autobahn has no hints here

    def stopProducing(self) -> None:
        """Twisted: the connection is closed."""

    def onClose(self, wasClean: bool, code: int | None, reason: str | None) -> None:
        """Autobahn: the websocket is closed."""
        self._received.clear()
        self._unsent.clear()
        self.factory.hub.leave(self)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Twisted: the socket is closed."""
        super().connectionLost(reason)
        leave, self._leave = self._leave, do_nothing
        leave()


_client: type[WebsocketClient] = WebsocketConnection


def bearer_of(authorization: str | None, offered: Sequence[str]) -> str | None:
    """The bearer token of a client, from its header or from the subprotocols that it offers."""
    scheme, _, token = (authorization or "").strip().partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    for number, name in enumerate(offered):
        if name.lower().startswith(_PREFIX):
            return name[len(_PREFIX) :]
        if name.lower() == "bearer" and number + 1 < len(offered):
            return offered[number + 1]
    return None


def subprotocol_of(offered: Sequence[str]) -> str | None:
    """The subprotocol to select: the first that is no token, else the first, since browsers require one."""
    for number, name in enumerate(offered):
        is_token = number > 0 and offered[number - 1].lower() == "bearer"
        if not name.lower().startswith(_PREFIX) and not is_token:
            return name
    return offered[0] if offered else None


def token_of(text: str) -> str | None:
    """The token of a `bind-with-token` message in any of its forms; None for other messages."""
    found = _TOKEN.fullmatch(text)
    if found is not None:
        return found.group(1)
    if not text.startswith("{"):
        return None
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict):
        return None
    token = message.get("bind-with-token") or (
        message.get("token") if message.get("type") == "bind-with-token" else None
    )
    return token if isinstance(token, str) else None
