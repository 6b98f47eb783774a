"""`bin/conformance` against our own service: nothing fails, nothing is left behind; and what its table says."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys

from twisted.trial.unittest import TestCase

from tests.conformance.suite import FAILED, NOT_SUPPORTED, PASSED, Failed, NotSupported, Result, run_suite, table
from tests.event_loop import run
from tests.faults.scenario import scratch
from tests.service_process import ROOT, ServiceProcess
from tests.waiting import PATIENCE, free_port

MODULE = [sys.executable, "-m", "tests.conformance"]


def measure(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    return subprocess.run([*MODULE, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=5 * PATIENCE)


class ServiceTests(TestCase):
    """One real service."""

    def test_every_suite_passes(self) -> None:
        """What is not offered is named as such."""
        run(self._flow())

    async def _flow(self) -> None:
        folder = scratch()
        service = ServiceProcess(folder / "service", IPF_WORKER_PROCESSES="0", IPF_WORKER_ENABLED="false")
        try:
            service.start()
            async with asyncio.timeout(PATIENCE):
                while not await asyncio.to_thread(service.ready):
                    await asyncio.sleep(0.05)
            ended = await asyncio.to_thread(measure, f"{service.base_url}/fhir", "--json")
            results = [Result(**json.loads(line)) for line in ended.stdout.splitlines()]
            failed = [one for one in results if one.end == FAILED]
            self.assertEqual((failed, ended.returncode, ended.stderr), ([], 0, ""), "\n" + table(results))
            self.assertGreater(sum(one.end == PASSED for one in results), 150)
            _, left = await asyncio.to_thread(service.get, "/fhir?_type=Patient,Observation,ValueSet&_summary=count")
            self.assertEqual(left["total"], 0)
        finally:
            await asyncio.to_thread(service.stop)
            shutil.rmtree(folder, ignore_errors=True)

    def test_a_server_that_is_not_there(self) -> None:
        """Exit status 2."""
        ended = measure(f"http://127.0.0.1:{free_port()}/fhir")
        self.assertEqual((ended.returncode, "not reachable" in ended.stderr), (2, True))


class TableTests(TestCase):
    """The results of cases."""

    async def test_ends_of_cases(self) -> None:
        """Passed, failed by an expectation or by a surprise, not supported; with reasons."""

        async def good(_: object) -> None:
            pass

        async def bad(_: object) -> None:
            raise Failed("expected 1, got 2")

        async def odd(_: object) -> None:
            raise KeyError("entry")

        async def absent(_: object) -> None:
            raise NotSupported("404")

        cases = [("good", good), ("bad", bad), ("odd", odd), ("absent", absent)]
        results = await run_suite("s", cases, None)  # type: ignore[arg-type]
        self.assertEqual([one.end for one in results], [PASSED, FAILED, FAILED, NOT_SUPPORTED])
        lines = table(results).splitlines()
        self.assertEqual([line.split() for line in lines[1:3]], [["s", "1", "2", "1"], ["all", "1", "2", "1"]])
        self.assertIn("  s: odd: KeyError: 'entry'", lines)
