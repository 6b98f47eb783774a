"""Trials of maps in processes of their own, which end at their limits.

`python -m ipf.app.maps.trial FOLDER` reads the settings from the environment, and from standard input the maps that
were installed over HTTP and a request (`ipf.mapping.library.trials`); it writes the result to standard output.  The
process limits itself before it reads anything: processor time and memory by rlimits, wall time by an alarm whose
default action ends it.  So a map from a stranger neither keeps a thread of the service nor its memory, whatever the map
does, and no trial outlives its limits when the service ends.

Source: https://man7.org/linux/man-pages/man2/setrlimit.2.html.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from twisted.internet.utils import getProcessOutputAndValue
from twisted.logger import Logger
from twisted.python.failure import Failure

from ipf.app.maps.check import decoded, encoded, load_maps
from ipf.config.environment import read
from ipf.config.paths import python_path
from ipf.errors import Category, Problem
from ipf.fhir.model.json import dumps, loads
from ipf.mapping.library.installation import RunInThread
from ipf.mapping.library.trials import run_trial
from ipf.ports import InstalledMap, Json
from ipf.rest.operations.transform import transform_apart

log = Logger(namespace="ipf.app.trial")

MOST_TRIALS = 2
"""Trials that run at once."""
PROCESSOR_SECONDS = 30
WALL_SECONDS = 90
MEMORY = 1 << 30  # bytes of address space
LONGEST_RESULT = 64_000_000  # bytes

_INVALID = 1
_MARK = b"\ntrial: "


class TrialProcesses:
    """`trials.Trial`: runs each request in a process; more than `most` at once are refused."""

    def __init__(
        self,
        reactor: Any,
        folder: Path,
        installed: Callable[[], Sequence[InstalledMap]],
        run_in_thread: RunInThread,
        *,
        most: int = MOST_TRIALS,
        program: Sequence[str] = ("-m", "ipf.app.maps.trial"),
    ) -> None:
        """`folder`: the accepted maps.  `installed`: those that were installed over HTTP and are in use.

        `program`: arguments of Python that start the child process.
        """
        self._reactor = reactor
        self._folder = folder
        self._installed = installed
        self._run_in_thread = run_in_thread
        self._most = most
        self._program = program
        self._running = 0

    async def __call__(self, request: Json) -> Json:
        """See `trials.Trial`."""
        if self._running >= self._most:
            text = f"{self._most} trials of maps run already: try again in a moment"
            raise Problem(Category.UNAVAILABLE, text)
        self._running += 1
        try:
            return await self._run(request)
        finally:
            self._running -= 1

    async def _run(self, request: Json) -> Json:
        rows = [[one.resource_type, one.id, one.url, one.resource] for one in self._installed()]
        given = await self._run_in_thread(lambda: dumps([rows, request]))
        arguments = [*self._program, str(self._folder.resolve())]
        environment = os.environ | {"PYTHONPATH": python_path()}
        ended = getProcessOutputAndValue(
            sys.executable, arguments, environment, reactor=self._reactor, stdinBytes=given
        )
        output, errors, status = await ended.addErrback(_killed)
        made: Json = await self._run_in_thread(lambda: _result(output, errors, status))
        return made


def _killed(failure: Failure) -> tuple[bytes, bytes, int]:
    """A process that a signal has ended: Twisted fails with its output, its errors and the number of the signal."""
    output, errors, number = failure.value  # type: ignore[misc]
    return output, errors, -number


def _result(output: bytes, errors: bytes, status: int) -> Json:
    """What a process has written.  Problem: it was refused, or ended at a limit."""
    _, mark, found = output.rpartition(_MARK)
    if status == 0 and mark:
        made: Json = loads(found)
        return made
    if status == _INVALID and mark:
        raise decoded(found)
    if -status in _LIMITS:
        raise Problem(Category.COSTLY, f"the budget of a trial of maps is used up: {_LIMITS[-status]}")
    text = errors.decode(errors="replace")[-2000:]
    log.error("event=trial_failed status={status} {errors}", event="trial_failed", status=status, errors=text)
    raise Problem(Category.COSTLY, "the process of this trial ended without a result")


_LIMITS: dict[int, str] = {
    signal.SIGKILL: f"{PROCESSOR_SECONDS} seconds of processor time, or memory",
    signal.SIGXCPU: f"{PROCESSOR_SECONDS} seconds of processor time",
    signal.SIGALRM: f"{WALL_SECONDS} seconds",
}
_OUT_OF_MEMORY = f"the budget of a trial of maps is used up: {MEMORY >> 20} MiB of memory"
_OUT_OF_RESULT = f"the budget of a trial of maps is used up: a result of {LONGEST_RESULT // 1_000_000} MB"


def limit() -> None:
    """Limit this process."""
    os.nice(10)  # conversions and requests come first
    resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR_SECONDS, PROCESSOR_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(WALL_SECONDS)


def main() -> None:
    """Entry point of the child process."""
    limit()
    try:
        written, status = _answer(), 0
    except Problem as problem:
        written, status = encoded(problem), _INVALID
    except MemoryError:
        written, status = encoded(Problem(Category.COSTLY, _OUT_OF_MEMORY)), _INVALID
    sys.stdout.buffer.write(_MARK + written)
    sys.stdout.buffer.flush()
    sys.exit(status)


def _answer() -> bytes:
    rows, request = loads(sys.stdin.buffer.read())
    settings, _ = read(os.environ)
    never = datetime.min.replace(tzinfo=UTC)
    installed = [InstalledMap(kind, resource_id, url, 0, never, content) for kind, resource_id, url, content in rows]
    library = load_maps(settings, installed, Path(sys.argv[1]), compiled=False)
    answer = transform_apart(library, request["transform"]) if "transform" in request else run_trial(library, request)
    made = dumps(answer)
    if len(made) > LONGEST_RESULT:
        raise Problem(Category.COSTLY, _OUT_OF_RESULT)
    return made


if __name__ == "__main__":
    main()
