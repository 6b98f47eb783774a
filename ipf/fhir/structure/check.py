"""Structure check of a resource: known elements, lists where R4 has lists, formats of primitives, required codes.

Storing, indexing, serving and other clients rely on it, so every write is checked, in every validation mode.
Validation checks cardinalities, other bindings, references and invariants.

Each type is compiled once into closures.  A closure returns None for a valid value, and the issues otherwise; locations
are made only then.

Sources: https://hl7.org/fhir/R4/json.html, https://hl7.org/fhir/R4/datatypes.html
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from threading import RLock
from typing import Any

from ipf.errors import Category, Issue, Problem
from ipf.fhir.model.definitions import Element, definitions
from ipf.fhir.structure.primitives import PRIMITIVES, ErrorText, Primitive, is_id
from ipf.fhir.structure.required_codes import required_codes
from ipf.ports import Json

Issues = list[Issue] | None
Check = Callable[[Any, int], Issues]
"""Value and depth -> None, or issues with places below the value (`.name[0].given`)."""

_MAX_ISSUES = 20
_MAX_DEPTH = 100
_NUMBERS = frozenset({"integer", "positiveInt", "unsignedInt", "decimal"})
_RESOURCE = "Resource"
_NOT_PERMITTED = "the resource has values that R4 does not permit"
_NO_CODE = "not a code of "


def check_structure(resource: Json) -> None:
    """Problem MALFORMED with one issue (at most twenty) per invalid element; INVALID when only formats are wrong."""
    found = structure_issues(resource)
    if not found:
        return
    if any(issue.category is Category.MALFORMED for issue in found):
        raise Problem(Category.MALFORMED, "the resource does not have the structure of its type", issues=found)
    raise Problem(Category.INVALID, _NOT_PERMITTED, issues=found)


def check_formats(resource: Json) -> None:
    """Problem INVALID for values that R4 does not permit; elements that R4 does not define are accepted."""
    found = tuple(issue for issue in structure_issues(resource) if issue.category is Category.INVALID)
    if found:
        raise Problem(Category.INVALID, _NOT_PERMITTED, issues=found)


def check_type(value: Json, kind: str, place: str) -> None:
    """Problem MALFORMED for a value of a data type, such as Coding, or a resource, without the shape of its type."""
    if kind in definitions().resource_types and value.get("resourceType") != kind:
        raise Problem(Category.VALUE, f"{place} must be a {kind}", place)
    found = tuple(one for one in _checks.of(kind)(value, 0) or () if one.category is Category.MALFORMED)
    if found:
        text = f"{place} does not have the structure of {kind}"
        raise Problem(Category.MALFORMED, text, issues=tuple(_below(place, list(found))))


def structure_issues(resource: Any) -> tuple[Issue, ...]:
    """The issues of a resource, at most twenty; () when it is valid."""
    found = _resource(resource, 0)
    if found is None:
        return ()
    root = str(resource.get("resourceType"))[:60] if isinstance(resource, dict) else ""
    return tuple(_below(root, found[:_MAX_ISSUES]))


def _below(place: str, issues: list[Issue]) -> list[Issue]:
    return [replace(issue, place=f"{place}{issue.place}"[:1000]) for issue in issues]


def _malformed(text: str, place: str = "") -> list[Issue]:
    return [Issue(text, place, Category.MALFORMED)]


def _resource(value: Any, depth: int) -> Issues:
    """Check a resource, also one within another."""
    if type(value) is not dict:
        return _malformed("a resource must be a JSON object")
    resource_type = value.get("resourceType")
    if type(resource_type) is not str or resource_type not in definitions().resource_types:
        return _malformed("resourceType is not a resource type of R4", ".resourceType")
    return _checks.of(resource_type)(value, depth)


@dataclass(slots=True)
class _Members:
    """The JSON members of a type: `forms` of single primitives, `checks` of all others.

    `arrays`: lists of primitives and of their `_` members -> the name of the other one.  `choices`: the members of a
    choice of types, and their `_` members -> the choice and the type.
    """

    forms: dict[str, Primitive] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    checks: dict[str, Check] = field(default_factory=dict)
    arrays: dict[str, str] = field(default_factory=dict)
    choices: dict[str, tuple[str, str]] = field(default_factory=dict)


class _Checks:
    """The compiled checks of types.  A check is published with all that it refers to; threads may share it."""

    def __init__(self) -> None:
        self._ready: dict[str, Check] = {}
        self._begun: dict[str, Check] = {}
        self._lock = RLock()

    def of(self, path: str) -> Check:
        """The check of an object of a type, or of an inner structure such as `Patient.contact`."""
        found = self._ready.get(path)
        if found is None:
            with self._lock:
                found = self._compiled(path)
                self._ready = dict(self._begun)
        return found

    def _compiled(self, path: str) -> Check:
        found = self._begun.get(path)
        if found is None:
            members = _Members()
            found = self._begun[path] = _object(path, members)
            for element in definitions().members(path).values():
                self._add(element, members)
            if path in definitions().resource_types:
                members.forms["resourceType"] = _accept
                members.checks["id"] = _resource_id
                members.forms.pop("id", None)
        return found

    def _add(self, element: Element, members: _Members) -> None:
        """Add the members of an element: each type of a choice, and the `_` member of each primitive."""
        for kind in element.types if element.choice else element.types[:1]:
            name = element.json_name(kind)
            if element.choice:
                members.choices |= {name: (element.name, kind), f"_{name}": (element.name, kind)}
            if kind not in definitions().primitive_types:
                value = _resource if kind == _RESOURCE else self._compiled(kind)
                members.checks[name] = _list(value, nulls=False) if element.many else value
                continue
            form = _form(kind, element.path)
            if element.many:
                members.checks[name] = _list(_primitive(kind, form), nulls=True)
                members.arrays |= {name: f"_{name}", f"_{name}": name}
            else:
                members.forms[name], members.kinds[name] = form, kind
            extra = self._compiled("Element")
            members.checks["_" + name] = _list(extra, nulls=True) if element.many else extra


def _object(path: str, members: _Members) -> Check:
    """The check of an object with these members, which are added later."""
    form_of, check_of, kinds, arrays = members.forms.get, members.checks.get, members.kinds, members.arrays
    choices = members.choices

    def check(value: Any, depth: int) -> Issues:
        if type(value) is not dict:
            return _malformed(_expected("a JSON object is expected", value))
        if not value:
            return _malformed("an element must not be empty")
        if depth > _MAX_DEPTH:
            return _malformed("nested too deeply")
        found: Issues = None
        for name, item in value.items():
            form = form_of(name)
            if form is not None:
                error = form(item)
                if error is None:
                    continue  # the most frequent case
                issues: Issues = _wrong(kinds[name], item, error)
            else:
                inner = check_of(name)
                issues = _unknown(path, name) if inner is None else inner(item, depth + 1)
                if issues is None and name in arrays:
                    issues = _unbalanced(name, item, arrays[name], value.get(arrays[name]))
            if issues is not None:
                found = [*(found or ()), *_below(f".{name[:60]}", issues)]
                if len(found) >= _MAX_ISSUES:
                    break
        if choices and len(value) > 1:
            several = _several(value, choices)
            found = found if several is None else [*(found or ()), *several]
        return found

    return check


def _several(value: Json, choices: Mapping[str, tuple[str, str]]) -> Issues:
    """The issues of an object with values of several types of one choice, such as valueString and valueQuantity.

    Source: https://hl7.org/fhir/R4/formats.html#choice
    """
    types: dict[str, str] = {}
    for name in value:
        chosen = choices.get(name)
        if chosen is not None and types.setdefault(*chosen) != chosen[1]:
            text = f"{chosen[0]}[x] has one value, of one type; here it has {types[chosen[0]]} and {chosen[1]}"
            return _malformed(text, f".{name[:60]}")
    return None


def _unknown(path: str, name: str) -> list[Issue]:
    return _malformed(f"{path} has no element {name[:60]}")


def _unbalanced(name: str, items: list[Any], other: str, others: Any) -> Issues:
    """The issues of a list of primitives and the list of their `_` members, in which null stands for what is absent.

    Each place has a value, or an entry with an id or extensions (https://hl7.org/fhir/R4/json.html#null).
    """
    if others is None and None not in items:
        return None  # the most frequent case
    if others is not None and name[0] == "_":
        return None  # the list of values tells
    if type(others) is list and others and len(others) != len(items):
        return _malformed(f"{name} and {other} must have the same number of entries")
    balance = others if type(others) is list else []
    found: list[Issue] = []
    for number, item in enumerate(items):
        if item is None and (number >= len(balance) or balance[number] is None):
            found += _malformed(f"null without an entry of {other} at the same place", f"[{number}]")
    return found[:_MAX_ISSUES] or None


def _list(one: Check, nulls: bool) -> Check:
    """The check of a list of values.  `nulls`: primitives and their `_` members may be absent."""

    def check(value: Any, depth: int) -> Issues:
        if type(value) is not list:
            return _malformed("a list is expected")
        if not value:
            return _malformed("an element must not be empty")
        found: Issues = None
        for number, item in enumerate(value):
            if item is None and nulls:
                continue
            issues = one(item, depth)
            if issues is not None:
                found = [*(found or ()), *_below(f"[{number}]", issues)]
                if len(found) >= _MAX_ISSUES:
                    break
        return found

    return check


def _form(kind: str, element_path: str) -> Primitive:
    """The format of a primitive; of a code with a required binding, membership in its value set.

    R4 gives the names in a StructureMap the type id, but its mapping language has names with `_`.
    """
    if kind == "id" and element_path.startswith("StructureMap."):
        return PRIMITIVES["string"]
    required = required_codes(element_path) if kind == "code" else None
    if required is None:
        return PRIMITIVES[kind]
    contains, error = required.contains, f"{_NO_CODE}{required.url}"

    def form(value: Any) -> ErrorText:
        return None if type(value) is str and contains(value) else error

    return form


def _primitive(kind: str, form: Primitive) -> Check:
    """The check of one item of a list of primitives."""

    def check(value: Any, depth: int) -> Issues:
        error = form(value)
        return None if error is None else _wrong(kind, value, error)

    return check


def _wrong(kind: str, value: Any, error: str) -> list[Issue]:
    """A JSON value of another type is malformed; one of the right type has a format that R4 does not permit."""
    if not _is_of_json_type(kind, value):
        return _malformed(_expected(f"a value of type {kind} is expected", value))
    return [Issue(error, "", Category.INVALID, "code-invalid" if error.startswith(_NO_CODE) else "")]


def _expected(text: str, value: Any) -> str:
    return "one value is expected, not a list" if type(value) is list else text


def _is_of_json_type(kind: str, value: Any) -> bool:
    if kind == "boolean":
        return type(value) is bool
    if kind in _NUMBERS:
        return isinstance(value, (int, Decimal, float)) and type(value) is not bool
    return type(value) is str and value != ""


def _accept(value: Any) -> ErrorText:
    """`resourceType`, which is checked before."""
    return None


def _resource_id(value: Any, depth: int) -> Issues:
    return None if is_id(value) else _malformed("an id has 1 to 64 letters, digits, '-' and '.'")


_checks = _Checks()
