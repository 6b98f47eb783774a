"""Who a fetched resource is about: patients of other feeds, references that wait, later versions, changed numbers.

Rows of a polled source and HL7 v2 messages go through the maps into one store, as the converter does.

Source: docs/reference/normalization.md, docs/explanation/identity.md
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from ipf.errors import Category, Problem
from ipf.fhir.model.json import dumps
from ipf.mapping.library import polled
from ipf.mapping.library.maps import ProfiledMessage
from ipf.ports import DEFAULT_TENANT
from ipf.ports.identity import ConflictKind, IdentityConflict
from ipf.ports.messages.inbox import Claimed
from ipf.ports.messages.sources import FHIR_REST, Feed, PolledSource
from ipf.rest.write.unit import Unit, UnitResult
from tests.corpus import samples
from tests.flows.test_identity_scenarios import ONE, IdentityWorld, adt
from tests.rest.world import CORRELATION_ID, OnMemory, OnPostgres, World

HOST = "https://ehr.test/fhir"
FEEDS = tuple(Feed(name, name) for name in ("Patient", "Observation", "Practitioner"))
SOURCE = PolledSource("ehr", "all", FHIR_REST, HOST, "EHR", FEEDS, identifier_base=HOST)
MR = {"coding": [{"system": "http://terminology.hl7.org/CodeSystem/v2-0203", "code": "MR"}]}


def patient(number: str, record: str, **more: Any) -> Any:
    return {
        "resourceType": "Patient", "id": number, "name": [{"family": "MUSTER", "given": ["ANNA"]}],
        "birthDate": "1980-01-01", "identifier": [{"system": "urn:ipf:authority:HOSP7", "value": record, "type": MR}],
        **more,
    }  # fmt: skip


def observation(number: str, of: str, value: int) -> Any:
    return {
        "resourceType": "Observation", "id": number, "status": "final", "code": {"text": "glucose"},
        "subject": {"reference": f"Patient/{of}"}, "basedOn": [{"reference": "ServiceRequest/s9"}],
        "performer": [{"reference": "Organization/lab"}], "valueInteger": value,
    }  # fmt: skip


class PolledSuite(IdentityWorld):
    """Rows of a source, and messages."""

    async def fetch(self, resource: Any, version: int = 1) -> UnitResult | Problem:
        """Convert and store a row of the source."""
        self.count += 1
        source_id = f"{resource['resourceType']}/{resource['id']}/{version}"
        claimed = Claimed(
            self.count, 1, CORRELATION_ID, datetime.now(UTC), "EHR", source_id,
            f"fhir-r4-{resource['resourceType'].lower()}", dumps(resource), "utf-8", 0, listener=SOURCE.listener,
            source_protocol=FHIR_REST,
        )  # fmt: skip
        mapped = polled.transform(samples.library(), ProfiledMessage(claimed, source=SOURCE), claimed, None)
        assert mapped.entries is not None, source_id
        receipt = f"message/{self.count}"
        unit = Unit(DEFAULT_TENANT, mapped.entries, CORRELATION_ID, receipt, references=mapped.references)
        (found,) = await self.world.commit(unit)
        self.world.pass_time()
        assert isinstance(found, UnitResult | Problem)
        return found

    async def test_one_patient_of_both_feeds(self) -> None:
        """The same record number: one Patient, whichever comes first, and later messages keep the id of the source."""
        for polled_first in (True, False):
            if polled_first:
                self.assertIsInstance(await self.fetch(patient("7", "100")), UnitResult)
            await self.store(adt(ONE))
            self.assertIsInstance(await self.fetch(patient("7", "100"), 2), UnitResult)
            await self.store(adt(ONE, "MUSTER^MARIA"))
            (found,) = await self.found("Patient")
            self.assertEqual([one["value"] for one in found["identifier"]], ["100", "7"])
            self.assertEqual([one["id"] for one in await self.found(f"Patient?identifier={HOST}/Patient|7")],
                             [found["id"]])  # fmt: skip
            await self.renew()

    async def test_a_result_waits_for_its_patient(self) -> None:
        """And goes to that patient; a further version of it is the same result."""
        problem = await self.fetch(observation("1", "7", 5))
        assert isinstance(problem, Problem)
        self.assertEqual((problem.category, problem.is_permanent), (Category.PRECONDITION, False))
        self.assertEqual(await self.found("Observation"), [])
        await self.fetch(patient("8", "200"))
        self.assertIsInstance(await self.fetch(observation("1", "7", 5)), Problem)
        await self.fetch(patient("7", "100"))
        for value in (5, 6):
            self.assertNotIsInstance(
                await self.fetch({**observation("1", "7", value), "encounter": {}}, value), Problem
            )
        (result,) = await self.found("Observation")
        owner = await self.patient("100")
        self.assertEqual((result["subject"]["reference"], result["valueInteger"]), (f"Patient/{owner['id']}", 6))
        self.assertEqual(result["performer"][0]["identifier"], {"system": f"{HOST}/Organization", "value": "lab"})
        self.assertNotIn("reference", result["performer"][0])

    async def test_a_result_that_the_source_moves(self) -> None:
        """The source corrects the patient of its own resource: it is the same resource here."""
        for number, record in (("7", "100"), ("8", "200")):
            await self.fetch(patient(number, record))
        for version, number in enumerate("78"):
            self.assertIsInstance(await self.fetch(observation("1", number, 5), version), UnitResult)
        (result,) = await self.found("Observation")
        owner = await self.patient("200")
        self.assertEqual(result["subject"]["reference"], f"Patient/{owner['id']}")

    async def test_a_changed_record_number(self) -> None:
        """The same id of the source with another record number: an operator decides."""
        await self.fetch(patient("7", "100"))
        conflict = await self.fetch(patient("7", "300"), 2)
        assert isinstance(conflict, IdentityConflict), conflict
        self.assertEqual(conflict.finding.kind, ConflictKind.CONTRADICTION)
        self.assertEqual(len(await self.found("Patient")), 1)

    async def test_reference_data_is_updated(self) -> None:
        for family in ("A", "B"):
            doctor = {"resourceType": "Practitioner", "id": "d", "name": [{"family": family}]}
            self.assertIsInstance(await self.fetch(doctor), UnitResult)
        (found,) = await self.found("Practitioner")
        self.assertEqual(found["name"][0]["family"], "B")

    async def test_provenance(self) -> None:
        await self.fetch(patient("7", "100"))
        (owner,) = await self.found("Patient")
        (statement,) = await self.found(f"Provenance?target=Patient/{owner['id']}")
        self.assertEqual(statement["entity"][0]["what"]["identifier"], {"system": HOST, "value": "Patient/7/1"})


class PolledIdentityTests(PolledSuite, OnMemory):
    async def renew(self) -> None:
        self.world = World()


class PostgresPolledIdentityTests(PolledSuite, OnPostgres):
    async def renew(self) -> None:
        await OnPostgres.setUp(self)
