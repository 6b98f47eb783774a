"""FHIRPath R4 by the operation `$fhirpath`, as servers of the FHIRPath Lab have it, and by FHIRPath Patch.

A server without the operation says so in its answer to the simplest expression; all groups are then not offered.

Sources: https://github.com/brianpos/fhirpath-lab/blob/master/server-api.md, https://hl7.org/fhir/R4/fhirpatch.html
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from conformance.fhirpath_cases import ERROR, GROUPS, PATHS, PATIENT, RESOURCES
from conformance.patches import FHIRPATH, fhirpath_patch
from conformance.server import Json, Reply, Server
from conformance.suite import NOT_OFFERED, Case, Failed, NotSupported, equal, expect

_JSON_VALUE = "http://fhir.forms-lab.com/StructureDefinition/json-value"
_OWN = ("meta", "text")
_PATCHED = {name: value for name, value in PATIENT.items() if name != "id"}


class FhirPath:
    """The cases of one run.  `offered`: whether the server has the operation; None: it was not asked."""

    def __init__(self) -> None:
        self.offered: bool | None = None

    def suites(self) -> Mapping[str, Sequence[Case]]:
        """Suites by group."""
        found: dict[str, Sequence[Case]] = {
            f"fhirpath {group}": [(text, partial(self._evaluated, text=text, wanted=wanted)) for text, wanted in rows]
            for group, rows in GROUPS.items()
        }
        patches = [(name, partial(_deleted, path=path, left=left)) for name, path, left in PATHS]
        return {**found, "fhirpath by patch": patches}

    async def _evaluated(self, server: Server, text: str, wanted: Any) -> None:
        if self.offered is None:
            reply = await _ask(server, "id", PATIENT)
            self.offered = reply.status == 200 and _values(reply) == ["anna"]
        if not self.offered:
            raise NotSupported(NOT_OFFERED)
        name, mark, expression = text.partition("|")
        chosen = bool(mark) and name in RESOURCES
        reply = await _ask(server, expression if chosen else text, RESOURCES[name if chosen else "patient"])
        if reply.status >= 500:
            raise Failed(str(reply))
        if wanted is ERROR:
            if reply.status < 400 and _kind(reply) != "OperationOutcome":
                raise Failed(f"expected a refusal, got {_values(reply)!r}"[:300])
            return
        expect(reply, 200)
        equal(_values(reply), wanted)


async def _ask(server: Server, expression: str, resource: Json) -> Reply:
    parameter = [{"name": "expression", "valueString": expression}, {"name": "resource", "resource": resource}]
    return await server.send("POST", "$fhirpath", {"resourceType": "Parameters", "parameter": parameter})


def _kind(reply: Reply) -> Any:
    return reply.body.get("resourceType") if isinstance(reply.body, dict) else None


def _values(reply: Reply) -> list[Any]:
    """The items of the result."""
    if _kind(reply) != "Parameters":
        raise Failed(f"expected Parameters, got {reply}")
    results = [one for one in reply.body.get("parameter", ()) if one.get("name") == "result"]
    return [_value(part) for one in results for part in one.get("part", ()) if part.get("name") != "trace"]


def _value(part: Json) -> Any:
    """The item in a part: JSON, or (number, unit) of a Quantity."""
    for key, value in part.items():
        if key == "resource" or key.startswith("value"):
            return (value.get("value"), value.get("code") or value.get("unit")) if key == "valueQuantity" else value
    for extension in part.get("extension", ()):
        if extension.get("url") == _JSON_VALUE:
            return json.loads(extension["valueString"])
    return "" if part.get("name") == "empty-string" else None


async def _deleted(server: Server, path: str, left: Json) -> None:
    """A patch that deletes what the path selects."""
    made = expect(await server.send("POST", "Patient", server.tagged(_PATCHED)), 201)
    reference = f"Patient/{made.id}"
    reply = await server.send(
        "PATCH", reference, fhirpath_patch((("type", {"valueCode": "delete"}), ("path", path))), content_type=FHIRPATH
    )
    if reply.status in (405, 415, 501):
        raise NotSupported(str(reply))
    expect(reply, 200)
    found = (await server.send("GET", reference)).body
    wanted: Json = {name: value for name, value in _PATCHED.items() if name not in _OWN}
    for name, places in left.items():
        wanted[name] = None if places is None else [PATIENT[name][place] for place in places]
    equal({name: found.get(name) for name in wanted}, wanted)
