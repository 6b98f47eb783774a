"""Counts of unread fields between conversion and store."""

from __future__ import annotations

from dataclasses import replace

from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from ipf.errors import StoreUnreachable
from ipf.pipeline.convert import unread_counts
from ipf.pipeline.convert.unread_counts import UnreadCounter
from ipf.ports import UnreadCount, UnreadField
from ipf.ports.messages.unread_fields import OTHER_PATHS
from tests.pipeline.convert.test_convert import message

FIELD = UnreadField("unread", "PV1-40")
DECLARED = UnreadField("declared", "PID-1", "set ID")


class Store:
    """Keeps what it is given; `away`: fails so many times."""

    def __init__(self) -> None:
        self.added: list[list[UnreadCount]] = []
        self.kinds: list[tuple[str, int]] = []
        self.away = 0

    async def add(self, counts: list[UnreadCount]) -> None:
        if self.away:
            self.away -= 1
            raise StoreUnreachable
        self.added.append(counts)

    def unread_fields(self, kind: str, count: int) -> None:
        self.kinds.append((kind, count))


class UnreadCounterTests(TestCase):
    def setUp(self) -> None:
        self.store = Store()
        self.counter = UnreadCounter(self.store, self.store)  # type: ignore[arg-type]

    async def test_counts_of_several_messages_are_one_row(self) -> None:
        """With the newest message as sample; each is stored once."""
        self.counter.add(message(3), (FIELD, DECLARED))
        self.counter.add(replace(message(9), original_id=2), (FIELD,))
        self.counter.add(replace(message(4), source_system="OTHER"), (FIELD,))
        await self.counter.flush()
        await self.counter.flush()
        expected = [
            UnreadCount("default", "LAB", "ADT_A01", "unread", "PV1-40", "", 2, 3),
            UnreadCount("default", "LAB", "ADT_A01", "declared", "PID-1", "set ID", 1, 3),
            UnreadCount("default", "OTHER", "ADT_A01", "unread", "PV1-40", "", 1, 4),
        ]
        self.assertEqual(self.store.added, [expected])
        self.assertEqual(self.store.kinds, [("unread", 3), ("declared", 1)])

    async def test_counts_stay_while_the_store_is_away(self) -> None:
        """They are stored with those of later messages; a stop without a store ends."""
        self.store.away = 1
        self.counter.add(message(1), (FIELD,))
        await self.assertFailure(Deferred.fromCoroutine(self.counter.flush()), StoreUnreachable)
        self.counter.add(message(2), (FIELD,))
        await self.counter.stop()
        self.assertEqual([(one.occurrences, one.message_id) for one in self.store.added[0]], [(2, 2)])
        self.store.away = 1
        self.counter.add(message(3), (FIELD,))
        await self.counter.stop()
        self.assertEqual(len(self.store.added), 1)

    async def test_they_are_bounded(self) -> None:
        """Further paths of a sender count as one."""
        self.patch(unread_counts, "_MOST_KEPT", 3)
        self.counter.add(message(1), [UnreadField("unread", f"Z{number}", "why") for number in range(6)])
        self.counter.add(message(2), [UnreadField("unread", "Z0", "why")])
        await self.counter.flush()
        found = {(one.message_type, one.path): (one.occurrences, one.reason) for one in self.store.added[0]}
        self.assertEqual(found["ADT_A01", "Z0"], (2, "why"))
        self.assertEqual(found[OTHER_PATHS, OTHER_PATHS], (3, ""))
        self.assertEqual(len(found), 4)
