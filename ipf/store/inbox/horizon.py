"""Which messages a reader in order of ids may read without missing one.

Ids are assigned before their transactions commit, so an id may become visible after greater ones.  The horizon is an id
assigned before the start of transactions that have all ended by now.

Source: https://www.postgresql.org/docs/current/functions-info.html#FUNCTIONS-INFO-SNAPSHOT
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ipf.store.postgres.database import Database
from ipf.store.postgres.quoting import Statement

SETTLE_SECONDS = 0.5

HORIZON = Statement(
    "message_horizon",
    "",
    """
SELECT coalesce(pg_sequence_last_value(pg_get_serial_sequence('message_bodies', 'id')), 0),
       pg_snapshot_xmin(pg_current_snapshot())::text::bigint, pg_snapshot_xmax(pg_current_snapshot())::text::bigint""",
)


@dataclass(slots=True)
class _Mark:
    """An id that was assigned at `seen_at`; `xmax`: first unassigned transaction id some time later."""

    id: int
    seen_at: float
    xmax: int | None = None


class Horizon:
    """The horizon of one reader.  `seconds`: a clock.

    `settle_seconds`: time after which the transaction of an assigned id has a transaction id.
    """

    def __init__(
        self, database: Database, seconds: Callable[[], float], settle_seconds: float = SETTLE_SECONDS
    ) -> None:
        self._database = database
        self._seconds = seconds
        self._settle_seconds = settle_seconds
        self._mark: _Mark | None = None
        self._id = 0

    async def last_id(self) -> int:
        """The last id that was assigned."""
        last, _, _ = await self._database.one(HORIZON.call())
        return int(last)

    async def move(self) -> int:
        """Advance the horizon if possible, and return it."""
        last, xmin, xmax = (int(value) for value in await self._database.one(HORIZON.call()))
        now, mark = self._seconds(), self._mark
        if mark is not None and mark.xmax is None and now - mark.seen_at >= self._settle_seconds:
            mark.xmax = xmax
        if mark is not None and mark.xmax is not None and xmin >= mark.xmax:
            self._id, mark = max(self._id, mark.id), None
        if mark is None and last > self._id:
            mark = _Mark(last, now)
        self._mark = mark
        return self._id
