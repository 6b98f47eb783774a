"""Results from a socket: found by search, sent to a subscriber, and corrected in place."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from twisted.trial.unittest import TestCase

from tests.event_loop import run
from tests.faults.scenario import Scenario
from tests.flows.test_end_to_end import answer_to
from tests.service_process import ServiceProcess
from tests.traffic.messages_results import oru
from tests.waiting import PATIENCE

GROUP = "flows"


class _Glucose(Scenario):
    criteria = "Observation?code=http://loinc.org|2345-7"


def _framed(message: bytes) -> bytes:
    return b"\x0b" + message + b"\x1c\r"


async def _search(service: ServiceProcess, query: str) -> dict[str, Any]:
    status, page = await asyncio.to_thread(service.get, f"/fhir/{query}")
    assert status == 200, page
    found: dict[str, Any] = page
    return found


class ResultFlowTests(TestCase):
    def test_results_arrive(self) -> None:
        """Report and observations by search; the subscriber to one code is notified of that code only."""
        run(self._results())

    async def _results(self) -> None:
        async with _Glucose() as scenario:
            service, port = scenario.service, scenario.service.mllp_port
            first = oru(6, "R1", "P1")
            self.assertEqual((await answer_to(port, _framed(first)))[1], b"MSA|CA|R1")
            self.assertTrue(await scenario.sink.until(1, PATIENCE))
            notified = json.loads(scenario.sink.bodies[0])
            self.assertEqual((notified["code"]["coding"][0]["code"], notified["meta"]["versionId"]), ("2345-7", "1"))
            report = (await _search(service, "DiagnosticReport?identifier=FR1"))["entry"][0]["resource"]
            self.assertEqual((report["status"], len(report["result"])), ("final", 6))
            patient = report["subject"]["reference"]
            self.assertEqual((await _search(service, f"Observation?patient={patient}"))["total"], 6)
            corrected = first.replace(b"|R1|P|2.5.1", b"|R2|P|2.5.1").replace(b"|5.6|", b"|9.9|")
            self.assertNotEqual(first, corrected)
            self.assertEqual((await answer_to(port, _framed(corrected)))[1], b"MSA|CA|R2")
            self.assertTrue(await scenario.sink.until(2, PATIENCE))
            again = json.loads(scenario.sink.bodies[1])
            self.assertEqual((again["id"], again["meta"]["versionId"]), (notified["id"], "2"))
            self.assertEqual(again["valueQuantity"]["value"], 9.9)
            self.assertEqual((await _search(service, f"Observation?patient={patient}"))["total"], 6)
            self.assertEqual(len(scenario.sink.bodies), 2)
