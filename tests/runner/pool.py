"""Worker processes: each takes the next unit when it has done one.

A worker has a session of its own, so that what it started ends with it, and Ctrl-C ends workers in one place.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.runner.plan import ROOT, Unit

_END_SECONDS = 60.0
_LOG_BYTES = 20_000


@dataclass(frozen=True, slots=True)
class Ended:
    """A test that ended.  `outcome`: passed, failed or skipped.  `starts`: processes that it started.

    `detail`: why it failed or was skipped.
    """

    id: str
    module: str
    outcome: str
    seconds: float
    starts: int
    detail: str


Report = Callable[[Ended], None]
"""Takes a result; called by one thread at a time."""


class _Worker:
    """One worker process; a new one is started when it died."""

    def __init__(self, number: int, scratch: Path, report: Report) -> None:
        self._folder = scratch / f"worker-{number}"
        self._folder.mkdir()
        self._log = scratch / f"worker-{number}.log"
        self._report = report
        self._process: subprocess.Popen[str] | None = None

    def run(self, name: str) -> None:
        """Run one module; a worker that dies on the way is a failure of the test that it ran."""
        running, seen_at = "", self._log.stat().st_size if self._log.exists() else 0
        process = self._started()
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(name + "\n")
            process.stdin.flush()
        for line in process.stdout:
            event = json.loads(line)
            if "done" in event:
                return
            running = event.get("start", running)
            if "end" in event:
                self._report(
                    Ended(event["end"], name, event["outcome"], event["seconds"], event["starts"], event["detail"])
                )
        self._process = None
        words = self._log.read_bytes()[seen_at:][-_LOG_BYTES:].decode(errors="replace")
        detail = f"{words}\nthe worker ended with {process.wait()} in this test; the rest of its module did not run"
        _end(process)
        self._report(Ended(running or name, name, "failed", 0.0, 0, detail))

    def close(self) -> None:
        """End it."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS)
        _end(self._process)

    def kill(self) -> None:
        """End it and all that it started, now."""
        if self._process is not None:
            _end_session(self._process)

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "tests.runner.worker", str(self._folder)], cwd=ROOT, text=True,
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True,
                )  # fmt: skip
            threading.Thread(target=_watch, args=(self._process,), daemon=True).start()
        return self._process


def _watch(process: subprocess.Popen[str]) -> None:
    """End the children of a worker that died: they may hold the pipe that says so open."""
    process.wait()
    _end_session(process)


def _end(process: subprocess.Popen[str]) -> None:
    """End what is left of its session, and forget it."""
    _end_session(process)
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def _end_session(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def run(units: Sequence[Unit], jobs: int, scratch: Path, report: Report) -> None:
    """Run all units in `jobs` processes.  KeyboardInterrupt ends them at once."""
    waiting: queue.SimpleQueue[Unit] = queue.SimpleQueue()
    for unit in units:
        waiting.put(unit)
    lock, stopped = threading.Lock(), threading.Event()

    def locked(ended: Ended) -> None:
        with lock:
            if not stopped.is_set():
                report(ended)

    def serve(worker: _Worker) -> None:
        with contextlib.suppress(queue.Empty):
            while not stopped.is_set():
                for name in waiting.get_nowait().names:
                    if not stopped.is_set():
                        worker.run(name)
        worker.close()

    workers = [_Worker(number, scratch, locked) for number in range(min(jobs, len(units)))]
    threads = [threading.Thread(target=serve, args=(worker,)) for worker in workers]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except KeyboardInterrupt:
        stopped.set()
        for worker in workers:
            worker.kill()
        for thread in threads:
            thread.join()
        raise
