"""MLLP on a real socket, from the bytes of a sender to a row and its acknowledgement."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import count
from typing import Any

from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol
from twisted.internet.protocol import Protocol, connectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase

from ipf.hl7.framing import Framer, frame
from ipf.hl7.message import Message
from ipf.pipeline.receive.group_commit import GroupCommit
from ipf.pipeline.receive.receive import ListenerReceiver, MllpListener, Receiver
from ipf.wire.mllp.limits import Limits
from ipf.wire.mllp.protocol import MllpFactory
from ipf.wire.mllp.receiver import FrameReceiver
from tests.pipeline.plain_inbox import PlainInbox
from tests.reference import REFERENCE, needs_reference
from tests.waiting import turns, until

reactor: Any = installed_reactor
CASES = REFERENCE / "mllp/wire_cases.json"
_: type[FrameReceiver] = ListenerReceiver


def message(control_id: object, *, pid: str = "77", rest: str = "") -> bytes:
    return f"MSH|^~\\&|REG|HOSP|IPF|HUB|2024||ADT^A04|{control_id}|P|2.5.1{rest}\rPID|1||{pid}\r".encode()


def make_factory(inbox: PlainInbox, clock: Any, limits: Limits, **bounds: Any) -> MllpFactory:
    store: Any = inbox
    numbers = count(1)
    receiver = Receiver(
        store,
        GroupCommit(store, clock, **bounds),
        clock,
        now=lambda: datetime.now(UTC),
        new_correlation_id=lambda: f"00000000-0000-7000-8000-{next(numbers):012}",
    )
    return MllpFactory("main", receiver.for_listener(MllpListener("main")), clock, limits)


class Sender(Protocol):
    """Collects acknowledgements as (MSA-1, MSA-2)."""

    def __init__(self) -> None:
        self.framer = Framer()
        self.raw: list[bytes] = []
        self.waiting: list[tuple[Callable[[], bool], Deferred[None]]] = []
        self.closed = False

    def dataReceived(self, data: bytes) -> None:
        self.raw += [event for event in self.framer.feed(data) if isinstance(event, bytes)]
        self.look()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.closed = True
        self.look()

    def look(self) -> None:
        for entry in [entry for entry in self.waiting if entry[0]()]:
            self.waiting.remove(entry)
            entry[1].callback(None)

    async def until(self, true: Callable[[], bool]) -> None:
        if not true():
            arrived: Deferred[None] = Deferred()
            self.waiting.append((true, arrived))
            await arrived

    async def acks(self, number: int) -> list[tuple[str, str]]:
        await self.until(lambda: len(self.raw) >= number)
        return [tuple(Message.parse(raw).segments("MSA")[0].fields[1:3]) for raw in self.raw]  # type: ignore[misc]  # two

    def write(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.write(data)


class SocketCase(TestCase):
    def setUp(self) -> None:
        self.inbox = PlainInbox()
        self.start(Limits())

    def start(self, limits: Limits, **bounds: Any) -> None:
        self.factory = make_factory(self.inbox, reactor, limits, **bounds)
        self.port = reactor.listenTCP(0, self.factory, interface="127.0.0.1")
        self.addCleanup(self.stop, self.port, self.factory)

    async def stop(self, port: Any, factory: MllpFactory) -> None:
        self.inbox.hold = False
        while self.inbox.held:
            self.inbox.release()
        await maybeDeferred(port.stopListening)
        await factory.stop(1)
        for_listener: Any = factory.receiver
        await for_listener.receiver.commit.drained()

    async def connect(self) -> Sender:
        sender: Sender = await connectProtocol(
            TCP4ClientEndpoint(reactor, "127.0.0.1", self.port.getHost().port), Sender()
        )
        self.addCleanup(sender.transport.abortConnection)  # type: ignore[union-attr]  # TCP has it
        return sender


@needs_reference
class WireCaseTests(SocketCase):
    async def test_wire_cases(self) -> None:
        cases = json.loads(CASES.read_text())["cases"]
        for number, case in enumerate(cases):
            await self.play(case, {"${id}": f"ID{number}A", "${id2}": f"ID{number}B"})

    async def play(self, case: Any, ids: dict[str, str]) -> None:
        def filled(text: str) -> str:
            for key, value in ids.items():
                text = text.replace(key, value)
            return text

        sender = await self.connect()
        for step in case["send"]:
            if "bytes" in step:
                sender.write(filled(step["bytes"]).encode())
            elif "each_byte" in step:
                for byte in filled(step["each_byte"]).encode():
                    sender.write(bytes([byte]))
                    await turns(1)
            elif "sleep" in step:
                await turns()
            else:
                await sender.acks(step["await"])
        await sender.until(lambda: len(sender.raw) >= len(case["acks"]))
        for raw, expected in zip(sender.raw, case["acks"], strict=True):
            self.check(case["id"], Message.parse(raw), {**expected, "control": filled(expected["control"])})
        keys = {ids[key] for key in ids if key in json.dumps(case)}
        self.assertEqual(sum(row.source_id in keys for row in self.inbox.order), len(keys), case["id"])

    def check(self, name: str, ack: Message, expected: Any) -> None:
        msa = ack.segments("MSA")[0].fields
        allowed = expected["code"] if isinstance(expected["code"], list) else [expected["code"]]
        self.assertIn(msa[1], allowed, name)
        self.assertEqual(msa[2], expected["control"], name)
        for place, value in expected.get("msh", {}).items():
            field, _, component = place.partition(".")
            node = ack.segments("MSH")[0].children(field)[0]
            self.assertEqual((node.children(component)[0] if component else node).text, value, (name, place))


class ConnectionTests(SocketCase):
    async def test_pipelined_messages_are_answered_in_order(self) -> None:
        sender = await self.connect()
        sender.write(b"".join(frame(message(n)) for n in range(500)))
        acks = await sender.acks(500)
        self.assertEqual(acks, [("AA", str(n)) for n in range(500)])
        self.assertEqual([row.source_id for row in self.inbox.order], [str(n) for n in range(500)])

    async def test_refusals_are_answered_in_order(self) -> None:
        self.inbox.hold = True
        sender = await self.connect()
        sender.write(frame(message(1)) + frame(b"nonsense") + frame(message("")) + frame(message(2)))
        await until(lambda: len(self.inbox.rejects) == 2)
        self.assertEqual(sender.raw, [])
        self.inbox.hold = False
        self.inbox.release()
        self.assertEqual(await sender.acks(4), [("AA", "1"), ("AR", ""), ("AR", ""), ("AA", "2")])

    async def test_messages_that_ask_for_no_answer(self) -> None:
        sender = await self.connect()
        sender.write(frame(message(1, rest="|||NE|NE")) + frame(message(2)))
        self.assertEqual(await sender.acks(1), [("AA", "2")])
        self.assertEqual(len(self.inbox.order), 2)

    async def test_answers_after_half_close(self) -> None:
        self.inbox.hold = True
        sender = await self.connect()
        sender.write(frame(message(1)) + frame(message(2)))
        sender.transport.loseWriteConnection()  # type: ignore[union-attr]  # TCP has it
        await until(lambda: bool(self.inbox.held))
        await turns(20)
        self.assertFalse(sender.closed)
        self.inbox.hold = False
        self.inbox.release()
        self.assertEqual(await sender.acks(2), [("AA", "1"), ("AA", "2")])
        await sender.until(lambda: sender.closed)

    async def test_a_reset_connection_does_not_affect_others(self) -> None:
        self.inbox.hold = True
        first, other = await self.connect(), await self.connect()
        first.write(frame(message(1)))
        await until(lambda: len(self.inbox.held) == 1)
        handle = first.transport.getHandle()  # type: ignore[union-attr]  # TCP has it
        handle.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        first.transport.abortConnection()  # type: ignore[union-attr]  # TCP has it
        await until(lambda: self.factory.connections == 1)
        self.inbox.hold = False
        self.inbox.release()
        other.write(frame(message(2)))
        self.assertEqual(await other.acks(1), [("AA", "2")])
        self.assertEqual([row.source_id for row in self.inbox.order], ["1", "2"])

    async def test_an_oversized_frame_is_refused_and_the_next_stored(self) -> None:
        self.start(Limits(message=100_000, discard=10_000_000))
        sender = await self.connect()
        sender.write(frame(message(1) + b"OBX|" + b"x" * 1_000_000) + frame(message(2)))
        self.assertEqual(await sender.acks(2), [("AR", "1"), ("AA", "2")])
        (kept,) = self.inbox.rejects
        self.assertGreater(kept.size, 1_000_000)

    async def test_garbage_ends_its_own_connection(self) -> None:
        self.start(Limits(message=100_000, discard=500_000, junk=10_000))
        endless, junk, good = await self.connect(), await self.connect(), await self.connect()
        endless.write(b"\x0bMSH|" + b"x" * 600_000)
        junk.write(b"GET / HTTP/1.1\r\n" * 2000)
        good.write(frame(message(1)))
        await endless.until(lambda: endless.closed)
        await junk.until(lambda: junk.closed)
        self.assertEqual(await good.acks(1), [("AA", "1")])
        await until(lambda: len(self.inbox.rejects) == 2)
        self.assertEqual(self.factory.unfinished_bytes, 0)

    async def test_connections_are_limited(self) -> None:
        self.start(Limits(connections=3))
        senders = [await self.connect() for _ in range(5)]
        await until(lambda: sum(one.closed for one in senders) == 2)
        live = [one for one in senders if not one.closed]
        for number, one in enumerate(live):
            one.write(frame(message(number)))
            self.assertEqual(await one.acks(1), [("AA", str(number))])

    async def test_reading_pauses_while_the_store_is_behind(self) -> None:
        self.start(Limits(outstanding=1000), waiting_rows=50, batch_rows=10)
        self.inbox.hold = True
        senders = [await self.connect() for _ in range(4)]
        for number, one in enumerate(senders):
            one.write(b"".join(frame(message(f"{number}-{n}")) for n in range(100)))
        for_listener: Any = self.factory.receiver
        await until(lambda: self.inbox.held, "the store is behind")
        await turns(20)
        self.assertIn(for_listener.receiver.commit.backlog, range(30, 61))
        self.inbox.hold = False
        while self.inbox.held:
            self.inbox.release()
        for number, one in enumerate(senders):
            self.assertEqual(await one.acks(100), [("AA", f"{number}-{n}") for n in range(100)])

    async def test_stop_answers_received_messages(self) -> None:
        self.inbox.hold = True
        sender, idle = await self.connect(), await self.connect()
        sender.write(frame(message(1)) + b"\x0bMSH|unfinished")
        await until(lambda: bool(self.inbox.held))
        await self.port.stopListening()
        stopped = Deferred.fromCoroutine(self.factory.stop(5))
        await idle.until(lambda: idle.closed)
        self.assertNoResult(stopped)
        self.inbox.release()
        self.assertEqual(await sender.acks(1), [("AA", "1")])
        await stopped

    async def test_stop_has_a_time_limit(self) -> None:
        self.inbox.hold = True
        sender = await self.connect()
        sender.write(frame(message(1)))
        await until(lambda: bool(self.inbox.held))
        await self.factory.stop(0.1)
        await sender.until(lambda: sender.closed)
        self.assertEqual(sender.raw, [])


class Wire(StringTransport):
    """A transport that records how it was closed."""

    aborted = False

    def unregisterProducer(self) -> None:
        self.producer = None

    def abortConnection(self) -> None:
        self.aborted = True


class TimeTests(TestCase):
    """Time limits, on a fake clock."""

    def setUp(self) -> None:
        self.inbox = PlainInbox()
        self.clock = Clock()

    def connection(self, **limits: Any) -> tuple[Any, Wire]:
        self.factory = make_factory(self.inbox, self.clock, Limits(**limits))
        connection = self.factory.buildProtocol(None)
        assert connection is not None
        wire = Wire()
        connection.makeConnection(wire)
        return connection, wire

    def test_a_stalled_frame(self) -> None:
        connection, wire = self.connection()
        connection.dataReceived(b"\x0bMSH|")
        self.clock.advance(29)
        connection.dataReceived(b"more")
        self.clock.advance(29)
        self.assertFalse(wire.disconnecting)
        self.clock.advance(2)
        self.assertTrue(wire.disconnecting)
        self.assertEqual(
            [(one.reason, one.raw) for one in self.inbox.rejects], [("the frame was not continued", b"MSH|more")]
        )

    def test_a_frame_that_never_ends(self) -> None:
        connection, wire = self.connection()
        connection.dataReceived(b"\x0b")
        for _ in range(30):
            self.assertFalse(wire.disconnecting)
            connection.dataReceived(b"x")
            self.clock.advance(10)
        self.assertTrue(wire.disconnecting)

    def test_each_frame_has_its_own_time_limit(self) -> None:
        connection, wire = self.connection()
        whole = frame(message(1))
        for number in range(40):
            connection.dataReceived(whole[10:] + whole[:10] if number else whole[:10])
            self.clock.advance(10)
        self.assertFalse(wire.disconnecting)
        self.assertEqual(len(self.inbox.order), 1)

    def test_idle_connections_stay_open(self) -> None:
        connection, wire = self.connection()
        connection.dataReceived(frame(message(1)))
        self.clock.advance(1_000_000)
        self.assertFalse(wire.disconnecting)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_a_closing_connection_is_aborted_in_the_end(self) -> None:
        self.clock.advance(1000)
        _, wire = self.connection(idle=60.0)
        self.clock.advance(50)
        self.assertFalse(wire.disconnecting)
        self.clock.advance(11)
        self.assertTrue(wire.disconnecting)
        self.assertFalse(wire.aborted)
        self.clock.advance(31)
        self.assertTrue(wire.aborted)

    def test_idle_limit(self) -> None:
        connection, wire = self.connection(idle=60.0)
        self.clock.advance(50)
        connection.dataReceived(frame(message(1)))
        self.clock.advance(50)
        self.assertFalse(wire.disconnecting)
        self.clock.advance(20)
        self.assertTrue(wire.disconnecting)
        self.assertEqual(self.inbox.rejects, [])

    def test_unanswered_messages_are_limited(self) -> None:
        self.inbox.hold = True
        connection, wire = self.connection(outstanding=3)
        connection.dataReceived(b"".join(frame(message(n)) for n in range(10)))
        self.assertEqual(wire.producerState, "paused")
        self.clock.advance(0)
        self.assertEqual((self.inbox.batches, connection.unanswered), ([3], 10))
        self.inbox.hold = False
        self.inbox.release()
        for _ in range(3):
            self.assertEqual(wire.producerState, "paused" if connection.unanswered > 3 else "producing")
            self.clock.advance(0)
        self.assertEqual((self.inbox.batches, connection.unanswered), ([3, 3, 3, 1], 0))
        self.assertEqual(wire.producerState, "producing")
        self.assertEqual(wire.value().count(b"MSA|AA|"), 10)

    def test_reading_pauses_while_the_peer_does_not_read(self) -> None:
        connection, wire = self.connection()
        connection.pauseProducing()
        self.assertEqual(wire.producerState, "paused")
        connection.resumeProducing()
        self.assertEqual(wire.producerState, "producing")

    def test_paused_time_does_not_count(self) -> None:
        connection, wire = self.connection()
        connection.dataReceived(b"\x0bMSH|")
        connection.pauseProducing()
        self.clock.advance(100)
        connection.resumeProducing()
        self.clock.advance(20)
        self.assertFalse(wire.disconnecting)
        self.clock.advance(40)
        self.assertTrue(wire.disconnecting)

    def test_memory_of_unfinished_frames_is_limited(self) -> None:
        connection, wire = self.connection(memory=1000)
        connection.dataReceived(b"\x0b" + b"x" * 900)
        self.assertEqual((self.factory.unfinished_bytes, wire.disconnecting), (900, False))
        second = self.factory.buildProtocol(None)
        assert second is not None
        other = Wire()
        second.makeConnection(other)
        second.dataReceived(b"\x0b" + b"x" * 200)
        self.assertEqual((other.disconnecting, self.factory.unfinished_bytes), (True, 900))
        connection.connectionLost()
        self.assertEqual(self.factory.unfinished_bytes, 0)

    def test_complete_messages_are_stored_after_a_reset(self) -> None:
        self.inbox.hold = True
        connection, wire = self.connection(outstanding=1)
        connection.dataReceived(b"".join(frame(message(n, rest="|||NE|NE")) for n in range(3)))
        connection.connectionLost()
        self.clock.advance(0)
        self.inbox.hold = False
        self.inbox.release()
        for _ in range(2):  # one message at a time
            self.clock.advance(0)
        self.assertEqual([row.source_id for row in self.inbox.order], ["0", "1", "2"])
        self.assertEqual(wire.value(), b"")
