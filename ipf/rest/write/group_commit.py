"""Group commit for single requests: what arrives while transactions are under way shares the next one.

A lone request waits for nothing.  Under load a database transaction carries many requests, which halves what each of
them costs; they still succeed and fail one by one (`commit.py`).  Large units go on their own, so that a small request
never waits for a bulk import.  Nothing here survives a crash: of a request that was not answered nothing is known.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from twisted.internet.defer import Deferred

from ipf.errors import Problem, StoreUnreachable
from ipf.rest.write.unit import Unit, UnitResult

Store = Callable[[Sequence[Unit]], Awaitable[list[UnitResult | Problem]]]

_MOST_UNITS = 40  # in one transaction
_AT_ONCE = 2  # transactions
_LARGE = 20  # entries; such a unit goes on its own


class WriteGroup:
    """The requests that wait."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Unit, Deferred[UnitResult | Problem]]] = deque()
        self._running = 0

    async def store(self, unit: Unit, store: Store) -> UnitResult | Problem:
        """The end of one unit; `store` stores many.  Raises what `store` raises for this unit alone."""
        if len(unit.entries) >= _LARGE:
            return (await store([unit]))[0]
        waiting: Deferred[UnitResult | Problem] = Deferred()
        self._waiting.append((unit, waiting))
        if self._running < _AT_ONCE:
            Deferred.fromCoroutine(self._drain(store))
        return await waiting

    async def _drain(self, store: Store) -> None:
        """Take what waits, again and again until nothing does."""
        self._running += 1
        try:
            while self._waiting:
                count = min(len(self._waiting), _MOST_UNITS)
                await _store([self._waiting.popleft() for _ in range(count)], store)
        finally:
            self._running -= 1


async def _store(taken: Sequence[tuple[Unit, Deferred[UnitResult | Problem]]], store: Store) -> None:
    """Store units together; when that fails for a reason that may lie in one of them, each on its own."""
    try:
        results = await store([unit for unit, _ in taken])
    except Exception as failed:
        if len(taken) == 1 or isinstance(failed, StoreUnreachable):
            for _, waiting in taken:
                waiting.errback(failed)
            return
        for one in taken:
            await _store([one], store)
        return
    for (_, waiting), result in zip(taken, results, strict=True):
        waiting.callback(result)
