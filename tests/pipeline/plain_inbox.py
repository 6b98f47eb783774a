"""A minimal in-memory inbox for the receive stage: keys in a dict; a test can hold back results."""

from __future__ import annotations

from collections.abc import Sequence

from twisted.internet.defer import Deferred

from ipf.ports import Outcome, Received, Rejected


class PlainInbox:
    """`held`: batches that wait for :meth:`release` when `hold` is set.  `fail`: raised by the next `store` calls."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], Received] = {}
        self.order: list[Received] = []
        self.batches: list[int] = []
        self.rejects: list[Rejected] = []
        self.hold = False
        self.held: list[Deferred[None]] = []
        self.fail: Exception | None = None
        self.poison: set[str] = set()

    async def store(self, batch: Sequence[Received]) -> list[Outcome]:
        self.batches.append(len(batch))
        if self.hold:
            held: Deferred[None] = Deferred()
            self.held.append(held)
            await held
        if self.fail is not None:
            raise self.fail
        if any(one.source_id in self.poison for one in batch):
            raise ValueError("a row that no database takes")
        return [self._store(one) for one in batch]

    async def reject(self, rejected: Rejected) -> None:
        if self.fail is not None:
            raise self.fail
        self.rejects.append(rejected)

    def release(self, number: int = 0) -> None:
        """Release one held batch."""
        self.held.pop(number).callback(None)

    def _store(self, one: Received) -> Outcome:
        key = (one.source_system, one.source_id)
        if key not in self.rows:
            self.rows[key] = one
            self.order.append(one)
            return Outcome.STORED
        return Outcome.DUPLICATE if self.rows[key].raw == one.raw else Outcome.CONFLICTING_DUPLICATE
