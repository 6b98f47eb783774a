"""Elements of resources, as updates compare them (`omitted`)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from ipf.fhir.model.definitions import definitions
from ipf.fhir.model.json import dumps
from ipf.ports import Json

_NULL_FLAVOR = "http://terminology.hl7.org/CodeSystem/v3-NullFlavor"
_ABSENT = "http://hl7.org/fhir/StructureDefinition/data-absent-reason"


def items_of(value: Any) -> list[Any]:
    """The items of a list; another value as the only one."""
    return value if type(value) is list else [value]


def at(resource: Json, path: str) -> Any:
    """The value of an element (`hospitalization.admitSource`); None: there is none."""
    value: Any = resource
    for name in path.split("."):
        value = value.get(name) if type(value) is dict else None
    return value


def without(resource: Json, *names: str) -> Json:
    """The resource without these elements."""
    return {name: value for name, value in resource.items() if name not in names}


def by_subject(items: list[Any]) -> dict[str, list[Any]]:
    """The items by what they are about."""
    found: dict[str, list[Any]] = {}
    for one in items:
        found.setdefault(subject_of(one), []).append(one)
    return found


def subject_of(item: Any) -> str:
    """What an item of a list is about: what it refers to, or the name that it has; empty: not known."""
    if type(item) is not dict:
        return ""
    references = " ".join(sorted(_each_reference(item)))
    return references or (dumps(item["name"]).decode() if "name" in item else "")


def is_within(item: Json, other: Json) -> bool:
    """Whether another item says all that this one says."""
    return all(name in other and other[name] == value for name, value in item.items())


def _each_reference(value: Any) -> Iterator[str]:
    if type(value) is dict:
        reference = value.get("reference")
        if type(reference) is str:
            yield reference
        for one in value.values():
            if type(one) in (dict, list):
                yield from _each_reference(one)
    elif type(value) is list:
        for one in value:
            yield from _each_reference(one)


def says_unknown(value: Any) -> bool:
    """Whether a value only says that something is not known."""
    if value == "unknown":
        return True
    if type(value) is not dict:
        return False
    codings = value.get("coding", [value] if "system" in value else [])
    if codings and "text" not in value:
        return all(one.get("system") == _NULL_FLAVOR for one in codings)
    return value.keys() == {"extension"} and all(one.get("url") == _ABSENT for one in value["extension"])


@cache
def is_group(resource_type: str, name: str) -> bool:
    """Whether an element is a list of backbone elements."""
    element = definitions().element(resource_type, name)
    return element is not None and element.many and any("." in one for one in element.types)


@cache
def has_parts(resource_type: str, name: str) -> bool:
    """Whether a single element is a group of elements that different fields say: a backbone element, or a period."""
    element = definitions().element(resource_type, name)
    if element is None or element.many:
        return False
    return any("." in one or one == "Period" for one in element.types)
