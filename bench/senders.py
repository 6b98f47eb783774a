"""HL7 senders on asyncio, in a separate process from the service.

Closed loop: each sender waits for the acknowledgement before it sends again.  Open loop: arrivals are scheduled, and a
latency counts from the scheduled time, so that a stall delays all arrivals during it.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")
END = b"\x1c\r"


@dataclass
class Run:
    """The result of a run.  Latencies in seconds; `codes` counts MSA-1 values."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    codes: Counter[str] = field(default_factory=Counter)

    @property
    def rate(self) -> float:
        """Acknowledgements per second."""
        return len(self.latencies) / self.seconds if self.seconds else 0.0

    def percentile(self, share: float) -> float:
        """A latency percentile in milliseconds."""
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1000 if ordered else float("nan")


class Connection(asyncio.Protocol):
    """One MLLP connection that calls back for each acknowledgement, in order."""

    def __init__(self, acknowledged: Callable[[Connection, bytes], None]) -> None:
        self._acknowledged = acknowledged
        self._rest = b""
        self.sent: deque[float] = deque()
        self.lost = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Split acknowledgements."""
        *whole, self._rest = (self._rest + data).split(END) if self._rest else data.split(END)
        for one in whole:
            self._acknowledged(self, one)

    def connection_lost(self, exc: Exception | None) -> None:
        """Complete `lost`."""
        if not self.lost.done():
            self.lost.set_result(exc)


async def connect(port: int, count: int, acknowledged: Callable[[Connection, bytes], None]) -> list[Connection]:
    """Open `count` connections."""
    loop = asyncio.get_running_loop()
    pairs = [await loop.create_connection(lambda: Connection(acknowledged), "127.0.0.1", port) for _ in range(count)]
    return [protocol for _, protocol in pairs]


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a load on a select loop.  epoll rounds each timer up to a millisecond, and late arrivals would count against
    the service.
    """
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selectors.SelectSelector())) as runner:
        return runner.run(work)


def _code(ack: bytes) -> str:
    at = ack.find(b"\rMSA|")
    return ack[at + 5 : at + 7].decode() if at >= 0 else "?"


async def closed_loop(port: int, senders: int, seconds: float, message: Callable[[], bytes]) -> Run:
    """`senders` stop-and-wait senders for `seconds`."""
    run = Run()
    clock = time.perf_counter
    end = clock() + seconds
    waiting = senders
    done = asyncio.get_running_loop().create_future()

    def acknowledged(connection: Connection, ack: bytes) -> None:
        nonlocal waiting
        now = clock()
        run.latencies.append(now - connection.sent.popleft())
        run.codes[_code(ack)] += 1
        if now < end:
            connection.sent.append(clock())
            connection.transport.write(message())
        else:
            waiting -= 1
            if not waiting:
                done.set_result(None)

    connections = await connect(port, senders, acknowledged)
    began = clock()
    for connection in connections:
        connection.sent.append(clock())
        connection.transport.write(message())
    await asyncio.wait_for(done, seconds + 30)
    run.seconds = clock() - began
    for connection in connections:
        connection.transport.close()
    return run


async def open_loop(port: int, rate: float, connections: int, seconds: float, message: Callable[[], bytes]) -> Run:
    """Arrivals every 1/rate seconds, distributed over the connections in turn; latency counts from the schedule."""
    run = Run()
    clock = time.perf_counter
    wanted = int(rate * seconds)
    done = asyncio.get_running_loop().create_future()

    def acknowledged(connection: Connection, ack: bytes) -> None:
        run.latencies.append(clock() - connection.sent.popleft())
        run.codes[_code(ack)] += 1
        if len(run.latencies) == wanted:
            done.set_result(None)

    lines = await connect(port, connections, acknowledged)
    began = clock()
    number = 0
    while number < wanted:
        due = min(wanted, int((clock() - began) * rate) + 1)
        while number < due:
            line = lines[number % connections]
            line.sent.append(began + number / rate)
            line.transport.write(message())
            number += 1
        await asyncio.sleep(max(0.0004, began + number / rate - clock()))
    await asyncio.wait_for(done, 60)
    run.seconds = clock() - began
    for line in lines:
        line.transport.close()
    return run
