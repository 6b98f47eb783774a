"""The service as one process, and as a daemon."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

from twisted.trial.unittest import TestCase

from tests.event_loop import run
from tests.faults.feed import admission
from tests.faults.scenario import Scenario
from tests.traffic.sink import Sink
from tests.traffic.subscribers import subscribe
from tests.waiting import PATIENCE, until

GROUP = "flows"


async def answer_to(port: int, frame: bytes) -> list[bytes]:
    """Send one frame; the segments of the acknowledgement."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(frame)
    answer = await asyncio.wait_for(reader.readuntil(b"\x1c\r"), PATIENCE)
    writer.close()
    return answer.strip(b"\x0b\x1c\r").split(b"\r")


class OneProcessTests(TestCase):
    def test_converted_in_the_main_process(self) -> None:
        """IPF_WORKER_PROCESSES=0."""
        run(self._one_process())

    async def _one_process(self) -> None:
        async with Scenario(IPF_WORKER_PROCESSES="0") as scenario:
            other = Sink()
            await subscribe(scenario.service, await other.start(), "Patient?identifier=P2")
            for number in (1, 2, 3):
                await answer_to(scenario.service.mllp_port, admission(f"M{number}", f"P{number}", "+47"))
            self.assertTrue(await scenario.sink.until(3, PATIENCE))
            self.assertTrue(await other.until(1, PATIENCE))
            self.assertEqual(len(other.times), 1)


class DaemonTests(TestCase):
    def test_as_a_daemon(self) -> None:
        """`twistd ipf` in the background: log lines, also of the converter process, go to twistd.log as JSON."""
        run(self._daemon())

    async def _daemon(self) -> None:
        scenario = Scenario()
        service = scenario.service
        service.prepare()
        environment = service.environment | {"IPF_LOG_FORMAT": "auto"}
        await asyncio.to_thread(
            subprocess.run, [str(service.twistd), "ipf"], env=environment, cwd=service.folder, check=True
        )
        pid = int((service.folder / "twistd.pid").read_text())
        try:
            await until(lambda: asyncio.to_thread(service.answers), "it answers")
            await answer_to(service.mllp_port, admission("M1", "P1", "+4711"))
            log = service.folder / "twistd.log"
            await until(lambda: b"event=delivered" in log.read_bytes(), "the message is delivered")
            _, text = await asyncio.to_thread(service.get, "/actuator/prometheus")
            self.assertIn("interface_engine_transform_duration_seconds_count", text)
            for line in (service.folder / "twistd.log").read_text().splitlines():
                self.assertIn("@timestamp", json.loads(line))
        finally:
            os.kill(pid, signal.SIGTERM)
        await until(lambda: not Path(f"/proc/{pid}").exists(), "it ends")
        shutil.rmtree(scenario.folder, ignore_errors=True)
