"""Sending acknowledgements: directly to the socket until its first partial write, then through the transport."""

from __future__ import annotations

import socket
from typing import Any

from twisted.internet.main import CONNECTION_LOST
from twisted.internet.task import Clock
from twisted.internet.tcp import Connection
from twisted.internet.testing import MemoryReactor, StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase

from ipf.hl7.framing import Framer, frame
from ipf.hl7.message import Message
from ipf.wire.mllp.limits import Limits
from ipf.wire.mllp.protocol import MllpProtocol
from tests.pipeline.plain_inbox import PlainInbox
from tests.wire.mllp.test_protocol import make_factory, message


class TcpWire(Connection):
    """Twisted's TCP connection on a pair of sockets.

    `takes`: for each of the next writes, the number of bytes that the socket accepts, or an error; then it accepts all.
    `offered`: the length of each write.
    """

    def __init__(self, reactor: Any, protocol: MllpProtocol, *takes: int | Exception) -> None:
        near, self.far = socket.socketpair()
        self.far.setblocking(False)
        super().__init__(near, protocol, reactor)
        self.connected = 1
        self.takes = list(takes)
        self.offered: list[int] = []

    def setTcpNoDelay(self, enabled: bool) -> None:
        """A pair of sockets is not TCP."""

    def setTcpKeepAlive(self, enabled: bool) -> None:
        """A pair of sockets is not TCP."""

    def writeSomeData(self, data: bytes) -> Any:
        self.offered.append(len(data))
        takes = self.takes.pop(0) if self.takes else len(data)
        return takes if isinstance(takes, Exception) or takes == 0 else super().writeSomeData(data[:takes])


class SendTests(TestCase):
    def setUp(self) -> None:
        self.inbox = PlainInbox()
        self.clock = Clock()
        self.reactor = MemoryReactor()
        self.factory = make_factory(self.inbox, self.clock, Limits())
        self.arrived = b""

    def connect(self, *takes: int | Exception) -> tuple[Any, TcpWire]:
        connection: Any = self.factory.buildProtocol(None)
        wire = TcpWire(self.reactor, connection, *takes)
        self.addCleanup(wire.far.close)
        self.addCleanup(wire.getHandle().close)
        connection.makeConnection(wire)
        return connection, wire

    def send(self, connection: Any, *control_ids: int) -> None:
        """Send messages in one turn of the reactor; their answers are ready together, each in a call of its own."""
        for control_id in control_ids:
            connection.dataReceived(frame(message(control_id)))
        self.clock.advance(0)

    def arrive(self, wire: TcpWire) -> int:
        """The number of bytes that the peer has received."""
        try:
            while chunk := wire.far.recv(65536):
                self.arrived += chunk
        except BlockingIOError:
            pass
        return len(self.arrived)

    def waits(self, wire: TcpWire) -> bool:
        """Whether the transport waits for the socket to be writable."""
        return wire in self.reactor.getWriters()

    def acknowledged(self) -> list[str]:
        """MSA-2 of all received frames; nothing else was received."""
        framer = Framer()
        frames = [event for event in framer.feed(self.arrived) if isinstance(event, bytes)]
        self.assertEqual(self.arrived, b"".join(frame(raw) for raw in frames))
        return [Message.parse(raw).segments("MSA")[0].fields[2] for raw in frames]

    def test_a_writable_socket_is_written_to_directly(self) -> None:
        connection, wire = self.connect()
        for number in range(3):
            self.send(connection, number)
            self.assertFalse(self.waits(wire))
            self.arrive(wire)
            self.assertEqual(self.acknowledged(), [str(one) for one in range(number + 1)])
        self.assertEqual(wire.offered, [len(self.arrived) // 3] * 3)

    def test_the_transport_writes_after_a_partial_write(self) -> None:
        whole = 1 << 20
        for taken in (0, 1, 10):
            self.setUp()
            connection, wire = self.connect(whole, taken)
            self.send(connection, 0)
            first = self.arrive(wire)
            self.send(connection, 1, 2)
            self.assertEqual(self.arrive(wire), first + taken)
            self.assertEqual(len(wire.offered), 2)  # the third waits behind the rest of the second
            self.assertTrue(self.waits(wire))
            wire.doWrite()
            self.arrive(wire)
            self.assertEqual(self.acknowledged(), ["0", "1", "2"])
            wire.doWrite()
            self.assertFalse(self.waits(wire))

    def test_the_transport_writes_until_the_connection_ends(self) -> None:
        connection, wire = self.connect(5, 7)
        self.send(connection, 1)
        wire.doWrite()
        self.send(connection, 2)
        self.assertEqual((self.arrive(wire), len(wire.offered)), (12, 2))
        wire.doWrite()
        wire.doWrite()
        self.assertFalse(self.waits(wire))
        self.send(connection, 3)  # its buffer is empty, and the transport still writes
        self.assertEqual(self.waits(wire), True)
        wire.doWrite()
        self.arrive(wire)
        self.assertEqual(self.acknowledged(), ["1", "2", "3"])

    def test_the_transport_reports_a_write_error(self) -> None:
        connection, wire = self.connect(CONNECTION_LOST, CONNECTION_LOST)
        self.send(connection, 1, 2)
        self.assertEqual((len(wire.offered), self.factory.connections), (1, 1))
        self.assertTrue(self.waits(wire))
        lost = wire.doWrite()
        self.assertIs(lost, CONNECTION_LOST)
        self.inbox.hold = True
        self.send(connection, 3)
        wire.connectionLost(Failure(lost))  # the reactor does so when doWrite returns an error
        self.inbox.release()
        self.assertEqual((len(wire.offered), self.factory.connections, connection.unanswered), (2, 0, 0))
        self.assertEqual([row.source_id for row in self.inbox.order], ["1", "2", "3"])
        self.assertEqual(self.arrive(wire), 0)

    def test_a_closed_peer(self) -> None:
        connection, wire = self.connect()
        wire.far.close()
        self.send(connection, 1)
        self.assertTrue(self.waits(wire))
        self.assertIs(wire.doWrite(), CONNECTION_LOST)
        wire.connectionLost(Failure(CONNECTION_LOST))
        self.assertEqual((self.factory.connections, len(self.inbox.order)), (0, 1))

    def test_answers_larger_than_the_socket_buffer(self) -> None:
        connection, wire = self.connect()
        large = [bytes([65 + number]) * 3_000_000 for number in range(2)]
        for one in large:
            connection._send(one)
        while self.waits(wire):
            wire.doWrite()
            self.arrive(wire)
        self.assertTrue(self.arrived == b"".join(large))

    def test_tls_answers_go_through_the_transport(self) -> None:
        class Tls(StringTransport):
            def writeSomeData(self, data: bytes) -> int:
                raise AssertionError("plain bytes bypass TLS")

        connection: Any = self.factory.buildProtocol(None)
        wire = Tls()
        connection.makeConnection(wire)
        self.send(connection, 1)
        self.arrived = wire.value()
        self.assertEqual(self.acknowledged(), ["1"])
