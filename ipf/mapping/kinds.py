"""What the compiler knows about the two sides of a map: static kinds, and which element of which kind is what.

A `Kind` is a model and a type in it.  Models: `fhir` (R4, from `ipf.fhir.definitions`), `v2` (HL7 v2 message trees; one
kind per segment or datatype name), and logical models, whose StructureDefinitions are given to `Models`.  The unknown
kind is allowed everywhere: what is not known when a map is compiled is looked at when it runs.

HL7 v2 canonicals are ours: `urn:ipf:v2:<message structure | segment | datatype>`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ipf.fhir.definitions import definitions

V2_CANONICAL = "urn:ipf:v2:"
FHIR_CANONICAL = re.compile(r"http://hl7\.org/fhir/(?:(4\.0|R4)(?:\.\d)?/)?StructureDefinition/(\w+)")
OTHER_FHIR = re.compile(r"http://hl7\.org/fhir/([\d.]+|R\w+)/StructureDefinition/(\w+)")
ABSTRACT = frozenset(("", "Resource", "DomainResource", "Element", "BackboneElement", "Any"))


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of one model; both texts empty = unknown."""

    model: str
    name: str

    @property
    def is_v2(self) -> bool:
        """A node of an HL7 v2 message."""
        return self.model == "v2"

    @property
    def is_text(self) -> bool:
        """A node of an HL7 v2 message, or only its text."""
        return self.model in ("v2", "text")

    @property
    def is_known(self) -> bool:
        """Whether elements of it can be looked up."""
        return bool(self.model) and bool(self.name)


UNKNOWN = Kind("", "")
V2 = Kind("v2", "")
TEXT = Kind("text", "")
"""Text of an HL7 v2 node, where a map uses nothing but the text."""


def fhir(name: str) -> Kind:
    """A FHIR R4 type or type path."""
    return Kind("fhir", name)


STRING = fhir("string")


@dataclass(frozen=True, slots=True)
class Member:
    """One element of a kind, as the compiler needs it.

    `keys`: JSON name by kind, for a choice of types; else empty and `key` is the name.  `kinds`: what it may hold.
    """

    key: str
    many: bool
    kinds: tuple[Kind, ...]
    keys: Mapping[str, str]

    @property
    def is_choice(self) -> bool:
        """Whether its JSON name depends on the type of its value."""
        return bool(self.keys)


class Models:
    """Every model that maps may speak of."""

    def __init__(self, structure_definitions: Iterable[Mapping[str, Any]] = ()) -> None:
        self._fhir = definitions()
        self._logical: dict[str, dict[str, Member]] = {}
        self._by_url: dict[str, Kind] = {}
        for definition in structure_definitions:
            self._add(definition)

    def kind_of_url(self, url: str) -> Kind:
        """The kind that a `uses` line names; a kind of an unknown model keeps its name, for matching groups."""
        found = self._by_url.get(url)
        if found is not None:
            return found
        if url.startswith(V2_CANONICAL):
            return Kind("v2", url.removeprefix(V2_CANONICAL))
        match = FHIR_CANONICAL.fullmatch(url)
        if match and self._fhir.is_type(match[2]):
            return fhir(match[2])
        match = OTHER_FHIR.fullmatch(url)
        if match:
            return Kind(f"fhir-{match[1]}", match[2])
        return Kind("", url)

    def kind_of_name(self, name: str) -> Kind | None:
        """The FHIR type of this name, None when there is none."""
        name = name.removeprefix("FHIR.")
        return fhir(name) if self._fhir.is_type(name) or name in self._fhir.primitive_types else None

    def is_modelled(self, kind: Kind) -> bool:
        """Whether an element that is not found is a mistake in the map."""
        if kind.model == "fhir":
            return kind.name not in ABSTRACT and not self.is_primitive(kind)
        return kind.model in self._logical

    def is_primitive(self, kind: Kind) -> bool:
        """Whether values of the kind are JSON scalars."""
        return (kind.model.startswith("fhir") and kind.name in self._fhir.primitive_types) or kind == fhir("xhtml")

    def is_resource(self, kind: Kind) -> bool:
        """Whether JSON objects of the kind carry resourceType."""
        if kind.model == "fhir":
            return kind.name in self._fhir.resource_types
        return kind.model in self._logical and "." not in kind.name

    def member(self, kind: Kind, name: str) -> Member | None:
        """The element `name` of `kind`; None when it has none or the kind is not modelled."""
        if kind.model == "fhir":
            return self._fhir_member(kind.name, name)
        return self._logical.get(kind.model, {}).get(f"{kind.name}.{name}")

    def _fhir_member(self, path: str, name: str) -> Member | None:
        element = self._fhir.element(path, name)
        if element is None:
            return None
        kinds = tuple(fhir(one) for one in element.types)
        keys = {one: element.json_name(one) for one in element.types} if element.choice else {}
        return Member(element.name, element.many, kinds, keys)

    def _add(self, definition: Mapping[str, Any]) -> None:
        """Read a StructureDefinition of kind logical (differential or snapshot)."""
        url = str(definition.get("url", ""))
        root = str(definition.get("type", "")).rpartition("/")[2]
        elements = (definition.get("snapshot") or definition.get("differential") or {}).get("element", [])
        members: dict[str, Member] = {}
        for element in elements:
            path = str(element["path"])
            types = tuple(str(one.get("code", "")).rpartition("/")[2] for one in element.get("type", []))
            many = str(element.get("max", "1")) not in ("0", "1")
            members[path] = Member(path.rpartition(".")[2], many, tuple(_logical(url, path, one) for one in types), {})
        self._logical[url] = members
        self._by_url[url] = Kind(url, root)


def _logical(url: str, path: str, type_name: str) -> Kind:
    """Kind of an element of a logical model: an inner structure keeps its path."""
    return Kind(url, path) if type_name in ("", "BackboneElement", "Element", "Base") else fhir(type_name)
