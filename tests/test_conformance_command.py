"""`bin/conformance` against our own service: nothing fails, and nothing is left behind."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

from twisted.trial.unittest import TestCase

from conformance.suite import FAILED, PASSED, Result, table
from tests.faults.scenario import scratch
from tests.service_process import ROOT, ServiceProcess
from tests.waiting import PATIENCE, free_port

GROUP = "flows"


def measure(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    command = [sys.executable, "-m", "conformance", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=5 * PATIENCE)


class CommandTests(TestCase):
    timeout = 300  # more than 400 cases over HTTP

    def test_every_suite_passes(self) -> None:
        """What is not offered is named as such."""
        folder = scratch()
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        service = ServiceProcess(folder / "service", IPF_WORKER_PROCESSES="0", IPF_WORKER_ENABLED="false")
        service.start()
        self.addCleanup(service.stop)
        service.wait_ready()
        ended = measure(f"{service.base_url}/fhir", "--json")
        results = [Result(**json.loads(line)) for line in ended.stdout.splitlines()]
        failed = [one for one in results if one.end == FAILED]
        self.assertEqual((failed, ended.returncode, ended.stderr), ([], 0, ""), "\n" + table(results))
        self.assertGreater(sum(one.end == PASSED for one in results), 400)
        _, left = service.get("/fhir?_type=Patient,Observation,ValueSet&_summary=count")
        self.assertEqual(left["total"], 0)

    def test_a_server_that_is_not_there(self) -> None:
        """Exit status 2."""
        ended = measure(f"http://127.0.0.1:{free_port()}/fhir")
        self.assertEqual((ended.returncode, "not reachable" in ended.stderr), (2, True))
