"""`bin/conformance` against our own service: nothing fails, nothing is left behind; and what its table says."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from typing import Any

from twisted.trial.unittest import TestCase

from conformance.fhirpath import FhirPath
from conformance.server import Reply, Server
from conformance.suite import FAILED, NOT_SUPPORTED, PASSED, Failed, NotSupported, Result, run_suite, table
from ipf.fhir.model.packages import Packages
from ipf.rest.write.conformance import Conformance
from tests.event_loop import run
from tests.faults.scenario import scratch
from tests.rest.world import World
from tests.service_process import ROOT, ServiceProcess
from tests.waiting import PATIENCE, free_port

MODULE = [sys.executable, "-m", "conformance"]


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
            self.assertGreater(sum(one.end == PASSED for one in results), 400)
            _, left = await asyncio.to_thread(service.get, "/fhir?_type=Patient,Observation,ValueSet&_summary=count")
            self.assertEqual(left["total"], 0)
        finally:
            await asyncio.to_thread(service.stop)
            shutil.rmtree(folder, ignore_errors=True)

    def test_a_server_that_is_not_there(self) -> None:
        """Exit status 2."""
        ended = measure(f"http://127.0.0.1:{free_port()}/fhir")
        self.assertEqual((ended.returncode, "not reachable" in ended.stderr), (2, True))


class InMemory(Server):
    """The world's server, without a socket; `without`: paths that it does not know."""

    def __init__(self, without: str = "") -> None:
        self.world, self.without, self.run, self.created = World(), without, "run", []

    async def send(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        """One request."""
        if path == self.without:
            return Reply(404, {}, {"resourceType": "OperationOutcome", "issue": [{"code": "not-found"}]}, "")
        answer = await self.world.send(method, path, body, **headers)
        text = answer.body.decode()
        found = {name.lower(): value for name, value in answer.headers}
        return Reply(answer.status, found, json.loads(text) if text else None, text)


class FhirPathTests(TestCase):
    """The cases of FHIRPath."""

    async def results(self, server: InMemory) -> list[Result]:
        """Of all groups."""
        found = []
        for name, cases in FhirPath().suites().items():
            found += await run_suite(name, cases, server)
        return found

    async def test_every_case_passes(self) -> None:
        """At least a hundred expressions, each once."""
        server = InMemory()
        server.world.conformance = Conformance(Packages, server.world.store, lambda: server.world.now)
        results = await self.results(server)
        self.assertEqual([one for one in results if one.end != PASSED], [])
        names = [one.case for one in results]
        self.assertEqual((len(names) > 200, len(set(names))), (True, len(names)))

    async def test_a_server_without_the_operation(self) -> None:
        """A row says so once; paths of patches are judged nevertheless."""
        results = await self.results(InMemory(without="$fhirpath"))
        ends = {(one.suite == "fhirpath by patch", one.end) for one in results}
        self.assertEqual(ends, {(True, PASSED), (False, NOT_SUPPORTED)})
        lines = table(results).splitlines()
        self.assertEqual(lines.count("  fhirpath texts: not offered"), 1)


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
