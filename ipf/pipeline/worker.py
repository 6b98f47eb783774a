"""The worker that runs every stage: it drains the work, then sleeps until a notification or the poll interval.

A `step` does one piece of work and returns whether it found any.  A notification that arrives while a step runs is
remembered, so work written before the worker sleeps is not missed; a lost notification delays work by at most
`poll_seconds`.  A step that raises does not end the worker: the failure is logged (repeats are counted) and the next
step waits.  The worker has no durable state: work is rows.

With a concurrency above one, a notification wakes one sleeping runner, and a runner that finds work twice in a row
wakes another.  An idle system queries the database once per message, and a backlog occupies all runners.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from twisted.internet.defer import CancelledError, Deferred, DeferredList
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from ipf.errors import Problem, StoreUnreachable
from ipf.pipeline.equal_failures import EqualFailures
from ipf.ports import Notifier

log = Logger()

FIRST_WAIT_SECONDS = 1.0
LONGEST_WAIT_SECONDS = 15.0
REPEATED_EVERY_SECONDS = 60.0
LONGEST_HOLD_SECONDS = 0.002

Step = Callable[[], Awaitable[bool]]


class Worker:
    """Runs `step` in `concurrency` runners.  `step` returns True when it found work, False when there was none.

    `channel`: of the notifier; None = the work is polled only.  `clock`: the reactor, or a `task.Clock` in tests.
    """

    def __init__(
        self,
        step: Step,
        notifier: Notifier,
        channel: str | None,
        poll_seconds: float,
        clock: IReactorTime,
        *,
        name: str = "",
        concurrency: int = 1,
    ) -> None:
        self.name = name or channel or "worker"
        self._step = step
        self._poll_seconds = poll_seconds
        self._clock = clock
        self._failures = FailureLog(self.name, clock)
        self._sleeping: list[Sleep] = []
        self._backing_off: list[Sleep] = []
        self._notified = False
        self._stopping = False
        self._concurrency = concurrency
        self._runners: list[Deferred[None]] = []
        if channel is not None:
            notifier.subscribe(channel, self.wake)

    @property
    def problem(self) -> str | None:
        """Why its steps fail again and again; None while they do not."""
        return self._failures.problem

    def start(self) -> None:
        """Start; the first step of each runner runs at once."""
        self._stopping = False
        self._runners = [Deferred.fromCoroutine(self._run()) for _ in range(self._concurrency)]

    def wake(self) -> None:
        """Wake one sleeping runner; when none sleeps, the next runner to sleep runs another step instead."""
        if self._sleeping:
            self._sleeping.pop().end()
        else:
            self._notified = True

    async def stop(self, within_seconds: float = 10.0) -> bool:
        """Take no more work and let running steps finish.  False: they exceeded the time limit and were cancelled."""
        self._stopping = True
        for sleep in self._sleeping + self._backing_off:
            sleep.end()
        return await finished_within(self._runners, within_seconds, self._clock)

    async def _run(self) -> None:
        steps_with_work = 0
        while not self._stopping:
            self._notified = False
            try:
                found = await self._step()
            except CancelledError:
                if self._stopping:
                    return
                found = False
            except Exception as error:
                await _sleep(self._backing_off, Sleep(self._clock, self._failures.failed(error)))
                continue
            self._failures.worked()
            steps_with_work = steps_with_work + 1 if found else 0
            if steps_with_work > 1 and self._sleeping:
                self._sleeping.pop().end()
            if not found and not self._notified and not self._stopping:
                await _sleep(self._sleeping, Sleep(self._clock, self._poll_seconds))


async def _sleep(sleeping: list[Sleep], sleep: Sleep) -> None:
    sleeping.append(sleep)
    try:
        await sleep.finished
    finally:
        if sleep in sleeping:
            sleeping.remove(sleep)


class Sleep:
    """A sleep that can be ended early; `finished` fires once, in a reactor turn of its own."""

    def __init__(self, clock: IReactorTime, seconds: float) -> None:
        self.finished: Deferred[None] = Deferred(lambda _: self._timer.cancel() if self._timer.active() else None)
        self._timer = clock.callLater(seconds, self.finished.callback, None)

    def end(self) -> None:
        """Wake in the next reactor turn, so that the caller does not run the sleeper's work."""
        if self._timer.active():
            self._timer.reset(0)


class ReactorYield:
    """Yields to the reactor when the work since the last yield took `LONGEST_HOLD_SECONDS`.

    Called between pieces of work; yielding after each piece would cost a reactor turn per message.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._since = clock.seconds()

    async def __call__(self) -> None:
        """Return at once, or in the next reactor turn."""
        if self._clock.seconds() - self._since >= LONGEST_HOLD_SECONDS:
            await Sleep(self._clock, 0).finished
            self._since = self._clock.seconds()


class FailureLog:
    """Logs a failure once, counts its repeats, and gives the wait before the next attempt."""

    def __init__(self, name: str, clock: IReactorTime) -> None:
        self._name = name
        self._clock = clock
        self._last_text = ""
        self._equal = EqualFailures()
        self._consecutive = 0
        self._suppressed = 0
        self._logged_at = 0.0

    @property
    def problem(self) -> str | None:
        """Why the work is DOWN: equal failures in succession; None while it is not."""
        return self._equal.problem

    def failed(self, error: Exception) -> float:
        """Seconds to wait: one while the store is unreachable, else doubling up to `LONGEST_WAIT_SECONDS`."""
        self._consecutive += 1
        text = type(error).__name__  # the exception text may quote a message; tracebacks are redacted
        if isinstance(error, Problem):
            text = f"{text}: {error}"
        if not isinstance(error, StoreUnreachable):  # the database has a health component of its own
            self._equal.failed(text)
        now = self._clock.seconds()
        if text != self._last_text or now - self._logged_at >= REPEATED_EVERY_SECONDS:
            self._log(error, text, now)
        else:
            self._suppressed += 1
        if isinstance(error, StoreUnreachable):
            return FIRST_WAIT_SECONDS
        return float(min(FIRST_WAIT_SECONDS * 2 ** min(self._consecutive - 1, 10), LONGEST_WAIT_SECONDS))

    def worked(self) -> None:
        """A step succeeded: the next failure is a new one."""
        self._equal.worked()
        if self._consecutive:
            log.info("{worker} works again after {times} failures", worker=self._name, times=self._consecutive)
            self._consecutive = self._suppressed = 0
            self._last_text = ""

    def _log(self, error: Exception, text: str, now: float) -> None:
        repeats = f" (repeated {self._suppressed} times since the last line)" if self._suppressed else ""
        self._last_text, self._logged_at, self._suppressed = text, now, 0
        if isinstance(error, StoreUnreachable):
            log.warn("{worker} waits: {text}{repeats}", worker=self._name, text=text, repeats=repeats)
        else:
            log.failure("{worker} failed: {text}{repeats}", worker=self._name, text=text, repeats=repeats)


async def finished_within(work: list[Deferred[None]], seconds: float, clock: IReactorTime) -> bool:
    """Wait until all of `work` has finished; after `seconds` cancel the rest, wait for it, and return False."""
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
