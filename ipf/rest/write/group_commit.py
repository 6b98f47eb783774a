"""Group commit of HTTP writes: requests that arrive while transactions run share the next one.

A single request does not wait.  Under load, one database transaction stores many requests; each succeeds or fails
individually (`commit.py`).  Large units get their own transaction, so that small requests do not wait for bulk imports.
The queue is volatile: the outcome of an unanswered request is unknown after a crash.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from twisted.internet.defer import Deferred, DeferredSemaphore

from ipf.errors import Problem, StoreUnreachable
from ipf.rest.write.unit import Unit, UnitResult

Store = Callable[[Sequence[Unit]], Awaitable[list[UnitResult | Problem]]]
Ending = Coroutine[Any, Any, UnitResult | Problem]

_MAX_UNITS = 40  # in one transaction
_MAX_TRANSACTIONS = 2  # transactions
_LARGE = 20  # entries; such a unit goes on its own
_MAX_READING = 2  # transactions that also read: each may need a second connection, so they must not take all


class WriteGroup:
    """The queue of waiting units."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Unit, Deferred[UnitResult | Problem]]] = deque()
        self._running = 0
        self._reading = DeferredSemaphore(_MAX_READING)

    async def store_and_read(self, store: Callable[[], Ending]) -> UnitResult | Problem:
        """The result of `store`, which stores one unit in its own transaction and reads in it."""
        result: UnitResult | Problem = await self._reading.run(lambda: Deferred.fromCoroutine(store()))
        return result

    async def store(self, unit: Unit, store: Store) -> UnitResult | Problem:
        """The result of one unit; `store` stores several.  Raises what `store` raises for this unit alone."""
        if len(unit.entries) >= _LARGE:
            return (await store([unit]))[0]
        waiting: Deferred[UnitResult | Problem] = Deferred()
        self._waiting.append((unit, waiting))
        if self._running < _MAX_TRANSACTIONS:
            Deferred.fromCoroutine(self._drain(store))
        return await waiting

    async def _drain(self, store: Store) -> None:
        """Store waiting units until the queue is empty."""
        self._running += 1
        try:
            while self._waiting:
                count = min(len(self._waiting), _MAX_UNITS)
                await _store([self._waiting.popleft() for _ in range(count)], store)
        finally:
            self._running -= 1


async def _store(batch: Sequence[tuple[Unit, Deferred[UnitResult | Problem]]], store: Store) -> None:
    """Store units in one transaction; when that fails for another reason than StoreUnreachable, one by one."""
    try:
        results = await store([unit for unit, _ in batch])
    except Exception as failed:
        if len(batch) == 1 or isinstance(failed, StoreUnreachable):
            for _, waiting in batch:
                waiting.errback(failed)
            return
        for one in batch:
            await _store([one], store)
        return
    for (_, waiting), result in zip(batch, results, strict=True):
        waiting.callback(result)
