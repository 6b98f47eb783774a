"""How far a standby is behind its primary, from what the probes of both pools ask, and when.

A sample is the moment before the primary was asked, and its position in the write-ahead log then.  Everything that was
committed before that moment is before that position.  So once the standby has replayed its log until there, it is no
staler than that moment, whatever the clocks of the servers say, and although nothing is written.

Positions count only while both servers have the same system identifier and the standby receives the timeline of the
primary: after a failover a standby may have a log that the new primary does not have.  The timeline is in
`pg_stat_wal_receiver`, which shows it to members of `pg_read_all_stats`.

Source: https://www.postgresql.org/docs/current/functions-admin.html#FUNCTIONS-RECOVERY-CONTROL,
https://www.postgresql.org/docs/current/monitoring-stats.html#MONITORING-PG-STAT-WAL-RECEIVER-VIEW
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ipf.ports.replica import Position
from ipf.store.postgres.driver import Row

ONLY_READS = "SHOW transaction_read_only"

_WRITTEN = "('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer"
COMMITTED = f"SELECT {_WRITTEN}, (pg_current_wal_lsn() - '0/0')::bigint"
"""The position of a server that writes; behind a commit, one that the commit is before."""

# A server in recovery refuses pg_current_wal_lsn, which CASE does not call then.
POSITION = f"""
SELECT current_setting('transaction_read_only'), (SELECT system_identifier FROM pg_control_system()),
    pg_is_in_recovery(),
    CASE WHEN pg_is_in_recovery() THEN (SELECT received_tli FROM pg_stat_wal_receiver) ELSE {_WRITTEN} END,
    (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END - '0/0')::bigint"""

_MOST_SAMPLES = 1000


class _Asked(Protocol):
    async def one(self, sql: str) -> Row:
        """See `Database.one`."""


async def position_of(database: _Asked) -> Position:
    """The position of a primary, behind all that is committed there."""
    timeline, lsn = await database.one(COMMITTED)
    return Position(int(timeline), int(lsn))


class Positions(Protocol):
    """What a pool and its probe tell about their server.

    `question`: what the probe asks; the first column of its answer is transaction_read_only.  `committed_question`:
    goes behind each COMMIT; empty for none.
    """

    question: str
    committed_question: str

    def heard(self, asked: float, row: Row) -> None:
        """The answer of the server to the question that was sent at `asked`, in seconds of the reactor."""

    def committed(self, row: Row) -> None:
        """The answer to `committed_question`."""

    def lost(self) -> None:
        """The server did not answer, or the pool left it: another one may be next."""


class NoPositions:
    """`Positions` of a pool without a standby: only whether its server writes."""

    question = ONLY_READS
    committed_question = ""

    def heard(self, asked: float, row: Row) -> None:
        """See `Positions`."""

    def committed(self, row: Row) -> None:
        """See `Positions`."""

    def lost(self) -> None:
        """See `Positions`."""


@dataclass(frozen=True, slots=True)
class _At:
    """Where a server is.  `system`: its system identifier."""

    system: int
    position: Position


class Lag:
    """Compares a primary with its standby.  `most`: the staleness in seconds that reads tolerate.

    `changed`: called after each answer of either.
    """

    def __init__(self, seconds: Callable[[], float], most: float, changed: Callable[[], None]) -> None:
        self.primary = PrimaryPositions(self)
        self.standby = StandbyPositions(self)
        self.written: Position | None = None
        self.server = 0
        self._seconds = seconds
        self._most = most
        self._changed = changed
        self._samples: deque[tuple[float, int]] = deque()
        self._primary: _At | None = None
        self._standby: _At | None = None
        self._is_known = False
        self._as_of: float | None = None

    @property
    def staleness(self) -> float | None:
        """At most so many seconds is the standby behind the primary; None when it is not known."""
        return None if self._as_of is None else self._seconds() - self._as_of

    def refusal(self, least: Position | None) -> str:
        """See `ports.Replica.refusal`."""
        if not self._is_known:
            return "unreachable"
        if self._standby is None or not self._is_related(self._standby):
            return "unrelated"
        if self._as_of is None or self._seconds() - self._as_of > self._most:
            return "stale"
        return "" if least is None or least.is_reached_by(self._standby.position) else "session"

    def primary_at(self, asked: float, at: _At) -> None:
        """The primary was at this position at `asked` or later."""
        known, self._primary = self._primary, at
        if known is None or (known.system, known.position.timeline) != (at.system, at.position.timeline):
            self._samples.clear()
            self._as_of = None
        self._samples.append((asked, at.position.lsn))
        while self._samples[0][0] < asked - self._most or len(self._samples) > _MOST_SAMPLES:
            self._samples.popleft()
        self._compare()

    def standby_at(self, at: _At | None) -> None:
        """The standby has replayed so much; None: it says nothing that can be compared."""
        self._is_known, self._standby = True, at
        self._compare()

    def standby_lost(self) -> None:
        """Nothing is known of the standby any more."""
        self.server += 1
        self._is_known, self._standby, self._as_of = False, None, None
        self._changed()

    def has_written(self, position: Position) -> None:
        """This process has committed something before `position`."""
        if self.written is None or self.written < position:
            self.written = position

    def _is_related(self, at: _At) -> bool:
        primary = self._primary
        return primary is None or (at.system == primary.system and at.position.timeline == primary.position.timeline)

    def _compare(self) -> None:
        if self._standby is not None and self._primary is not None and self._is_related(self._standby):
            while self._samples and self._samples[0][1] <= self._standby.position.lsn:
                self._as_of = self._samples.popleft()[0]
        self._changed()


class PrimaryPositions:
    """`Positions` of the pool that writes."""

    question = POSITION
    committed_question = COMMITTED

    def __init__(self, lag: Lag) -> None:
        self._lag = lag

    def heard(self, asked: float, row: Row) -> None:
        """See `Positions`."""
        _, system, in_recovery, timeline, lsn = row
        if not in_recovery:
            self._lag.primary_at(asked, _At(int(system), Position(int(timeline), int(lsn))))

    def committed(self, row: Row) -> None:
        """See `Positions`."""
        timeline, lsn = row
        self._lag.has_written(Position(int(timeline), int(lsn)))

    def lost(self) -> None:
        """See `Positions`: its samples grow old by themselves."""


class StandbyPositions:
    """`Positions` of the pool that only reads."""

    question = POSITION
    committed_question = ""

    def __init__(self, lag: Lag) -> None:
        self._lag = lag

    def heard(self, asked: float, row: Row) -> None:
        """See `Positions`."""
        _, system, in_recovery, timeline, lsn = row
        is_standby = in_recovery and timeline is not None and lsn is not None
        self._lag.standby_at(_At(int(system), Position(int(timeline), int(lsn))) if is_standby else None)

    def committed(self, row: Row) -> None:
        """See `Positions`: nothing is committed there."""

    def lost(self) -> None:
        """See `Positions`."""
        self._lag.standby_lost()


_: tuple[type[Positions], ...] = (NoPositions, PrimaryPositions, StandbyPositions)
