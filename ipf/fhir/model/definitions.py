"""What R4 says about its own types: elements and search parameters.

Two types of R4B and R5 are known besides, in the same form (`fhir/topics`): SubscriptionTopic and SubscriptionStatus.

The tables come from `fhir/r4/*.json`, made by `fhir/r4/generate.py` from HL7's package `hl7.fhir.r4.core` 4.0.1.  They
are read once, and kept as short texts; an element or a search parameter becomes an object when it is first asked for.
One instance serves the whole process; nothing changes after that but the search parameters that users add.

Sources: https://hl7.org/fhir/R4/structuredefinition.html, https://hl7.org/fhir/R4/searchparameter-registry.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import orjson

from ipf.config.paths import folder

_SEARCH_PARAMETER = "http://hl7.org/fhir/SearchParameter/"
_TYPE = re.compile(r"([\w.]+)(?:\(([\w,]*)\))?")
_INNER = frozenset({"BackboneElement", "Element"})


@dataclass(frozen=True, slots=True)
class Element:
    """One element of a type.

    `name`: without `[x]`.  `types`: type names (`HumanName`, `string`, `Reference`); of an inner structure, or of a
    reference to the content of one, its type path (`Patient.contact`).  `many`: a JSON array.  `path`: where it is
    defined, such as `Patient.contact.name` or `Resource.id`.  `choice`: in JSON its name is `name` + capitalised type.
    `required`: at least one.  `targets`: resource types that a Reference, or a canonical, may point at (empty = any).
    """

    name: str
    types: tuple[str, ...]
    many: bool
    path: str
    choice: bool = False
    required: bool = False
    targets: tuple[str, ...] = ()

    def json_name(self, type_name: str) -> str:
        """Its name in JSON when the value has this type."""
        return self.name + type_name[0].upper() + type_name[1:] if self.choice else self.name


@dataclass(frozen=True, slots=True)
class SearchParameter:
    """One search parameter.

    `type`: number, date, string, token, reference, composite, quantity, uri or special.  `expression`: FHIRPath, ""
    when there is none (`_text`, `_filter`).  `targets`: types a reference may point at.  `components`: of a composite,
    (canonical of the parameter, expression).
    """

    code: str
    type: str
    expression: str
    targets: tuple[str, ...]
    url: str
    components: tuple[tuple[str, str], ...] = ()


class Definitions:
    """The R4 definitions.

    `resource_types` are the concrete ones that are stored: those of R4, and `later_types` of later versions.
    `sent_types` are never stored.  `primitive_types` have no elements but `id` and `extension`.
    """

    def __init__(
        self, elements: Mapping[str, Any], parameters: list[list[Any]], later: Mapping[str, Any] | None = None
    ) -> None:
        self.later_types: frozenset[str] = frozenset(later["resources"] if later else ())
        self.sent_types: frozenset[str] = frozenset(later["sent"] if later else ())
        if later is not None:
            elements = {**elements, **{name: {**elements[name], **later[name]} for name in ("base", "elements")}}
            parameters = [*parameters, *later["parameters"]]
        self.resource_types: frozenset[str] = frozenset(elements["resources"]) | self.later_types
        self.primitive_types: frozenset[str] = frozenset(elements["primitives"])
        self._base: dict[str, str] = elements["base"]
        self._own: dict[str, dict[str, str]] = elements["elements"]
        self._members: dict[str, Mapping[str, Element]] = {}
        self._by_json_name: dict[str, dict[str, Element]] = {}
        self._parameters: dict[str, Mapping[str, SearchParameter]] = {}
        self._custom: Mapping[str, Mapping[str, SearchParameter]] = {}
        self.generation = 0  # grows when search parameters are added or go
        self._rows: dict[str, list[list[Any]]] = {}
        for row in parameters:
            for base in row[1]:
                self._rows.setdefault(base, []).append(row)

    def is_type(self, type_path: str) -> bool:
        """Whether this names a type of R4, abstract ones included, or an inner structure such as `Patient.contact`."""
        return type_path in self._base or type_path in self._own

    def base(self, type_path: str) -> str | None:
        """The type that this one is made from: `DomainResource` for `Patient`, None for `Resource` and `Element`."""
        if type_path in self._base:
            return self._base[type_path] or None
        return "BackboneElement" if type_path in self._own else None

    def is_a(self, type_name: str, ancestor: str) -> bool:
        """Whether `type_name` is `ancestor` or made from it."""
        one: str | None = type_name
        while one is not None and one != ancestor:
            one = self.base(one)
        return one is not None

    def members(self, type_path: str) -> Mapping[str, Element]:
        """All elements of a type by name (a choice once, without `[x]`), inherited ones first.  Empty when unknown."""
        found = self._members.get(type_path)
        if found is None:
            base = self.base(type_path)
            inherited = self.members(base) if base else {}
            own = {one.name: one for one in self._read(type_path)}
            found = self._members[type_path] = MappingProxyType({**inherited, **own})
        return found

    def element(self, type_path: str, name: str) -> Element | None:
        """The element `name` of a type (`Patient`, `Patient.contact`, `HumanName`).

        A choice answers to its own name (`value`, with all its types) and to its names in JSON (`valueQuantity`, with
        the one type).
        """
        found = self._by_json_name.get(type_path)
        if found is None:
            found = self._by_json_name[type_path] = dict(self._json_names(type_path))
        return found.get(name)

    def search_parameters(self, resource_type: str) -> Mapping[str, SearchParameter]:
        """Search parameters by code, those of Resource and DomainResource included.  Empty for an unknown type.

        R4's own, then those that were added; a code of R4 keeps R4's meaning.
        """
        found = self._parameters.get(resource_type)
        if found is None:
            base = self.base(resource_type)
            inherited = self.search_parameters(base) if base else {}
            own = {row[0]: _parameter(row) for row in self._rows.get(resource_type, ())}
            added = {code: one for code, one in self._custom.get(resource_type, {}).items() if code not in own}
            found = self._parameters[resource_type] = MappingProxyType({**inherited, **own, **added})
        return found

    def is_defined(self, resource_type: str, code: str) -> bool:
        """Whether R4 itself defines this search parameter for the type."""
        one: str | None = resource_type
        while one is not None and all(row[0] != code for row in self._rows.get(one, ())):
            one = self.base(one)
        return one is not None

    def set_custom(self, added: Mapping[str, Mapping[str, SearchParameter]]) -> bool:
        """Replace what was added to R4's search parameters (type -> code -> parameter); whether anything changed."""
        if added == self._custom:
            return False
        self._custom = added
        self.generation += 1
        self._parameters = {}
        return True

    def _read(self, type_path: str) -> Iterator[Element]:
        for name, text in self._own.get(type_path, {}).items():
            cardinality, types = text.split(" ", 1)
            least, _, most = cardinality.partition("..")
            path = f"{type_path}.{name.removesuffix('[x]')}"
            yield Element(
                name=name.removesuffix("[x]"),
                types=self._types(types, path),
                many=most not in ("0", "1"),
                path=path,
                choice=name.endswith("[x]"),
                required=least != "0",
                targets=tuple(target for one in _TYPE.findall(types) for target in one[1].split(",") if target),
            )

    def _types(self, text: str, path: str) -> tuple[str, ...]:
        if text.startswith("#"):
            return (text[1:],)
        names = tuple(one[0] for one in _TYPE.findall(text))
        return (path,) if path in self._own and names[0] in _INNER else names

    def _json_names(self, type_path: str) -> Iterator[tuple[str, Element]]:
        for name, one in self.members(type_path).items():
            yield name, one
            if one.choice:
                for type_name in one.types:
                    json_name = one.json_name(type_name)
                    targets = one.targets if type_name in ("Reference", "canonical") else ()
                    only = Element(json_name, (type_name,), False, one.path, False, one.required, targets)
                    yield json_name, only


def _parameter(row: list[Any]) -> SearchParameter:
    code, _, kind, expression, targets, url, components = row
    full_url = url if "://" in url else _SEARCH_PARAMETER + url
    return SearchParameter(code, kind, expression, tuple(targets), full_url, tuple((a, b) for a, b in components))


@lru_cache(maxsize=1)
def definitions() -> Definitions:
    """The definitions, read at the first call.  FileNotFoundError when the installation is incomplete."""
    source: Path = folder("fhir") / "r4"
    elements = orjson.loads((source / "elements.json").read_bytes())
    parameters = orjson.loads((source / "search-parameters.json").read_bytes())
    later = orjson.loads((source.parent / "topics" / "elements.json").read_bytes())
    return Definitions(elements, parameters["parameters"], later)
