"""How many HTTP connections there may be, what becomes of more, and of those that a TLS listener does not take."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.endpoints import SSL4ClientEndpoint, TCP4ClientEndpoint, connectProtocol
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.ssl import CertificateOptions
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.trial.unittest import TestCase

from ipf.app.listeners.endpoints import listen
from ipf.ports import Answer
from ipf.wire.http.connections import MOST_TOLD, ConnectionLimit, Refused
from ipf.wire.http.limits import HttpLimits
from ipf.wire.http.site import FhirResource, site
from tests.wire.certificates import Authority
from tests.wire.http.test_site import Handlers, refuse

_reactor: Any = reactor
GET = b"GET /fhir/Patient HTTP/1.1\r\nHost: x\r\n\r\n"


class Client(Protocol):
    """Says something, and keeps what it hears until the end."""

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


class CrowdTests(TestCase):
    timeout = 120

    def setUp(self) -> None:
        self.counts: list[int] = []
        self.clock = Clock()
        self.crowd = ConnectionLimit(2, self.clock, self.counts.append)

    def connect(self, site: Any) -> tuple[Any, StringTransport]:
        protocol, transport = site.buildProtocol(None), StringTransport()
        if protocol is not None:
            if not isinstance(protocol, Refused):
                protocol.callLater = self.clock.callLater
            protocol.makeConnection(transport)
        return protocol, transport

    def site(self) -> Any:
        made = site({"fhir": FhirResource(Handlers(Answer(200, b"{}")).at_once, refuse)},
                    limits=HttpLimits(connections=2))  # fmt: skip
        made.crowd = self.crowd
        return made

    def test_one_too_many_is_told_so_and_the_others_are_served(self) -> None:
        site = self.site()
        (first, heard), (second, _) = self.connect(site), self.connect(site)
        third, told = self.connect(site)
        first.dataReceived(GET)
        self.assertTrue(heard.value().startswith(b"HTTP/1.1 200 OK\r\n"))
        self.assertEqual(told.value(), b"", "nothing is said to who did not ask")
        third.dataReceived(GET)
        head, _, body = told.value().partition(b"\r\n\r\n")
        self.assertTrue(head.startswith(b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1"))
        self.assertIn(b"Content-Length: %d" % len(body), head)
        self.assertTrue(told.disconnecting)
        third.connectionLost()
        second.connectionLost()
        self.assertEqual(len(self.crowd), 1)
        fourth, heard = self.connect(site)
        fourth.dataReceived(GET)
        self.assertTrue(heard.value().startswith(b"HTTP/1.1 200 OK\r\n"))
        for one in (first, fourth):
            one.connectionLost()
        self.assertEqual(self.counts, [1, 2, 1, 2, 1, 0])

    def test_the_refused_are_bounded_as_well(self) -> None:
        """In number and in time: who is not heard is closed without a word."""
        site = self.site()
        self.crowd.enter()
        self.crowd.enter()
        refused = [self.connect(site) for _ in range(MOST_TOLD)]
        self.assertEqual(self.connect(site)[0], None)
        self.clock.advance(5)
        self.assertEqual({transport.disconnected for _, transport in refused}, {True})
        for protocol, _ in refused:
            protocol.connectionLost()
        self.assertIsInstance(self.connect(site)[0], Refused)

    async def test_tls_too(self) -> None:
        """A connection that is not taken is closed before its handshake is done; not kept for ever, as Twisted does."""
        folder = Path(self.mktemp())
        folder.mkdir()
        key, certificate = Authority(folder).sign("localhost")
        place = f"ssl:0:privateKey={key}:certKey={certificate}:interface=127.0.0.1"

        class Nobody(Factory):
            def buildProtocol(self, addr: Any) -> Protocol | None:
                return None

        port = await listen(_reactor, place, Nobody(), "HTTP")
        self.addCleanup(lambda: maybeDeferred(port.stopListening))
        out = ssl.MemoryBIO()
        hello = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), out, server_hostname="localhost")
        self.assertRaises(ssl.SSLWantReadError, hello.do_handshake)
        client = Client(out.read())
        await connectProtocol(TCP4ClientEndpoint(_reactor, "127.0.0.1", port.getHost().port), client)
        self.assertEqual(await client.ended, b"")

    async def test_over_tls_more_are_told(self) -> None:
        folder = Path(self.mktemp())
        folder.mkdir()
        key, certificate = Authority(folder).sign("localhost")
        self.crowd = ConnectionLimit(0, self.clock)
        place = f"ssl:0:privateKey={key}:certKey={certificate}:interface=127.0.0.1"
        port = await listen(_reactor, place, self.site(), "HTTP")
        self.addCleanup(lambda: maybeDeferred(port.stopListening))
        client = Client(GET)
        end = SSL4ClientEndpoint(_reactor, "127.0.0.1", port.getHost().port, CertificateOptions())
        await connectProtocol(end, client)
        heard = await client.ended
        self.assertTrue(heard.startswith(b"HTTP/1.1 503 "), heard)
