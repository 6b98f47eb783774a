"""Patches of each form: JSON Patch, FHIRPath Patch, JSON Merge Patch, XML Patch.

Sources: https://hl7.org/fhir/R4/http.html#patch, https://hl7.org/fhir/R4/fhirpatch.html, RFC 6902, RFC 7396, RFC 5261
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from conformance.data import patient
from conformance.server import Json, Server
from conformance.suite import Case, equal, expect

JSON_PATCH, MERGE_PATCH, XML_PATCH = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/xml-patch+xml",
)
FHIRPATH = "application/fhir+json"
_START: Json = {"name": [{"family": "Old", "given": ["A", "B"]}], "birthDate": "1970-01-01", "active": True}
_REFUSED = None


def fhirpath_patch(*operations: Sequence[tuple[str, Any]]) -> Json:
    """Parameters of operations, each (part, value)."""
    made = []
    for parts in operations:
        part = [
            {"name": name, **({"valueString": value} if isinstance(value, str) else value)} for name, value in parts
        ]
        made.append({"name": "operation", "part": part})
    return {"resourceType": "Parameters", "parameter": made}


def _path(kind: str, path: str, *more: tuple[str, Any]) -> Json:
    return fhirpath_patch((("type", {"valueCode": kind}), ("path", path), *more))


def _given(*names: str) -> Json:
    return {"name": [{"family": "Old", "given": list(names)}]}


TABLE: tuple[tuple[str, str, Any, Json | None], ...] = (
    ("JSON Patch: replace", JSON_PATCH, [{"op": "replace", "path": "/name/0/family", "value": "New"}],
     {"name": [{"family": "New", "given": ["A", "B"]}]}),
    ("JSON Patch: add a member", JSON_PATCH, [{"op": "add", "path": "/gender", "value": "other"}], {"gender": "other"}),
    ("JSON Patch: add to the end of a list", JSON_PATCH, [{"op": "add", "path": "/name/0/given/-", "value": "C"}],
     _given("A", "B", "C")),
    ("JSON Patch: add into a list", JSON_PATCH, [{"op": "add", "path": "/name/0/given/0", "value": "C"}],
     _given("C", "A", "B")),
    ("JSON Patch: remove", JSON_PATCH, [{"op": "remove", "path": "/birthDate"}], {"birthDate": None}),
    ("JSON Patch: move", JSON_PATCH, [{"op": "move", "from": "/name/0/given/0", "path": "/name/0/given/1"}],
     _given("B", "A")),
    ("JSON Patch: copy", JSON_PATCH, [{"op": "copy", "from": "/name/0/given/0", "path": "/name/0/given/-"}],
     _given("A", "B", "A")),
    ("JSON Patch: a test that holds", JSON_PATCH, [{"op": "test", "path": "/active", "value": True},
     {"op": "replace", "path": "/active", "value": False}], {"active": False}),
    ("JSON Patch: a test that fails changes nothing", JSON_PATCH, [{"op": "replace", "path": "/active", "value": False},
     {"op": "test", "path": "/birthDate", "value": "2000"}], _REFUSED),
    ("JSON Patch: a missing path", JSON_PATCH, [{"op": "replace", "path": "/photo/0/url", "value": "x"}], _REFUSED),
    ("JSON Patch: an unknown operation", JSON_PATCH, [{"op": "swap", "path": "/active"}], _REFUSED),
    ("JSON Patch: the result is no Patient", JSON_PATCH, [{"op": "add", "path": "/nonsense", "value": 1}], _REFUSED),
    ("JSON Patch: the id stays", JSON_PATCH, [{"op": "replace", "path": "/id", "value": "other"}], _REFUSED),
    ("FHIRPath Patch: add", FHIRPATH, _path("add", "Patient", ("name", "gender"), ("value", {"valueCode": "other"})),
     {"gender": "other"}),
    ("FHIRPath Patch: replace", FHIRPATH, _path("replace", "Patient.birthDate", ("value", {"valueDate": "1980"})),
     {"birthDate": "1980"}),
    ("FHIRPath Patch: insert", FHIRPATH,
     _path("insert", "Patient.name[0].given", ("index", {"valueInteger": 1}), ("value", "C")), _given("A", "C", "B")),
    ("FHIRPath Patch: move", FHIRPATH, _path("move", "Patient.name[0].given", ("source", {"valueInteger": 1}),
     ("destination", {"valueInteger": 0})), _given("B", "A")),
    ("FHIRPath Patch: delete", FHIRPATH, _path("delete", "Patient.birthDate"), {"birthDate": None}),
    ("FHIRPath Patch: delete one of a list", FHIRPATH, _path("delete", "Patient.name[0].given[0]"), _given("B")),
    ("FHIRPath Patch: where()", FHIRPATH,
     _path("replace", "Patient.name.where(family = 'Old').family", ("value", "New")),
     {"name": [{"family": "New", "given": ["A", "B"]}]}),
    ("FHIRPath Patch: replace what is not there", FHIRPATH,
     _path("replace", "Patient.gender", ("value", {"valueCode": "other"})), _REFUSED),
    ("FHIRPath Patch: an unknown type", FHIRPATH, _path("swap", "Patient.gender"), _REFUSED),
    ("Merge Patch: replace and remove", MERGE_PATCH, {"active": False, "birthDate": None},
     {"active": False, "birthDate": None}),
    ("Merge Patch: a list is replaced", MERGE_PATCH, {"name": [{"family": "New"}]}, {"name": [{"family": "New"}]}),
    ("Merge Patch: the result is no Patient", MERGE_PATCH, {"nonsense": 1}, _REFUSED),
    ("XML Patch: replace", XML_PATCH,
     '<diff xmlns:f="http://hl7.org/fhir"><replace sel="f:Patient/f:birthDate/@value">1980</replace></diff>',
     {"birthDate": "1980"}),
    ("XML Patch: add", XML_PATCH, '<diff xmlns:f="http://hl7.org/fhir"><add sel="f:Patient/f:birthDate" pos="before">'
     '<gender xmlns="http://hl7.org/fhir" value="other"/></add></diff>', {"gender": "other"}),
    ("XML Patch: remove", XML_PATCH,
     '<diff xmlns:f="http://hl7.org/fhir"><remove sel="f:Patient/f:birthDate"/></diff>', {"birthDate": None}),
    ("XML Patch: a missing node", XML_PATCH,
     '<diff xmlns:f="http://hl7.org/fhir"><remove sel="f:Patient/f:photo"/></diff>', _REFUSED),
)  # fmt: skip
"""Name | content type | patch | members afterwards (None: absent), or refused."""


async def _supports(server: Server, reference: str, kind: str) -> None:
    """NotSupported when the server refuses an ordinary patch of this form."""
    simple = next(body for _, content_type, body, wanted in TABLE if content_type == kind and wanted)
    expect(await server.send("PATCH", reference, simple, content_type=kind), 200, optional=True)


async def _patched(server: Server, number: str, kind: str, body: Any, wanted: Json | None) -> None:
    made = expect(await server.send("POST", "Patient", patient(server, number, **_START)), 201)
    reference, before = f"Patient/{made.id}", made.version
    reply = await server.send("PATCH", reference, body, content_type=kind)
    if wanted is None:
        expect(reply, 400, 404, 409, 412, 415, 422)
        after = (await server.send("GET", reference)).body
        equal(({name: after.get(name) for name in _START}, after["meta"]["versionId"]), (_START, before or "1"))
        await _supports(server, reference, kind)
        return
    expect(reply, 200, optional=reply.status in (400, 405, 415, 501))
    found = (await server.send("GET", reference)).body
    equal({name: found.get(name) for name in wanted}, wanted)


async def _of_an_old_version(server: Server) -> None:
    """If-Match."""
    made = expect(await server.send("POST", "Patient", patient(server, "p-if", **_START)), 201)
    change = [{"op": "replace", "path": "/active", "value": False}]
    reply = await server.send("PATCH", f"Patient/{made.id}", change, content_type=JSON_PATCH, if_match='W/"999"')
    expect(reply, 412, 409, optional=reply.status in (405, 415, 501))


async def _of_nothing(server: Server) -> None:
    change = [{"op": "replace", "path": "/active", "value": False}]
    reply = await server.send("PATCH", "Patient/never-there", change, content_type=JSON_PATCH)
    expect(reply, 404, optional=reply.status in (405, 415, 501))


def cases() -> list[Case]:
    """All cases."""
    made: list[Case] = [
        (name, partial(_patched, number=f"p-{at}", kind=kind, body=body, wanted=wanted))
        for at, (name, kind, body, wanted) in enumerate(TABLE)
    ]
    return [*made, ("If-Match of another version", _of_an_old_version), ("a missing resource", _of_nothing)]
