"""Every parameter of every served operation: by POST in its declared type, and by GET where it is simple.

A row says what a parameter does to a call that works: it changes the answer, the call needs it, it is refused by its
name, or it has no effect here (`SAME`, with the reason).  Whatever else is sent under its name is an error that names
it, never 500.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from ipf.fhir.model.json import dumps, loads
from ipf.ports import Answer, Json
from ipf.rest.operations.subscription_status import set_status
from tests.fakes import MemoryDeliveryQueue
from tests.fakes.bindings import MemoryBindingTokens
from tests.fakes.terminology import MemoryClosureTables
from tests.rest.terminology.test_sent_resources import CM, CS, VS, concept_map, system, value_set
from tests.rest.terminology.test_terminology import validated
from tests.rest.world import OnMemory, patient

USED, NEEDED, REFUSED, SAME = "used", "needed", "refused", "same"
LOINC = "http://loinc.org"
STRUCTURE = "http://hl7.org/fhir/StructureDefinition/Patient#Patient.gender"


@dataclass(frozen=True)
class Row:
    """A parameter: its `value[x]` (or `resource`, `part`), a value, and what it does.  `beside`: others that it needs.

    `without`: parameters of the call that it stands for.
    """

    name: str
    kind: str
    value: Any
    effect: str = USED
    beside: dict[str, tuple[str, Any]] = field(default_factory=dict)
    without: tuple[str, ...] = ()


@dataclass(frozen=True)
class Operation:
    """A call that works, and the rows of its parameters."""

    path: str
    given: dict[str, tuple[str, Any]]
    rows: tuple[Row, ...]
    get: bool = True
    prefer: str = ""


def uri(value: str) -> tuple[str, str]:
    return "valueUri", value


def code(value: str) -> tuple[str, str]:
    return "valueCode", value


def coding(value: str, url: str = CS) -> tuple[str, Json]:
    return "valueCoding", {"system": url, "code": value}


OTHER: Json = {"include": [{"system": CS, "concept": [{"code": "group"}, {"code": "b"}]}]}
SENT = Row("tx-resource", "resource", value_set(url="http://x.test/sent"), SAME)
YES = ("valueBoolean", True)
CODED = {"url": uri(VS), "system": uri(CS), "code": code("b")}
IN_SYSTEM = {"url": uri(CS), "code": code("b")}
LOOKED_UP = {"system": uri(CS), "code": code("b")}
TRANSLATED = {"url": uri(CM), "system": uri(CS), "code": code("a")}
KIND = [{"name": "code", "valueCode": "kind"}, {"name": "value", "valueCode": "k"}]
CONCEPT = {"coding": [{"system": CS, "code": "x"}]}
DEPENDENCY = [{"name": "element", "valueUri": "http://x.test/e"}, {"name": "concept", "valueCodeableConcept": CONCEPT}]
PROFILE = "http://hl7.org/fhir/us/core/StructureDefinition/us-core-patient"
UNKNOWN_LANGUAGE = "valueCode", "de"

OPERATIONS = {
    "ValueSet/$expand": Operation("ValueSet/$expand", {"url": uri(VS)}, (
        Row("url", *uri(VS), NEEDED),
        Row("valueSet", "resource", value_set(url="http://x.test/mine", compose=OTHER), without=("url",)),
        Row("valueSetVersion", "valueString", "1"),
        Row("context", *uri(STRUCTURE), without=("url",)),
        Row("contextDirection", *code("incoming"), SAME, {"context": uri(STRUCTURE)}, ("url",)),
        Row("filter", "valueString", "b"),
        Row("date", "valueDateTime", "2020-01-01", REFUSED),
        Row("offset", "valueInteger", 1),
        Row("count", "valueInteger", 1),
        Row("includeDesignations", *YES),
        Row("designation", "valueString", "de"),
        Row("includeDefinition", "valueBoolean", False),
        Row("activeOnly", *YES),
        Row("excludeNested", "valueBoolean", False),
        Row("excludeNotForUI", *YES),
        Row("excludePostCoordinated", *YES),
        Row("displayLanguage", *UNKNOWN_LANGUAGE),
        Row("exclude-system", "valueCanonical", CS),
        Row("system-version", "valueCanonical", f"{CS}|1"),
        Row("check-system-version", "valueCanonical", f"{CS}|9", REFUSED),
        Row("force-system-version", "valueCanonical", f"{CS}|1"),
        SENT,
    )),
    "ValueSet/$validate-code": Operation("ValueSet/$validate-code", CODED, (
        Row("url", *uri(VS), NEEDED),
        Row("context", *uri(STRUCTURE), without=("url",)),
        Row("contextDirection", *code("incoming"), SAME, {"context": uri(STRUCTURE)}, ("url",)),
        Row("valueSet", "resource", value_set(url="http://x.test/mine", compose=OTHER), without=("url",)),
        Row("valueSetVersion", "valueString", "1", USED, {"code": code("old")}, ("code",)),
        Row("code", *code("b"), NEEDED),
        Row("system", *uri("http://x.test/else")),
        Row("systemVersion", "valueString", "9", REFUSED),
        Row("display", "valueString", "wrong"),
        Row("coding", *coding("nonsense"), without=("code", "system")),
        Row("codeableConcept", "valueCodeableConcept", CONCEPT, without=("code", "system")),
        Row("date", "valueDateTime", "2020-01-01", REFUSED),
        Row("abstract", "valueBoolean", False, USED, {"code": code("group")}, ("code",)),
        Row("displayLanguage", *UNKNOWN_LANGUAGE),
        SENT,
    )),
    "CodeSystem/$validate-code": Operation("CodeSystem/$validate-code", IN_SYSTEM, (
        Row("url", *uri("http://x.test/else"), REFUSED, without=("url",)),
        Row("codeSystem", "resource", system("z", url="http://x.test/mine"), without=("url",)),
        Row("code", *code("b"), NEEDED),
        Row("version", "valueString", "9", REFUSED),
        Row("display", "valueString", "wrong"),
        Row("coding", *coding("nonsense"), without=("code",)),
        Row("codeableConcept", "valueCodeableConcept", CONCEPT, without=("code",)),
        Row("date", "valueDateTime", "2020-01-01", REFUSED),
        Row("abstract", "valueBoolean", False, USED, {"code": code("group")}, ("code",)),
        Row("displayLanguage", *UNKNOWN_LANGUAGE),
        SENT,
    )),
    "CodeSystem/$lookup": Operation("CodeSystem/$lookup", LOOKED_UP, (
        Row("code", *code("b"), NEEDED),
        Row("system", *uri(CS), NEEDED),
        Row("version", "valueString", "1"),
        Row("coding", *coding("group"), without=("code", "system")),
        Row("date", "valueDateTime", "2020-01-01", REFUSED),
        Row("displayLanguage", *UNKNOWN_LANGUAGE),
        Row("property", *code("kind")),
        SENT,
    )),
    "CodeSystem/$subsumes": Operation(
        "CodeSystem/$subsumes", {"system": uri(CS), "codeA": code("group"), "codeB": code("b")}, (
            Row("codeA", *code("group"), NEEDED),
            Row("codeB", *code("b"), NEEDED),
            Row("system", *uri(CS), NEEDED),
            Row("version", "valueString", "9", REFUSED),
            Row("codingA", *coding("b"), without=("codeA",)),
            Row("codingB", *coding("group"), without=("codeB",)),
            SENT,
        )),
    "CodeSystem/$find-matches": Operation(
        "CodeSystem/$find-matches", {"system": uri(CS), "property": ("part", KIND)}, (
            Row("system", *uri(CS), NEEDED),
            Row("version", "valueString", "9", REFUSED),
            Row("property", "part", KIND, NEEDED),
            Row("exact", "valueBoolean", True, USED, {"more": ("", None)}),
            Row("compositional", *YES, REFUSED),
            SENT,
        ), get=False),
    "ConceptMap/$translate": Operation("ConceptMap/$translate", TRANSLATED, (
        Row("url", *uri("http://x.test/none"), REFUSED, without=("url",)),
        Row("conceptMap", "resource", concept_map("other"), without=("url",)),
        Row("conceptMapVersion", "valueString", "9", REFUSED),
        Row("code", *code("a"), NEEDED),
        Row("system", *uri("http://x.test/else"), without=("system",)),
        Row("version", "valueString", "9"),
        Row("source", *uri("http://x.test/else")),
        Row("coding", *coding("nonsense"), without=("code", "system")),
        Row("codeableConcept", "valueCodeableConcept", CONCEPT, without=("code", "system")),
        Row("target", *uri("http://x.test/else")),
        Row("targetsystem", *uri("http://x.test/else")),
        Row("dependency", "part", DEPENDENCY),
        Row("reverse", *YES),
        SENT,
    )),
    "$closure": Operation("$closure", {"name": ("valueString", "t")}, (
        Row("name", "valueString", "t", NEEDED),
        Row("concept", *coding("b")),
        Row("version", "valueString", "x", REFUSED),
    ), get=False),
    "Patient/$validate": Operation("Patient/$validate", {"resource": ("resource", patient("1"))}, (
        Row("resource", "resource", {"resourceType": "Patient", "gender": "wrong"}, without=("resource",)),
        Row("mode", *code("nonsense"), REFUSED),
        Row("profile", *uri(PROFILE)),
    ), get=False),
    "Patient/$everything": Operation("Patient/p/$everything", {}, (
        Row("start", "valueDate", "2030-01-01"),
        Row("end", "valueDate", "1990-01-01"),
        Row("_since", "valueInstant", "2030-01-01T00:00:00Z"),
        Row("_type", *code("Observation")),
        Row("_count", "valueInteger", 1),
    )),
    "Encounter/$everything": Operation("Encounter/e/$everything", {}, (
        Row("_since", "valueInstant", "2030-01-01T00:00:00Z"),
        Row("_type", *code("Patient")),
        Row("_count", "valueInteger", 1),
    )),
    "Composition/$document": Operation("Composition/$document", {"id": uri("Composition/c")}, (
        Row("id", *uri("Composition/c"), NEEDED),
        Row("persist", *YES),
        Row("graph", *uri("http://x.test/g"), REFUSED),
    ), get=False),
    "DocumentReference/$docref": Operation("DocumentReference/$docref", {"patient": ("valueId", "p")}, (
        Row("patient", "valueId", "p", NEEDED),
        Row("start", "valueDate", "2030-01-01"),
        Row("end", "valueDate", "1990-01-01"),
        Row("type", "valueCoding", {"system": LOINC, "code": "1-1"}),
        Row("on-demand", *YES),
        Row("profile", "valueCanonical", "http://x.test/p"),
    )),
    "Observation/$lastn": Operation(
        "Observation/$lastn", {"patient": ("valueString", "p"), "code": ("valueString", "1-8")}, (
            Row("max", "valuePositiveInt", 2),
            Row("patient", "valueString", "p", NEEDED),
            Row("code", "valueString", "1-8", NEEDED),
            Row("category", "valueString", "none"),
            Row("date", "valueDate", "2030-01-01"),
        )),
    "Patient/$match": Operation("Patient/$match", {"resource": ("resource", patient("p"))}, (
        Row("resource", "resource", patient("p"), NEEDED),
        Row("onlyCertainMatches", *YES, SAME),  # the only match is certain
        Row("count", "valueInteger", 0),
    ), get=False),
    "Patient/$meta-add": Operation(
        "Patient/p/$meta-add", {"meta": ("valueMeta", {"tag": [{"code": "t"}]})},
        (Row("meta", "valueMeta", {"tag": [{"code": "t"}]}, NEEDED),), get=False),
    "Patient/$meta-delete": Operation(
        "Patient/p/$meta-delete", {"meta": ("valueMeta", {"tag": [{"code": "t"}]})},
        (Row("meta", "valueMeta", {"tag": [{"code": "t"}]}, NEEDED),), get=False),
    "$export": Operation("$export", {}, (
        Row("_outputFormat", "valueString", "text/csv", REFUSED),
        Row("_since", "valueInstant", "soon", REFUSED),
        Row("_type", "valueString", "Nonsense", REFUSED),
        Row("_elements", "valueString", "id", REFUSED),
        Row("patient", "valueReference", {"reference": "Patient/p"}, REFUSED),
        Row("includeAssociatedData", *code("x"), REFUSED),
        Row("_typeFilter", "valueString", "Patient?nonsense=1", REFUSED),
    ), prefer="respond-async"),
    "$expunge": Operation("$expunge", {"expungeDeletedResources": YES}, (
        Row("limit", "valueInteger", 0, REFUSED),
        Row("expungeDeletedResources", *YES, NEEDED),
        Row("expungePreviousVersions", *YES),
    ), get=False),
    "$fhirpath": Operation(
        "$fhirpath", {"expression": ("valueString", "id"), "resource": ("resource", {**patient("1"), "id": "x"})}, (
            Row("expression", "valueString", "id", NEEDED),
            Row("resource", "resource", patient("1"), NEEDED),
            Row("context", "valueString", "name"),
        ), get=False),
    "Subscription/$status": Operation("Subscription/$status", {}, (
        Row("id", "valueId", "nobody"), Row("status", *code("error")),
    )),
    "Subscription/$events": Operation("Subscription/s/$events", {}, (
        Row("eventsSinceNumber", "valueString", "2"),
        Row("eventsUntilNumber", "valueString", "0"),
        Row("content", *code("id-only")),
    )),
    "Subscription/$resend": Operation("Subscription/s/$resend", {"eventsSinceNumber": ("valueString", "1")}, (
        Row("eventsSinceNumber", "valueString", "9", REFUSED, without=("eventsSinceNumber",)),
        Row("eventsUntilNumber", "valueString", "0", REFUSED),
    ), get=False),
    "Subscription/$get-ws-binding-token": Operation("Subscription/$get-ws-binding-token", {}, (
        Row("id", "valueId", "nobody", REFUSED),
    )),
}  # fmt: skip
ELSEWHERE = {
    "graphql": "test_operation.py of graphql: a query text, no Parameters",
    "meta": "no parameters",
    "diff": "by GET alone: test_diff.py",
    "merge": "test_merge.py posts each",
    "unmerge": "test_merge.py posts each",
    "import": "tests/rest/imports: a manifest",
    "export": "",
}
_VOLATILE = re.compile(
    rb'"(identifier|timestamp|id|lastUpdated|versionId|valueDateTime)":"[^"]*"|urn:uuid:[-0-9a-f]{36}'
)


class EveryParameterTests(OnMemory):
    async def setUp(self) -> None:
        await super().setUp()
        validated(self.world)
        self.world.closures, self.world.bindings = MemoryClosureTables(), MemoryBindingTokens()
        self.world.deliveries, self.world.expunges = MemoryDeliveryQueue(self.world.store), True
        for version in ("1", "2"):
            codes = system("group", "b", *("c" if version == "2" else ""), version=version)
            codes["property"] = [{"code": name, "type": "boolean"} for name in ("notSelectable", "inactive")]
            codes["property"].append({"code": "kind", "type": "code"})
            (group,) = codes["concept"]
            group["property"] = [{"code": "notSelectable", "valueBoolean": True}]
            group["concept"][0]["property"] = [{"code": "kind", "valueCode": "k"}]
            group["concept"][0]["designation"] = [{"language": "de", "value": "Be"}]
            group["concept"].append({"code": "old", "property": [{"code": "inactive", "valueBoolean": True}]})
            await self.store({**codes, "id": f"v{version}"})
        await self.store({**value_set("1"), "id": "old", "compose": OTHER})
        self.world.pass_time()
        await self.store({**value_set(), "id": "all"})
        mapped = concept_map("z", sourceUri="http://x.test/from", targetUri="http://x.test/to")
        mapped["group"][0]["sourceVersion"] = "2"
        mapped["group"][0]["element"][0]["target"][0]["dependsOn"] = [{"property": "http://x.test/e", "value": "y"}]
        await self.store({**mapped, "id": "map"})
        subject = {"reference": "Patient/p"}
        await self.store(patient("p", id="p"))
        kinds = {"status": "final", "code": {"coding": [{"code": "1-8"}]}, "subject": subject}
        channel = {"type": "rest-hook", "endpoint": "https://x.test/hook", "header": ["Authorization: Bearer x"]}
        await self.store({"resourceType": "Subscription", "id": "s", "status": "requested", "reason": "x",
                          "criteria": "Observation?code=1-8", "channel": channel})  # fmt: skip
        parts = self.world.repository
        await set_status(self.world.tenant, "s", "active", None, parts.store, parts.matcher, parts.clock)
        for number in (1, 2):
            when = f"202{number}-05-01"
            visit = {"reference": "Encounter/e"}
            observed = {"resourceType": "Observation", "id": f"o{number}", "effectiveDateTime": when, **kinds}
            await self.store({**observed, "encounter": visit})
        await self.store({"resourceType": "Encounter", "id": "e", "status": "finished", "class": {"code": "AMB"},
                          "subject": subject})  # fmt: skip
        content = [{"attachment": {"url": "http://x.test/d", "contentType": "text/plain"}}]
        for number, kind in enumerate(("34133-9", "1-1")):
            await self.store({"resourceType": "DocumentReference", "id": f"d{number}", "status": "current",
                              "subject": subject, "type": {"coding": [{"system": LOINC, "code": kind}]},
                              "context": {"period": {"start": "2024-01-01"}}, "content": content})  # fmt: skip
        await self.store({"resourceType": "Composition", "id": "c", "status": "final", "type": {"text": "t"},
                          "date": "2024", "title": "T", "subject": subject,
                          "author": [{"reference": "Patient/p"}]})  # fmt: skip

    async def store(self, resource: Json) -> None:
        answer = await self.world.send("PUT", f"{resource['resourceType']}/{resource['id']}", resource)
        self.assertEqual(answer.status, 201, answer.body)

    async def post(self, operation: Operation, given: dict[str, tuple[str, Any]]) -> Answer:
        sent = [{"name": name, kind: value} for name, (kind, value) in given.items() if kind]
        if "more" in given:  # a second property that no concept has
            part = [{"name": "code", "valueCode": "kind"}, {"name": "value", "valueCode": "none"}]
            sent.append({"name": "property", "part": part})
        body = {"resourceType": "Parameters", "parameter": sent}
        headers = {"prefer": operation.prefer} if operation.prefer else {}
        return await self.world.send("POST", operation.path, body, **headers)

    async def get(self, operation: Operation, given: dict[str, tuple[str, Any]]) -> Answer:
        pairs = [(name, str(value).lower() if isinstance(value, bool) else value) for name, (_, value) in given.items()]
        headers = {"prefer": operation.prefer} if operation.prefer else {}
        return await self.world.send("GET", f"{operation.path}?{urlencode(pairs)}", **headers)

    def rows(self) -> Iterator[tuple[str, Operation, Row]]:
        """All."""
        for name, operation in OPERATIONS.items():
            for row in operation.rows:
                yield name, operation, row

    def judged(self, row: Row, base: Answer, answer: Answer) -> str:
        """Why the answer is not what the row says; "" when it is."""
        if answer.status >= 500:
            return f"{answer.status}"
        if row.effect == REFUSED:
            named = answer.status >= 400 and b"OperationOutcome" in answer.body
            return "" if named else f"not refused: {answer.status} {answer.body[:300]!r}"
        if answer.status >= 300:
            return f"{answer.status} {answer.body[:300]!r}"
        same = shown(base) == shown(answer)
        return (
            "" if same is (row.effect in (SAME, NEEDED)) else "dropped" if same else f"changed: {answer.body[:300]!r}"
        )

    async def test_every_operation_is_here(self) -> None:
        """Of the served CapabilityStatement."""
        stated = loads((await self.world.send("GET", "metadata")).body)["rest"][0]
        names = {one["name"] for part in (stated, *stated["resource"]) for one in part.get("operation", ())}
        self.assertEqual(names, {path.rpartition("$")[2] for path in OPERATIONS} | ELSEWHERE.keys())

    async def test_each_in_its_type(self) -> None:
        """By POST; by GET where all of the call is simple, with the same answer."""
        wrong = []
        for name, operation, row in self.rows():
            given = {key: one for key, one in operation.given.items() if key not in row.without} | row.beside
            base = await self.post(operation, given if row.without or row.beside else operation.given)
            with_it = {**given, row.name: (row.kind, row.value)}
            if row.effect == NEEDED:
                base = await self.post(operation, with_it)
                without = await self.post(operation, {key: one for key, one in given.items() if key != row.name})
                if not 400 <= without.status < 500:
                    wrong.append((name, row.name, "not needed", without.status))
            answer = await self.post(operation, with_it)
            refused_before = base.status >= 400 and row.effect == USED
            reason = self.judged(row, Answer(200) if refused_before else base, answer)
            if reason:
                wrong.append((name, row.name, "POST", reason))
            simple = all(isinstance(value, str | bool | int) for _, value in with_it.values())
            if operation.get and simple:
                asked = await self.get(operation, with_it)
                if asked.status != answer.status or (answer.status < 300 and shown(asked) != shown(answer)):
                    wrong.append((name, row.name, "GET", asked.status, asked.body[:300], answer.body[:300]))
        self.assertEqual(wrong, [], "\n".join(map(str, wrong)))

    async def test_each_in_other_types(self) -> None:
        """Accepted as what it means, or an OperationOutcome; two values in one parameter are an error."""
        others: list[tuple[str, Any]] = [
            ("valueBoolean", True), ("valueInteger", 5), ("valueDecimal", 0.5), ("valueString", "x" * 3000),
            ("valueCode", ""), ("valueCoding", {"code": 7}), ("valueCoding", "x"), ("valueQuantity", {"value": 1}),
            ("valueReference", {"reference": 7}), ("valueCodeableConcept", {"coding": "x"}), ("valueUri", None),
            ("valueMeta", {"tag": 1}), ("resource", {}), ("resource", {"resourceType": "Nonsense"}), ("resource", "x"),
            ("resource", {"resourceType": "ValueSet", "compose": 1}), ("part", [{"name": "code"}]), ("part", "x"),
            ("part", [1]), ("valueNonsense", "x"), ("nothing", 1), ("valueIdentifier", {"value": ["x"]}),
        ]  # fmt: skip
        wrong = []
        for name, operation, row in self.rows():
            given = {key: one for key, one in operation.given.items() if key not in (*row.without, row.name)}
            for other in others:
                answer = await self.post(operation, {**given, **row.beside, row.name: other})
                if answer.status >= 500 or (answer.status >= 400 and b"OperationOutcome" not in answer.body):
                    wrong.append((name, row.name, other, answer.status, answer.body[:200]))
            sent = [{"name": key, kind: value} for key, (kind, value) in given.items()]
            twice = {"name": row.name, row.kind: row.value, "valueTime": "08:00:00"}
            body = dumps({"resourceType": "Parameters", "parameter": [*sent, twice]})
            headers = {"prefer": operation.prefer} if operation.prefer else {}
            answer = await self.world.send("POST", operation.path, body, **headers)
            if not 400 <= answer.status < 500:
                wrong.append((name, row.name, "two values", answer.status, answer.body[:200]))
        self.assertEqual(wrong, [], "\n".join(map(str, wrong)))

    async def test_unknown_parameters(self) -> None:
        """Refused by their name."""
        wrong = []
        for name, operation in OPERATIONS.items():
            answer = await self.post(operation, {**operation.given, "nonsense": ("valueString", "x")})
            if not 400 <= answer.status < 500 or b"nonsense" not in answer.body:
                wrong.append((name, answer.status, answer.body[:200]))
        self.assertEqual(wrong, [("Observation/$lastn", 200, wrong[0][2])] if len(wrong) == 1 else [])


def shown(answer: Answer) -> bytes:
    """The answer without what differs from call to call."""
    return _VOLATILE.sub(b"", answer.body)
