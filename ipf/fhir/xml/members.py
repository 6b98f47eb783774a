"""The XML form of the elements of a type: attribute, child element, resource or narrative, and their order.

Source: https://hl7.org/fhir/R4/xml.html
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from ipf.fhir.model.definitions import Element, definitions


@dataclass(frozen=True, slots=True)
class Member:
    """One JSON member of a type and its XML form: `kind` is primitive, resource, xhtml, id, url or complex."""

    json_name: str
    kind: str
    type: str


@cache
def members_of(path: str) -> tuple[Member, ...]:
    """The members of a type that are child elements in XML, in order."""
    return tuple(member for one in definitions().members(path).values() for member in _forms(path, one))


def _forms(path: str, element: Element) -> Iterator[Member]:
    for kind in element.types:
        if is_attribute(path, element.name):
            return
        yield Member(element.json_name(kind), _kind(kind), kind)


@cache
def is_attribute(path: str, name: str) -> bool:
    """Whether this element of a type is an attribute in XML."""
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
    """The members of a type by XML element name, with whether JSON has a list."""
    found: dict[str, tuple[Member, bool]] = {}
    for one in definitions().members(path).values():
        for member in _forms(path, one):
            found[member.json_name] = member, one.many
    return found
