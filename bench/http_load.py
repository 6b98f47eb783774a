"""An HTTP/1.1 load generator: persistent connections, one request at a time each; counts responses."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


@dataclass
class Load:
    """Responses by status, duration of the run in seconds, and latency of each request."""

    seconds: float = 0.0
    statuses: dict[int, int] = field(default_factory=dict)
    waits: list[float] = field(default_factory=list)
    first_refused: bytes = b""

    @property
    def rate(self) -> float:
        """Responses per second."""
        return sum(self.statuses.values()) / self.seconds

    def percentile(self, share: float) -> float:
        """Milliseconds."""
        ordered = sorted(self.waits)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1000

    def must_be(self, *allowed: int) -> Load:
        """Stop the bench if there were other statuses."""
        if set(self.statuses) - set(allowed) or not self.statuses:
            raise SystemExit(f"answers: {self.statuses}: {self.first_refused[:2000]!r}")
        return self


class _Client(asyncio.Protocol):
    """One connection.  The next request is sent when the response to the previous one is complete."""

    def __init__(self, load: Load, next_request: Callable[[], bytes | None]) -> None:
        self._load = load
        self._next = next_request
        self._buffer = b""
        self._need = -1
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: connected."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._send()

    def _send(self) -> None:
        request = self._next()
        if request is None:
            self._transport.close()
            if not self.done.done():
                self.done.set_result(None)
            return
        self._began = time.perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        """asyncio: part of a response."""
        self._buffer = self._buffer + data if self._buffer else data
        if self._need < 0:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            length = _LENGTH.search(self._buffer, 0, end)
            self._need = end + 4 + (int(length[1]) if length else 0)
        if len(self._buffer) >= self._need:
            status = int(self._buffer[9:12])
            self._load.statuses[status] = self._load.statuses.get(status, 0) + 1
            self._load.waits.append(time.perf_counter() - self._began)
            if status >= 400 and not self._load.first_refused:
                self._load.first_refused = self._buffer
            self._buffer, self._need = b"", -1
            self._send()

    def connection_lost(self, reason: Exception | None) -> None:
        """asyncio: closed."""
        if not self.done.done():
            self.done.set_exception(reason or ConnectionError("closed"))


async def load(port: int, clients: int, make: Callable[[], bytes | None], seconds: float = 0) -> Load:
    """Requests of `clients` connections until `make` returns None, or for `seconds` unless that is 0."""
    result, began = Load(), time.perf_counter()

    def next_request() -> bytes | None:
        return None if seconds and time.perf_counter() - began > seconds else make()

    running = []
    for _ in range(clients):
        _, client = await asyncio.get_running_loop().create_connection(
            lambda: _Client(result, next_request), "127.0.0.1", port
        )
        running.append(client.done)
    await asyncio.gather(*running)
    result.seconds = time.perf_counter() - began
    return result


def get(path: str, headers: str = "") -> bytes:
    """A GET request; `headers` as lines."""
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: application/fhir+json\r\n{headers}\r\n".encode()


def post(path: str, body: bytes, headers: str = "") -> bytes:
    """A POST request with a FHIR body."""
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/fhir+json\r\n{headers}"
    return head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body
