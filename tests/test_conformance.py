"""The cases of `bin/conformance` on stores in memory, and what its table says."""

from __future__ import annotations

import json
from typing import Any

from twisted.trial.unittest import TestCase

from conformance.fhirpath import FhirPath
from conformance.server import Reply, Server
from conformance.suite import FAILED, NOT_SUPPORTED, PASSED, Failed, NotSupported, Result, run_suite, table
from ipf.fhir.model.packages import Packages
from ipf.rest.write.conformance import Conformance
from tests.rest.world import World


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
