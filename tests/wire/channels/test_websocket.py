"""Websockets on real sockets: Autobahn's client and the resource, mounted as the service mounts it."""

from __future__ import annotations

from typing import Any

from autobahn.twisted.websocket import WebSocketClientFactory, WebSocketClientProtocol
from treq.client import HTTPClient
from twisted.internet import reactor
from twisted.internet.defer import Deferred, DeferredQueue
from twisted.internet.endpoints import TCP4ClientEndpoint
from twisted.internet.task import Clock
from twisted.trial.unittest import TestCase
from twisted.web.client import Agent

from ipf.errors import Category, Problem
from ipf.ports import BindingAttempt, Notification, Session, TokenBinding, WebsocketClient
from ipf.ports import Caller as Bearer
from ipf.wire.channels.websocket import bearer_of, subprotocol_of, token_of
from ipf.wire.channels.websocket_resource import Websocket, allow_anonymous, resource
from ipf.wire.http.connections import ConnectionLimit
from ipf.wire.http.limits import HttpLimits
from ipf.wire.http.origin import OwnNames
from ipf.wire.http.site import site
from tests.waiting import turns, until

ADA = Bearer("ada", "app")


class Hub:
    """Binds every subscription except `nobody` and `broken`."""

    def __init__(self) -> None:
        self.bound: list[tuple[WebsocketClient, str, str]] = []
        self.left: list[WebsocketClient] = []

    async def bind(self, client: WebsocketClient, session: Session, subscription_id: str) -> None:
        if subscription_id == "nobody":
            raise Problem(Category.NOT_FOUND, "there is no websocket subscription with this id")
        if subscription_id == "broken":
            raise RuntimeError("a bug")
        self.bound.append((client, session.tenant, subscription_id))

    async def bind_with_token(self, client: WebsocketClient, token: str) -> TokenBinding:
        if token == "empty":
            return TokenBinding(Session("north", caller=ADA), ["s1", "s2"], [])
        if token != "good":
            raise Problem(Category.UNAUTHORIZED, "the binding token is unknown or has expired")
        self.bound.append((client, "by token", token))
        client.send([b'{"resourceType":"Bundle"}'])
        return TokenBinding(Session("north", caller=ADA), ["s1", "s2"], ["s1"])

    def leave(self, client: WebsocketClient) -> None:
        self.left.append(client)


class Caller(WebSocketClientProtocol):
    """Autobahn's client, with a queue of received messages."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: Deferred[None] = Deferred()
        self.received: DeferredQueue[str] = DeferredQueue()
        self.closed: Deferred[tuple[int | None, str | None]] = Deferred()
        self.answer: object = None

    def onConnect(self, response: object) -> None:
        self.answer = response

    def onOpen(self) -> None:
        self.opened.callback(None)

    def onMessage(self, payload: bytes, isBinary: bool) -> None:
        self.received.put(payload.decode())

    def onClose(self, wasClean: bool, code: int | None, reason: str | None) -> None:
        if not self.opened.called:
            self.opened.errback(ConnectionError(reason))
        self.closed.callback((code, reason))


async def by_token(bearer: str | None) -> Session:
    """Authentication is on; one token is valid."""
    if bearer != "jwt.of.north":
        raise Problem(Category.UNAUTHORIZED, "no valid token")
    return Session("north", caller=ADA)


class WebsocketTests(TestCase):
    def setUp(self) -> None:
        self.hub = Hub()
        self.callers: list[Caller] = []
        self.attempts: list[BindingAttempt] = []

    def listen(self, authenticate=allow_anonymous, **limits: Any) -> None:
        mounted = resource(self.hub, reactor, authenticate, self.attempts.append)
        self.clock = Clock()
        self.site = site({"websocket": mounted}, timeout=75.0, limits=HttpLimits(**limits))
        self.site._reactor = self.clock  # for its time limits
        self.counts: DeferredQueue[int] = DeferredQueue()
        self.site.connections = ConnectionLimit(limits.get("connections", 100), reactor, self.counts.put)
        port = reactor.listenTCP(0, self.site, interface="127.0.0.1")
        self.number = port.getHost().port
        self.addCleanup(port.stopListening)
        self.addCleanup(self.end)

    async def end(self) -> None:
        for caller in self.callers:
            caller.dropConnection(abort=True)
        await until(lambda: not len(self.site.connections), "all connections have ended")

    async def call(self, *protocols: str, headers: dict[str, str] | None = None) -> Caller:
        factory = WebSocketClientFactory(
            f"ws://127.0.0.1:{self.number}/websocket", protocols=list(protocols), headers=headers or {}
        )
        factory.noisy = False
        factory.protocol = Caller
        caller = await TCP4ClientEndpoint(reactor, "127.0.0.1", self.number).connect(factory)
        self.callers.append(caller)
        await caller.opened
        return caller

    async def say(self, caller: Caller, text: str) -> str:
        caller.sendMessage(text.encode())
        return await caller.received.get()

    async def test_requests_without_upgrade(self) -> None:
        """426 with the error body and headers of every response, not Autobahn's page."""
        self.listen()
        for method in ("GET", "POST"):
            answer = await HTTPClient(Agent(reactor)).request(method, f"http://127.0.0.1:{self.number}/websocket")
            self.assertEqual((answer.code, (await answer.json())["error"]), (426, "bad_request"))
            self.assertEqual(answer.headers.getRawHeaders("x-content-type-options"), ["nosniff"])
            self.assertEqual(len(answer.headers.getRawHeaders("x-correlation-id")), 1)

    async def test_bind(self) -> None:
        self.listen()
        caller = await self.call()
        self.assertEqual(await self.say(caller, "bind s1"), "bound s1")
        self.assertEqual(await self.say(caller, " bind  s2\n"), "bound s2")
        (client, tenant, id), (same, _, second) = self.hub.bound
        self.assertEqual((tenant, id, second, same is client), ("default", "s1", "s2", True))
        self.assertTrue(client.send([b"ping s1", b'{"resourceType":"Patient"}']))
        self.assertEqual(await caller.received.get(), "ping s1")
        self.assertEqual(await caller.received.get(), '{"resourceType":"Patient"}')

    async def test_errors_are_answered(self) -> None:
        """The connection stays open; an internal error is logged without its text being sent."""
        self.listen()
        caller = await self.call()
        for text, answer in (
            ("bind nobody", "error there is no websocket subscription with this id"),
            ("hello", "error expected 'bind <subscription id>' or 'bind-with-token <token>'"),
            ("bind ", "error expected 'bind <subscription id>' or 'bind-with-token <token>'"),
            ("bind-with-token bad", "error the binding token is unknown or has expired"),
            ("bind broken", "error internal error"),
            ("bind s1", "bound s1"),
        ):
            self.assertEqual(await self.say(caller, text), answer)
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)

    async def test_too_many_errors_end_the_connection(self) -> None:
        self.listen()
        caller = await self.call()
        for _ in range(20):
            caller.sendMessage(b"nonsense")
        self.assertEqual(await caller.closed, (1000, "too many errors"))

    async def test_an_oversized_message_ends_the_connection(self) -> None:
        self.listen()
        caller = await self.call()
        caller.sendMessage(b"x" * 20_000)
        await caller.closed
        await until(lambda: self.hub.left)
        self.assertEqual(len(self.hub.left), 1)

    async def test_token_binding(self) -> None:
        self.listen()
        for text in ("bind-with-token good", "bind-with-token: good", '{"bind-with-token":"good"}'):
            self.assertEqual(await self.say(await self.call(), text), '{"resourceType":"Bundle"}')

    async def test_bearer(self) -> None:
        """A bearer token in either form; an invalid one is refused; without one only a binding token binds."""
        self.listen(by_token)
        caller = await self.call("bearer-jwt.of.north")
        self.assertEqual(await self.say(caller, "bind s1"), "bound s1")
        self.assertEqual(caller.answer.protocol, "bearer-jwt.of.north")
        caller = await self.call("fhir", "bearer-jwt.of.north")
        self.assertEqual(await self.say(caller, "bind s1"), "bound s1")
        self.assertEqual(caller.answer.protocol, "fhir")
        caller = await self.call(headers={"Authorization": "Bearer jwt.of.north"})
        self.assertEqual(await self.say(caller, "bind s1"), "bound s1")
        self.assertEqual({tenant for _, tenant, _ in self.hub.bound}, {"north"})
        with self.assertRaisesRegex(ConnectionError, "401"):
            await self.call("bearer-somebody.else")
        caller = await self.call()
        self.assertEqual(await self.say(caller, "bind s1"), "error no valid token")
        self.assertEqual(await self.say(caller, "bind-with-token good"), '{"resourceType":"Bundle"}')

    async def test_attempts_to_bind_are_audited(self) -> None:
        """Caller, address, subscriptions and status; never the token; other messages are not audited."""
        self.listen(by_token)
        id = "0190a0b0-1111-4222-8333-444455556666"
        caller = await self.call("bearer-jwt.of.north", headers={"X-Correlation-Id": id})
        for text in ("bind s1", "hello", "bind nobody", "bind broken"):
            await self.say(caller, text)
        self.flushLoggedErrors(RuntimeError)
        stranger = await self.call()
        for text in ("bind-with-token good", "bind-with-token bad", "bind-with-token empty", "bind s1"):
            await self.say(stranger, text)
        with self.assertRaisesRegex(ConnectionError, "401"):
            await self.call("bearer-somebody.else")
        found = [(one.what, one.session.caller.subject, one.session.tenant, tuple(one.subscriptions), one.status)
                 for one in self.attempts]  # fmt: skip
        self.assertEqual(found, [
            ("websocket bind", "ada", "north", ("s1",), 200),
            ("websocket bind", "ada", "north", ("nobody",), 404),
            ("websocket bind", "ada", "north", ("broken",), 500),
            ("websocket bind-with-token", "ada", "north", ("s1",), 200),
            ("websocket bind-with-token", "", "default", (), 401),
            ("websocket bind-with-token", "ada", "north", ("s1", "s2"), 404),
            ("websocket bind", "", "default", ("s1",), 401),
            ("websocket", "", "default", (), 401),
        ])  # fmt: skip
        self.assertEqual({one.address for one in self.attempts}, {"127.0.0.1"})
        self.assertEqual({one.correlation_id for one in self.attempts[:3]}, {id})

    async def test_origin_of_websockets(self) -> None:
        """Pages of this host, of named origins, and clients without Origin connect, with a token and without."""
        self.listen()
        own = f"http://127.0.0.1:{self.number}"
        for origin, status in (("https://evil.example", "403"), ("null", "403"), (own, ""), (None, "")):
            headers = {} if origin is None else {"Origin": origin}
            if status:
                with self.assertRaisesRegex(ConnectionError, status):
                    await self.call(headers=headers)
            else:
                self.assertEqual(await self.say(await self.call(headers=headers), "bind s1"), "bound s1")
        self.listen(by_token)
        with self.assertRaisesRegex(ConnectionError, "403"):
            await self.call("bearer-jwt.of.north", headers={"Origin": "https://app.example"})
        self.listen(by_token, names=OwnNames(origins=("https://app.example",)))
        caller = await self.call("bearer-jwt.of.north", headers={"Origin": "https://app.example"})
        self.assertEqual(await self.say(caller, "bind s1"), "bound s1")

    async def test_no_banner(self) -> None:
        self.listen()
        caller = await self.call()
        self.assertNotIn("server", caller.answer.headers)

    async def test_a_websocket_counts_as_a_connection(self) -> None:
        """Until either side closes it."""
        self.listen(connections=2)
        first, second = await self.call(), await self.call()
        with self.assertRaisesRegex(ConnectionError, "503"):
            await self.call()
        first.sendClose()
        self.assertEqual([await self.counts.get() for _ in range(3)], [1, 2, 1])
        third = await self.call()
        for one in (second, third):
            one.dropConnection(abort=True)
        self.assertEqual([await self.counts.get() for _ in range(3)], [2, 1, 0])

    async def test_the_http_idle_limit_does_not_apply(self) -> None:
        self.listen()
        caller = await self.call()
        self.clock.advance(1000)
        self.assertEqual(await self.say(caller, "bind s1"), "bound s1")

    async def test_a_client_that_does_not_read_is_disconnected(self) -> None:
        """After a limited number of bytes; sending never waits for it."""
        self.listen()
        caller = await self.call()
        await self.say(caller, "bind s1")
        client = self.hub.bound[0][0]
        caller.transport.pauseProducing()
        sent, text = 0, b"x" * 10_000
        while client.send([text]) and sent < 5000:
            sent += 1
            if not sent % 50:
                await turns(1)
        self.assertLess(sent, 2000)
        self.assertFalse(client.send([text]))
        caller.transport.resumeProducing()
        await caller.closed
        await until(lambda: self.hub.left)
        self.assertEqual(self.hub.left, [client])

    async def test_a_slow_client_receives_all_messages_in_order(self) -> None:
        self.listen()
        caller = await self.call()
        await self.say(caller, "bind s1")
        client = self.hub.bound[0][0]
        caller.transport.pauseProducing()
        for number in range(200):
            self.assertTrue(client.send([b"%d " % number + b"x" * 4000]))
            if not number % 50:
                await turns(1)
        caller.transport.resumeProducing()
        for number in range(200):
            self.assertEqual((await caller.received.get()).partition(" ")[0], str(number))


class ParsingTests(TestCase):
    def test_tokens(self) -> None:
        for text, token in (
            ("bind-with-token abc", "abc"),
            ("bind-with-token: abc", "abc"),
            ("Bind-With-Token   abc", "abc"),
            ('{"bind-with-token": "abc"}', "abc"),
            ('{"type": "bind-with-token", "token": "abc"}', "abc"),
            ('{"bind-with-token": 7}', None),
            ("{nonsense", None),
            ('{"a":' + "[" * 10_000, None),
            ("[1]", None),
            ("bind abc", None),
            ("bind-with-token", None),
        ):
            self.assertEqual(token_of(text), token, text)

    def test_bearers(self) -> None:
        for header, offered, bearer, chosen in (
            (None, [], None, None),
            ("Bearer a.b", [], "a.b", None),
            ("Basic xyz", ["fhir"], None, "fhir"),
            (None, ["bearer-a.b"], "a.b", "bearer-a.b"),
            (None, ["bearer-a.b", "fhir"], "a.b", "fhir"),
            (None, ["bearer", "a.b"], "a.b", "bearer"),
            (None, ["Bearer-a.b"], "a.b", "Bearer-a.b"),
        ):
            self.assertEqual((bearer_of(header, offered), subprotocol_of(offered)), (bearer, chosen), (header, offered))

    async def test_the_channel_sends_nothing_itself(self) -> None:
        channel = Websocket()
        self.assertTrue((await channel.send(Notification("", "", (), None, "c"))).succeeded)
        self.assertIsNone(channel.unavailable)
