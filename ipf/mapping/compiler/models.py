"""The models that maps refer to: FHIR R4, HL7 v2, logical models, and FHIR types of other versions.

The elements of R4 types come from `ipf.fhir.model.definitions`.  Nodes of HL7 v2 messages have one kind for each
segment and data type; their canonicals are `urn:ipf:v2:<message structure | segment | data type>`.  All other models
come from StructureDefinition resources (logical, resource, complex-type) with a snapshot or a differential, with their
bases among them.  The unknown kind is allowed everywhere; its elements are resolved at run time.

A logical model is a model of its own, named by its url.  The types of another FHIR version share one model
(`fhir-5.0`), as `uses "http://hl7.org/fhir/5.0/StructureDefinition/Patient"` names it.  A url without a version means
R4.

Source: https://hl7.org/fhir/R4/structuredefinition.html, https://hl7.org/fhir/R5/elementdefinition.html.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ipf.errors import Category, Problem
from ipf.fhir.model.definitions import Element
from ipf.fhir.model.definitions import definitions as r4_definitions
from ipf.mapping.compiler.kinds import Kind, Member, fhir

V2_CANONICAL = "urn:ipf:v2:"
FHIR_CANONICAL = re.compile(r"http://hl7\.org/fhir/(?:(4\.0|R4)(?:\.\d)?/)?StructureDefinition/(\w+)")
OTHER_FHIR = re.compile(r"http://hl7\.org/fhir/([\d.]+|R\w+)/StructureDefinition/(\w+)")
_EVERYWHERE = frozenset(("id", "extension", "modifierExtension"))
ABSTRACT = frozenset(("", "Resource", "DomainResource", "Element", "BackboneElement", "Any"))


class Models:
    """The models of a set of maps."""

    def __init__(self, structure_definitions: Iterable[Mapping[str, Any]] = ()) -> None:
        self._fhir = r4_definitions()
        self._logical = read_definitions(structure_definitions)

    def kind_of_url(self, url: str) -> Kind:
        """The kind of a `uses` line; a kind of an unknown model keeps its name, for matching groups."""
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
        """Whether all elements of the kind are known, so that an unknown one is a mistake in the map."""
        if kind.model == "fhir":
            return kind.name not in ABSTRACT and self._fhir.is_type(kind.name) and not self.is_primitive(kind)
        return self._logical.is_modelled(kind) and not self.is_primitive(kind)

    def lacks(self, kind: Kind, name: str) -> bool:
        """Whether no value of the kind can have an element of this name."""
        if name in _EVERYWHERE:
            return False
        if self.is_primitive(kind):
            return name != "value"
        if name == "resourceType" and self.is_resource(kind):
            return False
        is_complete = self.is_modelled(kind) if kind.model == "fhir" else kind in self._logical.complete
        return is_complete and self.member(kind, name) is None

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
        found = members.get(f"{kind.name}.{name}") or members.get(f"{kind.name}.{name}[x]")
        return found or next(_of_choices(members, kind, name), None)

    def _fhir_member(self, path: str, name: str) -> Member | None:
        element = self._fhir.element(path, name)
        if element is None:
            return None
        return fhir_member(element)


def member_of_choice(models: Models, kinds: Iterable[Kind], name: str) -> Member | None:
    """The element of a value that has one of these kinds at run time; None if the kinds have different ones."""
    found = [one for kind in kinds if (one := models.member(kind, name)) is not None]
    return found[0] if found and all(one == found[0] for one in found) else None


def fhir_member(element: Element) -> Member:
    """An element of an R4 type."""
    kinds = tuple(fhir(one) for one in element.types)
    keys = {one: element.json_name(one) for one in element.types} if element.choice else {}
    return Member(element.name, element.many, kinds, keys)


def _of_choices(members: Mapping[str, Member], kind: Kind, name: str) -> Iterator[Member]:
    """A choice by its JSON name, `valueQuantity`, as an element of one type."""
    for end in [place for place, one in enumerate(name) if place and one.isupper()]:
        choice = members.get(f"{kind.name}.{name[:end]}[x]")
        for one in choice.kinds if choice is not None else ():
            if choice is not None and choice.keys[one.name] == name:
                yield Member(name, False, (one,), {})


_BASE = re.compile(r"http://hl7\.org/fhir/StructureDefinition/(\w+)")
_INNER = frozenset(("", "BackboneElement", "Element", "Base", "BackboneType"))
Definition = Mapping[str, Any]


@dataclass(slots=True)
class Logical:
    """Content of the StructureDefinitions.

    `members` by model and path.  `roots`: the kinds with a definition.  `complete`: the kinds of which all elements are
    known.  `resources`: those with resourceType in JSON.  `by_url`: kind by canonical.
    """

    members: dict[str, dict[str, Member]] = field(default_factory=dict)
    roots: set[Kind] = field(default_factory=set)
    complete: set[Kind] = field(default_factory=set)
    resources: set[Kind] = field(default_factory=set)
    by_url: dict[str, Kind] = field(default_factory=dict)

    def is_modelled(self, kind: Kind) -> bool:
        """Whether the elements of a kind are known."""
        return Kind(kind.model, kind.name.partition(".")[0]) in self.roots


def check_definition(definition: Definition, place: str) -> None:
    """Check a StructureDefinition that is to be installed.  Problem MAPPING names the rule that it breaks."""
    url, elements = str(definition.get("url", "")), _own_elements(definition)
    if FHIR_CANONICAL.fullmatch(url):
        raise Problem(Category.MAPPING, "a type of FHIR R4 cannot be replaced", place)
    if definition.get("kind") not in ("logical", "resource", "complex-type"):
        raise Problem(Category.MAPPING, "kind must be logical, resource or complex-type", place)
    if not isinstance(definition.get("type"), str) or not elements:
        raise Problem(Category.MAPPING, "needs a type, and elements in a snapshot or a differential", place)
    root = _root(definition)
    for number, one in enumerate(elements):
        path = one.get("path") if isinstance(one, Mapping) else None
        if not isinstance(path, str) or path.partition(".")[0] != root:
            raise Problem(Category.MAPPING, f"element {number} has no path below {root}", place)
        if any(not isinstance(kind, Mapping) or not kind.get("code") for kind in one.get("type", ())):
            raise Problem(Category.MAPPING, f"a type of element {number} ({path}) has no code", place)


def read_definitions(definitions: Iterable[Definition]) -> Logical:
    """Read StructureDefinitions, which may refer to each other.  Problem MAPPING: one is no StructureDefinition."""
    logical = Logical()
    by_url: dict[str, Definition] = {}
    for one in definitions:
        if not one.get("url") or not isinstance(one.get("type"), str):
            raise Problem(Category.MAPPING, "is no StructureDefinition with a url and a type", str(one.get("url", "")))
        by_url[str(one["url"])] = one
        _declare(logical, one)
    for url, one in by_url.items():
        kind = logical.by_url[url] if url in logical.by_url else logical.by_url[_versioned(one)]
        members = logical.members.setdefault(kind.model, {})
        line = _lineage(one, by_url)
        base = _r4_base(line[-1])
        members.update({f"{kind.name}.{name}": member for name, member in _r4_members(base)})
        for path, element in _elements(_root(one), line):
            members[path] = _member(logical, kind.model, path, element, members.get(path))
        if base is not None:
            owners = {path.rpartition(".")[0] for path in members} if not base else {kind.name}
            logical.complete |= {Kind(kind.model, owner) for owner in owners if owner}
    return logical


def _r4_base(definition: Definition) -> str | None:
    """The R4 type that the first of a line of definitions extends; empty: none; None: a type that is not known."""
    base = str(definition.get("baseDefinition", ""))
    if "snapshot" in definition or not base or base.endswith("/StructureDefinition/Base"):
        return ""
    match = FHIR_CANONICAL.fullmatch(base)
    return match[2] if match and not _version(definition) and r4_definitions().is_type(match[2]) else None


def _r4_members(base: str | None) -> Iterator[tuple[str, Member]]:
    """The elements of an R4 type by name."""
    for name, one in r4_definitions().members(base).items() if base else ():
        yield f"{name}[x]" if one.choice else name, fhir_member(one)


def _version(definition: Definition) -> str:
    """`5.0`; empty for R4 and without a version."""
    found = ".".join(str(definition.get("fhirVersion", "")).split(".")[:2])
    return "" if found == "4.0" else found


def _versioned(definition: Definition) -> str:
    """The canonical with its version, as maps write it."""
    return str(definition["url"]).replace("/fhir/", f"/fhir/{_version(definition)}/", 1)


def _declare(logical: Logical, definition: Definition) -> None:
    url, root = str(definition["url"]), _root(definition)
    is_logical = definition.get("kind", "logical") == "logical"
    if not is_logical and _version(definition) and _BASE.fullmatch(url):
        kind = Kind(f"fhir-{_version(definition)}", root)
        logical.by_url[_versioned(definition)] = kind
    else:
        kind = logical.by_url[url] = Kind(url, root)
    logical.roots.add(kind)
    if is_logical or definition.get("kind") == "resource":
        logical.resources.add(kind)


def _root(definition: Definition) -> str:
    elements = _own_elements(definition)
    first = str(elements[0]["path"]).partition(".")[0] if elements else ""
    return first or str(definition["type"]).rpartition("/")[2]


def _own_elements(definition: Definition) -> list[Mapping[str, Any]]:
    return list((definition.get("snapshot") or definition.get("differential") or {}).get("element", ()))


def _lineage(definition: Definition, known: Mapping[str, Definition]) -> list[Definition]:
    """A definition, and its bases as long as there is no snapshot."""
    line = [definition]
    while "snapshot" not in line[-1]:
        base = known.get(str(line[-1].get("baseDefinition", "")))
        if base is None or any(base is one for one in line):
            break
        line.append(base)
    return line


def _elements(root: str, line: Sequence[Definition]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Elements by path; of a differential, the elements of its bases first."""
    for one in reversed(line):
        for element in _own_elements(one):
            _, dot, rest = str(element["path"]).partition(".")
            yield root + dot + rest, element


def _member(
    logical: Logical, model: str, path: str, element: Mapping[str, Any], inherited: Member | None = None
) -> Member:
    """An element.  `inherited`: the same in a base, from which it has its types when it states none."""
    name = path.rpartition(".")[2]
    if inherited is not None and not element.get("type") and not element.get("contentReference"):
        return inherited if "max" not in element else replace(inherited, many=str(element["max"]) not in ("0", "1"))
    many = str(element.get("max", "1")) not in ("0", "1")
    reference = str(element.get("contentReference", "")).rpartition("#")[2]
    if reference:
        return Member(name, many, (Kind(model, reference),), {})
    codes = [str(one.get("code", "")) for one in element.get("type", ())]
    kinds = tuple(_kind(logical, model, path, one) for one in codes)
    if not name.endswith("[x]"):
        return Member(name, many, kinds, {})
    plain = name.removesuffix("[x]")
    return Member(plain, many, kinds, {one.name: plain + one.name[:1].upper() + one.name[1:] for one in kinds})


def _kind(logical: Logical, model: str, path: str, code: str) -> Kind:
    """An inner structure keeps its path; another logical model is named by its url."""
    if code in logical.by_url:
        return logical.by_url[code]
    name = code.rpartition("/")[2].removeprefix("System.")
    if name in _INNER:
        return Kind(model, path)
    if name[:1].isupper() and code.startswith("http://hl7.org/fhirpath/"):
        name = name[:1].lower() + name[1:]
    return Kind(model, name) if model.startswith("fhir-") else fhir(name)
