"""Five FHIR clients side by side: each step on one real service, with the result that every client expects."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from typing import Any

from twisted.trial.unittest import SkipTest, TestCase

from tests.clients.installed import CLIENTS, command
from tests.event_loop import run
from tests.faults.scenario import scratch
from tests.service_process import ServiceProcess
from tests.waiting import PATIENCE

GROUP = "clients"

EXPECTED: dict[str, Any] = {
    "create": ["1", "Create"],
    "read": "Create",
    "missing": {"error": "not-found"},
    "search": ["a", "b", "c", "d"],
    "page": [["a", "b"], ["c", "d"]],
    "update": ["2", "Update"],
    "patch": ["3", "Patch"],
    "transaction": [["201", "201"], "Patient"],
    "history": ["3", "2", "1"],
    "graphql": {"Patient": {"name": [{"family": "Patch"}]}},
    "delete": {"error": "deleted"},
}
"""The result of each step: version and family name, given names, pages, statuses, issue codes of errors."""
WITHOUT = {"HAPI": {"graphql"}, "fhirclient": {"patch", "graphql"}}
"""Steps that a client has no function for."""
_FIRST = {"fhirclient": {"history": ["2", "1"]}}


def expected(client: str) -> dict[str, Any]:
    """The results of a client: without a patch there is a version less."""
    return {
        step: _FIRST.get(client, {}).get(step, result)
        for step, result in EXPECTED.items()
        if step not in WITHOUT.get(client, ())
    }


def table(results: dict[str, dict[str, Any]]) -> str:
    """The steps of the clients side by side: `ok`, `-` for no such function, or what differs."""
    lines = [["", *results]]
    for step in EXPECTED:
        cells = []
        for client, found in results.items():
            wanted = expected(client)
            same = found.get(step) == wanted.get(step)
            cells.append("-" if step not in wanted else "ok" if same else json.dumps(found.get(step))[:100])
        lines.append([step, *cells])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


class ClientTests(TestCase):
    """On one service."""

    timeout = 3600  # npm, Maven and pip install the clients the first time

    def test_every_client_gets_what_it_expects(self) -> None:
        """All steps of all clients that can be installed; without one of them the test is skipped."""
        commands = {client: command(client) for client in CLIENTS}
        results = run(self._results({client: found for client, found in commands.items() if found is not None}))
        self.assertEqual(results, {client: expected(client) for client in results}, "\n" + table(results))
        missing = [client for client, found in commands.items() if found is None]
        if missing:
            raise SkipTest(f"not installed: {', '.join(missing)}; they need npm, Maven, a JDK and their registries")

    async def _results(self, commands: dict[str, list[str]]) -> dict[str, dict[str, Any]]:
        folder = scratch()
        service = ServiceProcess(folder / "service", IPF_WORKER_PROCESSES="0", IPF_WORKER_ENABLED="false")
        try:
            service.start()
            await asyncio.to_thread(service.wait_ready)
            base = f"{service.base_url}/fhir"
            return {client: await asyncio.to_thread(_run, found, base) for client, found in commands.items()}
        finally:
            await asyncio.to_thread(service.stop)
            shutil.rmtree(folder, ignore_errors=True)


def _run(command: list[str], base: str) -> dict[str, Any]:
    """The result of each step."""
    ended = subprocess.run([*command, base], capture_output=True, text=True, timeout=6 * PATIENCE)
    lines = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
    found = {line["step"]: line["result"] for line in lines}
    return found if ended.returncode == 0 else {**found, "ended": ended.stderr[-1000:]}
