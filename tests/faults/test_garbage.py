"""Garbage on the MLLP port: the service stays up and answers others."""

from __future__ import annotations

import asyncio
import random

from twisted.trial.unittest import TestCase

from tests.event_loop import LIMIT, run
from tests.faults.feed import admission
from tests.faults.scenario import Scenario, many_files
from tests.service_process import memory_mib
from tests.waiting import PATIENCE

GROUP = "hostile"

MIB = 1024 * 1024


class GarbageTests(TestCase):
    timeout = LIMIT

    def test_garbage(self) -> None:
        """Random bytes, a frame without end, bytes without a frame, 2,000 silent connections."""
        many_files()
        run(self._garbage())

    async def _garbage(self) -> None:
        async with Scenario(IPF_MLLP_FRAME_TIMEOUT_SECONDS="2", IPF_MLLP_MAX_FRAME_BYTES=str(MIB)) as scenario:
            port, pid = scenario.service.mllp_port, scenario.service.pid
            before = memory_mib(pid)
            idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2000)]
            await asyncio.gather(_random_bytes(port), _endless(port, b"\x0bMSH|"), _endless(port, b""), _hang_up(port))
            code = await asyncio.wait_for(_one_answer(port), PATIENCE)
            self.assertEqual(code, b"AA")
            self.assertEqual((await asyncio.to_thread(scenario.service.get, "/actuator/health"))[0], 200)
            self.assertLess(memory_mib(pid) - before, 80)
            for _, writer in idle:
                writer.close()
            await _unfinished_times_out(port)
            self.assertEqual(await asyncio.wait_for(_one_answer(port), PATIENCE), b"AA")
            rejects = await asyncio.to_thread(scenario.sql, "ipf", "SELECT count(*) FROM rejects")
            self.assertGreater(int(rejects[0][0]), 0)


_numbers = iter(range(1_000_000))


async def _one_answer(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(admission(f"G{next(_numbers)}", "G1", f"+47{next(_numbers)}"))
    answer = await reader.readuntil(b"\x1c\r")
    writer.close()
    return answer.partition(b"\rMSA|")[2][:2]


async def _random_bytes(port: int) -> None:
    chance = random.Random(1)
    for _ in range(20):
        await _pour(port, [chance.randbytes(20_000)])


async def _endless(port: int, start: bytes) -> None:
    await _pour(port, [start] + [b"A" * 65536] * 256)


async def _hang_up(port: int) -> None:
    whole = admission("H1", "H1", "+471")
    for cut in range(1, len(whole), 7):
        await _pour(port, [whole[:cut]])


async def _pour(port: int, chunks: list[bytes]) -> None:
    """Write all, as far as the service reads it, then hang up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(PATIENCE):
            for chunk in chunks:
                writer.write(chunk)
                await writer.drain()
    except (OSError, TimeoutError):
        pass
    writer.transport.abort()


async def _unfinished_times_out(port: int) -> None:
    """A sender that never finishes a frame is cut off."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"\x0bMSH|^~\\&|A|B")
    async with asyncio.timeout(PATIENCE):
        await reader.read()
    writer.close()
