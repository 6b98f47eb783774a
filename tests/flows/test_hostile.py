"""Hostile requests to a real service: every answer is a FHIR answer, and what was stored before is there afterwards."""

from __future__ import annotations

import asyncio
import shutil

from twisted.trial.unittest import TestCase

from tests.event_loop import LIMIT, run
from tests.faults.scenario import scratch
from tests.flows.hostile import Generator, Sent, attack, wrong_with
from tests.service_process import ServiceProcess
from tests.waiting import until

GROUP = "hostile"
SEED = 20261121
REQUESTS = 1_500


class HostileTests(TestCase):
    timeout = LIMIT  # thousands of hostile requests

    def test_hostile_requests(self) -> None:
        """From two clients at once; the seed is in the message, so that they can be sent again."""
        run(self._flow())

    def test_the_same_again(self) -> None:
        """A seed stands for its requests."""
        first, second = Generator(7), Generator(7)
        self.assertEqual([first.one() for _ in range(200)], [second.one() for _ in range(200)])
        other = Generator(8)
        self.assertNotEqual([other.one() for _ in range(20)], [first.one() for _ in range(20)])

    async def _flow(self) -> None:
        folder = scratch()
        service = ServiceProcess(folder / "service", IPF_WORKER_PROCESSES="0")
        try:
            service.start()
            await until(lambda: asyncio.to_thread(service.ready))
            kept = {"resourceType": "Patient", "id": "kept", "name": [{"family": "O'Neill"}]}
            self.assertEqual((await asyncio.to_thread(service.request, "PUT", "/fhir/Patient/kept", kept))[0], 201)
            found = await asyncio.gather(*(
                asyncio.to_thread(attack, service.http_port, seed, REQUESTS // 2) for seed in (SEED, SEED + 1)
            ))  # fmt: skip
            for number, (statuses, wrong) in enumerate(found):
                self.assertEqual(wrong[:3], [], f"seed {SEED + number}: {len(wrong)} wrong")
                self.assertGreater(statuses[200], REQUESTS // 40, statuses)
            status, again = await asyncio.to_thread(service.get, "/fhir/Patient/kept")
            self.assertEqual((status, again["name"]), (200, kept["name"]))
            self.assertNotIn("request_failed", service.log_path.read_text())
        finally:
            service.stop()
            shutil.rmtree(folder, ignore_errors=True)


class JudgeTests(TestCase):
    timeout = LIMIT  # thousands of hostile requests

    def test_what_is_wrong(self) -> None:
        """The check of answers can fail."""
        asked = Sent(b"", is_head=False)
        outcome = b'{"resourceType":"OperationOutcome"}'
        json = "application/fhir+json"
        for status, content_type, body, is_wrong in (
            (500, json, outcome, True), (200, json, b"", False), (404, json, outcome, False),
            (404, json, b"{}", True), (404, "text/html", b"<html>", True), (400, "", b"", False), (404, "", b"", True),
        ):  # fmt: skip
            self.assertEqual(wrong_with(asked, status, content_type, body) is not None, is_wrong, (status, body))
