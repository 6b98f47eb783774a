"""A broker as a child process on loopback, with a folder of its own: it can be killed, paused and started again."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import psutil

from tests import processes
from tests.waiting import PATIENCE, until

_START_SECONDS = 4 * PATIENCE  # some are a Java or an Erlang machine


def is_paused(pid: int) -> bool:
    """Whether every thread of a process is stopped."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return all((task / "stat").read_text().rpartition(")")[2].split()[0] == "T" for task in tasks)


class BrokerProcess:
    """One server process; subclasses say how it is started."""

    port: int

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / "broker.log"
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> Sequence[str]:
        """What is run."""
        raise NotImplementedError

    def environment(self) -> dict[str, str] | None:
        """Its environment; None: that of the tests."""
        return None

    async def start(self) -> None:
        """Start it and wait until its port accepts connections."""
        self._launch()
        await until(self._accepts, "the broker accepts connections", seconds=_START_SECONDS)

    def _launch(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(), stdout=log, stderr=subprocess.STDOUT, cwd=self.folder, env=self.environment()
            )

    async def _accepts(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"the broker ended:\n{self.log.read_text()[-4000:]}")
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        writer.close()
        return True

    def _signal(self, number: int) -> list[psutil.Process]:
        """Send a signal to the process and what it started: some are started by a script.  Whoever got it."""
        assert self._process is not None
        family = processes.family(self._process.pid)
        processes.send(family, number)
        return family

    def kill(self) -> None:
        """kill -9, and its end."""
        if self._process is not None and self._process.poll() is None:
            psutil.wait_procs(self._signal(signal.SIGKILL)[1:], PATIENCE)
            self._process.wait()

    async def pause(self) -> None:
        """It keeps its connections and answers nothing."""
        paused = self._signal(signal.SIGSTOP)
        await until(lambda: all(is_paused(one.pid) for one in paused if one.is_running()), "the broker is paused")

    def go_on(self) -> None:
        """The end of a pause."""
        self._signal(signal.SIGCONT)
