"""The command as people run it: a process of its own against a running service."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from twisted.trial.unittest import TestCase

from tests.event_loop import run
from tests.faults.scenario import Scenario
from tests.service_process import ROOT

GROUP = "flows"


class CliFlowTests(TestCase):
    def test_commands(self) -> None:
        """Send, look, follow; exit status 1 for what is refused and 2 for wrong usage."""
        run(self._commands())

    async def _commands(self) -> None:
        async with Scenario() as scenario:
            base, listener = scenario.service.base_url, f"127.0.0.1:{scenario.service.mllp_port}"
            sample = str(ROOT / "tests/corpus/a01_minimal.hl7")
            send = ("send", "--to", listener, "--fresh-ids")
            await ipfctl(base, *send, sample)  # the first: of messages on four connections at once any may come first
            ended, said = await ipfctl(base, *send, "--repeat", "19", "--connections", "4", sample)
            self.assertEqual((ended, '"AA":19' in said), (0, True), said)
            await scenario.settled()
            for arguments, status, words in (
                (("--version",), 0, "ipfctl, version"),
                (("show", "1"), 0, "PID|"),
                (("retry", "999"), 1, "no message 999"),
                (("messages", "--limit", "many"), 2, "Usage"),
                (("messages", "show", "1"), 0, "PID|"),
                (("messages", "list", "--type", "adt^a01", "--received-from", "2h", "-o", "csv"), 0, "ADT_A01"),
                (("replay", "1", "--dry-run"), 0, "1 message; nothing was changed"),
                (("replay", "1", "2", "--only", "--wait"), 0, "done"),
                (("effects", "1"), 0, "Patient"),
                (("doctor",), 0, "maps for"),
                (("send", "--to", "127.0.0.1:1", sample), 1, "refused"),
            ):
                with self.subTest(arguments=arguments):
                    ended, said = await ipfctl(base, *arguments)
                    self.assertEqual(ended, status, said)
                    self.assertIn(words, said)
            for asked in (("--json", "messages", "--limit", "1"), ("messages", "--limit", "1", "--json")):
                _, said = await ipfctl(base, *asked)
                self.assertEqual(json.loads(said)["total"], 20)


async def ipfctl(base: str, *arguments: str) -> tuple[int | None, str]:
    """Exit status, and what was written to both outputs."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "ignore", "-m", "ipf.cli", "--url", base, *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, cwd=Path(ROOT),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    output, _ = await process.communicate()
    return process.returncode, output.decode()
