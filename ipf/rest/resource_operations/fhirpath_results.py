"""Items of FHIRPath as parts of a Parameters resource.

A part has the type of its item as name, and the item as `value[x]` or `resource`.  What neither can hold, such as a
backbone element, is JSON in an extension.

Source: https://github.com/brianpos/fhirpath-lab/blob/master/server-api.md
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from functools import lru_cache
from typing import Any

from ipf.errors import Category, Problem
from ipf.fhir.fhirpath.functions.conversion import to_text
from ipf.fhir.fhirpath.items.nodes import UCUM_SYSTEM, FhirNode, TypeInfo
from ipf.fhir.fhirpath.items.values import Date, DateTime, Quantity, Time
from ipf.fhir.model.definitions import definitions
from ipf.fhir.model.json import dumps
from ipf.fhir.structure.primitives import PRIMITIVES
from ipf.ports import Json

MOST_ITEMS = 10_000
MOST_BYTES = 10_000_000
_JSON = "http://fhir.forms-lab.com/StructureDefinition/json-value"
_SYSTEM = ((bool, "boolean"), (str, "string"), (int, "integer"), (float, "decimal"), (Decimal, "decimal"),
           (Date, "date"), (DateTime, "dateTime"), (Time, "time"))  # fmt: skip


class Results:
    """The parts of one answer, with a limit on their number and size."""

    def __init__(self) -> None:
        self._traces: list[Json] = []
        self._items = MOST_ITEMS
        self._bytes = MOST_BYTES

    def of(self, items: Iterable[Any], context: str | None = None) -> Json:
        """The parameter `result` of these items, with what was traced since the last one."""
        parts = [self._part(item) for item in items]
        parts += self._traces
        self.forget_traces()
        name: Json = {"name": "result"} if context is None else {"name": "result", "valueString": context}
        return {**name, "part": parts} if parts else name

    def trace(self, name: str, items: list[Any]) -> None:
        """Remember what `trace()` shows."""
        parts = [self._part(item) for item in items]
        self._traces.append({"name": "trace", "valueString": name or "trace", **({"part": parts} if parts else {})})

    def forget_traces(self) -> None:
        """What was traced belongs to no result."""
        self._traces = []

    def _part(self, item: Any) -> Json:
        part = part_of(item)
        self._items -= 1
        self._bytes -= len(dumps(part)) if self._items >= 0 else 0
        if self._items < 0 or self._bytes < 0:
            text = f"the result has more than {MOST_ITEMS} items, or {MOST_BYTES} bytes"
            raise Problem(Category.COSTLY, text, "expression")
        return part


def part_of(item: Any) -> Json:
    """One item as a part."""
    if isinstance(item, FhirNode):
        return _element(item.type or _json_type(item.value), item.value, item.extra)
    if isinstance(item, TypeInfo):
        return _as_json("TypeInfo", {"namespace": item.namespace, "name": item.name})
    if isinstance(item, Quantity):
        return {"name": "Quantity", "valueQuantity": _quantity(item)}
    kind = _json_type(item)
    return _element(kind, to_text(item) if kind in ("date", "dateTime", "time") else item, None)


def _json_type(value: Any) -> str:
    return next((name for kind, name in _SYSTEM if isinstance(value, kind)), "Element")


def _element(kind: str, value: Any, extra: Any) -> Json:
    if isinstance(value, dict):
        if kind in definitions().resource_types:
            return {"name": kind, "resource": value}
        return {"name": kind, _key(kind): value} if kind in _value_types() else _as_json(kind, value)
    if isinstance(value, list):
        return _as_json(kind, value)
    if value == "":
        return {"name": "empty-string"}
    fits = kind in _value_types() and kind in PRIMITIVES
    key = _key(kind) if fits and (value is None or PRIMITIVES[kind](value) is None) else "valueString"
    part: Json = {"name": kind}
    if value is not None:
        part[key] = value if key != "valueString" else to_text(value)
    return part | ({f"_{key}": extra} if extra is not None else {})


def _key(kind: str) -> str:
    return f"value{kind[0].upper()}{kind[1:]}"


def _quantity(item: Quantity) -> Json:
    if item.calendar:
        return {"value": item.value, "unit": item.unit if item.value == 1 else f"{item.unit}s"}
    return {"value": item.value, "unit": item.unit, "system": UCUM_SYSTEM, "code": item.unit}


def _as_json(kind: str, value: Any) -> Json:
    return {"name": kind, "extension": [{"url": _JSON, "valueString": dumps(value).decode()}]}


@lru_cache(maxsize=1)
def _value_types() -> frozenset[str]:
    element = definitions().element("Parameters.parameter", "value")
    return frozenset(element.types if element is not None else ())
