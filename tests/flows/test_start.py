"""Starts that end early, of the real service: a listener that cannot be opened."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import tempfile
from pathlib import Path
from typing import Any

from twisted.trial.unittest import TestCase

from tests.event_loop import run
from tests.service_process import ServiceProcess
from tests.waiting import PATIENCE


def records(service: ServiceProcess) -> list[dict[str, Any]]:
    """The log so far; a line that is not JSON is an error."""
    return [json.loads(line) for line in service.log_path.read_bytes().splitlines() if line]


class StartTests(TestCase):
    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ipf-start-"))
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.folder.chmod(0o755)

    def test_a_port_in_use_is_found_before_the_database_is_started(self) -> None:
        run(self.with_a_port_in_use())

    async def with_a_port_in_use(self) -> None:
        service = ServiceProcess(self.folder)
        with socket.socket() as other:
            other.bind(("127.0.0.1", service.mllp_port))
            other.listen()
            service.start()
            async with asyncio.timeout(PATIENCE):
                while service.ended() is None:
                    await asyncio.sleep(0.05)
        self.assertEqual(service.stop(), 1)
        errors = [one["message"] for one in records(service) if one["level"] == "ERROR"]
        endpoint = service.environment["IPF_MLLP_LISTEN"]
        self.assertEqual(errors, [f"ipf cannot start: IPF_MLLP_LISTEN: {endpoint}: the port is in use"])
        self.assertFalse((self.folder / "data" / "postgres").exists())
