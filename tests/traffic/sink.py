"""A subscriber for load tests: an HTTP/1.1 server on asyncio that answers 200 and stores the time of each request."""

from __future__ import annotations

import asyncio
import re
import time

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


class SinkConnection(asyncio.Protocol):
    """One connection."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._sink.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._sink.connections.discard(self)

    def data_received(self, data: bytes) -> None:
        """Answer each complete request."""
        self._buffer += data
        while True:
            head, mark, rest = self._buffer.partition(b"\r\n\r\n")
            if not mark:
                return
            found = _LENGTH.search(head)
            length = int(found.group(1)) if found else 0
            if len(rest) < length:
                return
            self._buffer = rest[length:]
            self._sink.take(head, rest[:length])
            if self._sink.seconds:
                asyncio.get_running_loop().call_later(self._sink.seconds, self.transport.write, self._sink.answer())
            else:
                self.transport.write(self._sink.answer())


class Sink:
    """Listens on a free loopback port; `times` holds the time of each request (time.perf_counter).

    It answers `seconds` after each request.
    """

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.connections: set[SinkConnection] = set()
        self.times: list[float] = []
        self.bodies: list[bytes] = []
        self.keep_bodies = False
        self._wanted = 0
        self._reached = asyncio.Event()
        self._server: asyncio.Server | None = None

    async def start(self) -> str:
        """Listen on a free port; the URL."""
        return await self.start_on(0)

    async def start_on(self, port: int) -> str:
        """Listen on `port`; the URL."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: SinkConnection(self), "127.0.0.1", port)
        port = int(self._server.sockets[0].getsockname()[1])
        return f"http://127.0.0.1:{port}/hook"

    def answer(self) -> bytes:
        """The response to every request."""
        return _ANSWER

    def take(self, head: bytes, body: bytes) -> None:
        """One request."""
        self.times.append(time.perf_counter())
        if self.keep_bodies:
            self.bodies.append(body)
        if len(self.times) >= self._wanted:  # waking the waiter costs more than a request
            self._reached.set()

    async def until(self, count: int, seconds: float) -> bool:
        """Wait for `count` requests in total; False after `seconds`."""
        self._wanted = count
        self._reached.clear()
        if len(self.times) < count:
            try:
                await asyncio.wait_for(self._reached.wait(), seconds)
            except TimeoutError:
                return False
        return True

    def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()

    def fail(self) -> None:
        """Stop listening, and reset the open connections."""
        self.close()
        for connection in self.connections:
            connection.transport.abort()
