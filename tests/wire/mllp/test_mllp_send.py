"""How acknowledgements leave: straight to the socket while it takes all, by the transport's buffer from then on."""

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
from ipf.wire.mllp.protocol import Mllp
from tests.pipeline.plain_inbox import PlainInbox
from tests.wire.mllp.test_protocol import make_factory, message


class TcpWire(Connection):
    """Twisted's own TCP connection on a pair of sockets, with a socket that takes only so much.

    `takes`: for each of the next calls, how many bytes the socket takes, or the error; without one it takes all.
    `offered`: the length of what each call offered.
    """

    def __init__(self, reactor: Any, protocol: Mllp, *takes: int | Exception) -> None:
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
        """Messages of one turn: their answers are ready together, each in a call of its own."""
        for control_id in control_ids:
            connection.dataReceived(frame(message(control_id)))
        self.clock.advance(0)

    def arrive(self, wire: TcpWire) -> int:
        """How many bytes the peer has by now."""
        try:
            while chunk := wire.far.recv(65536):
                self.arrived += chunk
        except BlockingIOError:
            pass
        return len(self.arrived)

    def waits(self, wire: TcpWire) -> bool:
        """The transport asked to be told when the socket has room."""
        return wire in self.reactor.getWriters()

    def acknowledged(self) -> list[str]:
        """MSA-2 of all that arrived, which is whole frames and nothing else."""
        framer = Framer()
        frames = [event for event in framer.feed(self.arrived) if isinstance(event, bytes)]
        self.assertEqual(self.arrived, b"".join(frame(raw) for raw in frames))
        return [Message.parse(raw).segments("MSA")[0].fields[2] for raw in frames]

    def test_a_socket_with_room_is_written_to_at_once(self) -> None:
        connection, wire = self.connect()
        for number in range(3):
            self.send(connection, number)
            self.assertFalse(self.waits(wire))
            self.arrive(wire)
            self.assertEqual(self.acknowledged(), [str(one) for one in range(number + 1)])
        self.assertEqual(wire.offered, [len(self.arrived) // 3] * 3)

    def test_the_transport_takes_over_after_a_partial_write(self) -> None:
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

    def test_the_transport_keeps_the_rest_of_the_connection(self) -> None:
        connection, wire = self.connect(5, 7)
        self.send(connection, 1)
        wire.doWrite()
        self.send(connection, 2)
        self.assertEqual((self.arrive(wire), len(wire.offered)), (12, 2))
        wire.doWrite()
        wire.doWrite()
        self.assertFalse(self.waits(wire))
        self.send(connection, 3)  # all is sent by now, and still it is the transport that writes
        self.assertEqual(self.waits(wire), True)
        wire.doWrite()
        self.arrive(wire)
        self.assertEqual(self.acknowledged(), ["1", "2", "3"])

    def test_an_error_ends_the_connection_as_the_transport_does_it(self) -> None:
        connection, wire = self.connect(CONNECTION_LOST, CONNECTION_LOST)
        self.send(connection, 1, 2)
        self.assertEqual((len(wire.offered), self.factory.connections), (1, 1))
        self.assertTrue(self.waits(wire))
        lost = wire.doWrite()
        self.assertIs(lost, CONNECTION_LOST)
        self.inbox.hold = True
        self.send(connection, 3)
        wire.connectionLost(Failure(lost))  # as the reactor does with what doWrite returns
        self.inbox.release()
        self.assertEqual((len(wire.offered), self.factory.connections, connection.unanswered), (2, 0, 0))
        self.assertEqual([row.source_id for row in self.inbox.order], ["1", "2", "3"])
        self.assertEqual(self.arrive(wire), 0)

    def test_a_peer_that_is_gone(self) -> None:
        connection, wire = self.connect()
        wire.far.close()
        self.send(connection, 1)
        self.assertTrue(self.waits(wire))
        self.assertIs(wire.doWrite(), CONNECTION_LOST)
        wire.connectionLost(Failure(CONNECTION_LOST))
        self.assertEqual((self.factory.connections, len(self.inbox.order)), (0, 1))

    def test_an_answer_larger_than_the_socket_takes_comes_whole(self) -> None:
        connection, wire = self.connect()
        large = [bytes([65 + number]) * 3_000_000 for number in range(2)]
        for one in large:
            connection._send(one)
        while self.waits(wire):
            wire.doWrite()
            self.arrive(wire)
        self.assertTrue(self.arrived == b"".join(large))

    def test_other_transports_make_their_own_bytes(self) -> None:
        class Tls(StringTransport):
            def writeSomeData(self, data: bytes) -> int:
                raise AssertionError("plain bytes beside the transport")

        connection: Any = self.factory.buildProtocol(None)
        wire = Tls()
        connection.makeConnection(wire)
        self.send(connection, 1)
        self.arrived = wire.value()
        self.assertEqual(self.acknowledged(), ["1"])
