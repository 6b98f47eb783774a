"""Senders that connect anew for each message, as many laboratory systems do, and repeat it until it is acknowledged."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from tests.faults.feed import admission
from tests.traffic.messages import END
from tests.waiting import PATIENCE, breathe, until

_FOR_EVER = float("inf")


@dataclass
class Callers:
    """`refused`: connections that were not made.  `repeated`: those that ended without an acknowledgement.

    `waits`: seconds from the first attempt at a message to its `AA`.  They go on while fewer than `window` messages are
    on their way through the service, as `behind` says.
    """

    port: int
    senders: int = 4
    window: int = 40
    behind: Callable[[], int] = lambda: 0
    rest: Callable[[], Awaitable[object]] = breathe
    prefix: str = "C"  # of control ids
    refused: int = 0
    repeated: int = 0
    accepted: set[str] = field(default_factory=set)
    waits: list[float] = field(default_factory=list)
    _stopping: bool = False
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def start(self) -> None:
        """Begin to send."""
        self._tasks = [asyncio.create_task(self._send(number)) for number in range(self.senders)]

    async def stop(self) -> None:
        """End each sender after the message in hand is acknowledged."""
        self._stopping = True
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*self._tasks)

    async def until(self, count: int) -> None:
        """Wait for so many acknowledgements in all."""
        await until(lambda: len(self.accepted) >= count, f"{count} acknowledgements")

    async def _send(self, sender: int) -> None:
        for number in itertools.count():
            await until(lambda: self._stopping or self.behind() < self.window, seconds=_FOR_EVER)
            if self._stopping:
                return
            control_id = f"{self.prefix}{sender}N{number}"
            message, began = admission(control_id, f"C{sender}P{number % 5}", f"+48{number:06}"), time.monotonic()
            await self._until_accepted(message, control_id)
            self.waits.append(time.monotonic() - began)
            self.accepted.add(control_id)
            await self.rest()

    async def _until_accepted(self, message: bytes, control_id: str) -> None:
        await until(lambda: self._accepted(message, control_id), control_id, seconds=_FOR_EVER)

    async def _accepted(self, message: bytes, control_id: str) -> bool:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            self.refused += 1
            return False
        try:
            async with asyncio.timeout(PATIENCE):
                writer.write(message)
                answer = await reader.readuntil(END)
        except (OSError, EOFError):
            self.repeated += 1
            return False
        finally:
            writer.close()
        return f"MSA|AA|{control_id}".encode() in answer
