"""A search of the audit trail: blocks are read a few at a time, their records put in order and passed on.

Which blocks may have a wanted key PostgreSQL finds in the index of keys.  It is told to: left to itself it guesses from
what is frequent, and walks the whole trail in the order of time for a patient who is in three blocks of it.  What kinds
have in common (an agent, an outcome) may be in nearly every block, though; so the newest blocks are looked at first,
and the index is asked when they do not have enough.

Where row-level security divides tenants, PostgreSQL does not use the index of keys: the operator may tell what a policy
hides.  So blocks are looked up past it, by their ids alone, and read within it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from operator import itemgetter

from ipf.ports.audit import Audit
from ipf.store.audit.blocks import opened
from ipf.store.audit.match import SURFACES, Match
from ipf.store.postgres.driver import Row
from ipf.store.postgres.quoting import literal
from ipf.store.postgres.tenant_scope import Executor

BY_KEY = "SET LOCAL enable_indexscan = off;\n"
"""What goes before a statement so that it uses the index of keys: what is left are bitmaps."""

SURFACE_NAMES = {number: name for name, number in SURFACES.items()}

_FIRST, _MOST = 4, 32  # blocks that are read at a time
_NEWEST = 500  # blocks that are looked at before the index of keys is asked
_ORDER = itemgetter(1, 2)  # of records by their ids
_COLUMNS = "b.first_id::text, b.last_id::text, p.name, b.surface, b.kinds, b.body"
_PARTITION = "JOIN partitions p ON p.id = b.partition_id"


class Walk:
    """One search.

    `conditions`: what holds for its blocks.  `partition`: of the tenant, None = of all.  `apart`: what looks past
    row-level security, where there is any.
    """

    def __init__(
        self,
        runs: Executor,
        match: Match,
        conditions: Sequence[str],
        partition: int | None,
        apart: Executor | None,
        *,
        oldest_first: bool,
    ) -> None:
        self._runs = runs
        self._match = match
        self._conditions = conditions
        self._partition = partition
        self._apart = apart
        self._oldest_first = oldest_first
        self._is_first_look = match.is_of_kinds and partition is not None
        self._column, self._sign = ("first_id", ">") if oldest_first else ("last_id", "<")
        self._order = f"ORDER BY b.{self._column}{'' if oldest_first else ' DESC'}"

    async def records(self) -> AsyncIterator[Audit]:
        """What matches, in the order of ids.  Blocks of several processes overlap: a record is passed on when no block
        that was not read yet can have one before it."""
        pending: list[Audit] = []
        edge: tuple[str, ...] = ()
        size = _FIRST
        while True:
            rows = await self._read(edge, size)
            for _, _, tenant, surface, kinds, body in rows:
                block = opened(tenant, SURFACE_NAMES[surface], kinds, bytes(body))
                pending += map(block.audit, self._match.places(block))
            pending.sort(key=_ORDER, reverse=not self._oldest_first)
            last = None if len(rows) < size else rows[-1][0 if self._oldest_first else 1]
            ready = len(pending) if last is None else self._before(last, pending)
            for audit in pending[:ready]:
                yield audit
            if last is None:
                return
            pending = pending[ready:]
            edge = (f"b.{self._column} {self._sign} {literal(last)}::uuid",)
            size = min(2 * size, _MOST)

    def _before(self, last: str, pending: Sequence[Audit]) -> int:
        if self._oldest_first:
            return sum(1 for audit in pending if audit.id <= last)
        return sum(1 for audit in pending if audit.id >= last)

    async def _read(self, edge: Sequence[str], size: int) -> list[Row]:
        """The next blocks; fewer than `size` when there are no more."""
        conditions = [*self._conditions, *edge]
        if not self._match.keys_are_wanted:
            return await self._runs.many(f"SELECT {_COLUMNS} {_from()} {where(conditions)} {self._order} LIMIT {size}")
        if self._is_first_look:
            rows = await self._found("", _from(self._newest(edge)), conditions, size)
            if len(rows) == size:
                return rows
            self._is_first_look = False
        return await self._found(BY_KEY, _from(), conditions, size)

    def _newest(self, edge: Sequence[str]) -> str:
        """The blocks that are looked at first."""
        within = where([f"b.partition_id = {self._partition}", *self._match.times(), *edge])
        return f"(SELECT * FROM audit_blocks b {within} {self._order} LIMIT {_NEWEST})"

    async def _found(self, words: str, source: str, conditions: Sequence[str], size: int) -> list[Row]:
        limited = f"{where(conditions)} {self._order} LIMIT {size}"
        if self._apart is None:
            return await self._runs.many(f"{words}SELECT {_COLUMNS} {source} {limited}")
        found = await self._apart.many(f"{words}SELECT b.last_id::text {source} {limited}")
        ids = ",".join(f"{literal(id)}::uuid" for (id,) in found)
        own = where([f"b.partition_id = {self._partition}", f"b.last_id = ANY (ARRAY[{ids}]::uuid[])"])
        return await self._runs.many(f"SELECT {_COLUMNS} {_from()} {own} {self._order}") if ids else []


def where(conditions: Sequence[str]) -> str:
    """A WHERE clause; none where there are no conditions."""
    return f"WHERE {' AND '.join(conditions)}" if conditions else ""


def _from(blocks: str = "audit_blocks") -> str:
    return f"FROM {blocks} b {_PARTITION}"
