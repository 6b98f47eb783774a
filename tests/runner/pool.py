"""Worker processes: each takes the next unit when it has done one."""

from __future__ import annotations

import json
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


@dataclass(frozen=True, slots=True)
class Ended:
    """A test that ended.  `outcome`: passed, failed or skipped.  `starts`: processes that it started.  `detail`: why."""

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
        process.stdin.write(name + "\n")
        process.stdin.flush()
        for line in process.stdout:
            event = json.loads(line)
            if "done" in event:
                return
            running = event.get("start", running)
            if "end" in event:
                self._report(Ended(event["end"], name, event["outcome"], event["seconds"], event["starts"], event["detail"]))
        self._process = None
        words = self._log.read_bytes()[seen_at:][-20_000:].decode(errors="replace")
        status = process.wait()
        self._report(Ended(running or name, name, "failed", 0.0, 0, f"the worker ended with {status} in this test\n{words}"))

    def close(self) -> None:
        """End it."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.runner.worker", str(self._folder)], cwd=ROOT, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log.open("ab"),
            )  # fmt: skip
        return self._process


def run(units: Sequence[Unit], jobs: int, scratch: Path, report: Report) -> None:
    """Run all units in `jobs` processes."""
    waiting: queue.SimpleQueue[Unit] = queue.SimpleQueue()
    for unit in units:
        waiting.put(unit)
    lock = threading.Lock()

    def locked(ended: Ended) -> None:
        with lock:
            report(ended)

    def serve(number: int) -> None:
        worker = _Worker(number, scratch, locked)
        try:
            while True:
                for name in waiting.get_nowait().names:
                    worker.run(name)
        except queue.Empty:
            pass
        finally:
            worker.close()

    threads = [threading.Thread(target=serve, args=(number,)) for number in range(min(jobs, len(units)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
