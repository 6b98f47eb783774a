"""Under which codes the values of a search parameter are written: often under another parameter's.

Index rows take most of the time of storing a resource, and R4 has many of them twice: `phonetic` is `name` again,
`combo-code` is `code` and `component-code` together, `patient` is `subject` when it refers to a Patient, `phone` is
`telecom` with the system `phone`.  Such a parameter writes nothing of its own; a search on it is put as a search on its
sources.  What can be told apart in the index value (type of a reference, system of a contact point) need not be
written apart.  `name` writes only those parts of a name that `family` and `given` do not, `address` likewise; and a
composite of elements that stand in the resource once (`code-value-quantity`) is the conjunction of its components.

Worked out once for each resource type, from the paths of `paths.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any

from ipf.fhir.fhirpath.language.parser import parse
from ipf.fhir.index.composites import Composite, composite, shared
from ipf.fhir.index.paths import Condition, ElementPath, MemberIs, NotSimple, RefersTo, element_paths, presence
from ipf.fhir.index.values import PARTS
from ipf.fhir.model.definitions import SearchParameter, definitions

_COLUMNS = frozenset({"_id", "_lastUpdated"})
_INDEXED = frozenset({"composite", "date", "number", "quantity", "reference", "string", "token", "uri"})


@dataclass(frozen=True, slots=True)
class Source:
    """How one parameter is indexed.

    `codes`: its values are under any of these (its own code alone, when it writes for itself).  `refers_to`: only
    references to this type count.  `system`: only tokens of this system count.  `members`: its value is whether one
    of these members is there.  `paths`: where its values are; empty when `members`, or only FHIRPath, can tell.
    `covered`: parts of the HumanName or Address there that the other codes have.  `composite`: what it is put together
    from; of such a parameter only elements inside the resource have rows.
    """

    codes: tuple[str, ...]
    paths: frozenset[ElementPath] = frozenset()
    refers_to: str = ""
    system: str = ""
    members: tuple[str, ...] = ()
    covered: tuple[str, ...] = ()
    composite: Composite | None = None

    @property
    def has_no_systems(self) -> bool:
        """All values are primitives, stored without a system: the one that their binding implies is understood."""
        primitives = definitions().primitive_types
        return bool(self.members) or (bool(self.paths) and all(one.type_path in primitives for one in self.paths))


def is_indexed(parameter: SearchParameter) -> bool:
    """Whether the values of this parameter are in the index, under whatever code."""
    return parameter.type in _INDEXED and parameter.expression != "" and parameter.code not in _COLUMNS


def sources(resource_type: str) -> Mapping[str, Source]:
    """The indexed parameters of a resource type by code; empty for an unknown type."""
    return _sources(resource_type) if resource_type in definitions().resource_types else {}


def work_out() -> None:
    """Work out the parameters of all types, which takes 0.2 s: for a thread, at the start.

    A chain over all types needs them all; without this the first one held the reactor for as long.
    """
    for resource_type in sorted(definitions().resource_types):
        sources(resource_type)


def forget() -> None:
    """Work out anew: the definitions of search parameters have changed.  Parameters that stay are known."""
    _sources.cache_clear()


@cache
def _sources(resource_type: str) -> Mapping[str, Source]:
    parameters = {code: one for code, one in definitions().search_parameters(resource_type).items() if is_indexed(one)}
    own = {code: _own(parameter, resource_type) for code, parameter in parameters.items()}
    writers = _Writers({code: parameter.type for code, parameter in parameters.items()}, own)
    found = {code: writers.source(code) for code in own}
    paths_of = {code: source.paths for code, source in own.items() if source.paths}
    written: dict[Any, str] = {}
    for code, parameter in reversed(parameters.items()):  # `combo-...` comes first, and shares
        if parameter.type == "composite":
            made = shared(composite(parameter, parameters, paths_of, resource_type), written)
            found[code] = Source((code,), composite=made)
    return found


@lru_cache(maxsize=8192)
def _own(parameter: SearchParameter, resource_type: str) -> Source:
    """The parameter as if it wrote for itself."""
    if parameter.type == "composite":
        return Source((parameter.code,))
    expression = parse(parameter.expression)
    members = presence(expression, resource_type)
    if members is not None:
        return Source((parameter.code,), members=members)
    try:
        return Source((parameter.code,), frozenset(element_paths(expression, resource_type)))
    except NotSimple:
        return Source((parameter.code,))


class _Writers:
    """Finds for each parameter those that write its values."""

    def __init__(self, types: Mapping[str, str], own: Mapping[str, Source]) -> None:
        self._types = types
        self._own = own
        self._by_paths: dict[tuple[str, frozenset[ElementPath]], str] = {}
        for code, source in own.items():
            if source.paths:
                self._by_paths.setdefault((types[code], source.paths), code)

    def source(self, code: str) -> Source:
        """The code that has the index entries of `code`; itself when no other has them."""
        own = self._own[code]
        if not own.paths:
            return own
        same = self._same(code, own) or self._restricted(code, own) or self._union(code, own)
        return same or self._without_parts(code, own)

    def _same(self, code: str, own: Source) -> Source | None:
        """Another parameter, earlier in the definitions, has the same paths: take its source."""
        first = self._by_paths[self._types[code], own.paths]
        return None if first == code else replace(self.source(first), paths=own.paths)

    def _restricted(self, code: str, own: Source) -> Source | None:
        """All paths end with the same filter, one that index values can tell, and another has them without it."""
        condition = _only_condition(own.paths)
        if condition is None:
            return None
        wider = frozenset(replace(path, steps=path.steps[:-1]) for path in own.paths)
        other = self._by_paths.get((self._types[code], wider))
        found = None if other is None else self.source(other)
        if found is None or found.refers_to or found.system:
            return None
        if isinstance(condition, RefersTo):
            return Source(found.codes, own.paths, refers_to=condition.resource_type)
        return Source(found.codes, own.paths, system=condition.text) if isinstance(condition, MemberIs) else None

    def _union(self, code: str, own: Source) -> Source | None:
        """Other parameters have its paths between them."""
        parts = [
            other
            for (kind, other_paths), other in self._by_paths.items()
            if kind == self._types[code] and other_paths < own.paths and not self._restricted(other, self._own[other])
        ]
        if not parts or frozenset().union(*(self._own[part].paths for part in parts)) != own.paths:
            return None
        codes = {writer for part in parts for writer in self.source(part).codes}
        return Source(tuple(sorted(codes)), own.paths)

    def _without_parts(self, code: str, own: Source) -> Source:
        """A name or an address with parts that are parameters themselves."""
        path = next(iter(own.paths))
        parts = PARTS.get(path.type_path, ())
        if self._types[code] != "string" or len(own.paths) != 1 or not parts:
            return own
        found = {
            part: self._by_paths.get(("string", frozenset({ElementPath("string", (*path.steps, part))})))
            for part in parts
        }
        covered = tuple(part for part, writer in found.items() if writer)
        return replace(own, codes=(code, *(writer for writer in found.values() if writer)), covered=covered)


def _only_condition(found: frozenset[ElementPath]) -> Condition | None:
    """The common last filter of these paths, if index values can express it."""
    last = {(path.steps[-1], path.type_path) for path in found if path.steps}
    match last.pop() if len(last) == 1 else None:
        case RefersTo() as condition, "Reference":
            return condition
        case MemberIs("system", _) as condition, "ContactPoint":
            return condition
    return None
