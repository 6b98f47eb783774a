"""Access rules of an MLLP listener: networks, connections, rates; mutual TLS on real sockets."""

from __future__ import annotations

from ipaddress import ip_network
from pathlib import Path
from typing import Any

from twisted.internet import reactor as installed_reactor
from twisted.internet.address import IPv4Address, UNIXAddress
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.endpoints import SSL4ClientEndpoint, TCP4ClientEndpoint, connectProtocol, serverFromString
from twisted.internet.protocol import Protocol
from twisted.internet.ssl import Certificate, CertificateOptions, PrivateCertificate, trustRootFromCertificates
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.trial.unittest import TestCase

from ipf.hl7.framing import frame
from ipf.wire.mllp.access import RestrictedMllpFactory, SenderAccess, TokenBucket, networks_of
from ipf.wire.mllp.limits import Limits
from tests.waiting import PATIENCE
from tests.wire.certificates import Authority

reactor: Any = installed_reactor


class RecordingReceiver:
    """Answers each message at once; `taken` holds (tenant, message)."""

    full = False

    def __init__(self, taken: list[tuple[str, bytes]], tenant: str = "default") -> None:
        self.taken = taken
        self.tenant = tenant

    def when_room(self, resume: Any) -> None:
        raise AssertionError("it is never full")

    def receive(self, frame: bytes, peer: str, source: object, answer: Any) -> None:
        self.taken.append((self.tenant, frame))
        answer(b"ACK " + frame)

    def oversize(self, event: Any, peer: str, answer: Any) -> None:
        answer(None)

    def lost(self, event: Any, peer: str, reason: str) -> None:
        pass


class SenderAccessTests(TestCase):
    def factory(self, access: SenderAccess) -> tuple[RestrictedMllpFactory, list[tuple[str, bytes]], Clock]:
        clock, taken = Clock(), []
        made = RestrictedMllpFactory(
            "lab", RecordingReceiver(taken), clock, Limits(), access, lambda tenant: RecordingReceiver(taken, tenant)
        )
        return made, taken, clock

    def connect(self, factory: RestrictedMllpFactory, host: str) -> Any:
        address = IPv4Address("TCP", host, 4711)
        protocol = factory.buildProtocol(address)
        if protocol is not None:
            protocol.makeConnection(StringTransport(peerAddress=address))
        return protocol

    def test_networks(self) -> None:
        access = SenderAccess((ip_network("10.1.0.0/16"), ip_network("2001:db8::/32")))
        for host, permitted in (
            ("10.1.2.3", True),
            ("::ffff:10.1.2.3", True),
            ("10.2.0.1", False),
            ("127.0.0.1", False),
            ("2001:db8::7", True),
            ("2001:db9::7", False),
            ("nonsense", False),
        ):
            self.assertEqual(access.permits(host), permitted, host)
            factory, _, _ = self.factory(access)
            self.assertEqual(self.connect(factory, host) is not None, permitted, host)
        self.assertTrue(SenderAccess().permits("203.0.113.9"))
        self.assertTrue(SenderAccess().is_unrestricted)

    def test_unix_sockets_have_no_network(self) -> None:
        factory, _, _ = self.factory(SenderAccess((ip_network("10.1.0.0/16"),)))
        self.assertIsNotNone(factory.buildProtocol(UNIXAddress("/run/mllp")))

    def test_networks_of_a_listener_replace_those_of_all_listeners(self) -> None:
        allowed = (("", "10.0.0.0/8"), ("lab", "10.1.0.0/16"))
        self.assertEqual(networks_of("lab", allowed), (ip_network("10.1.0.0/16"),))
        self.assertEqual(networks_of("ward", allowed), (ip_network("10.0.0.0/8"),))
        self.assertEqual(networks_of("ward", ()), ())

    def test_connections_of_one_address_are_limited(self) -> None:
        factory, _, _ = self.factory(SenderAccess(connections=2))
        first, second, third = (self.connect(factory, "10.0.0.1") for _ in range(3))
        self.assertEqual((first is None, second is None, third is None), (False, False, True))
        self.assertIsNotNone(self.connect(factory, "10.0.0.2"))
        first.connectionLost()
        self.assertIsNotNone(self.connect(factory, "10.0.0.1"))
        self.assertIsNone(self.connect(factory, "10.0.0.1"))

    def test_messages_above_the_rate_wait(self) -> None:
        factory, taken, clock = self.factory(SenderAccess(rate=2.0))
        fast, sibling, other = (self.connect(factory, host) for host in ("10.0.0.1", "10.0.0.1", "10.0.0.2"))
        fast.dataReceived(b"".join(frame(b"A%d" % number) for number in range(4)))
        self.assertEqual(len(taken), 2)
        self.assertEqual(fast.transport.producerState, "paused")
        sibling.dataReceived(frame(b"B"))
        self.assertEqual(len(taken), 2, "connections of one address share the rate")
        other.dataReceived(frame(b"C"))
        self.assertEqual(taken[-1][1], b"C")
        for _ in range(4):
            clock.advance(0.5)
        self.assertEqual(sorted(text for _, text in taken), [b"A0", b"A1", b"A2", b"A3", b"B", b"C"])
        self.assertEqual(fast.transport.producerState, "producing")
        self.assertEqual(fast.transport.value().count(b"ACK"), 4)

    def test_complete_messages_of_a_lost_connection_are_stored(self) -> None:
        factory, taken, clock = self.factory(SenderAccess(rate=1.0))
        sender = self.connect(factory, "10.0.0.1")
        sender.dataReceived(frame(b"1") + frame(b"2") + frame(b"3"))
        self.assertEqual(len(taken), 1)
        sender.connectionLost()
        self.assertEqual(len(taken), 3)
        self.assertEqual(clock.getDelayedCalls(), [])

    def test_the_bucket_holds_the_messages_of_one_second(self) -> None:
        clock = Clock()
        bucket = TokenBucket(5.0, clock)
        clock.advance(100)
        for _ in range(5):
            self.assertEqual(bucket.wait(), 0.0)
            bucket.take()
        self.assertAlmostEqual(bucket.wait(), 0.2)


class MutualTlsTests(TestCase):
    async def setUp(self) -> None:
        await self.listen(Limits(frame_timeout=PATIENCE))

    async def listen(self, limits: Limits) -> None:
        self.folder = Path(self.mktemp())
        self.folder.mkdir()
        self.authority = Authority(self.folder)
        self.taken: list[tuple[str, bytes]] = []
        names = (("lab.example.org", "hospital-a"), ("*.ward.example.org", "hospital-b"), ("plain", ""))
        key, certificate = self.authority.sign("localhost")
        place = f"mtls:0:interface=127.0.0.1:privateKey={key}:certKey={certificate}:clientCa={self.authority.path}"
        self.factory = RestrictedMllpFactory(
            "lab", RecordingReceiver(self.taken), reactor, limits, SenderAccess(names=names),
            lambda tenant: RecordingReceiver(self.taken, tenant),
        )  # fmt: skip
        self.port = await serverFromString(reactor, place).listen(self.factory)
        self.addCleanup(self.close, self.port, self.factory)

    async def close(self, port: Any, factory: RestrictedMllpFactory) -> None:
        await maybeDeferred(port.stopListening)
        await factory.stop(1.0)

    async def answer(self, files: tuple[str, str] | None) -> bytes | None:
        """The answer to one message of a client with this key and certificate; None: the connection is aborted."""
        ended: Deferred[bytes | None] = Deferred()

        class Sender(Protocol):
            def connectionMade(self) -> None:
                self.transport.write(frame(b"MSH"))

            def dataReceived(self, data: bytes) -> None:
                if not ended.called:
                    ended.callback(data)
                    self.transport.loseConnection()

            def connectionLost(self, reason: Any = None) -> None:
                if not ended.called:
                    ended.callback(None)

        roots = trustRootFromCertificates([Certificate.loadPEM(self.authority.path.read_bytes())])
        options = CertificateOptions(trustRoot=roots)
        if files is not None:
            pem = Path(files[0]).read_bytes() + Path(files[1]).read_bytes()
            own = PrivateCertificate.loadPEM(pem)
            options = CertificateOptions(own.privateKey.original, own.original, trustRoot=roots)
        end = SSL4ClientEndpoint(reactor, "127.0.0.1", self.port.getHost().port, options)
        await connectProtocol(end, Sender())
        return await ended

    async def test_certificate_names_choose_the_tenant(self) -> None:
        for name, san, tenant in (
            ("lab.example.org", True, "hospital-a"),
            ("LAB.example.org", False, "hospital-a"),
            ("7.ward.example.org", True, "hospital-b"),
            ("plain", True, "default"),
        ):
            self.assertIsNotNone(await self.answer(self.authority.sign(name, san=san)), name)
            self.assertEqual(self.taken[-1], (tenant, b"MSH"), name)

    async def test_refused_certificates(self) -> None:
        """Each is reported with its reason."""
        other, refused = Authority(self.folder, "other"), []
        self.factory.refused = lambda *told: refused.append(told)
        for name, files in (
            ("no certificate", None),
            ("another authority", other.sign("lab.example.org")),
            ("a name that is not listed", self.authority.sign("lab.example.org.evil.example")),
        ):
            self.assertIsNone(await self.answer(files), name)
        self.assertEqual(self.taken, [])
        reasons = ["its TLS handshake failed"] * 2 + ["its certificate name is not on the list"]
        self.assertEqual(refused, [("lab", "127.0.0.1", reason) for reason in reasons])

    async def test_clients_without_tls_are_aborted(self) -> None:
        """MLLP without TLS and an incomplete handshake are aborted at the time limit."""
        await self.listen(Limits(frame_timeout=0.3))
        for sent in (frame(b"MSH"), b"", b"\x16\x03\x01"):
            closed: Deferred[None] = Deferred()

            class Sender(Protocol):
                def connectionMade(self, sent: bytes = sent) -> None:
                    self.transport.write(sent)

                def connectionLost(self, reason: Any = None, closed: Deferred[None] = closed) -> None:
                    closed.callback(None)

            end = TCP4ClientEndpoint(reactor, "127.0.0.1", self.port.getHost().port)
            await connectProtocol(end, Sender())
            await closed
        self.assertEqual((self.taken, self.factory.connections), ([], 0))

    def test_errors_of_the_endpoint_string(self) -> None:
        key, certificate = self.authority.sign("x")
        (self.folder / "empty").write_bytes(b"")
        for endpoint, text in (
            (f"mtls:0:privateKey={key}:certKey={certificate}", "clientCa"),
            (f"mtls:0:privateKey={key}:certKey={certificate}:clientCa={self.folder}/missing", "missing"),
            (f"mtls:0:privateKey={key}:certKey={certificate}:clientCa={self.folder}/empty", "no certificate"),
            (f"mtls:0:privateKey={certificate}:certKey={certificate}:clientCa={self.authority.path}", "cannot be used"),
        ):
            with self.assertRaises(ValueError) as caught:
                serverFromString(reactor, endpoint)
            self.assertIn(text, str(caught.exception))
