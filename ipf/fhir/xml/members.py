"""How the elements of a type are said in XML: as attribute, child element, resource or narrative, and in which order.

Source: https://hl7.org/fhir/R4/xml.html
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from ipf.fhir.model.definitions import Element, definitions


@dataclass(frozen=True, slots=True)
class Member:
    """One JSON member of a type and how it is written: `kind` is primitive, resource, xhtml, id, url or complex."""

    json_name: str
    kind: str
    type: str


@cache
def members_of(path: str) -> tuple[Member, ...]:
    """All members that a type may have, in the order in which XML wants them; attributes are not among them."""
    return tuple(member for one in definitions().members(path).values() for member in _forms(path, one))


def _forms(path: str, element: Element) -> Iterator[Member]:
    for kind in element.types:
        if is_attribute(path, element.name):
            return
        yield Member(element.json_name(kind), _kind(kind), kind)


@cache
def is_attribute(path: str, name: str) -> bool:
    """Whether XML says this element of a type as an attribute."""
    if name == "url":
        return path == "Extension"
    return name == "id" and not definitions().is_a(path, "Resource")


@cache
def _kind(type_name: str) -> str:
    if type_name == "xhtml":
        return "xhtml"
    if type_name in definitions().primitive_types:
        return "primitive"
    return "resource" if type_name == "Resource" else "complex"


MemberTable = Mapping[str, tuple[Member, bool]]


@cache
def member_table(path: str) -> MemberTable:
    """Members of a type by the name of their XML element; whether JSON has a list for it."""
    found: dict[str, tuple[Member, bool]] = {}
    for one in definitions().members(path).values():
        for member in _forms(path, one):
            found[member.json_name] = member, one.many
    return found
