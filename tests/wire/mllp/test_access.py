"""The gate of an MLLP listener: networks, connections, rates; and mutual TLS on real sockets."""

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
from ipf.wire.mllp.access import Bucket, Gate, GatedMllpFactory, networks_of
from ipf.wire.mllp.limits import Limits
from tests.waiting import PATIENCE
from tests.wire.certificates import Authority

reactor: Any = installed_reactor


class Inbox:
    """A sink that answers at once; `taken` holds (tenant, message)."""

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


class GateTests(TestCase):
    def factory(self, gate: Gate) -> tuple[GatedMllpFactory, list[tuple[str, bytes]], Clock]:
        clock, taken = Clock(), []
        made = GatedMllpFactory("lab", Inbox(taken), clock, Limits(), gate, lambda tenant: Inbox(taken, tenant))
        return made, taken, clock

    def connect(self, factory: GatedMllpFactory, host: str) -> Any:
        address = IPv4Address("TCP", host, 4711)
        protocol = factory.buildProtocol(address)
        if protocol is not None:
            protocol.makeConnection(StringTransport(peerAddress=address))
        return protocol

    def test_networks(self) -> None:
        gate = Gate((ip_network("10.1.0.0/16"), ip_network("2001:db8::/32")))
        for host, admitted in (
            ("10.1.2.3", True),
            ("::ffff:10.1.2.3", True),
            ("10.2.0.1", False),
            ("127.0.0.1", False),
            ("2001:db8::7", True),
            ("2001:db9::7", False),
            ("nonsense", False),
        ):
            self.assertEqual(gate.admits(host), admitted, host)
            factory, _, _ = self.factory(gate)
            self.assertEqual(self.connect(factory, host) is not None, admitted, host)
        self.assertTrue(Gate().admits("203.0.113.9"))
        self.assertTrue(Gate().is_open)

    def test_a_unix_socket_has_no_network(self) -> None:
        factory, _, _ = self.factory(Gate((ip_network("10.1.0.0/16"),)))
        self.assertIsNotNone(factory.buildProtocol(UNIXAddress("/run/mllp")))

    def test_a_listeners_own_networks_go_before_those_of_all(self) -> None:
        allowed = (("", "10.0.0.0/8"), ("lab", "10.1.0.0/16"))
        self.assertEqual(networks_of("lab", allowed), (ip_network("10.1.0.0/16"),))
        self.assertEqual(networks_of("ward", allowed), (ip_network("10.0.0.0/8"),))
        self.assertEqual(networks_of("ward", ()), ())

    def test_connections_of_one_address(self) -> None:
        factory, _, _ = self.factory(Gate(connections=2))
        first, second, third = (self.connect(factory, "10.0.0.1") for _ in range(3))
        self.assertEqual((first is None, second is None, third is None), (False, False, True))
        self.assertIsNotNone(self.connect(factory, "10.0.0.2"))
        first.connectionLost()
        self.assertIsNotNone(self.connect(factory, "10.0.0.1"))
        self.assertIsNone(self.connect(factory, "10.0.0.1"))

    def test_what_comes_faster_than_the_rate_waits_and_is_not_lost(self) -> None:
        factory, taken, clock = self.factory(Gate(rate=2.0))
        fast, sibling, other = (self.connect(factory, host) for host in ("10.0.0.1", "10.0.0.1", "10.0.0.2"))
        fast.dataReceived(b"".join(frame(b"A%d" % number) for number in range(4)))
        self.assertEqual(len(taken), 2)
        self.assertEqual(fast.transport.producerState, "paused")
        sibling.dataReceived(frame(b"B"))
        self.assertEqual(len(taken), 2, "another connection of the same address shares its rate")
        other.dataReceived(frame(b"C"))
        self.assertEqual(taken[-1][1], b"C")
        for _ in range(4):
            clock.advance(0.5)
        self.assertEqual(sorted(text for _, text in taken), [b"A0", b"A1", b"A2", b"A3", b"B", b"C"])
        self.assertEqual(fast.transport.producerState, "producing")
        self.assertEqual(fast.transport.value().count(b"ACK"), 4)

    def test_a_lost_connection_gives_all_that_came_whole(self) -> None:
        factory, taken, clock = self.factory(Gate(rate=1.0))
        sender = self.connect(factory, "10.0.0.1")
        sender.dataReceived(frame(b"1") + frame(b"2") + frame(b"3"))
        self.assertEqual(len(taken), 1)
        sender.connectionLost()
        self.assertEqual(len(taken), 3)
        self.assertEqual(clock.getDelayedCalls(), [])

    def test_the_bucket_never_holds_more_than_a_second(self) -> None:
        clock = Clock()
        bucket = Bucket(5.0, clock)
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
        self.ours = Authority(self.folder)
        self.taken: list[tuple[str, bytes]] = []
        names = (("lab.example.org", "hospital-a"), ("*.ward.example.org", "hospital-b"), ("plain", ""))
        key, certificate = self.ours.sign("localhost")
        place = f"mtls:0:interface=127.0.0.1:privateKey={key}:certKey={certificate}:clientCa={self.ours.path}"
        self.factory = GatedMllpFactory(
            "lab", Inbox(self.taken), reactor, limits, Gate(names=names),
            lambda tenant: Inbox(self.taken, tenant),
        )  # fmt: skip
        self.port = await serverFromString(reactor, place).listen(self.factory)
        self.addCleanup(self.close, self.port, self.factory)

    async def close(self, port: Any, factory: GatedMllpFactory) -> None:
        await maybeDeferred(port.stopListening)
        await factory.stop(1.0)

    async def answer(self, files: tuple[str, str] | None) -> bytes | None:
        """What is answered to one message of a client with this key and certificate; None: it is cut off."""
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

        roots = trustRootFromCertificates([Certificate.loadPEM(self.ours.path.read_bytes())])
        options = CertificateOptions(trustRoot=roots)
        if files is not None:
            pem = Path(files[0]).read_bytes() + Path(files[1]).read_bytes()
            own = PrivateCertificate.loadPEM(pem)
            options = CertificateOptions(own.privateKey.original, own.original, trustRoot=roots)
        end = SSL4ClientEndpoint(reactor, "127.0.0.1", self.port.getHost().port, options)
        await connectProtocol(end, Sender())
        return await ended

    async def test_names_choose_the_tenant(self) -> None:
        for name, san, tenant in (
            ("lab.example.org", True, "hospital-a"),
            ("LAB.example.org", False, "hospital-a"),
            ("7.ward.example.org", True, "hospital-b"),
            ("plain", True, "default"),
        ):
            self.assertIsNotNone(await self.answer(self.ours.sign(name, san=san)), name)
            self.assertEqual(self.taken[-1], (tenant, b"MSH"), name)

    async def test_who_is_cut_off(self) -> None:
        theirs = Authority(self.folder, "other")
        for who, files in (
            ("no certificate", None),
            ("another authority", theirs.sign("lab.example.org")),
            ("a name that is not listed", self.ours.sign("lab.example.org.evil.example")),
        ):
            self.assertIsNone(await self.answer(files), who)
        self.assertEqual(self.taken, [])

    async def test_plain_bytes_and_silence(self) -> None:
        """Neither MLLP without TLS nor a handshake that never goes on reaches the inbox or keeps its place."""
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

    def test_what_the_endpoint_string_lacks_is_named(self) -> None:
        key, certificate = self.ours.sign("x")
        (self.folder / "empty").write_bytes(b"")
        for place, said in (
            (f"mtls:0:privateKey={key}:certKey={certificate}", "clientCa"),
            (f"mtls:0:privateKey={key}:certKey={certificate}:clientCa={self.folder}/missing", "missing"),
            (f"mtls:0:privateKey={key}:certKey={certificate}:clientCa={self.folder}/empty", "no certificate"),
            (f"mtls:0:privateKey={certificate}:certKey={certificate}:clientCa={self.ours.path}", "cannot be used"),
        ):
            with self.assertRaises(ValueError) as caught:
                serverFromString(reactor, place)
            self.assertIn(said, str(caught.exception))
