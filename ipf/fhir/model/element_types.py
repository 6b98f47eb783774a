"""The type of each object and value inside a resource, as the definitions of R4 state it.

What arrives is parsed JSON.  `objects` yields each object with its type path (`Reference`, `Patient.contact`), also in
contained resources, extensions and the resources of a Bundle or Parameters.  An object that R4 does not define has the
type path "", and so has everything in it.

Source: https://hl7.org/fhir/R4/json.html, https://hl7.org/fhir/R4/datatypes.html
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ipf.fhir.model.definitions import definitions
from ipf.ports import Json

_RESOURCE = "Resource"


def type_of(resource: Json) -> str:
    """The type path of a resource; "" without a text in `resourceType`."""
    found = resource.get("resourceType")
    return found if type(found) is str else ""


def member_type(type_path: str, name: str) -> str:
    """The type path of a JSON member (`valueUri`, `contact`, `_birthDate`); "" if the type does not have it."""
    if name[:1] == "_":
        return "Element"
    element = definitions().element(type_path, name)
    return element.types[0] if element is not None else ""


def object_type(type_path: str, name: str, value: Json) -> str:
    """The type path of an object that is a member, or an item of a member."""
    found = member_type(type_path, name)
    return type_of(value) if found == _RESOURCE else found


def objects(value: Json, type_path: str = "") -> Iterator[tuple[str, Json]]:
    """Each object with its type path, `value` first.  Without `type_path`, `value` is a resource."""
    path = type_path or type_of(value)
    yield path, value
    for name, member in value.items():
        for item in member if type(member) is list else (member,):
            if type(item) is dict:
                yield from _inner(path, name, item)


def _inner(path: str, name: str, item: Any) -> Iterator[tuple[str, Json]]:
    inner = object_type(path, name, item)
    if inner:
        yield from objects(item, inner)
