"""Places: what subscribers' endpoints share (scheme, host, port), and who may send there now.

A place takes `AT_ONCE` requests at a time.  After `FAILURES` failures in a row (no answer, or 5xx) its circuit opens:
nothing is sent for a second, then one request tries, and each time that fails the pause doubles, up to
`LONGEST_SECONDS` (or the longest wait between two attempts, when that is shorter); the first answer closes it.  So a
host that is down costs one attempt now and then, however many subscriptions it has, and they all go on soon after it is
back.

Volatile: every process learns for itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from twisted.internet.interfaces import IReactorTime

from ipf.pipeline.worker import Sleep
from ipf.ports import Delivered

AT_ONCE = 32
FAILURES = 5
FIRST_SECONDS = 1.0
LONGEST_SECONDS = 30.0
QUICK_SECONDS = 0.1


@dataclass(slots=True)
class Place:
    """What is known of one place.  `answer_seconds` is a moving average."""

    in_flight: int = 0
    failures: int = 0
    open_seconds: float = 0.0
    open_until: float = 0.0
    is_probed: bool = False
    answer_seconds: float = 0.0
    reason: str = ""
    waiting: deque[Sleep] = field(default_factory=deque)


@dataclass(frozen=True, slots=True)
class Wait:
    """Not now: after so many seconds.  `reason`: why the circuit is open; None when the place is only busy."""

    seconds: float
    reason: str | None = None


class Destinations:
    """All places of this process.  `chance` spreads the waits, in [0, 1); `longest_seconds` bounds a pause."""

    def __init__(
        self,
        clock: IReactorTime,
        chance: Callable[[], float],
        at_once: int = AT_ONCE,
        longest_seconds: float = LONGEST_SECONDS,
    ) -> None:
        self._longest_seconds = min(longest_seconds, LONGEST_SECONDS)
        self._clock = clock
        self._chance = chance
        self._at_once = at_once
        self._places: dict[str, Place] = {}

    def __len__(self) -> int:
        return len(self._places)

    async def enter(self, name: str) -> Wait | None:
        """None: send now, and call `leave` whatever happens.  A quick place that is full is waited for a moment."""
        place = self._places.setdefault(name, Place())
        refused = self._refusal(place)
        if refused is not None and refused.reason is None and place.answer_seconds < QUICK_SECONDS:
            sleep = Sleep(self._clock, QUICK_SECONDS)
            place.waiting.append(sleep)
            await sleep.finished
            refused = self._refusal(place)
        if refused is None:
            place.in_flight += 1
            place.is_probed = place.open_seconds > 0
        return refused

    def _refusal(self, place: Place) -> Wait | None:
        now = self._clock.seconds()
        if place.open_seconds:
            if place.open_until > now:
                return Wait(place.open_until - now + self._chance() * FIRST_SECONDS / 2, place.reason)
            if place.is_probed:
                return Wait(max(place.open_seconds, FIRST_SECONDS) / 2, place.reason)
        if place.in_flight >= self._at_once:
            return Wait(max(place.answer_seconds, QUICK_SECONDS) * (0.5 + self._chance()))
        return None

    def leave(self, name: str, delivered: Delivered | None, reason: str | None = None) -> None:
        """What came of it; None: it was given up without an answer of any kind."""
        place = self._places[name]
        place.in_flight -= 1
        place.is_probed = False
        if place.waiting:
            place.waiting.popleft().end()
        if delivered is not None:
            place.answer_seconds += (delivered.duration_ms / 1000 - place.answer_seconds) / 8
            self._learn(place, delivered, reason)
        if not (place.in_flight or place.failures or place.waiting):
            del self._places[name]

    def _learn(self, place: Place, delivered: Delivered, reason: str | None) -> None:
        status = delivered.http_status
        if delivered.succeeded or (status is not None and status < 500):
            place.failures, place.open_seconds = 0, 0.0
            return
        place.failures += 1
        place.reason = reason or ""
        if place.failures >= FAILURES:
            place.open_seconds = min(max(2 * place.open_seconds, FIRST_SECONDS), self._longest_seconds)
            place.open_until = self._clock.seconds() + place.open_seconds
