"""A broker as a child process on loopback, with a folder of its own: it can be killed, paused and started again."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.waiting import PATIENCE


def tasks_of(pid: int) -> list[Path]:
    """The threads of a process."""
    return list(Path(f"/proc/{pid}/task").iterdir())


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

    async def start(self) -> None:
        """Start it and wait until its port accepts connections."""
        self._launch()
        assert self._process is not None
        async with asyncio.timeout(PATIENCE):
            while not await self._accepts():
                if self._process.poll() is not None:
                    raise RuntimeError(f"the broker ended:\n{self.log.read_text()[-4000:]}")
                await asyncio.sleep(0.05)

    def _launch(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self.command(), stdout=log, stderr=subprocess.STDOUT, cwd=self.folder)

    async def _accepts(self) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        writer.close()
        return True

    def kill(self) -> None:
        """kill -9, and its end."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    async def pause(self) -> None:
        """It keeps its connections and answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        async with asyncio.timeout(PATIENCE):
            while not self._is_paused(self._process.pid):
                await asyncio.sleep(0.01)

    def _is_paused(self, pid: int) -> bool:
        states = [(task / "stat").read_text().rpartition(")")[2].split()[0] for task in tasks_of(pid)]
        return all(state == "T" for state in states)

    def go_on(self) -> None:
        """The end of a pause."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)
