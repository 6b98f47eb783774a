"""Rejects by address: from the bytes of senders on the network to what is kept and what they are answered."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.trial.unittest import SynchronousTestCase

from ipf.hl7.framing import Framer, Junk, frame
from ipf.hl7.message import Message
from ipf.pipeline.receive.group_commit import GroupCommit
from ipf.pipeline.receive.receive import MllpListener, Receiver
from ipf.pipeline.receive.rejects import WEIGHT, WEIGHT_SECONDS, LimitedRejects, address_of
from ipf.ports.messages.inbox import MessageStore
from ipf.security.addresses import source_of
from ipf.wire.mllp.limits import Limits
from ipf.wire.mllp.protocol import MllpFactory
from tests.pipeline.plain_inbox import PlainInbox
from tests.wire.mllp.test_protocol import message

LARGE = b"no message" * 7000
KEPT = 64  # KiB of a reject


class RejectLimitTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.inbox, self.clock = PlainInbox(), Clock()
        self.limited = 0
        plain: Any = self.inbox
        store: MessageStore = LimitedRejects(plain, self.clock.seconds, self._count)
        self.receiver = Receiver(
            store, GroupCommit(store, self.clock), self.clock, now=lambda: datetime.now(UTC), new_correlation_id=str
        )
        self.factory = MllpFactory("main", self.receiver.for_listener(MllpListener("main")), self.clock, Limits())

    def _count(self) -> None:
        self.limited += 1

    def send(self, content: bytes, address: str = "192.0.2.1") -> tuple[str, str]:
        """MSA-1 and ERR-8 of the answer to one frame on a new connection."""
        peer = IPv4Address("TCP", address, 4000)
        protocol: Any = self.factory.buildProtocol(peer)
        transport = StringTransport(peerAddress=peer)
        protocol.makeConnection(transport)
        protocol.dataReceived(frame(content))
        self.clock.advance(0)
        (answer,) = [one for one in Framer().feed(transport.value()) if isinstance(one, bytes)]
        transport.loseConnection()
        read = Message.parse(answer)
        error = read.segments("ERR")
        return read.segments("MSA")[0].fields[1], error[0].fields[8] if error else ""

    def test_one_address_fills_no_table_and_stops_no_other(self) -> None:
        """Beyond the limit it is answered AE, also for what would be AR; its messages are taken all the same."""
        most = WEIGHT // (KEPT + 1) + 1
        answers = [self.send(LARGE) for _ in range(most + 5)]
        self.assertEqual([code for code, _ in answers], ["AR"] * most + ["AE"] * 5)
        self.assertIn("send it again", answers[-1][1])
        self.assertEqual((len(self.inbox.rejects), self.limited), (most, 5))
        self.assertEqual(self.send(b"no message", "192.0.2.2")[0], "AR")
        self.assertEqual(self.send(message(1))[0], "AA")
        self.clock.advance(WEIGHT_SECONDS)
        self.assertEqual(self.send(LARGE)[0], "AR")

    def test_bytes_outside_of_frames_are_kept_within_the_limit(self) -> None:
        for _ in range(WEIGHT + 10):
            self.receiver.lost(Junk(b"x", 1), MllpListener("main"), "192.0.2.1:4000", "junk")
        self.assertEqual((len(self.inbox.rejects), self.limited), (WEIGHT, 10))

    def test_addresses(self) -> None:
        for peer, expected in (
            ("192.0.2.1:4000", "192.0.2.1"), ("192.0.2.1", "192.0.2.1"), ("2001:db8::1:4000", "2001:db8::/64"),
            ("2001:db8:0:0:a:b:c:d:4000", "2001:db8::/64"), ("2001:db8:0:0:a:b:c:d", "2001:db8::/64"), ("file", "file"),
        ):  # fmt: skip
            self.assertEqual(source_of(address_of(peer)), expected, peer)

    def test_files_and_operators_have_no_limit(self) -> None:
        own = MllpListener("files", tells_all=True)
        for _ in range(WEIGHT // (KEPT + 1) + 10):
            self.receiver.take(LARGE, own, "file", None, lambda answer: None)
        self.assertEqual((len(self.inbox.rejects), self.limited), (WEIGHT // (KEPT + 1) + 10, 0))
