"""The mapping service, without HTTP: `$transform` with every kind of body; reading, installing and removing maps."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.fhir.model.packages import Packages
from ipf.fhir.xml.writer import to_xml
from ipf.mapping.library.installation import Installation
from ipf.mapping.library.maps import Library
from ipf.ports import Answer, Caller, Override, Request
from ipf.rest.operations.mapping_service import FML, mapping_handler
from ipf.rest.operations.transform import UNMAPPED_HEADER
from ipf.security.audit.rules import interaction_of
from tests.fakes import MemoryInbox, MemoryUnmappedCodes
from tests.fhir.model.test_packages import archive
from tests.flows.test_mapping import MAP, TABLE, maps_folder
from tests.pipeline.test_worker import MemoryNotifier

ER7 = "x-application/hl7-v2+er7"
URL = "urn:test:map:ADT_A01"
RESOURCE_MAP = """
/// url = "http://x.org/StructureMap/person"
/// name = "person"
uses "http://hl7.org/fhir/StructureDefinition/Patient" alias Patient as source
uses "http://hl7.org/fhir/StructureDefinition/Person" alias Person as target
group person(source src : Patient, target tgt : Person) {
  src.name as name -> tgt.name = name;
  src.gender as sex -> tgt.gender = translate(sex, 'http://x.org/ConceptMap/sex', 'code');
}
"""
PUBLISHED = {
    "resourceType": "ConceptMap",
    "id": "sex",
    "url": "http://x.org/ConceptMap/sex",
    "version": "1.0.0",
    "group": [{"element": [{"code": "female", "target": [{"code": "other", "equivalence": "wider"}]}]}],
}
PATIENT = {"resourceType": "Patient", "name": [{"family": "Hansen"}], "gender": "female"}


PLACE = "StructureDefinition/visitor"
MODEL: dict[str, Any] = {
    "resourceType": "StructureDefinition",
    "url": "http://x.org/StructureDefinition/visitor",
    "type": "http://x.org/StructureDefinition/visitor",
    "kind": "logical",
    "differential": {
        "element": [
            {"path": "Visitor"},
            {"path": "Visitor.family", "max": "*", "type": [{"code": "string"}]},
        ]
    },
}
MODEL_MAP = """
/// url = "http://x.org/StructureMap/visitor"
uses "http://hl7.org/fhir/StructureDefinition/Patient" alias Patient as source
uses "http://x.org/StructureDefinition/visitor" alias Visitor as target
group visitor(source src : Patient, target tgt : Visitor) { src.name as name -> tgt.surname = (name.family); }
"""
BROKEN_MODELS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"url": "http://hl7.org/fhir/StructureDefinition/Patient"}, "a type of FHIR R4 cannot be replaced"),
    ({"kind": "primitive-type"}, "kind must be logical, resource or complex-type"),
    ({"differential": {"element": []}}, "elements in a snapshot or a differential"),
    ({"differential": {"element": [{"path": "A"}, {"path": "B.c"}]}}, "element 1 has no path below A"),
    ({"differential": {"element": [{"path": "A"}, {"path": "A.c", "type": [{}]}]}}, "element 1 (A.c) has no code"),
)


def er7(sex: str = "F") -> bytes:
    """A small message."""
    return f"MSH|^~\\&|FEED|G|IPF|IPF|2026||ADT^A01^ADT_A01|M1|P|2.5\rPID|1||P1||||19700101|{sex}\r".encode()


async def at_once(work: Callable[[], Any]) -> Any:
    """Run it here."""
    return work()


def request_of(method: str, path: str, body: Any, content_type: str, **headers: str) -> Request:
    """One request below `/mapping/fhir`."""
    where, _, query = path.partition("?")
    pairs = tuple(tuple(pair.split("=", 1)) for pair in query.split("&") if pair)
    payload = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = {"content-type": content_type, **headers}
    segments = ("fhir", *where.split("/"))
    return Request(method, segments, pairs, sent, payload, "http://h/mapping", "c")  # type: ignore[arg-type]


class MappingServiceTests(TestCase):
    async def setUp(self) -> None:
        self.maps = maps_folder(Path(self.mktemp()))
        packages = self.maps / "packages"
        packages.mkdir()
        archive(packages / "x.tgz", {"package/ConceptMap-sex.json": PUBLISHED})
        self.codes = MemoryUnmappedCodes(MemoryInbox())

        def build(installed: Any, fresh: bool) -> Library:
            return Library.load(self.maps, packages=Packages.load(packages), installed=installed)

        self.installation = Installation(build, self.codes, at_once)
        await self.installation.start()
        self.handle = mapping_handler(self.installation, MemoryNotifier(), at_once)

    async def ask(
        self, method: str, path: str, body: Any = b"", content_type: str = "application/fhir+json", **headers: str
    ) -> Answer:
        """One request below `/mapping/fhir`."""
        return await self.handle(request_of(method, path, body, content_type, **headers))

    async def transform(self, query: str, body: Any, content_type: str = "application/fhir+json") -> tuple[int, Any]:
        """Status and body of $transform."""
        answer = await self.ask("POST", f"StructureMap/$transform{query}", body, content_type)
        return answer.status, json.loads(answer.body)

    async def test_messages(self) -> None:
        """The message type or a canonical URL selects the map; the result is a transaction."""
        for query in ("", f"?source={URL}", f"?source={URL}|1"):
            for kind in (ER7, "application/hl7-v2", "x-application/hl7-v2+er7; charset=utf-8"):
                status, bundle = await self.transform(query, er7(), kind)
                self.assertEqual((status, bundle["type"]), (200, "transaction"), bundle)
                self.assertEqual(bundle["entry"][0]["resource"]["gender"], "female")
        status, bundle = await self.transform("", b"\x0b" + er7() + b"\x1c\r", ER7)
        self.assertEqual(status, 200)

    async def test_unmapped_codes_and_overrides(self) -> None:
        """Unmapped codes are reported; an operator's translation for the sender applies."""
        answer = await self.ask("POST", "StructureMap/$transform", er7("W"), ER7)
        self.assertEqual(json.loads(dict(answer.headers)[UNMAPPED_HEADER]), [[TABLE["url"], "W"]])
        await self.codes.set_override(Override("FEED", str(TABLE["url"]), "W", None, "female", None))
        await self.installation.refresh()
        answer = await self.ask("POST", "StructureMap/$transform", er7("W"), ER7)
        self.assertEqual(dict(answer.headers), {})
        self.assertEqual(json.loads(answer.body)["entry"][0]["resource"]["gender"], "female")

    async def test_overrides_in_the_request(self) -> None:
        """Overrides take precedence over every table; a code without a target is left out."""
        for target, gender in (({"code": "other"}, "other"), ({"equivalence": "unmatched"}, None)):
            rows = [{"element": [{"code": "F", "target": [target]}]}]
            override = {"resourceType": "ConceptMap", "url": TABLE["url"], "group": rows}
            parts = [{"name": "override", "resource": override}, {"name": "content", "valueString": er7().decode()}]
            status, bundle = await self.transform("", {"resourceType": "Parameters", "parameter": parts})
            self.assertEqual((status, bundle["entry"][0]["resource"].get("gender")), (200, gender))

    async def test_trace(self) -> None:
        """The trace and the result."""
        status, found = await self.transform("?trace=true", er7(), ER7)
        self.assertEqual((status, found["map_url"]), (200, URL))
        self.assertEqual(found["result"]["type"], "transaction")
        produced = {one["path"]: one.get("value") for step in found["steps"] for one in step["produced"]}
        self.assertEqual(produced["Patient.gender"], "female")
        self.assertIn({"kind": "unread", "path": "PID-7", "segment": "PID", "reason": None}, found["unread"])
        self.assertEqual(found["updates"][0]["sources"]["gender"], "PID-8")

    async def test_resources_and_inline_maps(self) -> None:
        """JSON or XML; a map in the request, as text or as a resource; a ConceptMap of a package."""
        value = {"name": "map", "valueString": RESOURCE_MAP}
        body = {"resourceType": "Parameters", "parameter": [value, {"name": "resource", "resource": PATIENT}]}
        status, person = await self.transform("", body)
        self.assertEqual(
            (status, person), (200, {"resourceType": "Person", "name": PATIENT["name"], "gender": "other"})
        )
        await self.ask("POST", "StructureMap", RESOURCE_MAP.encode(), FML)
        url = "http://x.org/StructureMap/person"
        self.assertEqual((await self.transform(f"?source={url}", PATIENT))[1], person)
        self.assertEqual((await self.transform(f"?source={url}", to_xml(PATIENT), "application/fhir+xml"))[1], person)
        content = {"name": "content", "valueString": json.dumps(PATIENT)}
        body = {"resourceType": "Parameters", "parameter": [{"name": "source", "valueUri": url}, content]}
        self.assertEqual((await self.transform("", body))[1], person)
        stored = json.loads((await self.ask("GET", "StructureMap/person")).body)
        inline = [{"name": "sourceMap", "resource": stored}, {"name": "content", "valueString": er7().decode()}]
        status, refused = await self.transform("", {"resourceType": "Parameters", "parameter": inline})
        self.assertEqual(refused["resourceType"], "Person" if status == 200 else "OperationOutcome")
        self.assertEqual((await self.ask("POST", "StructureMap/person/$transform", PATIENT)).status, 200)

    async def test_refusals(self) -> None:
        """Each refusal is an OperationOutcome, with the line of the map where there is one."""
        broken = {"name": "map", "valueString": RESOURCE_MAP.replace("tgt.name", "tgt.nom")}
        cases: list[tuple[str, Any, str, int, str]] = [
            ("", PATIENT, "application/fhir+json", 400, "the map is missing"),
            ("?source=urn:none", PATIENT, "application/fhir+json", 422, "urn:none"),
            ("?colour=red", er7(), ER7, 400, "colour"),
            ("?trace=maybe", er7(), ER7, 400, "true or false"),
            ("", er7(), "text/csv", 415, "text/csv"),
            ("", b"PID|1", ER7, 400, "MSH"),
            ("", b"{", "application/fhir+json", 400, "JSON"),
            ("", er7().replace(b"A01", b"Z99"), ER7, 422, "ADT_Z99"),
            ("", {"resourceType": "Parameters", "parameter": [broken]}, "application/fhir+json", 400, "the source"),
            (
                "", {"resourceType": "Parameters", "parameter": [broken, {"name": "content", "resource": PATIENT}]},
                "application/fhir+json", 422, "7:23: Person has no element 'nom'",
            ),
        ]  # fmt: skip
        for query, body, kind, status, text in cases:
            found, outcome = await self.transform(query, body, kind)
            self.assertEqual((found, outcome["resourceType"]), (status, "OperationOutcome"), outcome)
            self.assertIn(text, outcome["issue"][0]["diagnostics"])
        self.assertEqual((await self.ask("GET", "StructureMap/$transform")).status, 405)
        self.assertEqual((await self.ask("GET", "Patient")).status, 404)

    async def test_elements_that_a_source_does_not_have(self) -> None:
        """A map in the request, and one to install: 422 with line and column, in sources and in FHIRPath."""
        for right, wrong, place, text in (
            ("src.gender", "src.gendre", "8:3", "Patient has no element 'gendre'"),
            ("src.name as name", "src.name as name where (usee = 'x')", "7:3", "HumanName has no element 'usee'"),
            ("src.name as name", "src.name as name check (name.usee = 'x')", "7:3", "HumanName has no element 'usee'"),
            ("src.name as name", "src.name.familly as name", "7:3", "HumanName has no element 'familly'"),
            ("tgt.name = name", "tgt.birthDate = (src.birthdate)", "7:23", "Patient has no element 'birthdate'"),
        ):
            broken = RESOURCE_MAP.replace(right, wrong)
            inline = [{"name": "map", "valueString": broken}, {"name": "content", "resource": PATIENT}]
            status, outcome = await self.transform("", {"resourceType": "Parameters", "parameter": inline})
            self.assertEqual((status, outcome["resourceType"]), (422, "OperationOutcome"), outcome)
            self.assertIn(f"{place}: ", outcome["issue"][0]["diagnostics"])
            self.assertIn(text, outcome["issue"][0]["diagnostics"])
            answer = await self.ask("POST", "StructureMap", broken.encode(), FML)
            issue = json.loads(answer.body)["issue"][0]
            self.assertEqual(answer.status, 422)
            self.assertTrue(issue["expression"][0].endswith(f":{place}"), issue)
            self.assertIn(text, issue["diagnostics"])

    async def test_what_a_map_in_the_request_sees_of_fhir(self) -> None:
        """The value of a primitive, the type of a variable, a translated CodeableConcept, a copy, and references."""
        source = {**PATIENT, "maritalStatus": {"coding": [{"code": "female"}]}, "deceasedBoolean": True}
        head, _, _ = RESOURCE_MAP.partition("  src.name")
        for rule, wanted in (
            ("src.gender.value as g where (%g.value = 'female') -> tgt.gender = g;", {"gender": "female"}),
            ("src.name as n then { src where (%n is HumanName) -> tgt.active = true; };", {"active": True}),
            ("src.deceased as d then { src where (%d is boolean) -> tgt.active = d; };", {"active": True}),
            (
                f"src.maritalStatus as m -> tgt.gender = translate(m, '{PUBLISHED['url']}', 'code');",
                {"gender": "other"},
            ),
            (
                "src -> tgt.contained = src as c, c.gender = 'male', c.name = create('HumanName') as n, n.text = 'x';",
                {"contained": [{**source, "gender": "male", "name": [*PATIENT["name"], {"text": "x"}]}]},
            ),
        ):
            inline = [{"name": "map", "valueString": f"{head}{rule}}}"}, {"name": "content", "resource": source}]
            status, made = await self.transform("", {"resourceType": "Parameters", "parameter": inline})
            self.assertEqual((status, made), (200, {"resourceType": "Person", **wanted}), rule)

    async def test_references_in_a_list_of_a_message(self) -> None:
        """A text in a list names the entry of the transaction; two entries of one identity are one."""
        text = MAP.replace(
            "    pid.PID_13 as phone", "    pid.PID_3 -> bundle.entry as f, f.resource = create('CarePlan') as d,"
            " d.status = 'draft', d.intent = 'plan', d.subject = reference(patient), d.instantiatesUri = 'urn:a',"
            " d.instantiatesUri = reference(patient), e.fullUrl = 'urn:late';\n    pid.PID_13 as phone",
        )  # fmt: skip
        inline = [{"name": "map", "valueString": text}, {"name": "content", "valueString": er7().decode()}]
        status, bundle = await self.transform("", {"resourceType": "Parameters", "parameter": inline})
        self.assertEqual(status, 200, bundle)
        patient, plan = bundle["entry"]
        name = patient["fullUrl"]
        self.assertEqual(plan["resource"]["subject"], {"reference": name})
        self.assertEqual(plan["resource"]["instantiatesUri"], ["urn:a", name])

    async def test_reading(self) -> None:
        """By url, by id, as text; ConceptMaps of the folder and of packages."""
        found = json.loads((await self.ask("GET", f"StructureMap?url={URL}")).body)
        self.assertEqual((found["total"], found["entry"][0]["resource"]["id"]), (1, "ADT-A01"))
        text = await self.ask("GET", "StructureMap/ADT-A01", accept=FML)
        self.assertTrue(text.body.startswith(b'/// url = "urn:test:map:ADT_A01"'), text.body[:80])
        for url in (TABLE["url"], PUBLISHED["url"], f"{PUBLISHED['url']}|1.0.0"):
            page = json.loads((await self.ask("GET", f"ConceptMap?url={url}")).body)
            self.assertEqual(page["total"], 1, url)
        self.assertEqual(json.loads((await self.ask("GET", "ConceptMap?_count=1")).body)["total"], 2)
        self.assertEqual((await self.ask("GET", "ConceptMap?colour=red")).status, 400)
        self.assertEqual((await self.ask("GET", "StructureMap/none")).status, 404)
        answer = await self.ask("GET", "StructureMap/ADT-A01", accept="application/fhir+xml")
        self.assertIn(b"<StructureMap", answer.body)

    async def test_install_and_remove_a_map(self) -> None:
        """An installed map applies at once, also to messages; after its removal, the map of the folder applies."""
        changed = MAP.replace("t.value = phone", "t.value = phone, t.system = 'phone'").replace(
            "ADT_A08", "ADT_A08 ZZZ_Z01"
        )
        answer = await self.ask("POST", "StructureMap", changed.encode(), FML)
        self.assertEqual(
            (answer.status, dict(answer.headers)["Location"]), (201, "http://h/mapping/fhir/StructureMap/ADT-A01")
        )
        self.assertTrue(self.installation.has_map("ZZZ_Z01"))
        self.assertEqual((await self.ask("PUT", "StructureMap/ADT-A01", changed.encode(), FML)).status, 200)
        stored = json.loads((await self.ask("GET", "StructureMap/ADT-A01")).body)
        self.assertEqual(stored["meta"]["versionId"], "2")
        broken = changed.replace("patient.gender", "patient.sex")
        answer = await self.ask("PUT", "StructureMap/ADT-A01", broken.encode(), FML)
        issue = json.loads(answer.body)["issue"][0]
        self.assertEqual(
            (answer.status, issue["expression"]), (422, ["StructureMap/ADT-A01 (installed over HTTP):8:25"])
        )
        self.assertTrue(self.installation.has_map("ZZZ_Z01"))
        self.assertEqual((await self.ask("DELETE", "StructureMap/ADT-A01")).status, 204)
        self.assertFalse(self.installation.has_map("ZZZ_Z01"))
        self.assertEqual((await self.ask("DELETE", "StructureMap/ADT-A01")).status, 404)

    async def test_only_the_operator_changes_maps(self) -> None:
        """Maps apply to all tenants: other tenants and callers with a limited scope cannot change them."""

        def caller(tenant: str, scope: str) -> Any:
            async def identify(request: Request) -> Request:
                who = Caller("ada", scopes=(scope,), tenant=tenant, patient="p1")
                return replace(request, caller=who, tenant=tenant)

            return identify

        seen: list[tuple[str, int, tuple[Any, ...]]] = []

        def observe(request: Request, answer: Answer, began: float) -> None:
            about = tuple(f"{one.resource_type}/{one.id}/_history/{one.version_id}" for one in answer.about)
            seen.append((interaction_of(request), answer.status, about))

        for tenant, scope, statuses in (
            ("default", "system/*.cruds", (201, 200, 204, 200, 200)),
            ("north", "system/*.cruds", (403, 403, 403, 200, 200)),
            ("default", "system/ConceptMap.cruds?status=draft", (401, 401, 401, 401, 401)),
            ("default", "patient/*.cruds", (401, 401, 401, 200, 200)),
        ):
            self.handle = mapping_handler(self.installation, MemoryNotifier(), at_once, caller(tenant, scope), observe)
            seen.clear()
            for (method, path, body), status in zip((
                ("POST", "ConceptMap", TABLE), ("PUT", "ConceptMap/sex", TABLE), ("DELETE", "ConceptMap/sex", b""),
                ("GET", "ConceptMap", b""), ("GET", "ConceptMap/sex", b""),
            ), statuses, strict=True):  # fmt: skip
                answer = await self.ask(method, path, body)
                self.assertEqual(answer.status, status, (tenant, scope, method, answer.body))
            self.assertEqual([status for _, status, _ in seen], list(statuses))
            if statuses[0] == 201:
                first, second = (("ConceptMap/sex/_history/1",), ("ConceptMap/sex/_history/2",))
                self.assertEqual(seen[:3], [("create", 201, first), ("update", 200, second), ("delete", 204, ())])

    async def test_install_a_concept_map(self) -> None:
        """It takes precedence over the folder; it is refused without a url, or with the id of another map."""
        table = json.loads(json.dumps(TABLE).replace('"F"', '"W"'))
        self.assertEqual((await self.ask("POST", "ConceptMap", table)).status, 201)
        bundle = (await self.transform("", er7("W"), ER7))[1]
        self.assertEqual(bundle["entry"][0]["resource"]["gender"], "female")
        self.assertEqual((await self.ask("POST", "ConceptMap", {"resourceType": "ConceptMap"})).status, 400)
        other = {**table, "url": "urn:test:other"}
        self.assertEqual((await self.ask("PUT", "ConceptMap/sex", other)).status, 422)
        self.assertEqual((await self.ask("POST", "ConceptMap", other)).status, 201)

    async def test_install_a_logical_model(self) -> None:
        """Maps use it at once; its elements are checked, and it cannot break a map that is installed."""
        for broken, text in BROKEN_MODELS:
            answer = await self.ask("POST", "StructureDefinition", {**MODEL, **broken})
            self.assertEqual((answer.status, text in answer.body.decode()), (422, True), (broken, answer.body))
        self.assertEqual((await self.ask("POST", "StructureMap", MODEL_MAP.encode(), FML)).status, 201)  # not checked
        answer = await self.ask("POST", "StructureDefinition", MODEL)
        self.assertEqual(answer.status, 422)
        self.assertIn("Visitor has no element 'surname'", answer.body.decode())
        fixed = MODEL_MAP.replace("surname", "family")
        self.assertEqual((await self.ask("POST", "StructureMap", fixed.encode(), FML)).status, 200)
        answer = await self.ask("POST", "StructureDefinition", MODEL)
        self.assertEqual((answer.status, dict(answer.headers)["Location"]), (201, f"http://h/mapping/fhir/{PLACE}"))
        status, made = await self.transform("?source=http://x.org/StructureMap/visitor", PATIENT)
        self.assertEqual((status, made), (200, {"resourceType": "Visitor", "family": ["Hansen"]}))
        renamed = json.loads(json.dumps(MODEL).replace("family", "name"))
        self.assertEqual((await self.ask("PUT", PLACE, renamed)).status, 422)

    async def test_read_and_remove_a_logical_model(self) -> None:
        self.assertEqual((await self.ask("PUT", PLACE, MODEL)).status, 201)
        self.assertEqual((await self.ask("POST", "StructureMap", MODEL_MAP.encode(), FML)).status, 422)
        read = json.loads((await self.ask("GET", PLACE)).body)
        self.assertEqual((read["url"], read["meta"]["versionId"]), (MODEL["url"], "1"))
        found = json.loads((await self.ask("GET", f"StructureDefinition?url={MODEL['url']}")).body)
        self.assertEqual([one["resource"]["id"] for one in found["entry"]], ["visitor"])
        self.assertEqual((await self.ask("DELETE", PLACE)).status, 204)
        self.assertEqual((await self.ask("GET", PLACE)).status, 404)
        self.assertEqual((await self.ask("POST", "StructureMap", MODEL_MAP.encode(), FML)).status, 201)  # not checked
