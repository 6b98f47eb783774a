"""A resource in, its index entries out: every search parameter of FHIR R4, and those that were added to it.

The expressions of one resource type are resolved together (`index_paths.py`) into one tree of member names, when the
first resource of that type comes; a parameter that only repeats others writes nothing (`index_sources.py`).  Indexing a
resource is then a single walk along this tree: members that no search parameter asks for are not looked into, and an
absent element costs nothing.  The expressions that are not simple go through the general FHIRPath engine.  Nothing
is kept of a resource; the trees live until `forget` is called, because the set of search parameters has changed.

`_id` and `_lastUpdated` have no entries: the store has columns for them.  `_text`, `_content`, `_filter`, `_query` and
Location's `near` are not indexed.

Source: https://hl7.org/fhir/R4/search.html
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from ipf.fhir.definitions import SearchParameter, definitions
from ipf.fhir.entries import EMPTY, DateEntry, Entries, QuantityEntry, TextEntry, token_value
from ipf.fhir.index_composites import Composite, composite_leaf
from ipf.fhir.index_general import evaluate
from ipf.fhir.index_paths import Guard, Place, Step
from ipf.fhir.index_sources import Source, sources
from ipf.fhir.index_values import Leaf, Sink, leaf

__all__ = ["EMPTY", "DateEntry", "Entries", "QuantityEntry", "TextEntry", "extract"]


@dataclass(slots=True)
class _Tree:
    """One position in a resource, while it is planned: what to write of a value here, and where to go on from it."""

    guarded: list[tuple[Guard, _Tree]] = field(default_factory=list)
    members: dict[str, _Tree] = field(default_factory=dict)
    # (parameter type, FHIR type, parts of it that others write) -> codes
    codes: dict[tuple[str, str, tuple[str, ...]], list[str]] = field(default_factory=dict)
    leaves: list[Leaf] = field(default_factory=list)

    def at(self, step: Step) -> _Tree:
        """The position one step further, made when it is new."""
        if isinstance(step, str):
            return self.members.setdefault(step, _Tree())
        for guard, tree in self.guarded:
            if guard == step:
                return tree
        self.guarded.append((step, _Tree()))
        return self.guarded[-1][1]

    def finished(self) -> Leaf:
        """One function for all that is done with a value here; parameters that want the same of it share a leaf."""
        made = (leaf(kind, type_name, tuple(codes), rest) for (kind, type_name, rest), codes in self.codes.items())
        leaves = [one for one in made if one is not None] + self.leaves
        leaves += [_guarded_leaf(guard, tree.finished()) for guard, tree in self.guarded]
        if self.members:
            leaves.append(_members_leaf({name: tree.finished() for name, tree in self.members.items()}))
        return leaves[0] if len(leaves) == 1 else _all_of(leaves)


def _guarded_leaf(guard: Guard, inner: Leaf) -> Leaf:
    def write(value: Any, sink: Sink) -> None:
        if guard(value):
            inner(value, sink)

    return write


def _members_leaf(members: dict[str, Leaf]) -> Leaf:
    wanted = members.get

    def write(value: Any, sink: Sink) -> None:
        if type(value) is dict:
            for name, item in value.items():
                inner = wanted(name)
                if inner is not None:
                    if type(item) is list:
                        for one in item:
                            inner(one, sink)
                    else:
                        inner(item, sink)

    return write


def _all_of(leaves: Iterable[Leaf]) -> Leaf:
    each = tuple(leaves)

    def write(value: Any, sink: Sink) -> None:
        for one in each:
            one(value, sink)

    return write


def extract(resource: dict[str, Any]) -> Entries:
    """All index entries of `resource` (parsed JSON with `resourceType`); EMPTY for a type that R4 does not have."""
    resource_type = resource.get("resourceType")
    if type(resource_type) is not str or resource_type not in definitions().resource_types:
        return EMPTY
    plan = _plan(resource_type)
    sink = Sink()
    plan.write(resource, sink)
    for parameter in plan.general:
        evaluate(parameter, resource, sink)
    return Entries(frozenset(sink.texts), frozenset(sink.dates), frozenset(sink.quantities))


def forget() -> None:
    """Plan anew: the definitions of search parameters have changed."""
    _plan.cache_clear()


@dataclass(frozen=True, slots=True)
class _Plan:
    """How resources of one type are indexed: the tree as a function, and the parameters for the general engine."""

    write: Leaf
    general: tuple[SearchParameter, ...]


@cache
def _plan(resource_type: str) -> _Plan:
    tree = _Tree()
    general: list[SearchParameter] = []
    presences: list[Leaf] = []
    parameters = definitions().search_parameters(resource_type)
    for code, source in sources(resource_type).items():
        if code not in source.codes:
            continue  # another parameter writes its values
        if source.composite is not None:
            _plant_composite(tree, code, source.composite)
        elif source.members:
            presences.append(_presence_leaf(code, source.members))
        elif source.places:
            _plant(tree, parameters[code], source)
        else:
            general.append(parameters[code])
    return _Plan(_all_of([tree.finished(), *presences]), tuple(general))


def _plant(tree: _Tree, parameter: SearchParameter, source: Source) -> None:
    """Note at each place that its values are wanted under the parameter's code."""
    for place in source.places:
        wanted = (parameter.type, place.type_path, source.covered)
        _position(tree, place).codes.setdefault(wanted, []).append(parameter.code)


def _plant_composite(tree: _Tree, code: str, found: Composite) -> None:
    """A function that writes the components of each element together."""
    for writer, root, components in found.nested:
        if writer != code:
            continue  # another composite writes the same
        made = []
        for component in components:
            part = _Tree()
            for place in component.places:
                _position(part, place).codes.setdefault((component.type, place.type_path, ()), []).append("")
            made.append((component, part.finished()))
        tree.leaves.append(composite_leaf(code, root, tuple(made)))


def _position(tree: _Tree, place: Place) -> _Tree:
    position = tree
    for step in place.steps:
        position = position.at(step)
    return position


def _presence_leaf(code: str, members: tuple[str, ...]) -> Leaf:
    true, false = (code, token_value("true", "")), (code, token_value("false", ""))

    def write(resource: Any, sink: Sink) -> None:
        there = any(resource.get(name) not in (None, False) for name in members)
        sink.texts.append(true if there else false)

    return write
