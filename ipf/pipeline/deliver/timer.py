"""An alarm: a worker is woken at the earliest of the moments that it was told of, with one timer for all.

For work whose time is known here, such as a retry; what other processes know of is found by the worker's poll.  Nothing
here survives a crash, and nothing needs to: work is rows.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from twisted.internet.interfaces import IDelayedCall, IReactorTime

LATE_SECONDS = 0.002  # so that the time has surely come by the clock of the database
GAP_SECONDS = 0.02  # moments that are nearer to one another share a ring


class Timer:
    """`at(...)`, and `wake` is called then."""

    def __init__(self, clock: IReactorTime, wake: Callable[[], None]) -> None:
        self._clock = clock
        self._wake = wake
        self._moments: list[float] = []
        self._timer: IDelayedCall | None = None

    def at(self, seconds: float) -> None:
        """Ring in so many seconds."""
        heappush(self._moments, self._clock.seconds() + max(seconds, 0.0) + LATE_SECONDS)
        self._set()

    def stop(self) -> None:
        """Forget all of them."""
        self._moments.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set(self, least: float = 0.0) -> None:
        if not self._moments:
            return
        seconds = max(self._moments[0] - self._clock.seconds(), least)
        if self._timer is None:
            self._timer = self._clock.callLater(seconds, self._ring)
        elif self._timer.getTime() > self._clock.seconds() + seconds:
            self._timer.reset(seconds)

    def _ring(self) -> None:
        self._timer = None
        now = self._clock.seconds()
        while self._moments and self._moments[0] <= now:
            heappop(self._moments)
        self._wake()
        self._set(GAP_SECONDS)
