"""Search parameters with an expression that is no simple path: the FHIRPath engine evaluates them.

The engine returns JSON values without their FHIR types, so the type is derived from the members of a value: a
`coding` makes a CodeableConcept, `start` or `end` a Period.  Two parameters of R4 come here, and custom ones.

Source: https://hl7.org/fhir/R4/searchparameter-definitions.html#SearchParameter.expression
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from ipf.fhir.index.entries import clean
from ipf.fhir.index.values import PARTS, EntryCollector, indexer_for
from ipf.fhir.model.definitions import SearchParameter

_SHAPES = (
    ("CodeableConcept", {"coding"}),
    ("Reference", {"reference"}),
    ("Period", {"start", "end"}),
    ("Range", {"low", "high"}),
    ("Money", {"currency"}),
    ("HumanName", set(PARTS["HumanName"]) - {"text"}),
    ("Address", set(PARTS["Address"]) - {"text"}),
    ("Timing", {"repeat", "event"}),
)
_PRIMITIVES = {"string": "string", "token": "code", "date": "dateTime", "uri": "uri", "number": "decimal",
               "reference": "canonical"}  # fmt: skip


def evaluate(parameter: SearchParameter, resource: dict[str, Any], entries: EntryCollector) -> None:
    """Write the entries of one parameter; an expression that fails on this resource writes none."""
    from ipf.fhir.fhirpath import FhirPathError  # large, and wanted by few
    from ipf.fhir.fhirpath import compile as compile_expression

    try:
        found = compile_expression(parameter.expression).evaluate(resource)
    except FhirPathError:
        return
    for value in found:
        if isinstance(value, dict) and "resourceType" in value:
            if "id" in value and parameter.type == "reference":
                entries.texts.append((parameter.code, clean(f"{value['resourceType']}/{value['id']}")))
            continue
        write = indexer_for(parameter.type, type_of(parameter.type, value), (parameter.code,))
        if write is not None:
            write(value, entries)


def type_of(parameter_type: str, value: Any) -> str:
    """The FHIR type that a JSON value most likely has, where a parameter of this type wants one."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float | Decimal):
        return "decimal"
    if not isinstance(value, dict):
        return _PRIMITIVES.get(parameter_type, "string")
    for name, members in _SHAPES:
        if members & value.keys():
            return name
    if parameter_type == "quantity":
        return "Quantity"
    if parameter_type == "token":
        return "Identifier" if "value" in value else "Coding"
    return "CodeableConcept" if parameter_type == "string" else "Reference"
