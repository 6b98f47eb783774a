"""The largest input that each route of FHIR accepts, and larger ones that it refuses (`bin/bench stalls` and attacks).

Requests need no token here; whoever sends them adds one.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from tests.traffic.messages import oru

BODY = 60_000_000
JSON, XML, MLLP_TEXT = "application/fhir+json", "application/fhir+xml", "text/plain"
_START = '<Patient xmlns="http://hl7.org/fhir"'
_UNIT = "urn:x.test:"

Json = dict[str, Any]
Body = bytes | None


@dataclass(frozen=True, slots=True)
class Input:
    """One request.  `body` is made when it is sent: some are 60 MB."""

    name: str
    method: str
    path: str
    body: Callable[[], Body] = lambda: None
    kind: str = JSON


def _as_json(make: Callable[[], Any]) -> Callable[[], bytes]:
    return lambda: json.dumps(make(), separators=(",", ":")).encode()


def stored() -> Iterator[Input]:
    """What the inputs refer to."""
    numbers = [{"system": "urn:a", "value": f"n{number}"} for number in range(1000)]
    codes = [{"code": f"c{number}"} for number in range(2000)]
    system = {"resourceType": "CodeSystem", "id": "a", "url": f"{_UNIT}cs", "status": "active", "content": "complete",
              "concept": codes}  # fmt: skip
    yield Input("", "PUT", "/fhir/Patient/a", _as_json(lambda: {**_patient(), "id": "a", "identifier": numbers}))
    yield Input("", "PUT", "/fhir/CodeSystem/a", _as_json(lambda: system))
    yield Input("", "PUT", "/fhir/Questionnaire/a", _as_json(_form))


def inputs() -> Iterator[Input]:
    yield from _json_bodies()
    yield from _xml_bodies()
    yield from _searches()
    yield from _programs()
    yield Input("a message of 900 kB by HTTP", "POST", "/admin/ingest", lambda: oru("L1", 900_000), MLLP_TEXT)
    ids = ",".join([str(number) for number in range(9000)])
    yield Input("a search of 9,000 ids", "GET", f"/fhir/Patient?_id={ids}")


def _patient() -> Json:
    return {"resourceType": "Patient", "active": True}


def _bundle(kind: str, count: int, **request: str) -> Json:
    """Patients with a language."""
    urls = [f"urn:uuid:{number:08d}-0000-4000-8000-000000000000" for number in range(count)]
    asked = {"request": request} if request else {}
    entries = [{"fullUrl": url, "resource": {**_patient(), "language": "de"}, **asked} for url in urls]
    return {"resourceType": "Bundle", "type": kind, "entry": entries}


def _json_bodies() -> Iterator[Input]:
    data = base64.b64encode(bytes(BODY // 4 * 3)).decode()
    binary = {"resourceType": "Binary", "contentType": "application/pdf", "data": data}
    yield Input("JSON, 60 MB of numbers", "POST", "/fhir/Patient", lambda: b"[" + b"1," * (BODY // 2) + b"1]")
    yield Input("JSON, 1,000,000 numbers", "POST", "/fhir/Patient", lambda: b"[" + b"1.5," * 999_990 + b"1]")
    yield Input(
        "JSON, 60 MB of escaped characters", "POST", "/fhir/Patient", lambda: b'["' + b"\\n" * (BODY // 2) + b'"]'
    )
    yield Input("JSON, a document of 60 MB", "POST", "/fhir/Binary", _as_json(lambda: binary))
    yield Input(
        "a collection of 20,000 entries", "POST", "/fhir/Bundle", _as_json(lambda: _bundle("collection", 20_000))
    )
    whole = _as_json(lambda: _bundle("collection", 20_000))
    yield Input("$validate of 20,000 entries", "POST", "/fhir/Bundle/$validate", whole)
    for kind in ("transaction", "batch"):
        entries = _as_json(lambda kind=kind: _bundle(kind, 10_000, method="POST", url="Patient"))  # type: ignore[misc]
        yield Input(f"a {kind} of 10,000 entries", "POST", "/fhir", entries)


def _xml_bodies() -> Iterator[Input]:
    def text(form: str, *parts: Any) -> Callable[[], bytes]:
        return lambda: (form % parts).encode()

    names = '<name><text value="a"/></name>' * 400_000
    attributes = " ".join([f'a{number}="1"' for number in range(200_000)])
    data = base64.b64encode(bytes(BODY // 4 * 3)).decode()
    yield Input("XML, 800,000 elements", "POST", "/fhir/Patient", text(f"{_START}>%s</Patient>", names), XML)
    yield Input("XML, 200,000 attributes", "POST", "/fhir/Patient", text(f"{_START} %s/>", attributes), XML)
    yield Input(
        "XML, a comment of 60 MB", "POST", "/fhir/Patient", text(f"{_START}><!--%s--></Patient>", "a" * BODY), XML
    )
    form = '<Binary xmlns="http://hl7.org/fhir"><contentType value="application/pdf"/><data value="%s"/></Binary>'
    yield Input("XML, a document of 60 MB", "POST", "/fhir/Binary", text(form, data), XML)


def _searches() -> Iterator[Input]:
    values = ",".join([f"v{number}" for number in range(4990)])
    form = "application/x-www-form-urlencoded"
    yield Input(
        "a search of 5,000 values", "POST", "/fhir/Observation/_search", lambda: f"code={values}".encode(), form
    )
    chains = "&".join(["target.subject.name=a"] * 190)
    yield Input("190 chains over all types", "GET", f"/fhir/Provenance?{chains}")
    yield Input("one chain over all types", "GET", "/fhir/Provenance?target.subject.name=a")
    compared = quote(" or ".join(["code eq a"] * 140))
    yield Input("a filter of 140 comparisons", "GET", f"/fhir/Observation?_filter={compared}")
    yield Input("all includes", "GET", "/fhir/Patient?_include=*&_revinclude:iterate=*&_count=1000")


def _programs() -> Iterator[Input]:
    includes = [{"system": f"{_UNIT}cs"}] * 5000
    value_set = {"resourceType": "ValueSet", "status": "active", "compose": {"include": includes}}
    yield Input("$expand of 5,000 includes", "POST", "/fhir/ValueSet/$expand", _parameters("valueSet", value_set))
    fields = " ".join([f"a{number}: name {{ family given }}" for number in range(130)])
    query = _as_json(lambda: {"query": f"{{ PatientList(_count: 1000) {{ {fields} }} }}"})
    yield Input("$graphql of 400 fields", "POST", "/fhir/$graphql", query, "application/json")
    paths = ["Patient.identifier.where(value = 'x')"] * 2000
    parts = [[{"name": "type", "valueCode": "delete"}, {"name": "path", "valueString": path}] for path in paths]
    patch = {"resourceType": "Parameters", "parameter": [{"name": "operation", "part": part} for part in parts]}
    yield Input("a FHIRPath Patch of 2,000 operations", "PATCH", "/fhir/Patient/a", _as_json(lambda: patch))
    replaced = '<replace sel="/Patient/active"><active value="false"/></replace>' * 2000
    xml = f'<diff xmlns="http://hl7.org/fhir">{replaced}</diff>'.encode()
    kind = "application/xml-patch+xml"
    yield Input("an XML Patch of 2,000 operations", "PATCH", "/fhir/Patient/a", lambda: xml, kind)
    operations = [{"op": "replace", "path": "/active", "value": False}] * 2000
    json_patch = _as_json(lambda: operations)
    yield Input(
        "a JSON Patch of 2,000 operations", "PATCH", "/fhir/Patient/a", json_patch, "application/json-patch+json"
    )
    each = "Patient.identifier.where(value = 'n999' or " + " or ".join(["value.toChars().count() = 1"] * 400) + ")"
    costly = [[{"name": "type", "valueCode": "delete"}, {"name": "path", "valueString": each}]] * 100
    operations_of = [{"name": "operation", "part": part} for part in costly]
    patch = {"resourceType": "Parameters", "parameter": operations_of}
    yield Input("a FHIRPath Patch that reads each of each", "PATCH", "/fhir/Patient/a", _as_json(lambda: patch))
    condition = "[identifier/system/@value='urn:a']" * 50
    selected = f'<replace sel="/Patient{condition}/active"><active value="false"/></replace>' * 2000
    xml_costly = f'<diff xmlns="http://hl7.org/fhir">{selected}</diff>'.encode()
    yield Input("an XML Patch of selectors that multiply", "PATCH", "/fhir/Patient/a", lambda: xml_costly, kind)
    yield from _profiles()
    yield from _forms()


def _forms() -> Iterator[Input]:
    """A form whose items depend on each other, and answers to all of them."""
    answer = [{"valueBoolean": True}]
    items = [{"linkId": f"i{number}", "answer": answer} for number in range(10_000)]
    answers = {"resourceType": "QuestionnaireResponse", "questionnaire": f"{_UNIT}q", "status": "completed",
               "item": items}  # fmt: skip
    nested: Json = {"linkId": "deep"}
    for _ in range(150):
        nested = {"linkId": "deep", "item": [nested]}
    deep = answers | {"item": [nested] * 40}
    path = "/fhir/QuestionnaireResponse/$validate"
    yield Input(
        "$validate of a Questionnaire of 10,000 items", "POST", "/fhir/Questionnaire/$validate", _as_json(_form)
    )
    yield Input("$validate of 10,000 answers", "POST", path, _as_json(lambda: answers))
    yield Input("$validate of nested answers", "POST", path, _as_json(lambda: deep))


def _form() -> Json:
    items = [
        {"linkId": f"i{number}", "type": "boolean",
         "enableWhen": [{"question": f"i{number - 1}", "operator": "=", "answerBoolean": True}]}
        for number in range(1, 10_000)
    ]  # fmt: skip
    first = {"linkId": "i0", "type": "boolean"}
    return {"resourceType": "Questionnaire", "id": "a", "url": f"{_UNIT}q", "status": "active", "item": [first, *items]}


def _profiles() -> Iterator[Input]:
    levels = ["Patient" + ".extension" * level for level in range(41)]
    ids = [f"{levels[40]}.id", *[f"{levels[level]}:a.id" for level in range(40, 0, -1)]]
    elements = [{"id": id, "path": id.replace(":a", "")} for id in ids]
    profile = {
        "resourceType": "StructureDefinition", "url": f"{_UNIT}p", "name": "P", "status": "active", "kind": "resource",
        "abstract": False, "type": "Patient", "derivation": "constraint",
        "baseDefinition": "http://hl7.org/fhir/StructureDefinition/Patient", "differential": {"element": elements},
    }  # fmt: skip
    path = "/fhir/StructureDefinition/$validate"
    yield Input("$validate of a profile that doubles", "POST", path, _as_json(lambda: profile))


def _parameters(name: str, resource: Json) -> Callable[[], bytes]:
    return _as_json(lambda: {"resourceType": "Parameters", "parameter": [{"name": name, "resource": resource}]})
