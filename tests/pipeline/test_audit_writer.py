"""The queue of the audit trail: batches, a store that is away, bounds, records that cannot be stored, stopping."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock, deferLater
from twisted.logger import LogEvent, globalLogPublisher
from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem, StoreUnreachable
from ipf.pipeline.audit_writer import BATCH, MOST_HELD, PAUSE_SECONDS, RETRY_SECONDS, SLICE, AuditLog
from ipf.ports import Answer, Request
from ipf.ports.audit.records import Audit
from ipf.ports.audit_exchange import Exchange, weight_of
from tests.contracts.audit import audit
from tests.fakes.audit import MemoryAuditStore


class _Choosy(MemoryAuditStore):
    """Refuses whatever holds record 3."""

    async def append(self, audits: Sequence[Audit]) -> None:
        self.appends += 1
        if any(one.id == audit(3).id for one in audits):
            raise Problem(Category.INTERNAL, "no")
        self.appends -= 1
        await super().append(audits)


class AuditLogTests(TestCase):
    """On a clock that stands still."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.store = MemoryAuditStore()
        self.counted: Counter[str] = Counter()
        self.log = self.made(self.store)

    def made(self, store: MemoryAuditStore, most: int = 100, **more: Any) -> AuditLog:
        """A queue."""

        def count(outcome: str, count: int) -> None:
            self.counted[outcome] += count

        return AuditLog(store, self.clock, most=most, count=count, **more)

    def test_what_gathers_is_written_together(self) -> None:
        for number in range(5):
            self.log.note(audit(number))
        self.assertEqual(self.store.rows, {})
        self.clock.advance(PAUSE_SECONDS)
        self.assertEqual((len(self.store.rows), self.store.appends), (5, 1))
        self.log.note(audit(9))
        self.clock.advance(PAUSE_SECONDS)
        self.assertEqual((len(self.store.rows), self.store.appends), (6, 2))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_what_comes_while_records_are_written_gathers_for_the_next_time(self) -> None:
        """A load that does not end must not make a commit of the few records that come during each commit."""

        class Slow(MemoryAuditStore):
            async def append(self, audits: Sequence[Audit]) -> None:
                await deferLater(clock, PAUSE_SECONDS / 10)
                await super().append(audits)

        clock, store = self.clock, Slow()
        log = self.made(store, most=5000)
        for number in range(1000):
            log.note(audit(number))
            clock.advance(PAUSE_SECONDS / 100)
        self.assertEqual((store.appends, log.waiting), (9, 0))  # and the tenth is under way
        Deferred.fromCoroutine(log.stop(5))
        clock.pump([PAUSE_SECONDS / 10] * 3)
        self.assertEqual((len(store.rows), clock.getDelayedCalls()), (1000, []))

    def test_all_that_has_gathered_is_written(self) -> None:
        """However much it is, without a further pause; what comes after a slow commit waits no longer than it took."""
        log = self.made(self.store, most=5000)
        for number in range(2 * BATCH + 1):
            log.note(audit(number))
        self.clock.advance(PAUSE_SECONDS)
        self.assertEqual((self.store.appends, len(self.store.rows)), (3, 2 * BATCH + 1))

    def test_records_are_made_many_at_a_time(self) -> None:
        """When they are written, or before, when too much is held for them."""
        made: list[int] = []

        def make(exchanges: Sequence[Exchange]) -> list[Audit]:
            made.append(len(exchanges))
            return [audit(ended) for _, _, _, ended in exchanges]

        def note(number: int, size: int = 0) -> None:
            log.note_exchange((request, Answer(200, b" " * size), 0.01, number))

        request = Request("GET", ("Patient", "1"), (), {}, b"", "", "")
        log = self.made(self.store, make=make)
        for number in range(5):
            note(number)
        self.assertEqual((made, log.waiting), ([], 5))
        self.clock.advance(PAUSE_SECONDS)
        self.assertEqual((made, len(self.store.rows), log.waiting), ([5], 5, 0))
        note(5)
        note(6, MOST_HELD)
        self.assertEqual((made, log.waiting), ([5, 2], 2))
        note(7)
        Deferred.fromCoroutine(log.stop(5.0))
        self.assertEqual((made, len(self.store.rows)), ([5, 2, 1], 8))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_records_are_made_in_slices(self) -> None:
        """Whatever waits, a turn of the reactor makes those of 64 KiB, and more is never held than a bound."""
        made: list[int] = []

        def make(exchanges: Sequence[Exchange]) -> list[Audit]:
            made.append(sum(map(weight_of, exchanges)))
            return [audit(ended) for _, _, _, ended in exchanges]

        request = Request("GET", ("Patient", "1"), (("name", "x" * 1000),), {}, b"y" * 1000, "", "")
        log = self.made(self.store, most=5000, make=make)
        for number in range(1000):
            log.note_exchange((request, Answer(200, b" " * 1000), 0.01, number))
            self.assertLessEqual(log._held, MOST_HELD)
        early = len(made)
        self.assertLess(max(made), 10_000)
        self.clock.advance(PAUSE_SECONDS)
        self.assertLess(max(made), SLICE + 10_000)
        self.assertEqual((len(made) - early, len(self.store.rows)), (8, 1000))

    def test_a_statement_is_bounded_by_what_its_records_name(self) -> None:
        for number in range(30):
            self.log.note(audit(number)._replace(entities=tuple(f"Observation/{one}" for one in range(500))))
        self.clock.advance(PAUSE_SECONDS)
        self.assertEqual((self.store.appends, len(self.store.rows)), (4, 30))

    def test_what_is_not_admitted_is_counted_and_said_once_a_minute(self) -> None:
        warned: list[LogEvent] = []

        def hear(event: LogEvent) -> None:
            if "audit_limited" in str(event.get("log_format")):
                warned.append(event)

        globalLogPublisher.addObserver(hear)
        self.addCleanup(globalLogPublisher.removeObserver, hear)
        log = self.made(self.store, admit=lambda one: one._replace(target="seen") if one.id == audit(3).id else None)
        for number in range(5):
            log.note(audit(number))
        self.clock.advance(PAUSE_SECONDS)
        self.assertEqual([row.target for row in self.store.rows.values()], ["seen"])
        self.assertEqual((self.counted, len(warned)), ({"limited": 4, "written": 1}, 1))
        self.clock.advance(60)
        log.note(audit(6))
        self.assertEqual(len(warned), 2)
        self.clock.advance(PAUSE_SECONDS)

    def test_while_the_store_is_away_records_wait(self) -> None:
        self.store.failing = StoreUnreachable()
        for number in range(3):
            self.log.note(audit(number))
        self.clock.advance(PAUSE_SECONDS)
        self.assertEqual((self.log.waiting, len(self.store.rows)), (3, 0))
        self.log.note(audit(3))
        self.clock.advance(RETRY_SECONDS)
        self.assertEqual(self.log.waiting, 4)
        self.store.failing = None
        self.clock.advance(RETRY_SECONDS)
        self.assertEqual([row.id for row in self.store.rows.values()], [audit(number).id for number in range(4)])
        self.assertEqual(self.counted, {"written": 4})

    def test_what_may_have_been_stored_comes_again_as_it_was(self) -> None:
        """The answer of the store was lost: the same batch is stored again, unchanged."""

        class Lossy(MemoryAuditStore):
            def __init__(self) -> None:
                super().__init__()
                self.batches: list[list[str]] = []

            async def append(self, audits: Sequence[Audit]) -> None:
                await super().append(audits)
                self.batches.append([one.id for one in audits])
                if len(self.batches) < 3:
                    raise StoreUnreachable()

        store = Lossy()
        log = self.made(store)
        log.note(audit(1))
        self.clock.advance(PAUSE_SECONDS)
        log.note(audit(2))
        for _ in range(2):
            self.clock.advance(RETRY_SECONDS)
        first, second = [audit(1).id], [audit(2).id]
        self.assertEqual(store.batches, [first, first, first, second])
        self.assertEqual((self.counted, log.waiting), ({"written": 2}, 0))

    def test_beyond_the_bound_records_are_dropped_and_counted(self) -> None:
        self.store.failing = StoreUnreachable()
        log = self.made(self.store, most=10)
        for number in range(25):
            log.note(audit(number))
        self.clock.advance(PAUSE_SECONDS)
        self.assertEqual((log.waiting, self.counted), (10, {"dropped": 15}))
        self.store.failing = None
        self.clock.advance(RETRY_SECONDS)
        self.assertEqual(self.counted, {"dropped": 15, "written": 10})

    def test_a_record_that_cannot_be_stored_costs_only_itself(self) -> None:
        store = _Choosy()
        log = self.made(store)
        for number in range(7):
            log.note(audit(number))
        self.clock.advance(PAUSE_SECONDS)
        self.assertEqual(sorted(one.id for one in store.rows.values()),
                         [audit(number).id for number in (0, 1, 2, 4, 5, 6)])  # fmt: skip
        self.assertEqual(self.counted, {"written": 6, "dropped": 1})

    def test_a_stop_writes_what_waits(self) -> None:
        self.log.note(audit(1))
        self.successResultOf(Deferred.fromCoroutine(self.log.stop(5)))
        self.assertEqual(len(self.store.rows), 1)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_a_stop_without_a_store_ends(self) -> None:
        self.store.failing = StoreUnreachable()
        for number in range(3):
            self.log.note(audit(number))
        self.successResultOf(Deferred.fromCoroutine(self.log.stop(5)))
        self.assertEqual(self.counted, {"dropped": 3})
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_a_stop_does_not_wait_for_ever(self) -> None:
        class Hanging(MemoryAuditStore):
            async def append(self, audits: Sequence[Audit]) -> None:
                await Deferred()

        log = self.made(Hanging())
        log.note(audit(1))
        self.clock.advance(PAUSE_SECONDS)
        stopping = Deferred.fromCoroutine(log.stop(5))
        self.assertNoResult(stopping)
        self.clock.advance(5)
        self.successResultOf(stopping)
