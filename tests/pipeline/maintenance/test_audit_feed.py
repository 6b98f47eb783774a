"""The feed of audit records: order, repetition after breaks, several processes, waits, the stop.

The receiver is a fake.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise
from random import Random

from twisted.trial.unittest import TestCase

from ipf.errors import StoreUnreachable
from ipf.pipeline.maintenance.audit_feed import (
    BATCH,
    LEASE_SECONDS,
    MOST_UNCONFIRMED,
    PACE,
    RENEW_SECONDS,
    AuditFeed,
)
from ipf.ports.audit.feed import FedRecord, LogStream, StreamLost
from ipf.ports.audit.records import ADMIN, FHIR, Audit, AuditContext, datetime_of
from tests.fakes.audit_feed import MemoryAuditFeed


class Receiver:
    """A log server.  `is_up`: it can be reached.  `breaks_after`: so many records later the connection breaks; it has
    read `reads` of those that were not confirmed.  `heard`: what it has, a list for each connection."""

    def __init__(self) -> None:
        self.is_up = True
        self.breaks_after: int | None = None
        self.reads = 0
        self.heard: list[list[int]] = []
        self.closes = 0

    async def open(self) -> LogStream:
        if not self.is_up:
            raise StreamLost("connection refused")
        self.heard.append([])
        return Connection(self)


class Connection:
    """One stream to it; the frames are positions."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._unread: list[int] = []

    async def send(self, frames: bytes) -> None:
        """See `LogStream`."""
        receiver = self._receiver
        for one in map(int, frames.split()):
            if receiver.breaks_after == 0:
                receiver.breaks_after = None
                self.abort()
                raise StreamLost("the log server has ended the connection")
            if receiver.breaks_after is not None:
                receiver.breaks_after -= 1
            self._unread.append(one)

    async def close(self) -> None:
        """See `LogStream`."""
        self._receiver.closes += 1
        if not self._receiver.is_up:
            raise StreamLost("not confirmed")
        self._receiver.heard[-1] += self._unread
        self._unread = []

    def abort(self) -> None:
        """See `LogStream`."""
        self._receiver.heard[-1] += self._unread[: self._receiver.reads]
        self._unread = []


def render(records: Sequence[FedRecord]) -> bytes:
    """The positions."""
    return b"".join(b"%d " % one.position for one in records)


def record(at: int, surface: str = FHIR) -> Audit:
    """A record of this millisecond."""
    context = AuditContext("default", surface, "read", "R", 0, 200, "a")
    return Audit(context, at, "7000-8000-000000000000", 0, "")


class FeedTests(TestCase):
    def setUp(self) -> None:
        self.time = 1000.0
        self.store = MemoryAuditFeed(lambda: self.time)
        self.receiver = Receiver()
        self.feed = self.make("one")

    def make(self, worker: str, surfaces: Sequence[str] = (FHIR, ADMIN)) -> AuditFeed:
        now = datetime_of(0)
        return AuditFeed(
            self.store, self.receiver.open, render, surfaces, worker, lambda: now + timedelta(seconds=self.time),
            lambda: self.time,
        )  # fmt: skip

    def write(self, count: int) -> None:
        """So many records."""
        self.store.chain += [record(int(self.time * 1000)) for _ in range(count)]

    async def drain(self, feed: AuditFeed | None = None) -> int:
        """Steps until there is nothing to do; how many."""
        steps = 1
        while await (feed or self.feed).step():
            steps += 1
        return steps

    async def checkpoint(self) -> None:
        """The step at which the stream is ended."""
        self.time += PACE.checkpoint
        await self.drain()

    async def test_all_in_order(self) -> None:
        self.write(3 * BATCH + 7)
        self.assertEqual(await self.drain(), 4)
        self.assertEqual(self.store.position, 0)
        await self.checkpoint()
        self.assertEqual((self.receiver.heard, self.store.position), ([[*range(1, 308)]], 307))
        self.write(1)
        await self.drain()
        await self.checkpoint()
        self.assertEqual((self.receiver.heard[1:], self.store.position), ([[308]], 308))
        await self.checkpoint()
        self.assertEqual((len(self.receiver.heard), self.receiver.closes), (2, 2))  # nothing to say: no connection

    async def test_many_records_are_confirmed_before_their_time(self) -> None:
        self.write(MOST_UNCONFIRMED + 1)
        await self.drain()
        self.assertEqual(self.store.position, MOST_UNCONFIRMED)

    async def test_other_surfaces_and_removed_records_are_passed_over(self) -> None:
        feed = self.make("fhir", (FHIR,))
        self.store.chain += [record(1, ADMIN)] * (BATCH + 1)
        await self.drain(feed)
        self.assertEqual((self.receiver.heard, self.store.position), ([], BATCH + 1))
        self.store.chain += [None, record(2), record(3, ADMIN), record(4)]
        await self.drain(feed)
        await feed.stop()
        self.assertEqual((self.receiver.heard, self.store.position), ([[BATCH + 3, BATCH + 5]], BATCH + 5))

    async def test_breaks(self) -> None:
        """In any order of breaks: no gap, and what comes twice comes after a break, from the last confirmed on."""
        for seed in range(300):
            self.setUp()
            random, receiver = Random(seed), self.receiver
            for _ in range(random.randint(3, 12)):
                self.write(random.randint(0, 2 * BATCH))
                receiver.is_up = random.random() < 0.7
                if random.random() < 0.5:
                    receiver.breaks_after, receiver.reads = random.randint(0, BATCH), random.randint(0, BATCH)
                if random.random() < 0.2:
                    await self.feed.stop()
                    self.feed = self.make("one")
                await self.drain()
                self.time += random.choice((1.0, PACE.checkpoint, PACE.longest_wait))
            receiver.is_up, receiver.breaks_after = True, None
            for _ in range(3):
                self.time += PACE.longest_wait
                await self.drain()
            await self.feed.stop()
            self.assertEqual(self.store.position, len(self.store.chain), seed)
            last = 0
            for heard in receiver.heard:
                self.assertEqual(heard, [*range(heard[0], heard[-1] + 1)] if heard else [], seed)
                if heard:
                    self.assertLessEqual(heard[0], last + 1, seed)
                    last = max(last, heard[-1])
            self.assertEqual(last, len(self.store.chain), seed)

    async def test_waits_double_to_a_limit(self) -> None:
        self.receiver.is_up = False
        self.write(1)
        attempts = []
        for _ in range(400):
            before = len(attempts)
            self.receiver.open = self._counted(attempts)  # type: ignore[method-assign]
            self.feed._open_stream = self.receiver.open
            await self.feed.step()
            self.time += 1.0
            self.assertLessEqual(len(attempts) - before, 1)
        gaps = [after - before for before, after in pairwise(attempts)]
        self.assertEqual(gaps, [1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 60])
        with self.assertRaisesRegex(RuntimeError, "connection refused"):
            await self.feed.health()

    def _counted(self, attempts: list[float]) -> object:
        async def refuse() -> LogStream:
            attempts.append(self.time)
            raise StreamLost("connection refused")

        return refuse

    async def test_one_process_sends(self) -> None:
        other = self.make("other")
        self.write(5)
        await self.drain()
        await other.step()
        self.assertEqual((await self.feed.health())["sender"], True)
        self.assertEqual(await other.health(), {"sender": False})
        await self.feed.stop()  # confirms, and leaves the lease to others
        self.write(1)
        self.time += RENEW_SECONDS
        await other.step()
        await other.stop()
        self.assertEqual((self.receiver.heard, self.store.position), ([[1, 2, 3, 4, 5], [6]], 6))

    async def test_a_lost_lease_is_noticed(self) -> None:
        """The position never moves back; what was not confirmed comes again from the other process."""
        other = self.make("other")
        self.write(5)
        await self.drain()
        self.time += LEASE_SECONDS
        await other.step()
        self.write(1)
        await other.step()
        await self.feed.step()
        await other.stop()
        self.assertEqual((self.receiver.heard[-1], self.store.position), ([1, 2, 3, 4, 5, 6], 6))
        await self.feed.step()
        self.assertEqual(self.store.position, 6)

    async def test_health_and_age(self) -> None:
        self.write(1)
        self.time += 40
        await self.feed.step()
        self.assertEqual(await self.feed.health(), {"sender": True, "position": 0, "seconds_behind": 40})
        await self.feed.step()
        self.assertEqual((await self.feed.health())["seconds_behind"], 0)

    async def test_an_unreachable_store_is_the_workers_to_wait_for(self) -> None:
        async def unreachable(*_: object) -> int:
            raise StoreUnreachable("away")

        self.store.hold = unreachable  # type: ignore[method-assign]
        with self.assertRaises(StoreUnreachable):
            await self.feed.step()
