"""The search parameters of one resource type as a tree of member names, and the walk along it for any resource.

The walk is made of closures, one for each position, and takes everything as it comes: a list where one value belongs,
a text where an object does.  `index_code.py` makes of the same tree the function that nearly all resources go through.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ipf.fhir.index.paths import Guard, Step
from ipf.fhir.index.values import Leaf, Sink, leaf


@dataclass(slots=True)
class Tree:
    """One position in a resource, while it is planned: what to write of a value here, and where to go on from it."""

    guarded: list[tuple[Guard, Tree]] = field(default_factory=list)
    members: dict[str, Tree] = field(default_factory=dict)
    # (parameter type, FHIR type, parts of it that others write) -> codes
    codes: dict[tuple[str, str, tuple[str, ...]], list[str]] = field(default_factory=dict)
    leaves: list[Leaf] = field(default_factory=list)

    def at(self, step: Step) -> Tree:
        """The position one step further, made when it is new."""
        if isinstance(step, str):
            return self.members.setdefault(step, Tree())
        for guard, tree in self.guarded:
            if guard == step:
                return tree
        self.guarded.append((step, Tree()))
        return self.guarded[-1][1]

    def finished(self) -> Leaf:
        """One function for all that is done with a value here; parameters that want the same of it share a leaf."""
        made = (leaf(kind, type_name, tuple(codes), rest) for (kind, type_name, rest), codes in self.codes.items())
        leaves = [one for one in made if one is not None] + self.leaves
        leaves += [_guarded(guard, tree.finished()) for guard, tree in self.guarded]
        if self.members:
            leaves.append(_members({name: tree.finished() for name, tree in self.members.items()}))
        return leaves[0] if len(leaves) == 1 else _all_of(leaves)


def _guarded(guard: Guard, inner: Leaf) -> Leaf:
    def write(value: Any, sink: Sink) -> None:
        if guard(value):
            inner(value, sink)

    return write


def _members(members: dict[str, Leaf]) -> Leaf:
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
