"""A syslog server over TLS (RFC 5425) for tests, as a process of its own that can be killed, and suspended."""

from __future__ import annotations

import signal
import subprocess
import sys
from base64 import b64decode
from pathlib import Path

from tests.waiting import free_port, until
from tests.wire.certificates import Authority

_PROGRAM = Path(__file__).with_name("syslog_program.py")


class SyslogProcess:
    """The server of a test.  `ca`, `key`, `certificate`: what its clients need."""

    def __init__(self, folder: Path) -> None:
        folder = folder.resolve()
        folder.mkdir(parents=True)
        self.port = free_port()
        self._file = folder / "messages"
        self._file.touch()
        authority = Authority(folder)
        self.ca = authority.path
        self.key, self.certificate = map(Path, authority.sign("ipf"))
        self._own = authority.sign("localhost")
        self._process: subprocess.Popen[str] | None = None

    def start(self, seconds: float = 0) -> None:
        """Start, and wait until it listens; it waits so long before each read."""
        own = [*self._own, str(self.ca), str(seconds)]
        words = [sys.executable, "-I", "-S", str(_PROGRAM), str(self.port), str(self._file), *own]
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            raise AssertionError("the syslog server has not started")

    def suspend(self) -> None:
        """It reads nothing until `resume`; its system still takes what its buffers hold."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """End `suspend`."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """`kill -9`."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None

    def messages(self) -> list[bytes]:
        """The messages so far."""
        lines = self._file.read_text().splitlines()
        return [b64decode(line) for line in lines]

    async def wait_for(self, count: int) -> list[bytes]:
        """The messages when there are so many; AssertionError when they do not come."""
        await until(lambda: len(self.messages()) >= count, f"{count} messages")
        return self.messages()

    def _signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)
