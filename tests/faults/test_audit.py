"""kill -9 during writes: what is committed has its audit records, exactly once, and nothing else has one."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from http.client import HTTPException
from typing import Any

from twisted.trial.unittest import TestCase

from tests.event_loop import LIMIT, run
from tests.faults.scenario import Scenario
from tests.waiting import PATIENCE, until

GROUP = "kills"

KILLS = 3
_WRITERS = 4
ENOUGH = 200  # versions

# Versions that clients and messages wrote, and the service's own changes of Subscriptions.
_VERSIONS = """
SELECT r.resource_type || '/' || r.id || '/_history/' || v.version_id FROM resource_versions v
JOIN resources r USING (rid)"""
_RECORDS = """
SELECT unnest(entities), outcome, interaction FROM audit_records WHERE surface = 'fhir'"""

_FOUND = """
SELECT interaction, outcome, count(*) FROM audit_records
WHERE (target LIKE '%={mark}' OR 'e:Patient/{mark}' = ANY (keys)
    OR 'e:{mark}' = ANY (keys)) AND interaction IN ('read', 'search') GROUP BY 1, 2 ORDER BY 1"""


class AuditKillTests(TestCase):
    timeout = LIMIT

    def test_every_committed_write_has_its_record(self) -> None:
        """Clients write single resources, transactions and batches, messages arrive, and the service is killed."""
        run(self._kills())

    def test_a_stop_stores_all_records(self) -> None:
        """SIGTERM directly after the last answer."""
        run(self._stop())

    async def _kills(self) -> None:
        chance = random.Random(11)
        async with Scenario(IPF_WORKER_PROCESSES="1") as scenario:
            scenario.feed.start()
            writing = [asyncio.ensure_future(_write(scenario, number)) for number in range(_WRITERS)]
            for _ in range(KILLS):
                await scenario.feed.more(chance.randint(1, 60))
                scenario.service.kill()
                scenario.service.start()
                await scenario.ready()
            await scenario.feed.more(50)
            await until(lambda: asyncio.to_thread(_stored, scenario), "enough versions")
            for one in writing:
                one.cancel()
            await asyncio.gather(*writing, return_exceptions=True)
            await scenario.feed.stop()
            await scenario.settled()
            self._check(scenario)

    def _check(self, scenario: Scenario) -> None:
        versions = {row[0] for row in scenario.sql("fhir", _VERSIONS)}
        written = Counter(
            entity for entity, outcome, interaction in scenario.sql("fhir", _RECORDS)
            if outcome == "0" and interaction in (
                "create", "update", "transaction", "batch"
            )
        )  # fmt: skip
        self.assertGreater(len(versions), ENOUGH)
        self.assertEqual(sorted(versions - written.keys())[:5], [], "versions without a record")
        self.assertEqual(sorted(written.keys() - versions)[:5], [], "records without a version")
        self.assertEqual([one for one, count in written.items() if count > 1][:5], [], "recorded twice")

    async def _stop(self) -> None:
        captured = ("SUBSCRIPTION_SERVICE_AUDIT_CAPTURE_READS", "SUBSCRIPTION_SERVICE_AUDIT_CAPTURE_SEARCH")
        async with Scenario(**dict.fromkeys(captured, "true")) as scenario:
            service = scenario.service
            status, _ = await asyncio.to_thread(service.request, "PUT", "/fhir/Patient/p", PATIENT_P)
            self.assertEqual(status, 201)
            for number in range(2):
                mark = f"stop{number}"
                asked = [("GET", f"/fhir/Patient?family={mark}")] * 40
                asked += [("GET", "/fhir/Patient/p")] * 20 + [("GET", f"/fhir/Patient/{mark}")] * 10
                await asyncio.gather(*(asyncio.to_thread(service.request, *one) for one in asked))
                await asyncio.to_thread(service.stop)
                service.start()
                await scenario.ready()
                rows = scenario.sql("fhir", _FOUND.format(mark=mark))
                self.assertEqual(rows, [["read", "4", "10"], ["search", "0", "40"]])
            reads = scenario.sql("fhir", _FOUND.format(mark="Patient/p"))
            self.assertEqual(reads, [["read", "0", "40"]])


def _stored(scenario: Scenario) -> bool:
    return len(scenario.sql("fhir", _VERSIONS)) > ENOUGH


PATIENT_P = {"resourceType": "Patient", "id": "p", "name": [{"family": "x"}]}


async def _write(scenario: Scenario, writer: int) -> None:
    """Write until cancelled; while the service is down, requests fail."""
    number = 0
    while True:
        number += 1
        with contextlib.suppress(OSError, TimeoutError, ValueError, HTTPException):
            async with asyncio.timeout(PATIENCE):
                await asyncio.to_thread(scenario.service.request, *_request(writer, number))
        await until(lambda: asyncio.to_thread(scenario.service.answers))


def _request(writer: int, number: int) -> tuple[str, str, Any]:
    """Request `number`: an update, a create, a transaction or a batch about two patients."""
    patient = {"resourceType": "Patient", "id": f"w{writer}", "name": [{"family": f"f{number}"}]}
    seen = {"resourceType": "Observation", "status": "final", "code": {"text": f"{number}"},
            "subject": {"reference": f"Patient/w{writer}"}}  # fmt: skip
    if number % 4 == 1:
        return "PUT", f"/fhir/Patient/w{writer}", patient
    if number % 4 == 2:
        return "POST", "/fhir/Observation", seen
    other = {**seen, "subject": {"reference": "Patient/elsewhere"}}
    entries = [{"resource": one, "request": {"method": "POST", "url": "Observation"}} for one in (seen, other)]
    kind = "transaction" if number % 4 == 3 else "batch"
    return "POST", "/fhir", {"resourceType": "Bundle", "type": kind, "entry": entries}
