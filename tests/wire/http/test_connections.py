"""The limit of HTTP connections, and refused connections of a TLS listener."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

from twisted.internet import reactor
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.endpoints import SSL4ClientEndpoint, TCP4ClientEndpoint, connectProtocol
from twisted.internet.error import ConnectionDone
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.ssl import CertificateOptions
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase

from ipf.app.listeners.endpoints import Listeners
from ipf.ports import Answer
from ipf.wire.http.app import resource
from ipf.wire.http.connections import MAX_ANSWERED, ConnectionLimit, RefusedConnection
from ipf.wire.http.limits import HttpLimits
from ipf.wire.http.site import site
from tests.wire.certificates import Authority
from tests.wire.http.test_site import Handlers, refuse

_reactor: Any = reactor
GET = b"GET /fhir/Patient HTTP/1.1\r\nHost: x\r\n\r\n"


class Client(Protocol):
    """Sends some bytes, and keeps the bytes it receives."""

    def __init__(self, says: bytes) -> None:
        self._says = says
        self.heard = b""
        self.ended: Deferred[bytes] = Deferred()

    def connectionMade(self) -> None:
        if self.transport is not None:
            self.transport.write(self._says)

    def dataReceived(self, data: bytes) -> None:
        self.heard += data

    def connectionLost(self, reason: Any = None) -> None:
        self.ended.callback(self.heard)


class ConnectionLimitTests(TestCase):
    def setUp(self) -> None:
        self.counts: list[int] = []
        self.clock = Clock()
        self.connections = ConnectionLimit(2, self.clock, self.counts.append)

    def connect(self, site: Any) -> tuple[Any, StringTransport]:
        protocol, transport = site.buildProtocol(None), StringTransport()
        if protocol is not None:
            if not isinstance(protocol, RefusedConnection):
                protocol.callLater = self.clock.callLater
            protocol.makeConnection(transport)
        return protocol, transport

    def site(self) -> Any:
        made = site({"fhir": resource(Handlers(Answer(200, b"{}")).at_once, refuse)},
                    limits=HttpLimits(connections=2))  # fmt: skip
        made.connections = self.connections
        return made

    def test_no_address_takes_all_connections(self) -> None:
        """Nor a network of IPv6 addresses; who has few connections is served until there is no room at all."""
        made = site(
            {"fhir": resource(Handlers(Answer(200, b"{}")).at_once, refuse)}, limits=HttpLimits(connections=100)
        )
        made.connections = ConnectionLimit(100, self.clock, self.counts.append)
        kept: list[Any] = []

        def opened(host: str) -> bool:
            peer = IPv4Address("TCP", host, 4000)
            protocol, transport = made.buildProtocol(peer), StringTransport(peerAddress=peer)
            if protocol is None or isinstance(protocol, RefusedConnection):
                return False
            protocol.callLater = self.clock.callLater
            protocol.makeConnection(transport)
            kept.append(protocol)
            return True

        self.assertEqual(sum(opened("203.0.113.1") for _ in range(200)), 90)
        self.assertEqual(sum(opened(f"2001:db8::{number:x}") for number in range(1, 20)), 10)
        self.assertFalse(opened("192.0.2.1"), "there is no room at all")
        for protocol in kept[:5]:
            protocol.connectionLost(Failure(ConnectionDone()))
        self.assertFalse(opened("203.0.113.1"))
        self.assertTrue(opened("192.0.2.1"))
        for protocol in kept[5:]:
            protocol.connectionLost(Failure(ConnectionDone()))
        self.assertEqual((len(made.connections), made.connections._by_source), (0, {}))

    def test_a_connection_beyond_the_limit_is_answered_503(self) -> None:
        site = self.site()
        (first, heard), (second, _) = self.connect(site), self.connect(site)
        third, refused = self.connect(site)
        first.dataReceived(GET)
        self.assertTrue(heard.value().startswith(b"HTTP/1.1 200 OK\r\n"))
        self.assertEqual(refused.value(), b"", "no answer before a request")
        third.dataReceived(GET)
        head, _, body = refused.value().partition(b"\r\n\r\n")
        self.assertTrue(head.startswith(b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1"))
        self.assertIn(b"Content-Length: %d" % len(body), head)
        self.assertTrue(refused.disconnecting)
        third.connectionLost()
        second.connectionLost()
        self.assertEqual(len(self.connections), 1)
        fourth, heard = self.connect(site)
        fourth.dataReceived(GET)
        self.assertTrue(heard.value().startswith(b"HTTP/1.1 200 OK\r\n"))
        for one in (first, fourth):
            one.connectionLost()
        self.assertEqual(self.counts, [1, 2, 1, 2, 1, 0])

    def test_refused_connections_are_limited_too(self) -> None:
        """In number and in time; further ones are closed without an answer."""
        site = self.site()
        self.connections.enter()
        self.connections.enter()
        refused = [self.connect(site) for _ in range(MAX_ANSWERED)]
        self.assertEqual(self.connect(site)[0], None)
        self.clock.advance(5)
        self.assertEqual({transport.disconnected for _, transport in refused}, {True})
        for protocol, _ in refused:
            protocol.connectionLost()
        self.assertIsInstance(self.connect(site)[0], RefusedConnection)

    async def test_a_refused_tls_connection_is_closed(self) -> None:
        """A connection without a protocol is closed before its handshake; Twisted alone keeps it open."""
        folder = Path(self.mktemp())
        folder.mkdir()
        key, certificate = Authority(folder).sign("localhost")
        place = f"ssl:0:privateKey={key}:certKey={certificate}:interface=127.0.0.1"

        class Nobody(Factory):
            def buildProtocol(self, addr: Any) -> Protocol | None:
                return None

        port = (await Listeners(_reactor).open(place, Nobody(), "HTTP")).port
        self.addCleanup(lambda: maybeDeferred(port.stopListening))
        out = ssl.MemoryBIO()
        hello = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), out, server_hostname="localhost")
        self.assertRaises(ssl.SSLWantReadError, hello.do_handshake)
        client = Client(out.read())
        await connectProtocol(TCP4ClientEndpoint(_reactor, "127.0.0.1", port.getHost().port), client)
        self.assertEqual(await client.ended, b"")

    async def test_503_over_tls(self) -> None:
        folder = Path(self.mktemp())
        folder.mkdir()
        key, certificate = Authority(folder).sign("localhost")
        self.connections = ConnectionLimit(0, self.clock)
        place = f"ssl:0:privateKey={key}:certKey={certificate}:interface=127.0.0.1"
        port = (await Listeners(_reactor).open(place, self.site(), "HTTP")).port
        self.addCleanup(lambda: maybeDeferred(port.stopListening))
        client = Client(GET)
        end = SSL4ClientEndpoint(_reactor, "127.0.0.1", port.getHost().port, CertificateOptions())
        await connectProtocol(end, client)
        heard = await client.ended
        self.assertTrue(heard.startswith(b"HTTP/1.1 503 "), heard)
