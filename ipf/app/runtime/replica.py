"""The standby that answers reads: its pool, and what is known of it, in health, metrics and log lines.

Nothing here ends a request or the service: while the standby is away, hangs or is behind, the primary answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any
from zlib import crc32

from twisted.logger import Logger

from ipf.errors import Problem
from ipf.ports.replica import Position, Replica
from ipf.store.postgres.database import Database
from ipf.store.postgres.hosts import standby_url
from ipf.store.postgres.replication import Lag, PrimaryPositions
from ipf.store.resources.resources import READ_STATEMENTS
from ipf.telemetry import replica_metrics

log = Logger()

_TICK_SECONDS = 0.25
"""A standby that hangs is left after six of them, and the reads that wait for it go to the primary."""
_WAIT_SECONDS = 1.0
_REASONS = {
    "unreachable": "it does not answer",
    "unrelated": "it is no streaming standby of the primary on its timeline, or its role lacks pg_read_all_stats",
    "stale": "it may be further behind than IPF_FHIR_READ_MAX_STALENESS_MS",
}


class ReadReplica:
    """`ports.Replica`.  `most`: the staleness in seconds that reads tolerate; other arguments: see Database."""

    def __init__(self, url: str, most: float, *, reactor: Any, size: int, tenants: bool) -> None:
        self._lag = Lag(reactor.seconds, most, self._changed)
        self._reason: str | None = None
        self._most = most
        self.database = Database(
            standby_url(url),
            reactor=reactor,
            size=size,
            statements=READ_STATEMENTS,
            application_name="ipf-fhir-read",
            tenants=tenants,
            tick_seconds=_TICK_SECONDS,
            wait_seconds=_WAIT_SECONDS,
            positions=self._lag.standby,
        )

    @property
    def primary(self) -> PrimaryPositions:
        """For the pool of the primary."""
        return self._lag.primary

    @property
    def server(self) -> int:
        """See `ports.Replica`."""
        return self._lag.server

    @property
    def name(self) -> str:
        """See `ports.Replica`."""
        return f"{crc32(self.database.server.encode()):08x}"

    @property
    def written(self) -> Position | None:
        """See `ports.Replica`."""
        return self._lag.written

    def refusal(self, least: Position | None) -> str:
        """See `ports.Replica`."""
        return self._lag.refusal(least)

    async def start(self, stack: AsyncExitStack) -> None:
        """Open the pool, closed with the stack; it goes on trying when the standby cannot be reached."""
        stack.push_async_callback(self.database.close)
        try:
            await self.database.start()
        except Problem as problem:
            text = "event=replica_unreachable the primary answers reads: {reason}"
            log.warn(text, event="replica_unreachable", reason=getattr(problem, "detail", problem.text))

    async def check(self) -> Mapping[str, Any]:
        """The health check: RuntimeError while the primary answers instead."""
        reason = self._lag.refusal(None)
        if reason:
            raise RuntimeError(f"the primary answers reads instead of {self.database.server or 'the standby'}: "
                               f"{_REASONS[reason]}")  # fmt: skip
        return {"server": self.database.server, "staleness_seconds": round(self._lag.staleness or 0.0, 3)}

    def _changed(self) -> None:
        reason = self._lag.refusal(None)
        replica_metrics.standing(not reason, self._lag.staleness)
        if reason == self._reason:
            return
        known, self._reason = self._reason, reason
        if not reason:
            text = "event=replica_used {server} answers reads, at most {seconds} s behind"
            log.info(text, event="replica_used", server=self.database.server, seconds=self._most)
        elif known is not None and not known:
            text = "event=replica_not_used reason={reason} the primary answers reads: {why}"
            log.warn(text, event="replica_not_used", reason=reason, why=_REASONS[reason])


_: type[Replica] = ReadReplica
