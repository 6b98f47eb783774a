"""The one runner of every stage: drain until idle, then sleep until the notifier rings or the poll deadline.

What arrives: a `step` that does one piece of work and says whether it found any.  A ring that comes while a step runs
is remembered, so work written between a stage's last look and its sleep is not missed; a ring that is lost costs at
most `poll_seconds`.  A step that raises never ends the worker: the failure is logged (repeats are counted instead of
written again and again) and the next step waits.  Nothing here survives a crash, and nothing needs to: work is rows.

With a concurrency above one a ring wakes one sleeping runner; a runner that finds work twice running wakes another, so
an idle system asks the database once for one message, and a backlog is worked on by all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from twisted.internet.defer import CancelledError, Deferred, DeferredList
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from ipf.errors import Problem, StoreUnreachable
from ipf.ports import Notifier

log = Logger()

FIRST_WAIT_SECONDS = 1.0
LONGEST_WAIT_SECONDS = 15.0
REPEATED_EVERY_SECONDS = 60.0
LONGEST_HOLD_SECONDS = 0.002

Step = Callable[[], Awaitable[bool]]


class Worker:
    """Runs `step` in `concurrency` runners.  `step` returns True when it found work, False when there was none.

    `bell_name` None: nobody rings for this work, it is polled.  `clock` is the reactor, or a `task.Clock` in tests.
    """

    def __init__(
        self,
        step: Step,
        notifier: Notifier,
        bell_name: str | None,
        poll_seconds: float,
        clock: IReactorTime,
        *,
        name: str = "",
        concurrency: int = 1,
    ) -> None:
        self._step = step
        self._poll_seconds = poll_seconds
        self._clock = clock
        self._failures = FailureLog(name or bell_name or "worker", clock)
        self._sleeping: list[IdleWait] = []
        self._backing_off: list[IdleWait] = []
        self._rung = False
        self._stopping = False
        self._concurrency = concurrency
        self._runners: list[Deferred[None]] = []
        if bell_name is not None:
            notifier.subscribe(bell_name, self.wake)

    def start(self) -> None:
        """Begin; the first step of each runner runs at once."""
        self._stopping = False
        self._runners = [Deferred.fromCoroutine(self._run()) for _ in range(self._concurrency)]

    def wake(self) -> None:
        """There may be work: wake one sleeping runner, or remember it for the next that would sleep."""
        if self._sleeping:
            self._sleeping.pop().end()
        else:
            self._rung = True

    async def stop(self, within_seconds: float = 10.0) -> bool:
        """Take no more work, let steps in hand finish.  False: they did not within the bound, and were cancelled."""
        self._stopping = True
        for nap in self._sleeping + self._backing_off:
            nap.end()
        return await finished_within(self._runners, within_seconds, self._clock)

    async def _run(self) -> None:
        busy = 0
        while not self._stopping:
            self._rung = False
            try:
                found = await self._step()
            except CancelledError:
                if self._stopping:
                    return
                found = False
            except Exception as error:
                await _sleep(self._backing_off, IdleWait(self._clock, self._failures.failed(error)))
                continue
            self._failures.worked()
            busy = busy + 1 if found else 0
            if busy > 1 and self._sleeping:
                self._sleeping.pop().end()
            if not found and not self._rung and not self._stopping:
                await _sleep(self._sleeping, IdleWait(self._clock, self._poll_seconds))


async def _sleep(among: list[IdleWait], nap: IdleWait) -> None:
    among.append(nap)
    try:
        await nap.over
    finally:
        if nap in among:
            among.remove(nap)


class IdleWait:
    """A sleep that can be ended early; `over` fires either way, once, in a turn of the reactor of its own."""

    def __init__(self, clock: IReactorTime, seconds: float) -> None:
        self.over: Deferred[None] = Deferred(lambda _: self._timer.cancel() if self._timer.active() else None)
        self._timer = clock.callLater(seconds, self.over.callback, None)

    def end(self) -> None:
        """Wake in the reactor's next turn, so that whoever rings is not made to do the woken one's work."""
        if self._timer.active():
            self._timer.reset(0)


class ReactorYield:
    """Called between pieces of work that hold the reactor: gives way to others once they took `LONGEST_HOLD_SECONDS`.

    After each piece would do as well, and cost a turn of the reactor for each message.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._since = clock.seconds()

    async def __call__(self) -> None:
        """Go on at once, or in the reactor's next turn."""
        if self._clock.seconds() - self._since >= LONGEST_HOLD_SECONDS:
            await IdleWait(self._clock, 0).over
            self._since = self._clock.seconds()


class FailureLog:
    """Writes a failure once, counts its repeats, and says how long to wait before the next try."""

    def __init__(self, name: str, clock: IReactorTime) -> None:
        self._name = name
        self._clock = clock
        self._last = ""
        self._in_a_row = 0
        self._unwritten = 0
        self._written_at = 0.0

    def failed(self, error: Exception) -> float:
        """Seconds to wait: one second while the store is away, else doubling up to `LONGEST_WAIT_SECONDS`."""
        self._in_a_row += 1
        text = type(error).__name__  # what an exception says may quote a message; the trace is cleaned of that
        if isinstance(error, Problem):
            text = f"{text}: {error}"
        now = self._clock.seconds()
        if text != self._last or now - self._written_at >= REPEATED_EVERY_SECONDS:
            self._write(error, text, now)
        else:
            self._unwritten += 1
        if isinstance(error, StoreUnreachable):
            return FIRST_WAIT_SECONDS
        return float(min(FIRST_WAIT_SECONDS * 2 ** min(self._in_a_row - 1, 10), LONGEST_WAIT_SECONDS))

    def worked(self) -> None:
        """A step came back: the next failure is a new one."""
        if self._in_a_row:
            log.info("{worker} works again after {times} failures", worker=self._name, times=self._in_a_row)
            self._in_a_row = self._unwritten = 0
            self._last = ""

    def _write(self, error: Exception, text: str, now: float) -> None:
        repeats = f" ({self._unwritten} more like it since the last line)" if self._unwritten else ""
        self._last, self._written_at, self._unwritten = text, now, 0
        if isinstance(error, StoreUnreachable):
            log.warn("{worker} waits: {text}{repeats}", worker=self._name, text=text, repeats=repeats)
        else:
            log.failure("{worker} failed: {text}{repeats}", worker=self._name, text=text, repeats=repeats)


async def finished_within(work: list[Deferred[None]], seconds: float, clock: IReactorTime) -> bool:
    """Wait until all of `work` has ended; after `seconds` cancel what has not, wait for that, and return False."""
    late = False

    def cancel_all() -> None:
        nonlocal late
        late = True
        for each in work:
            each.cancel()

    timer = clock.callLater(seconds, cancel_all)
    await DeferredList(work, consumeErrors=True)
    if timer.active():
        timer.cancel()
    return not late
