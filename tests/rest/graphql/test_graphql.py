"""`$graphql`: the specification's examples, reads in both directions, limits, and what a limited client sees."""

from __future__ import annotations

import json
from dataclasses import replace
from threading import get_ident
from typing import Any

from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from ipf.fhir.model.json import JsonDecimal
from ipf.ports import Answer, Caller
from ipf.rest.graphql import execute, loaded
from ipf.rest.router import handler
from tests.rest.world import OnMemory

PATIENT = {
    "resourceType": "Patient", "id": "example", "active": True, "birthDate": "1974-12",
    "_birthDate": {"extension": [{"url": "urn:time", "valueString": "noon"}]},
    "identifier": [{"system": "urn:oid:1.2.36.146.595.217.0.1", "value": "12345"}],
    "contained": [{"resourceType": "Organization", "id": "inner", "name": "Inside"}],
    "managingOrganization": {"reference": "#inner"},
    "name": [
        {"use": "official", "family": "Chalmers", "given": ["Peter", "James"]},
        {"use": "usual", "given": ["Jim"]},
        {"use": "maiden", "family": "Windsor", "given": ["Peter", "James"]},
    ],
}  # fmt: skip
INSTANCE = "Patient/example/$graphql"
NUMBERS = '"system": ["urn:oid:1.2.36.146.595.217.0.1"], "value": ["12345"]'

OF_ONE: tuple[tuple[str, str], ...] = (
    # https://hl7.org/fhir/R4/graphql.html#flattening, its examples
    ("{ identifier { system value } active name { text given family } }",
     '{"identifier": [{"system": "urn:oid:1.2.36.146.595.217.0.1", "value": "12345"}], "active": true, "name": ['
     '{"text": null, "given": ["Peter", "James"], "family": "Chalmers"}, {"text": null, "given": ["Jim"], '
     '"family": null}, {"text": null, "given": ["Peter", "James"], "family": "Windsor"}]}'),
    ("{ identifier @flatten { system value } active name @flatten { text given family } }",
     "{" + NUMBERS + ', "active": true, "given": ["Peter", "James", "Jim", "Peter", "James"], '
     '"family": ["Chalmers", "Windsor"]}'),
    ("{ name @flatten { text given @first family } }",
     '{"given": ["Peter", "Jim", "Peter"], "family": ["Chalmers", "Windsor"]}'),
    ("{ identifier @flatten { system @singleton value @singleton } name @flatten @first { given family @singleton } }",
     '{"system": "urn:oid:1.2.36.146.595.217.0.1", "value": "12345", "given": ["Peter", "James"], '
     '"family": "Chalmers"}'),
    ('{ name @slice(path: "$index") @flatten { given @first @singleton family } }',
     '{"given.0": "Peter", "family.0": ["Chalmers"], "given.1": "Jim", "given.2": "Peter", "family.2": ["Windsor"]}'),
    ('{ name @flatten @slice(path: "use") { given family @singleton } }',
     '{"given.official": ["Peter", "James"], "family.official": "Chalmers", "given.usual": ["Jim"], '
     '"given.maiden": ["Peter", "James"], "family.maiden": "Windsor"}'),
    # lists: filters by members, FHIRPath, offset and count; aliases
    ("{ name(use: official) { family } }", '{"name": [{"family": "Chalmers"}]}'),
    ('{ name(use: "nickname") { family } }', '{"name": []}'),
    ("{ name(_offset: 1, _count: 1) { given } }", '{"name": [{"given": ["Jim"]}]}'),
    ('{ a: name(fhirpath: "family.exists()") { family } b: name @first { given(_count: 1) } }',
     '{"a": [{"family": "Chalmers"}, {"family": "Windsor"}], "b": {"given": ["Peter"]}}'),
    ("{ birthDate _birthDate { extension { url valueString } } }",
     '{"birthDate": "1974-12", "_birthDate": {"extension": [{"url": "urn:time", "valueString": "noon"}]}}'),
    ("{ resourceType __typename photo { url } }",
     '{"resourceType": "Patient", "__typename": "Patient", "photo": null}'),
    # references: contained, to a missing resource, of another type
    ("{ managingOrganization { resource { id ... on Organization { name } } } }",
     '{"managingOrganization": {"resource": {"id": "inner", "name": "Inside"}}}'),
    ("{ managingOrganization { resource(type: Patient) { id } } }", '{"managingOrganization": {"resource": null}}'),
    # reverse references, fragments, conditions
    ('{ ObservationList(_reference: subject, code: "c1") { valueQuantity { value } ...O } } '
     "fragment O on Observation { subject { resource { ... on Patient { active } } } }",
     '{"ObservationList": [{"valueQuantity": {"value": 1.10}, "subject": {"resource": {"active": true}}}]}'),
    ("{ ObservationConnection(_reference: patient, _count: 1) { count pagesize edges { mode resource { id } } } }",
     '{"ObservationConnection": {"count": 2, "pagesize": 1, "edges": [{"mode": "match", "resource": {"id": "o1"}}]}}'),
    ("query($no: Boolean = false) { active @include(if: $no) id @skip(if: $no) }", '{"id": "example"}'),
)  # fmt: skip

REFUSED: tuple[tuple[str, str], ...] = (
    ("{ nme }", "Did you mean 'name'"),
    ("{ name { ", "Syntax Error"),
    ("mutation { PatientCreate(res: {}) { id } }", "a mutation is not supported"),
    ("subscription { x }", "a subscription is not supported"),
    ("{ name }", "must have a selection of subfields"),
    ("{ active { id } }", "must not have a selection"),
    ("{ active @flatten }", "has no members"),
    ("{ name @flatten { family @singleton } }", "more than one value"),
    ("{ name @slice { family } }", "@slice needs a path"),
    ('{ name(fhirpath: "family.(") { family } }', "FHIRPath of name cannot be read"),
    ('{ name(fhirpath: "nowhere(") { family } }', "FHIRPath of name cannot be read"),
    ('{ name @slice(path: "family + 1") { family } }', "FHIRPath of name cannot be evaluated"),
    ("{ ObservationList { id } }", "'_reference' of type 'Value!' is required"),
    ("{ ObservationList(_reference: subject, nothing: 1) { id } }", "Unknown argument 'nothing'"),
    ("{ ...A } fragment A on Patient { ...B } fragment B on Patient { ...A }", "Cannot spread fragment"),
    ("{" + "contact { name { id } } " * 200 + "}", "more than 400 fields"),
    ("{ a" * 30 + "}" * 30, "deeper than 20"),
    ("{ a" * 900 + "}" * 900, ""),
    ("{ " + "id " * 6000 + "}", "more than 5000 tokens"),
    ("query A { id } query B { id }", "operationName must say"),
    ("fragment A on Patient { id }", "no operation"),
    ("query($a: Int!) { id @include(if: $a) }", "these variables do not have the type"),
)


class OnMemoryTests(OnMemory):
    """On every store."""

    async def prepare(self) -> None:
        """A patient with two observations."""
        await self.world.send("PUT", "Patient/example", PATIENT)
        for number in (1, 2):
            code, quantity = {"coding": [{"code": f"c{number}"}]}, {"value": JsonDecimal("1.10")}
            body = {"resourceType": "Observation", "id": f"o{number}", "status": "final", "code": code,
                    "subject": {"reference": "Patient/example"}, "valueQuantity": quantity}  # fmt: skip
            await self.world.send("PUT", f"Observation/o{number}", body)

    async def ask(self, text: str, path: str = "$graphql", variables: Any = None) -> Answer:
        """The answer to a query."""
        body = {"query": text, **({} if variables is None else {"variables": variables})}
        return await self.world.send("POST", path, body, content_type="application/json")

    async def data(self, text: str, path: str = "$graphql", variables: Any = None) -> Any:
        """The data of a query without errors."""
        answer = await self.ask(text, path, variables)
        found = json.loads(answer.body)
        self.assertEqual((answer.status, list(found)), (200, ["data"]), found)
        return found["data"]

    async def test_of_one_resource(self) -> None:
        """Each query of the table."""
        await self.prepare()
        for text, expected in OF_ONE:
            answer = await self.ask(text, INSTANCE)
            self.assertEqual(answer.content_type, "application/json")
            self.assertEqual(json.loads(answer.body), {"data": json.loads(expected)}, text)
        found = await self.ask("{ ObservationList(_reference: subject) { valueQuantity { value } } }", INSTANCE)
        self.assertIn(b'"value":1.10', found.body)  # no digit is lost

    async def test_of_the_system(self) -> None:
        """Reads and searches; the arguments of a search are those of the REST API."""
        await self.prepare()
        table = (
            ('{ Patient(id: "example") { id } }', {"Patient": {"id": "example"}}),
            ("{ PatientList(name: chalm, birthdate: ge1974) { id } }", {"PatientList": [{"id": "example"}]}),
            ('{ PatientList(name: ["chalm", "nobody"]) { id } }', {"PatientList": []}),
            ('{ PatientList(name: "nobody,chalm") { id } }', {"PatientList": [{"id": "example"}]}),
            ("{ PatientList(active: true) { id } }", {"PatientList": [{"id": "example"}]}),
            ("{ ObservationList(value_quantity: 1.1, _sort: _id, _count: 1) { id } }",
             {"ObservationList": [{"id": "o1"}]}),
        )  # fmt: skip
        for text, expected in table:
            self.assertEqual(await self.data(text), expected, text)
        asked = "query($id: String!, $n: [String]) { Patient(id: $id) { id } PatientList(name: $n) { id } }"
        found = await self.data(asked, variables={"id": "example", "n": ["chal"]})
        self.assertEqual(found, {"Patient": {"id": "example"}, "PatientList": [{"id": "example"}]})

    async def test_pages(self) -> None:
        """A cursor stands for its search, and is given alone."""
        await self.prepare()
        fields = "{ next edges { resource { id } } }"
        first = await self.data(f'{{ ObservationConnection(code: ["c1,c2"], _count: 1) {fields} }}')
        page = first["ObservationConnection"]
        second = await self.data(f'{{ ObservationConnection(_cursor: "{page["next"]}") {fields} }}')
        ids = [one["edges"][0]["resource"]["id"] for one in (page, second["ObservationConnection"])]
        self.assertEqual((ids, second["ObservationConnection"]["next"]), (["o1", "o2"], None))
        for bad in ('_cursor: "!"', f'_cursor: "{page["next"]}", code: "c1"', '_cursor: "/////"'):
            found = json.loads((await self.ask(f"{{ ObservationConnection({bad}) {fields} }}")).body)
            self.assertEqual(found["errors"][0]["path"], ["ObservationConnection"], bad)

    async def test_a_list_has_all_matches_or_is_an_error(self) -> None:
        """Unless the query says how many."""
        await self.prepare()
        self.world.max_page_size = 1
        answer = await self.ask("{ ObservationList { id } }")
        self.assertEqual((answer.status, b"more than 1 matches" in answer.body), (400, True))
        self.assertEqual(len((await self.data("{ ObservationList(_count: 1) { id } }"))["ObservationList"]), 1)

    async def test_what_is_not_there(self) -> None:
        """Null, with an error that has its place and an OperationOutcome; of one resource as for a read."""
        await self.prepare()
        found = json.loads((await self.ask('{ Patient(id: "no") { id } b: Patient(id: "example") { id } }')).body)
        self.assertEqual(found["data"], {"Patient": None, "b": {"id": "example"}})
        self.assertEqual(found["errors"][0]["path"], ["Patient"])
        self.assertEqual(found["errors"][0]["extensions"]["resource"]["issue"][0]["code"], "not-found")
        for id in ("$export", "_history", "a/b", "x" * 65):  # never another route
            found = json.loads((await self.ask(f'{{ Patient(id: "{id}") {{ id }} }}')).body)
            self.assertEqual(found["data"], {"Patient": None}, id)
        self.assertEqual((await self.ask("{ id }", "Patient/no/$graphql")).status, 404)
        await self.world.send("DELETE", "Observation/o1")
        self.assertEqual((await self.ask("{ id }", "Observation/o1/$graphql")).status, 410)
        await self.world.send("PUT", "Observation/o3", {
            "resourceType": "Observation", "id": "o3", "status": "final", "code": {"text": "x"},
            "subject": {"reference": "http://elsewhere/Patient/1"},
        })  # fmt: skip
        found = json.loads((await self.ask("{ subject { resource { id } } }", "Observation/o3/$graphql")).body)
        self.assertEqual((found["data"], found["errors"][0]["path"]),
                         ({"subject": {"resource": None}}, ["subject", "resource"]))  # fmt: skip
        found = await self.data("{ subject { resource(optional: true) { id } } }", "Observation/o3/$graphql")
        self.assertEqual(found, {"subject": {"resource": None}})

    async def test_refusals(self) -> None:
        """400 with an OperationOutcome that says why."""
        await self.prepare()
        for text, why in REFUSED:
            answer = await self.ask(text, INSTANCE)
            outcome = json.loads(answer.body)
            self.assertEqual((answer.status, outcome["resourceType"]), (400, "OperationOutcome"), text[:80])
            self.assertIn(why, " ".join(one["diagnostics"] for one in outcome["issue"]), text[:80])

    async def test_forms_of_a_request(self) -> None:
        """In the URL, as JSON, as GraphQL; other forms are refused."""
        await self.prepare()
        asked = b"{ id }"
        for answer in (
            await self.world.send("GET", f"{INSTANCE}?query=%7Bid%7D&variables=%7B%7D"),
            await self.world.send("POST", INSTANCE, asked, content_type="application/graphql"),
            await self.world.send("POST", INSTANCE, {"query": "query A {id} query B {active}", "operationName": "A"}),
        ):
            self.assertEqual((answer.status, json.loads(answer.body)), (200, {"data": {"id": "example"}}))
        for status, body, kind in (
            (415, asked, "text/plain"), (400, b"", "application/json"), (400, b"[]", "application/json"),
            (400, b'{"query": 1}', "application/json"), (400, b"\xff", "application/graphql"),
            (400, b'{"query": "{id}", "variables": 1}', "application/json"),
            (400, b'{"query": "{id}", "operationName": 1}', "application/json"),
        ):  # fmt: skip
            answer = await self.world.send("POST", INSTANCE, body, content_type=kind)
            self.assertEqual(answer.status, status, body)
        self.assertEqual((await self.world.send("GET", f"{INSTANCE}?query=%7Bid%7D&x=1")).status, 400)
        self.assertEqual((await self.world.send("PUT", INSTANCE, asked)).status, 405)
        self.assertIn(b"__schema is not supported", (await self.ask("{ __schema { types { name } } }")).body)

    async def test_limits_of_reads(self) -> None:
        """Too many requests, resources or values are refused."""
        await self.prepare()
        asked = "{ ObservationList { id subject { resource { id } } } }"
        for module, name in ((loaded, "MOST_REQUESTS"), (loaded, "MOST_RESOURCES"), (execute, "MOST_VALUES")):
            patched = self.patch(module, name, 1)  # type: ignore[attr-defined]
            answer = await self.ask(asked)
            self.assertEqual((answer.status, b"too-costly" in answer.body), (400, True), name)
            patched.restore()
        patched = self.patch(execute, "MOST_SECONDS", -1.0)  # type: ignore[attr-defined]
        self.assertIn(b"takes more than", (await self.ask(asked)).body)
        patched.restore()

    async def test_processor_time_is_that_of_the_thread_that_runs_the_query(self) -> None:
        """A thread that has worked for long has its own clock; all runs of a query together have ten seconds."""
        await self.prepare()
        spent, main = [1000.0], get_ident()

        class Clock:
            def thread_time(self) -> float:
                spent[0] += step
                return 0.0 if get_ident() == main else spent[0]

        self.patch(execute, "time", Clock())
        handle = handler(replace(self.world.repository, run_in_thread=deferToThread))
        body = {"query": "{ ObservationList { id subject { resource { id } } } }"}
        for step, status in ((0.0, 200), (0.05, 200), (0.3, 400)):
            answer = await handle(self.world.request("POST", "$graphql", body, content_type="application/json"))
            self.assertEqual(answer.status, status, (step, answer.body))

    async def test_a_limited_client_sees_what_he_may(self) -> None:
        """References to hidden resources are as those to missing ones; searches find what he may search."""
        await self.prepare()
        await self.world.send("PUT", "Patient/other", {**PATIENT, "id": "other"})
        await self.world.send("PUT", "Observation/o4", {
            "resourceType": "Observation", "id": "o4", "status": "final", "code": {"text": "x"},
            "subject": {"reference": "Patient/example"}, "performer": [{"reference": "Patient/other"}],
        })  # fmt: skip
        self.world.caller = Caller(
            subject="u", client="c", scopes=("patient/Patient.rs", "patient/Observation.rs"), patient="example"
        )
        found = await self.data("{ PatientList { id ObservationList(_reference: subject) { id } } }")
        ids = [{"id": "o1"}, {"id": "o2"}, {"id": "o4"}]
        self.assertEqual(found, {"PatientList": [{"id": "example", "ObservationList": ids}]})
        asked = "{ performer { resource { id } } }"
        hidden = await self.ask(asked, "Observation/o4/$graphql")
        self.assertEqual(json.loads(hidden.body)["errors"][0]["message"], "Patient/other does not exist")
        self.assertEqual((await self.ask("{ id }", "Patient/other/$graphql")).status, 404)
        self.assertEqual((await self.ask("{ id }", "Encounter/1/$graphql")).status, 401)
        found = json.loads((await self.ask("{ EncounterList { id } }")).body)
        self.assertEqual((found["data"], len(found["errors"])), ({"EncounterList": None}, 1))

    async def test_secrets_are_redacted_before_filters_see_them(self) -> None:
        """A header of a Subscription is a mask, for FHIRPath too."""
        await self.world.send("PUT", "Subscription/1", {
            "resourceType": "Subscription", "id": "1", "status": "requested", "reason": "r", "criteria": "Patient?",
            "channel": {"type": "rest-hook", "endpoint": "https://example.org/hook", "payload": "application/fhir+json",
                        "header": ["Authorization: Bearer top-secret"]},
        })  # fmt: skip
        asked = "{ channel { header h: header(fhirpath: \"contains('***')\") } }"
        found = await self.data(asked, "Subscription/1/$graphql")
        self.assertEqual(found["channel"], {"header": ["Authorization: ***"], "h": ["Authorization: ***"]})

    async def test_audited_and_stated(self) -> None:
        """The answer names the versions that it showed, for the audit trail; the CapabilityStatement has it."""
        await self.prepare()
        answer = await self.ask("{ ObservationList(_reference: subject) { id } }", INSTANCE)
        shown = sorted(f"{one.resource_type}/{one.id}" for one in answer.about)
        self.assertEqual(shown, ["Observation/o1", "Observation/o2", "Patient/example"])
        rest = json.loads((await self.world.send("GET", "metadata")).body)["rest"][0]
        self.assertIn("graphql", [one["name"] for one in rest["operation"]])
        patient = next(one for one in rest["resource"] if one["type"] == "Patient")
        self.assertIn("graphql", [one["name"] for one in patient["operation"]])


class SchemaTests(TestCase):
    """The schema."""

    def test_names(self) -> None:
        """Every resource type, its searches, backbone elements; what refers to a type is a field of it."""
        from ipf.rest.graphql.schema import schema, type_name

        made = schema()
        self.assertIs(made, schema())
        self.assertEqual(type_name("Patient.contact"), "PatientContact")
        fields = made.type_map["Patient"].fields  # type: ignore[attr-defined]
        self.assertLessEqual({"deceasedBoolean", "deceasedDateTime", "_birthDate", "ObservationList"}, set(fields))
        self.assertNotIn("AllergyIntoleranceList", made.type_map["ValueSet"].fields)  # type: ignore[attr-defined]
