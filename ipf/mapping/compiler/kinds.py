"""What the compiler knows about the two sides of a map: static kinds, and which element of which kind is what.

A `Kind` is a model and a type in it.  Models: `fhir` (R4, from `ipf.fhir.model.definitions`), `v2` (HL7 v2 message
trees; one
kind per segment or datatype name), and logical models, whose StructureDefinitions are given to `Models`.  The unknown
kind is allowed everywhere: what is not known when a map is compiled is looked at when it runs.

HL7 v2 canonicals are ours: `urn:ipf:v2:<message structure | segment | datatype>`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ipf.fhir.model.definitions import definitions
from ipf.mapping.compiler.logical import read_definitions
from ipf.mapping.compiler.members import STRING, TEXT, UNKNOWN, V2, Kind, Member, fhir

V2_CANONICAL = "urn:ipf:v2:"
FHIR_CANONICAL = re.compile(r"http://hl7\.org/fhir/(?:(4\.0|R4)(?:\.\d)?/)?StructureDefinition/(\w+)")
OTHER_FHIR = re.compile(r"http://hl7\.org/fhir/([\d.]+|R\w+)/StructureDefinition/(\w+)")
ABSTRACT = frozenset(("", "Resource", "DomainResource", "Element", "BackboneElement", "Any"))


class Models:
    """Every model that maps may speak of."""

    def __init__(self, structure_definitions: Iterable[Mapping[str, Any]] = ()) -> None:
        self._fhir = definitions()
        self._logical = read_definitions(structure_definitions)

    def kind_of_url(self, url: str) -> Kind:
        """The kind that a `uses` line names; a kind of an unknown model keeps its name, for matching groups."""
        found = self._logical.by_url.get(url.partition("|")[0])
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
        return self._logical.is_modelled(kind) and not self.is_primitive(kind)

    def is_primitive(self, kind: Kind) -> bool:
        """Whether values of the kind are JSON scalars."""
        return (kind.model.startswith("fhir") and kind.name in self._fhir.primitive_types) or kind == fhir("xhtml")

    def is_resource(self, kind: Kind) -> bool:
        """Whether JSON objects of the kind carry resourceType."""
        if kind.model == "fhir":
            return kind.name in self._fhir.resource_types
        if kind.model.startswith("fhir-") and not self._logical.is_modelled(kind):
            return kind.name in self._fhir.resource_types
        return kind in self._logical.resources

    def member(self, kind: Kind, name: str) -> Member | None:
        """The element `name` of `kind`; None when it has none or the kind is not modelled."""
        if kind.model == "fhir":
            return self._fhir_member(kind.name, name)
        members = self._logical.members.get(kind.model, {})
        return members.get(f"{kind.name}.{name}") or members.get(f"{kind.name}.{name}[x]")

    def _fhir_member(self, path: str, name: str) -> Member | None:
        element = self._fhir.element(path, name)
        if element is None:
            return None
        kinds = tuple(fhir(one) for one in element.types)
        keys = {one: element.json_name(one) for one in element.types} if element.choice else {}
        return Member(element.name, element.many, kinds, keys)


__all__ = ["STRING", "TEXT", "UNKNOWN", "V2", "Kind", "Member", "Models", "fhir"]
