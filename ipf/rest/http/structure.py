"""Structure check: known elements only, lists and strings where R4 has lists and strings.

Storing, indexing and serving rely on it.  Validation checks cardinalities, bindings and invariants.

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

_MAX_ISSUES = 20
_MAX_DEPTH = 100
_NUMBERS = frozenset({"integer", "positiveInt", "unsignedInt", "decimal"})
_RESOURCE = "Resource"
_ID = re.compile(r"[A-Za-z0-9\-.]{1,64}")


def check_structure(resource: Json) -> None:
    """Problem MALFORMED with one issue (at most twenty) per invalid element."""
    checker = _Checker()
    checker.resource(resource, str(resource.get("resourceType")), 0)
    if checker.issues:
        raise Problem(
            Category.MALFORMED, "the resource does not have the structure of its type", issues=tuple(checker.issues)
        )


def check_type(value: Json, kind: str, place: str) -> None:
    """`check_structure` for a value of a data type, such as Coding, or a resource of the type `kind`."""
    checker = _Checker()
    if kind in definitions().resource_types:
        if value.get("resourceType") != kind:
            raise Problem(Category.VALUE, f"{place} must be a {kind}", place)
        checker.resource(value, place, 0)
    else:
        checker.members(value, kind, place, 0)
    if checker.issues:
        text = f"{place} does not have the structure of {kind}"
        raise Problem(Category.MALFORMED, text, issues=tuple(checker.issues))


class _Checker:
    """Collects issues."""

    def __init__(self) -> None:
        self.issues: list[Issue] = []
        self._definitions = definitions()

    def resource(self, value: Any, place: str, depth: int) -> None:
        """Check a resource, also a contained one."""
        if not isinstance(value, dict):
            return self._add_issue("a resource must be a JSON object", place)
        resource_type = value.get("resourceType")
        if not isinstance(resource_type, str) or resource_type not in self._definitions.resource_types:
            return self._add_issue("resourceType is not a resource type of R4", f"{place}.resourceType")
        if "id" in value and not is_id(value["id"]):
            self._add_issue("an id has 1 to 64 letters, digits, '-' and '.'", f"{place}.id")
        members = {name: item for name, item in value.items() if name != "resourceType"}
        return self.members(members, resource_type, place, depth)

    def members(self, value: Json, path: str, place: str, depth: int) -> None:
        """Check the members of an object of the type `path`."""
        if depth > _MAX_DEPTH:
            return self._add_issue("nested too deeply", place[:200])
        members_of = _members_of(path)
        for name, item in value.items():
            member = members_of.get(name)
            if member is not None and member.is_text and type(item) is str and item:
                continue  # the most frequent case
            if len(self.issues) >= _MAX_ISSUES:
                return None
            self._member(path, name, member, item, f"{place}.{name}", depth)
        return None

    def _member(self, path: str, name: str, member: _Member | None, value: Any, place: str, depth: int) -> None:
        if member is None:
            return self._add_issue(f"{path} has no element {name[:60]}", place)
        kind, is_list, is_extension_member = member.kind, member.is_list, member.is_extension_member
        if isinstance(value, list) != is_list:
            return self._add_issue("a list is expected" if is_list else "one value is expected, not a list", place)
        if not is_list:
            return self._value(kind, value, place, is_extension_member, is_list, depth)
        if not value:
            return self._add_issue("an element must not be empty", place)
        for number, item in enumerate(value):
            self._value(kind, item, f"{place}[{number}]", is_extension_member, is_list, depth)
        return None

    def _value(self, kind: str, value: Any, place: str, is_extension_member: bool, is_list: bool, depth: int) -> None:
        if kind in self._definitions.primitive_types and not is_extension_member:
            if not (value is None and is_list) and not _is_primitive(kind, value):
                self._add_issue(f"a value of type {kind} is expected", place)
        elif is_extension_member and value is None and is_list:
            return
        elif kind == _RESOURCE:
            self.resource(value, place, depth + 1)
        elif not isinstance(value, dict):
            self._add_issue("a JSON object is expected", place)
        elif not value:
            self._add_issue("an element must not be empty", place)
        else:
            self.members(value, "Element" if is_extension_member else kind, place, depth + 1)

    def _add_issue(self, text: str, place: str) -> None:
        self.issues.append(Issue(text, place, Category.MALFORMED))


@dataclass(frozen=True, slots=True)
class _Member:
    """A JSON member of a type.  `is_extension_member`: its name begins with `_`.  `is_text`: a single string."""

    kind: str
    is_list: bool
    is_extension_member: bool
    is_text: bool


@cache
def _members_of(path: str) -> dict[str, _Member]:
    """The JSON members of a type: each type of a choice element, and the `_` member of each primitive."""
    found: dict[str, _Member] = {}
    primitives = definitions().primitive_types
    for element in definitions().members(path).values():
        for kind in element.types if element.choice else element.types[:1]:
            is_primitive, name = kind in primitives, element.json_name(kind)
            is_text = is_primitive and kind not in _NUMBERS and kind != "boolean" and not element.many
            found[name] = _Member(kind, element.many, False, is_text)
            if is_primitive:
                found["_" + name] = _Member(kind, element.many, True, False)
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
