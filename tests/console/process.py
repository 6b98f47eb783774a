"""The console as a child process, in front of an engine."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

from tests.service_process import ROOT
from tests.waiting import PATIENCE, block_until, free_port


class ConsoleProcess:
    """One `twistd ipf-ui` on loopback, in front of an engine."""

    def __init__(self, folder: Path, engine: str, **environment: str) -> None:
        self.folder = folder
        self.port = free_port()
        self.log_path = folder / f"console-{self.port}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("IPF_", "OIDC_"))}
        self.environment = kept | {
            "PYTHONPATH": str(ROOT),
            "IPF_UI_LISTEN": f"tcp:{self.port}:interface=127.0.0.1",
            "IPF_UI_ENGINE_URL": engine,
            **environment,
        }

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._log = self.log_path.open("ab")
        twistd = Path(sys.executable).with_name("twistd")
        command = [str(twistd), "--nodaemon", "--pidfile=", "ipf-ui"]
        self._process = subprocess.Popen(command, env=self.environment, cwd=self.folder, stdout=self._log,
                                         stderr=subprocess.STDOUT)  # fmt: skip
        block_until(self._answers_or_ended, "the console answers")

    def _answers_or_ended(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"the console ended:\n{self.log_path.read_text()[-2000:]}")
        return self.answers()

    def answers(self) -> bool:
        """Whether it serves pages."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request("GET", "/signed-out")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def stop(self) -> None:
        """SIGTERM."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(PATIENCE)
        if self._log is not None:
            self._log.close()
