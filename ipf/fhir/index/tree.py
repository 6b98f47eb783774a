"""The search parameters of one resource type as a tree of element names, and the walk along it as closures.

The walk takes any JSON: a list where R4 has a single value, a text where it has an object.

Source: https://hl7.org/fhir/R4/search.html
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ipf.fhir.index.paths import Condition, Step
from ipf.fhir.index.values import EntryCollector, Indexer, indexer_for


@dataclass(slots=True)
class PathTree:
    """One element of a resource type: what to index of its values, and the elements inside it.

    `codes`: (parameter type, FHIR type, parts that other parameters index) -> codes of search parameters.
    """

    conditional: list[tuple[Condition, PathTree]] = field(default_factory=list)
    members: dict[str, PathTree] = field(default_factory=dict)
    codes: dict[tuple[str, str, tuple[str, ...]], list[str]] = field(default_factory=dict)
    indexers: list[Indexer] = field(default_factory=list)

    def at(self, step: Step) -> PathTree:
        """The node one step further, made when it is new."""
        if isinstance(step, str):
            return self.members.setdefault(step, PathTree())
        for condition, tree in self.conditional:
            if condition == step:
                return tree
        self.conditional.append((step, PathTree()))
        return self.conditional[-1][1]

    def indexer(self) -> Indexer:
        """One function for all that is indexed of a value here."""
        made = (indexer_for(kind, name, tuple(codes), rest) for (kind, name, rest), codes in self.codes.items())
        indexers = [one for one in made if one is not None] + self.indexers
        indexers += [_conditional(condition, tree.indexer()) for condition, tree in self.conditional]
        if self.members:
            indexers.append(_members({name: tree.indexer() for name, tree in self.members.items()}))
        return indexers[0] if len(indexers) == 1 else _all_of(indexers)


def _conditional(condition: Condition, inner: Indexer) -> Indexer:
    def index(value: Any, entries: EntryCollector) -> None:
        if condition(value):
            inner(value, entries)

    return index


def _members(members: dict[str, Indexer]) -> Indexer:
    wanted = members.get

    def index(value: Any, entries: EntryCollector) -> None:
        if type(value) is dict:
            for name, item in value.items():
                inner = wanted(name)
                if inner is not None:
                    if type(item) is list:
                        for one in item:
                            inner(one, entries)
                    else:
                        inner(item, entries)

    return index


def _all_of(indexers: Iterable[Indexer]) -> Indexer:
    each = tuple(indexers)

    def index(value: Any, entries: EntryCollector) -> None:
        for one in each:
            one(value, entries)

    return index
