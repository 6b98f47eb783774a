"""A worker process: reads the names of modules or tests on standard input, runs each with trial, writes JSON lines.

A line says what started (`{"start": id}`), how it ended (`{"end": id, "outcome", "seconds", "starts", "detail"}`), or
that the module is done (`{"done": name}`).  What tests print goes to standard error, which is the log of the worker.
The modules run in one process, one after the other, so that they may share what is expensive: a PostgreSQL server,
compiled maps, a started engine.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from typing import IO, Any

from twisted.internet.defer import TimeoutError as TestTimeout
from twisted.python.failure import Failure
from twisted.trial import reporter, runner
from twisted.trial.unittest import SynchronousTestCase, TestCase

from tests.waiting import LIMIT

# A test that blocks the reactor does not notice trial's timeout: so many seconds later the process ends.
GRACE_SECONDS = 30.0
_STARTS = frozenset({"subprocess.Popen", "os.fork", "os.posix_spawn"})

Send = Callable[[dict[str, Any]], None]


class StartCounter:
    """Counts the processes that this process starts."""

    def __init__(self) -> None:
        self.count = 0
        sys.addaudithook(self._see)

    def _see(self, event: str, _: object) -> None:
        if event in _STARTS:
            self.count += 1


class LineReporter(reporter.TestResult):  # type: ignore[misc]
    """A trial reporter that writes a line for each test."""

    def __init__(self, send: Send, log: IO[str]) -> None:
        super().__init__()
        self._send = send
        self._log = log
        self._starts = StartCounter()
        self._began: tuple[float, int] = (0.0, 0)
        self._outcome = ""
        self._details: list[str] = []

    def startTest(self, method: Any) -> None:
        """Note when it began, and end the process if it blocks for ever."""
        super().startTest(method)
        if isinstance(method, SynchronousTestCase):
            method.addCleanup(_collect)  # registered first, so that it runs last, while errors still belong to it
        self._outcome, self._details = "", []
        self._send({"start": method.id()})
        limit = method.getTimeout() if isinstance(method, TestCase) else LIMIT
        faulthandler.dump_traceback_later(limit + GRACE_SECONDS, exit=True, file=self._log)
        self._began = (time.monotonic(), self._starts.count)

    def stopTest(self, method: Any) -> None:
        """Say how it ended."""
        faulthandler.cancel_dump_traceback_later()
        began, starts = self._began
        self._send({
            "end": method.id(), "outcome": self._outcome or "passed", "seconds": round(time.monotonic() - began, 4),
            "starts": self._starts.count - starts, "detail": "\n".join(self._details),
        })  # fmt: skip
        super().stopTest(method)

    def addError(self, test: Any, error: Any) -> None:
        """An error; one outside of a test is reported as one of its own."""
        self._bad("failed", test, error)

    def addFailure(self, test: Any, fail: Any) -> None:
        """A failed assertion."""
        self._bad("failed", test, fail)

    def addSkip(self, test: Any, reason: Any) -> None:
        """A test that did not run."""
        self._outcome = self._outcome or "skipped"
        self._details.append(str(reason))

    def addUnexpectedSuccess(self, test: Any, todo: Any = None) -> None:
        """A test marked `todo` that passed: the mark is wrong."""
        self._bad("failed", test, "marked todo, and passed")

    def _bad(self, outcome: str, test: Any, error: Any) -> None:
        text = error.getTraceback() if isinstance(error, Failure) else _formatted(error)
        if isinstance(error, Failure) and error.check(TestTimeout):
            text += "\n" + _stacks()
        self._outcome = outcome
        self._details.append(text)
        if test.id() == runner.NOT_IN_TEST:
            self._send({"end": test.id(), "outcome": outcome, "seconds": 0.0, "starts": 0, "detail": text})


class Units:
    """A suite of what standard input names, read line by line: the next module is asked for when one is done."""

    def __init__(self, source: IO[str], send: Send) -> None:
        self._source = source
        self._send = send

    def __iter__(self) -> Iterator[Any]:
        loader = runner.TestLoader()
        for line in self._source:
            name = line.strip()
            try:
                with _without_finalizers():
                    suite = loader.loadByName(name, recurse=True)
                gc.freeze()  # the collection after each test looks at the objects of its module only
                yield suite
            except Exception:
                yield runner.ErrorHolder(name, Failure())
            self._send({"done": name})


class PulledSuite(runner.TrialSuite):  # type: ignore[misc]
    """Trial's outermost suite, on tests that come while it runs."""

    def __init__(self, units: Units) -> None:
        super().__init__()
        self._units = units

    def run(self, result: Any) -> None:
        """Run all that comes, then what trial does at the end."""
        try:
            for suite in self._units:
                runner.LoggedSuite([suite]).run(result)
        finally:
            self._bail()


@contextlib.contextmanager
def _without_finalizers() -> Iterator[None]:
    """No garbage collection meanwhile.

    A finalizer of what earlier tests left (a warning that it prints, for example) may import a module.  CPython 3.11
    then loses the lock of the import that the collection interrupted: `KeyError` with the number of the thread
    (https://github.com/python/cpython/issues/106176).
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _collect() -> None:
    """Collect what the test left, so that errors of its abandoned Deferreds are reported with it.

    A finalizer may leave garbage again, which the next round collects.
    """
    while gc.collect():
        pass


def _formatted(error: Any) -> str:
    return "".join(traceback.format_exception(*error)) if isinstance(error, tuple) else str(error)


def _stacks() -> str:
    """The stacks of all threads."""
    return "\n".join(
        f"Thread {ident}:\n{''.join(traceback.format_stack(frame))}" for ident, frame in sys._current_frames().items()
    )


def main() -> None:
    """Serve standard input until it ends.  First argument: the folder to run in."""
    lines = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    units = os.fdopen(os.dup(0), "r")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(sys.argv[1])

    def send(event: dict[str, Any]) -> None:
        lines.write(json.dumps(event) + "\n")

    with contextlib.suppress(BrokenPipeError):
        PulledSuite(Units(units, send)).run(LineReporter(send, sys.stderr))


if __name__ == "__main__":
    main()
