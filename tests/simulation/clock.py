"""The one clock of a simulation, and each process's view of it.

Calls that are due at the same time run in an order drawn from the seed.  A process that has crashed runs no call any
more; one that is stalled (a long garbage collection, a suspended machine) runs its calls when it goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from random import Random
from typing import Any

from twisted.internet.base import DelayedCall
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.task import Clock
from zope.interface import implementer

CALL_SECONDS = 1e-6
"""What each call takes: a clock that stands still is none."""
START = datetime(2026, 1, 1, tzinfo=UTC)


class SeededClock(Clock):
    """Runs one call at a time: the earliest, and of several the one that the seed prefers."""

    calls: list[Any]  # a heap of (time, tie, call)

    def __init__(self, random: Random) -> None:
        super().__init__()
        self._random = random

    def callLater(self, delay: float, callable: Callable[..., object], *args: object, **kw: object) -> Any:
        """See `IReactorTime.callLater`."""
        call = DelayedCall(self.seconds() + delay, callable, args, kw, lambda call: None, self.push, self.seconds)
        call.tie = self._random.random()  # type: ignore[attr-defined]
        self.push(call)
        return call

    def push(self, call: Any) -> None:
        """It is to run, or to run earlier than it was."""
        heappush(self.calls, (call.getTime(), call.tie, call))

    def run_next(self) -> None:
        """Run the next call, at its time."""
        while True:
            time, _, call = heappop(self.calls)
            if call.cancelled or call.called:
                continue
            if call.getTime() <= time:
                break
            self.push(call)
        self.rightNow = max(self.rightNow + CALL_SECONDS, time)
        call.called = 1
        call.func(*call.args, **call.kw)

    def now(self) -> datetime:
        """The time of day."""
        return START + timedelta(seconds=self.rightNow)


@implementer(IReactorTime)
class ProcessClock:
    """The clock as one process sees it.  `stalled_until`: it runs nothing before."""

    def __init__(self, clock: SeededClock) -> None:
        self._clock = clock
        self.alive = True
        self.stalled_until = 0.0
        self._abandoned: list[Any] = []  # a coroutine that is collected would run its `finally`
        self.seconds = clock.seconds
        self.now = clock.now

    def callLater(self, delay: float, callable: Callable[..., object], *args: object, **kw: object) -> Any:
        """See `IReactorTime.callLater`."""
        call = self._clock.callLater(delay, self._run)
        call.args = call, callable, args, kw
        return call

    def getDelayedCalls(self) -> list[IDelayedCall]:
        """See `IReactorTime.getDelayedCalls`."""
        raise NotImplementedError

    @property
    def is_stalled(self) -> bool:
        """Whether it runs nothing now."""
        return self.stalled_until > self.seconds()

    def _run(self, call: Any, callable: Callable[..., object], args: Any, kw: Any) -> None:
        if not self.alive:
            self._abandoned.append(args)
            return
        if self.is_stalled:
            call.called = 0
            call.time, call.delayed_time = self.stalled_until, 0
            self._clock.push(call)
            return
        callable(*args, **kw)

    def pause(self, seconds: float) -> Deferred[None]:
        """Fires after so many seconds of this process."""
        paused: Deferred[None] = Deferred(lambda _: call.cancel() if call.active() else None)
        call = self.callLater(seconds, paused.callback, None)
        return paused
