"""Sources that are polled: a FHIR server, and a vendor's REST API that hands each change out once."""

from __future__ import annotations

from typing import Any

from ipf.fhir.model.json import loads
from tests.flows.engine import EngineTestCase
from tests.flows.polled import patient, result

FAMILY = "engine"
PATIENTS, ROUNDS = 12, 3


class PollingFlowTests(EngineTestCase):
    def poll(self, name: str) -> None:
        """Ask the source now."""
        self.ask("POST", "/admin/sources/poll", {"name": name})

    def delivered(self, protocol: str, count: int) -> list[Any]:
        """The messages of a source, once so many are delivered."""

        def complete() -> list[Any]:
            found = [one for one in self.listed(f"status=DELIVERED&source_protocol={protocol}")
                     if one["source_protocol"] == protocol]  # fmt: skip
            return found if len(found) >= count else []

        return self.wait(complete, f"{count} messages of {protocol}")

    def test_the_last_version_of_each_resource_is_fetched_once(self) -> None:
        store = self.engine.ehr.store
        keys = [store(make(number, 1)) for number in range(PATIENTS) for make in (patient, result)]
        self.poll("ehr/all/patients")
        self.poll("ehr/all/results")
        found = self.delivered("FHIR_REST", len(keys))
        self.assertEqual(sorted(one["source_id"] for one in found), sorted(keys))
        keys += [store(result(number, 2)) for number in range(PATIENTS)]
        self.poll("ehr/all/results")
        found = self.delivered("FHIR_REST", len(keys))
        self.assertEqual(sorted(one["source_id"] for one in found), sorted(keys))
        self.check_resources()

    def check_resources(self) -> None:
        """Each patient and each result once, as it is in the EHR, and each result with its patient."""
        patients = self.found("Patient?identifier=urn:test:mrn%7C&_count=100")
        numbers = {f"Patient/{one['id']}": one["identifier"][0]["value"] for one in patients}
        self.assertEqual(sorted(numbers.values()), sorted(f"M{number}" for number in range(PATIENTS)))
        results = self.found(f"Observation?subject={','.join(numbers)}&_count=100")
        found = sorted((numbers[one["subject"]["reference"]], one["valueInteger"]) for one in results)
        self.assertEqual(found, sorted((name, 2) for name in numbers.values()))
        names = [one["name"] for one in self.ask("GET", "/admin/sources")["items"]]
        self.assertLessEqual({"ehr/all/patients", "ehr/all/results"}, set(names))

    def test_every_change_of_the_practice_becomes_a_message(self) -> None:
        practice = self.engine.practice
        for round in range(1, ROUNDS + 1):
            for number in range(PATIENTS):
                practice.change(number)
            self.poll("practice/api/test-changed-patients")
            messages = self.delivered("EHR_NATIVE_API", round * PATIENTS)
        bodies = [loads(self.ask("GET", f"/admin/messages/{one['id']}")["raw_message"]) for one in messages]
        found = sorted((int(one["patientid"]), int(one["email"].partition("@")[0])) for one in bodies)
        self.assertEqual(found, [(number, version) for number in range(PATIENTS) for version in range(1, ROUNDS + 1)])
        stored = self.found("Patient?identifier=urn:test:practice%7C&_count=100")
        mails = {one["identifier"][0]["value"]: one["telecom"][0]["value"] for one in stored}
        self.assertEqual(mails, {str(number): f"{ROUNDS}@test" for number in range(PATIENTS)})
