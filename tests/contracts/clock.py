"""The clock of the contracts: one for the stores in memory and for PostgreSQL, which only a test moves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


class MovedClock:
    """The `Clock` of stores; a `Database` takes it as `now`."""

    def __init__(self) -> None:
        self._now = datetime.now(UTC).replace(microsecond=0)

    def __call__(self) -> datetime:
        return self._now

    def advance(self, seconds: float) -> None:
        """Let so much time go by."""
        self._now += timedelta(seconds=seconds)


CLOCK = MovedClock()
