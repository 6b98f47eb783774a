"""Senders that connect anew for each message, as many laboratory systems do, and repeat it until it is acknowledged."""

from __future__ import annotations

import asyncio
import itertools
import time
from dataclasses import dataclass, field

from tests.faults.feed import admission
from tests.traffic.messages import END
from tests.waiting import PATIENCE


@dataclass
class Callers:
    """`refused`: connections that were not made.  `repeated`: those that ended without an acknowledgement.

    `waits`: seconds from the first attempt at a message to its `AA`.
    """

    port: int
    senders: int = 4
    pause: float = 0.02
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
        async with asyncio.timeout(PATIENCE):
            while len(self.accepted) < count:
                await asyncio.sleep(0.05)

    async def _send(self, sender: int) -> None:
        for number in itertools.count():
            if self._stopping:
                return
            control_id = f"{self.prefix}{sender}N{number}"
            message, began = admission(control_id, f"C{sender}P{number % 5}", f"+48{number:06}"), time.monotonic()
            while not await self._accepted(message, control_id):
                await asyncio.sleep(0.01)
            self.waits.append(time.monotonic() - began)
            self.accepted.add(control_id)
            await asyncio.sleep(self.pause)

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
