"""Where the segments of a message stand, found once for all messages whose segments come in the same order.

A sender's messages come in few orders.  What `arrange` finds for the first of them is kept as numbers of segments, and
the groups of the next are made from these.  Messages with a segment that is out of place are arranged each time.

Bounded: the orders of at most `LIMIT` messages of at most `LONGEST` segments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ipf.hl7.structure import Group, Structure, arrange

LIMIT = 256
LONGEST = 64

Nested = tuple[str, tuple[Any, ...]]
"""Name of a group, and its nodes in order: numbers of segments, and groups."""


class _Numbered:
    """Stands for a segment while it is placed."""

    __slots__ = ("name", "number")

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.number = number


class Arrangement:
    """What all messages of one order have in common.

    `segments`: numbers by name of those that the message itself gives as its children.  `groups`: names of groups that
    stand directly in it.
    """

    __slots__ = ("_tree", "groups", "segments")

    def __init__(self, structure: Structure, root: Group, names: Sequence[str]) -> None:
        self._tree = _nested(root)
        self.groups = frozenset(node.name for node in root.nodes if isinstance(node, Group))
        self.segments: dict[str, list[int]] = {}
        at_root = {node.number for node in root.nodes if not isinstance(node, Group)}
        for number, name in enumerate(names):
            if number in at_root or name in structure.only_at_root or is_site_segment(structure, name):
                self.segments.setdefault(name, []).append(number)

    def tree(self, segments: Sequence[Any]) -> Group:
        """The groups of a message with these segments."""
        return _group(self._tree, segments)


def is_site_segment(structure: Structure, name: str) -> bool:
    """Whether it is a segment that a site has added (Z segments), which the structure has no place for."""
    return len(name) == 3 and name[:1] == "Z" and name not in structure.all_names


_arrangements: dict[tuple[Structure, tuple[str, ...]], Arrangement | None] = {}


def arrangement_of(structure: Structure, segments: Sequence[Any]) -> Arrangement | None:
    """The shape of a message with these segments; None: it is not kept, or a segment is out of place."""
    if len(segments) > LONGEST:
        return None
    names = tuple([segment.name for segment in segments])
    key = structure, names
    if key in _arrangements:
        return _arrangements[key]
    if len(_arrangements) >= LIMIT:
        _arrangements.clear()
    root, warnings = arrange(structure, [_Numbered(name, number) for number, name in enumerate(names)])
    found = _arrangements[key] = None if warnings else Arrangement(structure, root, names)
    return found


def _nested(group: Group) -> Nested:
    return group.name, tuple([_nested(node) if isinstance(node, Group) else node.number for node in group.nodes])


def _group(nested: Nested, segments: Sequence[Any]) -> Group:
    made = Group(nested[0])
    for node in nested[1]:
        made.add(segments[node] if type(node) is int else _group(node, segments))
    return made
