"""Whether a resource has the shape of its type: known elements, lists where R4 has lists, texts where it has texts.

This is what storing, indexing and serving rely on; cardinalities, bindings and invariants are left to validation.

Source: https://hl7.org/fhir/R4/json.html
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from ipf.errors import Category, Issue, Problem
from ipf.fhir.definitions import Element, definitions
from ipf.ports import Json
from ipf.rest.ids import is_id

_MOST_ISSUES = 20
_DEEPEST = 100
_NUMBERS = frozenset({"integer", "positiveInt", "unsignedInt", "decimal"})
_RESOURCE = "Resource"


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
        for name, item in value.items():
            if len(self.issues) >= _MOST_ISSUES:
                return None
            self._member(path, name, item, f"{place}.{name}", depth)
        return None

    def _member(self, path: str, name: str, value: Any, place: str, depth: int) -> None:
        shadow = name.startswith("_")
        element = self._definitions.element(path, name[1:] if shadow else name)
        kind = _type_of(element, name.lstrip("_")) if element is not None else None
        if element is None or kind is None or (shadow and kind not in self._definitions.primitive_types):
            return self._refuse(f"{path} has no element {name[:60]}", place)
        if isinstance(value, list) != element.many:
            return self._refuse("a list is expected" if element.many else "one value is expected, not a list", place)
        if not value and type(value) is list:
            return self._refuse("an element must not be empty", place)
        for number, item in enumerate(value if element.many else (value,)):
            self._value(kind, item, f"{place}[{number}]" if element.many else place, shadow, element.many, depth)
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


def _type_of(element: Element, name: str) -> str | None:
    """The one type of a member; of a choice the one that its name ends with."""
    if not element.choice:
        return element.types[0] if element.types else None
    for kind in element.types:
        if name == element.name + kind[0].upper() + kind[1:]:
            return kind
    return None


def _is_primitive(kind: str, value: Any) -> bool:
    if kind == "boolean":
        return isinstance(value, bool)
    if kind in _NUMBERS:
        return isinstance(value, (int, Decimal)) and not isinstance(value, bool)
    return isinstance(value, str) and value != ""
