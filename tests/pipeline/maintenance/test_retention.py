"""The run of retention: what the policy keeps, the pauses, a lost lease, a stop in the middle."""

from __future__ import annotations

from datetime import UTC, datetime

from twisted.trial.unittest import TestCase

from ipf.pipeline.maintenance.retention import RENEW_SECONDS, Retention, would_remove
from ipf.ports import Json
from ipf.ports.messages.statistics import RetentionPolicy, RetentionState

NOW = datetime(2026, 5, 1, tzinfo=UTC)


class MemoryPruner:
    """So many batches of each kind; `free`: a run may begin."""

    kinds = ("messages", "dead_letters", "versions")

    def __init__(self) -> None:
        self.batches = {"messages": 3, "dead_letters": 1, "versions": 2}
        self.prunes: list[tuple[str, datetime, str]] = []
        self.taken: list[Json | None] = []
        self.finished: Json | None = None
        self.free = True

    async def prune(self, kind: str, before: datetime, after: str) -> tuple[int, str | None]:
        self.prunes.append((kind, before, after))
        self.batches[kind] -= 1
        return 5, str(self.batches[kind]) if self.batches[kind] > 0 else None

    async def count(self, kind: str, before: datetime) -> int:
        return 5 * self.batches[kind]

    async def hold_run(self, worker: str, seconds: float, result: Json | None) -> bool:
        self.taken.append(None if result is None else dict(result))
        return self.free

    async def end_run(self, worker: str, result: Json) -> None:
        self.finished = result

    async def request_run(self) -> None:
        self.free = True

    async def last_run(self) -> RetentionState:
        return RetentionState(None, None, None, self.finished or {})


class RetentionTests(TestCase):
    def make(self, policy: RetentionPolicy) -> Retention:
        self.pruner = MemoryPruner()
        self.time = 0.0
        self.pauses: list[float] = []

        async def pause(seconds: float) -> None:
            self.pauses.append(seconds)
            self.time += RENEW_SECONDS / 1.5

        return Retention(self.pruner, policy, "me", lambda: NOW, pause, lambda: self.time)

    async def test_a_run(self) -> None:
        """Kinds that are kept for ever are skipped; the lease is renewed, and ends with the result."""
        retention = self.make(RetentionPolicy(delivered_days=30, history_days=400))
        self.assertFalse(await retention.step())
        self.assertEqual([kind for kind, _, _ in self.pruner.prunes], ["messages"] * 3 + ["versions"] * 2)
        self.assertEqual([after for _, _, after in self.pruner.prunes], ["", "2", "1", "", "1"])
        self.assertEqual((NOW - self.pruner.prunes[0][1]).days, 30)
        self.assertEqual(self.pruner.finished, {"messages": 15, "versions": 10})
        self.assertEqual(self.pruner.taken, [None, {"messages": 15}, {"messages": 15, "versions": 10}])
        self.assertEqual(len(self.pauses), 5)

    async def test_a_kind_that_cannot_be_removed_keeps_no_other(self) -> None:
        """Health says so until it can; the run ends, and the next is due when it is."""
        retention = self.make(RetentionPolicy(delivered_days=30, history_days=400))
        prune = self.pruner.prune

        async def failing(kind: str, before: datetime, after: str) -> tuple[int, str | None]:
            if kind == "messages":
                raise ZeroDivisionError
            return await prune(kind, before, after)

        self.pruner.prune = failing  # type: ignore[method-assign]
        await retention.step()
        self.assertEqual(self.pruner.finished, {"messages": 0, "versions": 10})
        self.assertEqual(retention.problem, "messages: unexpected ZeroDivisionError")
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.pruner.prune = prune  # type: ignore[method-assign]
        await retention.step()
        self.assertIsNone(retention.problem)

    async def test_nothing_to_do(self) -> None:
        await self.make(RetentionPolicy()).step()
        self.assertEqual(self.pruner.taken, [])
        retention = self.make(RetentionPolicy(1))
        self.pruner.free = False
        await retention.step()
        self.assertEqual(self.pruner.prunes, [])

    async def test_a_stop_and_a_lost_lease_end_the_run(self) -> None:
        retention = self.make(RetentionPolicy(1))
        retention.stop()
        await retention.step()
        self.assertEqual((self.pruner.prunes, self.pruner.finished), ([], None))
        retention = self.make(RetentionPolicy(1))
        self.time = -RENEW_SECONDS * 2
        take = self.pruner.hold_run

        async def once(worker: str, seconds: float, result: Json | None) -> bool:
            await take(worker, seconds, result)
            return result is None

        self.pruner.hold_run = once  # type: ignore[method-assign]
        await retention.step()
        self.assertIsNone(self.pruner.finished)
        self.assertLess(len(self.pruner.prunes), 5)

    async def test_dry_run(self) -> None:
        self.make(RetentionPolicy())
        found = await would_remove(self.pruner, RetentionPolicy(30), lambda: NOW)
        self.assertEqual(found, {"messages": 15, "dead_letters": None, "versions": None})
        self.assertEqual(self.pruner.prunes, [])
