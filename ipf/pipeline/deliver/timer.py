"""A timer that wakes a worker at scheduled times, with one delayed call for all of them.

It serves work of this process with a known time, such as a retry; the worker's poll finds work of other processes.  It
has no durable state: work is rows.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from twisted.internet.interfaces import IDelayedCall, IReactorTime

MARGIN_SECONDS = 0.002  # margin for the difference to the clock of the database
MIN_GAP_SECONDS = 0.02  # closer times share one wake-up


class Timer:
    """Calls `wake` at the times given to `at`."""

    def __init__(self, clock: IReactorTime, wake: Callable[[], None]) -> None:
        self._clock = clock
        self._wake = wake
        self._times: list[float] = []
        self._timer: IDelayedCall | None = None

    def at(self, seconds: float) -> None:
        """Call `wake` after `seconds`."""
        heappush(self._times, self._clock.seconds() + max(seconds, 0.0) + MARGIN_SECONDS)
        self._schedule()

    def stop(self) -> None:
        """Cancel all times."""
        self._times.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self, least: float = 0.0) -> None:
        if not self._times:
            return
        seconds = max(self._times[0] - self._clock.seconds(), least)
        if self._timer is None:
            self._timer = self._clock.callLater(seconds, self._fire)
        elif self._timer.getTime() > self._clock.seconds() + seconds:
            self._timer.reset(seconds)

    def _fire(self) -> None:
        self._timer = None
        now = self._clock.seconds()
        while self._times and self._times[0] <= now:
            heappop(self._times)
        self._wake()
        self._schedule(MIN_GAP_SECONDS)
