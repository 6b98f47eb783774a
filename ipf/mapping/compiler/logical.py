"""StructureDefinitions as models of maps: logical models, and FHIR types of other versions than R4.

What arrives: StructureDefinition resources of any kind (logical, resource, complex-type), with a snapshot or only a
differential, whose base may be among them.  What leaves: for each model the elements by path (`TLeft.a.b`).

A logical model is a model of its own, named by its url.  Types of another FHIR version share one model (`fhir-5.0`), as
`uses "http://hl7.org/fhir/5.0/StructureDefinition/Patient"` names it; their own url counts for R4 only, since that is
what it means in a map that says no version.

Source: https://hl7.org/fhir/R4/structuredefinition.html, https://hl7.org/fhir/R5/elementdefinition.html.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ipf.errors import Category, Problem
from ipf.mapping.compiler.members import Kind, Member, fhir

_BASE = re.compile(r"http://hl7\.org/fhir/StructureDefinition/(\w+)")
_INNER = frozenset(("", "BackboneElement", "Element", "Base", "BackboneType"))
Definition = Mapping[str, Any]


@dataclass(slots=True)
class Logical:
    """What the definitions say.  `members` by model and path; `roots`: the kinds that are defined as a whole;
    `resources`: those whose JSON carries resourceType; `by_url`: kind by every canonical that names it."""

    members: dict[str, dict[str, Member]] = field(default_factory=dict)
    roots: set[Kind] = field(default_factory=set)
    resources: set[Kind] = field(default_factory=set)
    by_url: dict[str, Kind] = field(default_factory=dict)

    def is_modelled(self, kind: Kind) -> bool:
        """Whether the elements of a kind are known."""
        return Kind(kind.model, kind.name.partition(".")[0]) in self.roots


def read_definitions(definitions: Iterable[Definition]) -> Logical:
    """All of them together.  Problem MAPPING: one is no StructureDefinition."""
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
        for path, element in _elements(one, by_url):
            members[path] = _member(logical, kind.model, path, element)
    return logical


def _version(definition: Definition) -> str:
    """`5.0`; empty for R4 and where none is said."""
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


def _elements(definition: Definition, known: Mapping[str, Definition]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Elements by path; with only a differential, those of its bases first, under the name of this one."""
    line = [definition]
    while "snapshot" not in line[-1]:
        base = known.get(str(line[-1].get("baseDefinition", "")))
        if base is None or any(base is one for one in line):
            break
        line.append(base)
    root = _root(definition)
    for one in reversed(line):
        for element in _own_elements(one):
            _, dot, rest = str(element["path"]).partition(".")
            yield root + dot + rest, element


def _member(logical: Logical, model: str, path: str, element: Mapping[str, Any]) -> Member:
    name = path.rpartition(".")[2]
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
