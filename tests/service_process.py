"""The real service as a child process, for flow and fault tests and for `bin/bench`: its own data folder and ports.

`start` returns at once and `ready` says whether it answers; `kill` is kill -9 of the service alone (never of
PostgreSQL), `stop` is SIGTERM.  The embedded PostgreSQL lives under the folder that is given, so a restart finds what
was stored.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

from tests.cluster import service_cluster
from tests.runner.shared import once
from tests.waiting import PATIENCE, block_until, free_port

ROOT = Path(__file__).resolve().parent.parent


CHECKED = "maps-checked"


def _check_maps(folder: Path) -> None:
    """Compile the shipped maps once for all services of a run; they compile what they need."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("IPF_", "SUBSCRIPTION_"))}
    environment = kept | {"PYTHONPATH": str(ROOT), "IPF_DATA_DIR": str(folder)}
    command = [sys.executable, "-m", "ipf.app.maps.check", str(ROOT / "maps")]
    subprocess.run(command, env=environment, input=b"[]", check=True, capture_output=True)


class ServiceProcess:
    """One `twistd ipf` on loopback.

    `from_template`: its first start finds databases that are migrated and the shipped maps checked; False, for tests of
    first starts: it does both.
    """

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder
        self.mllp_port = free_port()
        self.http_port = free_port()
        self.log_path = folder / "service.log"
        self.twistd = Path(sys.executable).with_name("twistd")
        self.from_template = True
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("IPF_", "SUBSCRIPTION_"))}
        self.environment = kept | {
            "PYTHONPATH": str(ROOT),
            "IPF_DATA_DIR": str(folder / "data"),
            "IPF_HTTP_LISTEN": f"tcp:{self.http_port}:interface=127.0.0.1",
            "IPF_MLLP_LISTEN": f"tcp:{self.mllp_port}:interface=127.0.0.1",
            "IPF_LOG_FORMAT": "json",
            "SUBSCRIPTION_SERVICE_CHANNEL_SECURITY": "permissive",
            **environment,
        }

    @property
    def pid(self) -> int:
        """Process id of the service."""
        assert self._process is not None
        return self._process.pid

    @property
    def base_url(self) -> str:
        """Its base URL."""
        return f"http://127.0.0.1:{self.http_port}"

    def start(self) -> None:
        """Start it without waiting until it is ready."""
        self.prepare()
        self._log = self.log_path.open("ab")
        self._process = subprocess.Popen(
            self.command(), env=self.environment, cwd=self.folder, stdout=self._log, stderr=subprocess.STDOUT
        )

    def command(self) -> list[str]:
        """What runs it."""
        return [str(self.twistd), "--nodaemon", "--pidfile=", "ipf"]

    def prepare(self) -> None:
        """Make its folder, with the databases of its first start unless they are elsewhere."""
        self.folder.mkdir(parents=True, exist_ok=True)
        data = Path(self.environment["IPF_DATA_DIR"])
        elsewhere = {"IPF_DB_URL"} & set(self.environment)
        if self.from_template and not elsewhere and not (data / "postgres").exists():
            service_cluster(data)
        if self.from_template and not (data / CHECKED).exists():
            data.mkdir(parents=True, exist_ok=True)
            shutil.copy(once(CHECKED, _check_maps) / CHECKED, data)

    def ready(self) -> bool:
        """Whether it accepts messages now.  RuntimeError when it ended."""
        if self.ended() is not None:
            raise RuntimeError(f"the service ended with {self.ended()}:\n{self.log_tail()}")
        return self.answers()

    def answers(self) -> bool:
        """Whether the HTTP port reports readiness."""
        try:
            return self.get("/actuator/health/readiness")[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def wait_ready(self, seconds: float = PATIENCE) -> None:
        """Block until it is ready (for programs without a reactor; tests poll `ready`)."""
        try:
            block_until(self.ready, "the service is ready", seconds=seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log_tail()}") from None

    def ended(self) -> int | None:
        """Its exit status; None while it runs."""
        return self._process.poll() if self._process is not None else -1

    def kill(self) -> None:
        """kill -9 of the service; converter processes notice the closed pipe, PostgreSQL stays."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def hang_up(self) -> None:
        """SIGHUP: read the maps again."""
        assert self._process is not None
        self._process.send_signal(signal.SIGHUP)

    @property
    def converters(self) -> list[int]:
        """Ids of the converter processes."""
        return [pid for pid in children_of(self.pid) if b"ipf.app.converter" in _command_line(pid)]

    def kill_converter(self, number: int = signal.SIGKILL) -> None:
        """kill -9 (or another signal) of one converter process, if one is running."""
        converters = self.converters
        if converters:
            os.kill(converters[0], number)

    def stop(self, seconds: float = PATIENCE) -> int:
        """SIGTERM, and its exit status."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(seconds)
        finally:
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()
            if self._log is not None:
                self._log.close()

    def get(self, path: str) -> tuple[int, Any]:
        """GET a JSON (or text) answer."""
        return self.request("GET", path)

    def request(
        self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        """One blocking HTTP exchange; the body is sent (unless it is bytes) and parsed as JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=PATIENCE)
        try:
            payload = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            sent = {"Content-Type": "application/fhir+json"} if payload else {}
            connection.request(method, path, payload, sent | (headers or {}))
            answer = connection.getresponse()
            text = answer.read()
            is_json = "json" in (answer.getheader("Content-Type") or "")
            return answer.status, json.loads(text) if text and is_json else text.decode()
        finally:
            connection.close()

    def log_tail(self, size: int = 4000) -> str:
        """The end of its log."""
        return self.log_path.read_bytes()[-size:].decode(errors="replace")


def memory_mib(pid: int, which: str = "Rss") -> float:
    """Resident memory of a process, in MiB; `Pss`: a page that n processes share is an nth of a page."""
    with open(f"/proc/{pid}/smaps_rollup") as sums:
        for line in sums:
            if line.startswith(f"{which}:"):
                return int(line.split()[1]) / 1024
    return 0.0


def children_of(pid: int) -> list[int]:
    """Direct children of a process."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(word) for word in (task / "children").read_text().split()]
    return found


def _command_line(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()
