"""Trigger events in a running service, from the socket to the FHIR server: changed numbers, beds, events without a map,
queries."""

from __future__ import annotations

import shutil
from typing import Any

from twisted.trial.unittest import TestCase

from tests.event_loop import run
from tests.faults.scenario import scratch
from tests.flows.test_end_to_end import answer_to
from tests.flows.test_mapping import Running
from tests.service_process import ServiceProcess

GROUP = "flows"
PID = "PID|1||{}^^^HOSP^MR||Marlowe^Ada||19710412|F"


class OwnMaps(Running):
    """A service with the maps of the project."""

    def __init__(self, **environment: str) -> None:
        self.folder = scratch()
        self.service = ServiceProcess(self.folder / "service", **environment)

    async def __aexit__(self, *exc: object) -> None:
        try:
            self.service.stop()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    async def answer(self, event: str, *segments: str) -> str:
        """Send a message; MSA-1."""
        head = f"MSH|^~\\&|REG|HOSP|||20260311110000||{event}|{event[4:7]}|P|2.5.1"
        frame = "\x0b" + "\r".join((head, *segments)) + "\r\x1c\r"
        answer = await answer_to(self.service.mllp_port, frame.encode())
        return "\n".join(one.decode() for one in answer)

    async def stored(self, search: str, **values: Any) -> list[dict[str, Any]]:
        """The resources that a search finds, once one of them has these values."""

        def is_there(bundle: Any) -> bool:
            found = [entry["resource"] for entry in bundle.get("entry", ())]
            return any(all(one.get(name) == value for name, value in values.items()) for one in found)

        bundle = await self.until(f"/fhir/{search}", is_there)
        return [entry["resource"] for entry in bundle["entry"]]


class TriggerEventTests(TestCase):
    def test_events(self) -> None:
        """With the generic map in use."""
        run(self._events())

    def test_a_query_and_an_event_without_a_map(self) -> None:
        """The query is refused, the event is accepted and fails with the reason."""
        run(self._refused())

    async def _events(self) -> None:
        async with OwnMaps(IPF_GENERIC_MAP="true") as running:
            visit = "PV1|1|I|W^1^2||||||||||||||||V1"
            self.assertIn("MSA|AA", await running.answer("ADT^A01^ADT_A01", "EVN||2026", PID.format("100"), visit))
            await running.stored("Encounter?identifier=V1", status="in-progress")
            changed = (PID.format("200"), "MRG|100^^^HOSP^MR")
            self.assertIn("MSA|AA", await running.answer("ADT^A47^ADT_A30", "EVN||2026", *changed))
            (patient,) = await running.stored("Patient?identifier=200")
            self.assertIn("MSA|AA", await running.answer("ADT^A21^ADT_A21", "EVN||2026", PID.format("200"), visit))
            (encounter,) = await running.stored("Encounter?identifier=V1", status="onleave")
            self.assertEqual(encounter["subject"]["reference"], f"Patient/{patient['id']}")
            self.assertIn("MSA|AA", await running.answer("ADT^A20^ADT_A20", "EVN||2026", "NPU|W^1^2|K"))
            beds = await running.stored("Location?operational-status=K", operationalStatus={**V2_0116, "code": "K"})
            self.assertEqual([one["name"] for one in beds], ["2"])
            diagnosis = "DG1|1||I10^Hypertension^I10"
            self.assertIn("MSA|AA", await running.answer("ADT^Z99", "EVN||2026", PID.format("200"), diagnosis))
            await running.stored(f"Condition?subject=Patient/{patient['id']}&code=I10")
            _, page = await running.http("GET", "/admin/messages?message_type=ADT_Z99")
            (message,) = page["items"]
            _, trace = await running.http("GET", f"/admin/messages/{message['id']}/trace")
            self.assertEqual(trace["map_url"], "urn:ipf:map:Generic")
            self.assertIn("no map for ADT_Z99: the generic map was used", trace["warnings"])

    async def _refused(self) -> None:
        async with OwnMaps() as running:
            refused = await running.answer("QBP^Q22^QBP_Q21", "QPD|IHE PDQ Query|1|@PID.5.1^MARLOWE", "RCP|I")
            self.assertIn("MSA|AE", refused)
            self.assertIn("queries are not served here", refused)
            self.assertIn("MSA|AA", await running.answer("ADT^Z99", "EVN||2026", PID.format("200")))
            page = await running.until("/admin/messages?error=StructureMap", lambda page: page["total"] == 1)
            self.assertEqual([one["message_type"] for one in page["items"]], ["ADT_Z99"])
            self.assertTrue(page["items"][0]["permanent"])
            _, every = await running.http("GET", "/admin/messages")
            self.assertEqual(every["total"], 1)


V2_0116 = {"system": "http://terminology.hl7.org/CodeSystem/v2-0116"}
