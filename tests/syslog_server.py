"""A syslog server over TLS (RFC 5425) for tests, as a process of its own that can be killed.

`python -m tests.syslog_server port file key certificate ca [seconds]`: appends the base64 of each message to the file,
one a line; with `seconds` it waits so long before each read.  A client needs a certificate of `ca`.
"""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import threading
import time
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

from twisted.internet.task import deferLater

from tests.waiting import PATIENCE, free_port
from tests.wire.certificates import Authority


def main(port: str, path: str, key: str, certificate: str, ca: str, seconds: str = "0") -> None:
    """Serve until killed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.load_verify_locations(ca)
    context.verify_mode = ssl.CERT_REQUIRED
    listener = socket.create_server(("127.0.0.1", int(port)))
    print("ready", flush=True)
    while True:
        accepted, _ = listener.accept()
        threading.Thread(target=_serve, args=(context, accepted, path, float(seconds)), daemon=True).start()


def _serve(context: ssl.SSLContext, accepted: socket.socket, path: str, seconds: float) -> None:
    try:
        secured = context.wrap_socket(accepted, server_side=True)
    except (ssl.SSLError, OSError):
        return
    waiting, never = b"", threading.Event()
    with open(path, "a", encoding="ascii") as file:
        while True:
            never.wait(seconds)
            try:
                waiting += (read := secured.recv(16_384))
            except OSError:
                return
            if not read:
                break
            waiting = _take(waiting, file)
    try:
        secured.unwrap().close()
    except OSError:
        pass


def _take(waiting: bytes, file: Any) -> bytes:
    """Write the complete frames; what is left of the bytes."""
    while b" " in waiting:
        length, _, rest = waiting.partition(b" ")
        if len(rest) < int(length):
            break
        file.write(b64encode(rest[: int(length)]).decode() + "\n")
        file.flush()
        waiting = rest[int(length) :]
    return waiting


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
        """Start, and wait until it listens."""
        own = [*self._own, str(self.ca), str(seconds)]
        words = [sys.executable, "-m", "tests.syslog_server", str(self.port), str(self._file), *own]
        root = Path(__file__).resolve().parent.parent
        self._process = subprocess.Popen(words, cwd=root, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            raise AssertionError("the syslog server has not started")

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

    async def wait_for(self, reactor: Any, count: int) -> list[bytes]:
        """The messages when there are so many; AssertionError when they do not come."""
        until = time.monotonic() + PATIENCE
        while len(found := self.messages()) < count:
            if time.monotonic() > until:
                raise AssertionError(f"{len(found)} of {count} messages")
            await deferLater(reactor, 0.02)
        return found


if __name__ == "__main__":
    main(*sys.argv[1:])
