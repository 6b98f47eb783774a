"""Endpoints with names that resolve to forbidden addresses, on real sockets; and paths that lead out of `/fhir`."""

from __future__ import annotations

from typing import Any

from twisted.internet import reactor as installed_reactor
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IHostnameResolver, IReactorPluggableNameResolver
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase
from zope.interface import implementer

from ipf.ports import Answer, Notification
from ipf.subscriptions.endpoints import EndpointRules
from ipf.wire.channels.rest_hook import RestHook
from ipf.wire.client.http_client import HttpClient
from ipf.wire.http.app import resource
from tests.rest.world import OnMemory, patient
from tests.waiting import PATIENCE
from tests.wire.http.test_site import Connection, Handlers, refuse

reactor: Any = installed_reactor
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
CORRELATION = "01a1fd61-507d-7430-891d-8ed8941211ce"


@implementer(IHostnameResolver)
class AttackerNameServer:
    """A name server of the attacker: each lookup gives the next address."""

    def __init__(self, *answers: tuple[str, ...]) -> None:
        self.answers = list(answers)
        self.lookups = 0

    def resolveHostName(self, receiver: Any, hostName: str, portNumber: int = 0, *rest: Any) -> Any:
        answer = self.answers[min(self.lookups, len(self.answers) - 1)]
        self.lookups += 1
        receiver.resolutionBegan(self)
        for one in answer:
            kind = IPv6Address if ":" in one else IPv4Address
            receiver.addressResolved(kind("TCP", one, portNumber))
        receiver.resolutionComplete()
        return self


@implementer(IReactorPluggableNameResolver)
class ReactorWithResolver:
    """The reactor with the attacker's name server."""

    def __init__(self, names: AttackerNameServer) -> None:
        self.nameResolver = names

    def installNameResolver(self, resolver: Any) -> Any:
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        return getattr(reactor, name)


class OkResponder(Protocol):
    """Responds with 200."""

    def dataReceived(self, data: bytes) -> None:
        self.transport.write(OK)


class InternalService(Factory):
    """An internal service that subscriptions may not reach."""

    noisy = False
    protocol = OkResponder

    def __init__(self) -> None:
        self.knocked = 0

    def buildProtocol(self, addr: Any) -> Any:
        self.knocked += 1
        return super().buildProtocol(addr)


class RebindingTests(TestCase):
    async def setUp(self) -> None:
        self.inside = InternalService()
        self.port = reactor.listenTCP(0, self.inside, interface="127.0.0.1")
        self.addCleanup(self.port.stopListening)

    def hook(self, rules: EndpointRules, *answers: tuple[str, ...], seconds: float = PATIENCE) -> RestHook:
        machine = ReactorWithResolver(AttackerNameServer(*answers))
        http = HttpClient(machine, seconds, body_limit=1024, connections_per_host=2, forbids=rules.forbids)
        self.addCleanup(lambda: Deferred.fromCoroutine(http.close()))
        return RestHook(http, seconds, reactor)

    async def send(self, hook: RestHook) -> Any:
        url = f"http://hook.example.org:{self.port.getHost().port}/x"
        found = await hook.send(Notification("POST", url, (), b"{}", CORRELATION))
        await deferLater(reactor, 0.0)
        return found

    async def test_internal_services_get_no_connection(self) -> None:
        own = self.port.getHost().port
        allow, deny = "SUBSCRIPTION_SERVICE_ENDPOINT_ALLOW", "SUBSCRIPTION_SERVICE_ENDPOINT_DENY"
        itself = EndpointRules(own_ports=lambda: {own: "IPF_HTTP_LISTEN"})
        for name, rules, answer, setting in (
            ("the service itself", itself, "127.0.0.1", "IPF_HTTP_LISTEN"),
            ("the service within IPv6", itself, "::ffff:127.0.0.1", "IPF_HTTP_LISTEN"),
            ("metadata", EndpointRules(("*",)), "169.254.169.254", allow),
            ("metadata within IPv6", EndpointRules(("0.0.0.0/0",)), "::ffff:169.254.169.254", allow),
            ("a tenant's loopback", EndpointRules(has_tenants=True), "127.0.0.1", allow),
            (
                "a tenant's name that was turned",
                EndpointRules(("*.example.org",), has_tenants=True),
                "127.0.0.1",
                allow,
            ),
            ("a denied network", EndpointRules((), ("127.0.0.0/8",)), "127.0.0.1", deny),
            ("a name that is no longer allowed", EndpointRules(("other.example.org",), ("*",)), "127.0.0.1", deny),
        ):
            found = await self.send(self.hook(rules, (answer,)))
            self.assertIn("the endpoint's name resolves to an address that is not permitted: ", found.error, name)
            self.assertIn(setting, found.error, name)
        self.assertEqual(self.inside.knocked, 0)

    async def test_every_name_lookup_is_checked(self) -> None:
        """The first lookup gives a permitted address, the second an internal one, which is refused."""
        rules = EndpointRules(("203.0.113.0/24",), ("*",))
        hook = self.hook(rules, ("203.0.113.9",), ("127.0.0.1",), seconds=0.2)
        await self.send(hook)
        self.assertIn("not permitted", (await self.send(hook)).error)
        self.assertEqual(self.inside.knocked, 0)

    async def test_of_several_addresses_only_permitted_ones_are_tried(self) -> None:
        hook = self.hook(EndpointRules(("127.0.0.0/8",), ("*",)), ("10.255.255.1", "127.0.0.1"))
        self.assertEqual(((await self.send(hook)).http_status, self.inside.knocked), (200, 1))


class PathTests(OnMemory):
    """Path traversal."""

    PATHS = (
        "Patient/../Patient/p1", "Patient/..", "..", "../admin/messages", "Patient/%2e%2e", "Patient/p1%00",
        "Patient/p1/_history/../1", "Binary/../../etc/passwd", "$export-file/../1", "$export-file/x/..", "Patient//p1",
        "patient/p1", "Patient/p1/..%2f..", "\\Patient\\p1", "_history/x", "metadata/..", "$export-status/..",
    )  # fmt: skip

    async def test_the_router(self) -> None:
        await self.world.send("PUT", "Patient/p1", {**patient("1"), "id": "p1"})
        for path in self.PATHS:
            answer = await self.world.send("GET", path)
            self.assertIn(answer.status, (400, 404), path)
            self.assertNotIn(b"Muster", answer.body, path)

    def test_the_listener(self) -> None:
        """A path below /fhir never reaches other mounted resources."""
        here, beside = Handlers(), Handlers(Answer(200))
        for path in self.PATHS:
            mounts = {"fhir": resource(here.at_once, refuse), "admin": resource(beside.at_once, refuse)}
            Connection(mounts).get(f"/fhir/{path}")
        self.assertEqual(beside.requests, [])
