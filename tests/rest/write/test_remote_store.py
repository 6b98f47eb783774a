"""Converted messages at a remote FHIR server (another instance): the Bundle has the same effect."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from ipf.errors import Category, Problem
from ipf.fhir.model.json import dumps, loads
from ipf.ports import Json, WrittenVersion
from ipf.rest.interactions.bundle_entries import entries_of
from ipf.rest.write.remote_store import RemoteStore, bundle_of, named_in
from ipf.rest.write.unit import Unit, UnitResult
from tests.rest.world import CORRELATION_ID, OnMemory
from tests.rest.write.messages import adt, unit_of

ONE = "urn:uuid:0190f7a4-2b6e-7cc0-8a11-2f6d3c1b9e01"
BUNDLE: Json = {
    "resourceType": "Bundle", "type": "transaction",
    "entry": [
        {"fullUrl": ONE, "request": {"method": "PUT", "url": "Patient?identifier=urn:mrn|a%26b%2Bc"},
         "resource": {"resourceType": "Patient", "identifier": [{"system": "urn:mrn", "value": "a&b+c"}]}},
        {"request": {"method": "POST", "url": "Observation", "ifNoneExist": "identifier=urn:o|1&status=final"},
         "resource": {"resourceType": "Observation", "status": "final", "code": {"text": "x"},
                      "identifier": [{"system": "urn:o", "value": "1"}], "subject": {"reference": ONE}}},
        {"request": {"method": "PUT", "url": "Location/l1"}, "resource": {"resourceType": "Location", "id": "l1"}},
        {"request": {"method": "DELETE", "url": "Encounter?identifier=urn:e|1"}},
    ],
}  # fmt: skip


def unit() -> Unit:
    """A converted message."""
    return Unit("default", entries_of(loads(dumps(BUNDLE))), CORRELATION_ID, "receipt")


NOW = datetime(2026, 1, 2, tzinfo=UTC)


def clock() -> datetime:
    """Always the same time."""
    return NOW


class RemoteStoreTests(OnMemory):
    async def record(self, tenant: str, correlation_id: str, versions: Sequence[WrittenVersion]) -> None:
        """Keeps what was named last."""
        self.assertEqual((tenant, correlation_id), ("default", CORRELATION_ID))
        self.named = versions

    async def test_what_the_response_names(self) -> None:
        """Recorded before the result leaves; a repeat names the same versions and creates nothing."""
        expected = [["created", "created", "created"], ["updated", "found", "updated"]]
        found = []
        for actions in expected:
            await RemoteStore(self.post, self.record, clock).submit([unit()])
            self.assertEqual([one.action for one in self.named], actions)
            found.append([(one.resource_type, one.id, one.version_id) for one in self.named])
        self.assertEqual(found[0], found[1])
        self.assertEqual([kind for kind, _, _ in found[0]], ["Patient", "Observation", "Location"])

    def test_responses_of_other_servers(self) -> None:
        """Absolute locations, versions in the ETag, no time, and entries that name nothing."""
        for response, named in (
            ({"status": "201", "location": "http://x/fhir/Patient/a-1/_history/7", "lastModified": "2026-01-01T00:00Z"},
             [WrittenVersion("Patient", "a-1", "7", "created", datetime(2026, 1, 1, tzinfo=UTC))]),
            ({"status": "200 OK", "location": "Patient/9", "etag": 'W/"3"', "lastModified": "soon"},
             [WrittenVersion("Patient", "9", "3", "updated", NOW)]),
            ({"status": "200"}, []),
            (None, []),
        ):  # fmt: skip
            body = dumps({"resourceType": "Bundle", "entry": [{"response": response}]})
            self.assertEqual(named_in(unit().entries[:1], body, NOW), named)
        for body in (b"no JSON", b"[]", b'{"resourceType": "OperationOutcome"}', b'{"entry": [{}]}', b'{"entry": 7}'):
            self.assertEqual(named_in(unit().entries, body, NOW), [], body)

    async def post(self, body: bytes, correlation_id: str) -> tuple[int, bytes]:
        """The remote server."""
        self.assertEqual(correlation_id, CORRELATION_ID)
        answer = await self.world.send("POST", "", body)
        return answer.status, answer.body

    async def test_repeated_unit_changes_nothing(self) -> None:
        for _ in range(2):
            (result,) = await RemoteStore(self.post, self.record, clock).submit([unit()])
            self.assertIsInstance(result, UnitResult, result)
            self.assertEqual(await self.world.store.counts(), {"Patient": 1, "Observation": 1, "Location": 1})
        observation = loads((await self.world.send("GET", "Observation?identifier=urn:o|1")).body)
        patient = loads((await self.world.send("GET", "Patient?identifier=urn:mrn|a%26b%2Bc")).body)
        (first,), (second,) = observation["entry"], patient["entry"]
        self.assertEqual(first["resource"]["subject"]["reference"], f"Patient/{second['resource']['id']}")
        self.assertEqual(second["resource"]["meta"]["versionId"], "1")

    def test_the_bundle_reads_back_as_the_same_unit(self) -> None:
        self.assertEqual(entries_of(bundle_of(unit())), unit().entries)

    async def test_a_message_without_requests_of_its_map(self) -> None:
        """By type too; the second time nothing changes, and another type of number is another patient."""
        text = adt("100^^^HOSP7^MR~200^^^HOSP7^PI", "A", more="PV1||I|||||D1^Doc|||||||||||||V1")
        other = adt("200^^^HOSP7^MR", "B")
        for message in (text, text, other):
            (result,) = await RemoteStore(self.post, self.record, clock).submit([unit_of(message)])
            self.assertIsInstance(result, UnitResult, result)
        counts = await self.world.store.counts()
        self.assertEqual([counts[name] for name in ("Patient", "Encounter", "Practitioner")], [2, 1, 1])

    async def test_refusals(self) -> None:
        issue = {"code": "exception", "diagnostics": "HAPI-0389: Failed to call access method"}
        outcome = {"resourceType": "OperationOutcome", "issue": [issue]}
        for status, body, text in (
            (
                500,
                dumps(outcome),
                "the FHIR server responded with 500: exception: HAPI-0389: Failed to call access method",
            ),
            (401, b"", "the FHIR server responded with 401"),
            (500, b"<html>Kari", "the FHIR server responded with 500"),
            (302, b"[]", "the FHIR server responded with 302"),
        ):

            async def post(sent: bytes, _: str, answer: tuple[int, bytes] = (status, body)) -> tuple[int, bytes]:
                return answer

            (result,) = await RemoteStore(post, self.record, clock).submit([unit()])
            assert isinstance(result, Problem)
            self.assertEqual((str(result), result.category, result.rendering.retry), (text, Category.UPSTREAM, True))

    async def test_no_response(self) -> None:
        async def post(sent: bytes, _: str) -> tuple[int, bytes]:
            raise Problem(Category.UPSTREAM, "the FHIR server cannot be reached")

        results = await RemoteStore(post, self.record, clock).submit([unit(), unit()])
        self.assertEqual([str(one) for one in results], ["the FHIR server cannot be reached"] * 2)
