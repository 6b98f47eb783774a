"""Destinations of notifications (scheme, host and port of endpoints): concurrency limit and circuit breaker.

A destination takes `MAX_REQUESTS` concurrent requests.  After `FAILURE_THRESHOLD` failures in a row (no response, or
5xx) its circuit opens: nothing is sent for a second, then one request probes it.  The pause doubles with each failed
probe, up to `MAX_PAUSE_SECONDS` (or the longest wait between two attempts, when that is shorter).  The first response
closes the circuit.  A host that is down therefore costs single probes, whatever the number of its subscriptions.

The state is volatile and local to each process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from twisted.internet.interfaces import IReactorTime

from ipf.pipeline.worker import Sleep
from ipf.ports import Delivered

MAX_REQUESTS = 32
FAILURE_THRESHOLD = 5
FIRST_PAUSE_SECONDS = 1.0
MAX_PAUSE_SECONDS = 30.0
FAST_RESPONSE_SECONDS = 0.1


@dataclass(slots=True)
class Destination:
    """The state of one destination.  `response_seconds` is a moving average."""

    in_flight: int = 0
    failures: int = 0
    open_seconds: float = 0.0
    open_until: float = 0.0
    is_probed: bool = False
    response_seconds: float = 0.0
    reason: str = ""
    waiting: deque[Sleep] = field(default_factory=deque)


@dataclass(frozen=True, slots=True)
class Postponed:
    """Send after `seconds`.  `reason`: of the open circuit; None when the destination is at its concurrency limit."""

    seconds: float
    reason: str | None = None


class Destinations:
    """The destinations of this process.  `chance` in [0, 1) spreads waits; `max_pause_seconds` limits a pause."""

    def __init__(
        self,
        clock: IReactorTime,
        chance: Callable[[], float],
        max_requests: int = MAX_REQUESTS,
        max_pause_seconds: float = MAX_PAUSE_SECONDS,
    ) -> None:
        self._max_pause_seconds = min(max_pause_seconds, MAX_PAUSE_SECONDS)
        self._clock = clock
        self._chance = chance
        self._max_requests = max_requests
        self._destinations: dict[str, Destination] = {}

    def __len__(self) -> int:
        return len(self._destinations)

    async def acquire(self, name: str) -> Postponed | None:
        """None: send now, then call `release` in every case.  Waits shortly for a fast destination at its limit."""
        destination = self._destinations.setdefault(name, Destination())
        postponed = self._refusal(destination)
        if postponed is not None and postponed.reason is None and destination.response_seconds < FAST_RESPONSE_SECONDS:
            sleep = Sleep(self._clock, FAST_RESPONSE_SECONDS)
            destination.waiting.append(sleep)
            await sleep.finished
            postponed = self._refusal(destination)
        if postponed is None:
            destination.in_flight += 1
            destination.is_probed = destination.open_seconds > 0
        return postponed

    def _refusal(self, destination: Destination) -> Postponed | None:
        now = self._clock.seconds()
        if destination.open_seconds:
            if destination.open_until > now:
                return Postponed(
                    destination.open_until - now + self._chance() * FIRST_PAUSE_SECONDS / 2, destination.reason
                )
            if destination.is_probed:
                return Postponed(max(destination.open_seconds, FIRST_PAUSE_SECONDS) / 2, destination.reason)
        if destination.in_flight >= self._max_requests:
            return Postponed(max(destination.response_seconds, FAST_RESPONSE_SECONDS) * (0.5 + self._chance()))
        return None

    def release(self, name: str, delivered: Delivered | None, reason: str | None = None) -> None:
        """Report the result of a request; None: it was cancelled."""
        destination = self._destinations[name]
        destination.in_flight -= 1
        destination.is_probed = False
        if destination.waiting:
            destination.waiting.popleft().end()
        if delivered is not None:
            destination.response_seconds += (delivered.duration_ms / 1000 - destination.response_seconds) / 8
            self._count_outcome(destination, delivered, reason)
        if not (destination.in_flight or destination.failures or destination.waiting):
            del self._destinations[name]

    def _count_outcome(self, destination: Destination, delivered: Delivered, reason: str | None) -> None:
        status = delivered.http_status
        if delivered.succeeded or delivered.is_refused or (status is not None and status < 500):
            destination.failures, destination.open_seconds = 0, 0.0
            return
        destination.failures += 1
        destination.reason = reason or ""
        if destination.failures >= FAILURE_THRESHOLD:
            destination.open_seconds = min(
                max(2 * destination.open_seconds, FIRST_PAUSE_SECONDS), self._max_pause_seconds
            )
            destination.open_until = self._clock.seconds() + destination.open_seconds
