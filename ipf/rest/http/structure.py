"""Whether a resource has the shape of its type: known elements, lists where R4 has lists, texts where it has texts.

This is what storing, indexing and serving rely on; cardinalities, bindings and invariants are left to validation.

Source: https://hl7.org/fhir/R4/json.html
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any

from ipf.errors import Category, Issue, Problem
from ipf.fhir.model.definitions import definitions
from ipf.ports import Json

_MOST_ISSUES = 20
_DEEPEST = 100
_NUMBERS = frozenset({"integer", "positiveInt", "unsignedInt", "decimal"})
_RESOURCE = "Resource"
_ID = re.compile(r"[A-Za-z0-9\-.]{1,64}")


def check_structure(resource: Json) -> None:
    """Problem MALFORMED with one issue (twenty at most) for each element that does not fit."""
    checker = _Checker()
    checker.resource(resource, str(resource.get("resourceType")), 0)
    if checker.issues:
        raise Problem(
            Category.MALFORMED, "the resource has not the structure of its type", issues=tuple(checker.issues)
        )


class _Checker:
    """Collects what does not fit."""

    def __init__(self) -> None:
        self.issues: list[Issue] = []
        self._definitions = definitions()

    def resource(self, value: Any, place: str, depth: int) -> None:
        """A resource, also one inside another."""
        if not isinstance(value, dict):
            return self._refuse("a resource is a JSON object", place)
        resource_type = value.get("resourceType")
        if not isinstance(resource_type, str) or resource_type not in self._definitions.resource_types:
            return self._refuse("resourceType names no resource of R4", f"{place}.resourceType")
        if "id" in value and not is_id(value["id"]):
            self._refuse("an id has 1 to 64 letters, digits, '-' and '.'", f"{place}.id")
        members = {name: item for name, item in value.items() if name != "resourceType"}
        return self._members(members, resource_type, place, depth)

    def _members(self, value: Json, path: str, place: str, depth: int) -> None:
        if depth > _DEEPEST:
            return self._refuse("nested too deeply", place[:200])
        shapes = _shapes(path)
        for name, item in value.items():
            shape = shapes.get(name)
            if shape is not None and shape.is_text and type(item) is str and item:
                continue  # most of what there is
            if len(self.issues) >= _MOST_ISSUES:
                return None
            self._member(path, name, shape, item, f"{place}.{name}", depth)
        return None

    def _member(self, path: str, name: str, shape: _Shape | None, value: Any, place: str, depth: int) -> None:
        if shape is None:
            return self._refuse(f"{path} has no element {name[:60]}", place)
        kind, many, shadow = shape.kind, shape.many, shape.is_shadow
        if isinstance(value, list) != many:
            return self._refuse("a list is expected" if many else "one value is expected, not a list", place)
        if not many:
            return self._value(kind, value, place, shadow, many, depth)
        if not value:
            return self._refuse("an element must not be empty", place)
        for number, item in enumerate(value):
            self._value(kind, item, f"{place}[{number}]", shadow, many, depth)
        return None

    def _value(self, kind: str, value: Any, place: str, shadow: bool, many: bool, depth: int) -> None:
        if kind in self._definitions.primitive_types and not shadow:
            if not (value is None and many) and not _is_primitive(kind, value):
                self._refuse(f"a value of type {kind} is expected", place)
        elif shadow and value is None and many:
            return
        elif kind == _RESOURCE:
            self.resource(value, place, depth + 1)
        elif not isinstance(value, dict):
            self._refuse("a JSON object is expected", place)
        elif not value:
            self._refuse("an element must not be empty", place)
        else:
            self._members(value, "Element" if shadow else kind, place, depth + 1)

    def _refuse(self, text: str, place: str) -> None:
        self.issues.append(Issue(text, place, Category.MALFORMED))


@dataclass(frozen=True, slots=True)
class _Shape:
    """What a member must be.  `is_shadow`: its name begins with `_`.  `is_text`: one value that is a text."""

    kind: str
    many: bool
    is_shadow: bool
    is_text: bool


@cache
def _shapes(path: str) -> dict[str, _Shape]:
    """The members of a type by their names in JSON: a choice by each of its forms, primitives with their shadows."""
    found: dict[str, _Shape] = {}
    primitives = definitions().primitive_types
    for element in definitions().members(path).values():
        for kind in element.types if element.choice else element.types[:1]:
            is_primitive, name = kind in primitives, element.json_name(kind)
            is_text = is_primitive and kind not in _NUMBERS and kind != "boolean" and not element.many
            found[name] = _Shape(kind, element.many, False, is_text)
            if is_primitive:
                found["_" + name] = _Shape(kind, element.many, True, False)
    return found


def _is_primitive(kind: str, value: Any) -> bool:
    if kind == "boolean":
        return isinstance(value, bool)
    if kind in _NUMBERS:
        return isinstance(value, (int, Decimal)) and not isinstance(value, bool)
    return isinstance(value, str) and value != ""


def is_id(text: object) -> bool:
    """Whether `text` may be a logical id (https://hl7.org/fhir/R4/datatypes.html#id)."""
    return isinstance(text, str) and _ID.fullmatch(text) is not None
