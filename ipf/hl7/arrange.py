"""The group of each segment of a message.

Placement is lenient: an unexpected segment is placed with a warning, and an unknown one (such as a Z segment) stays in
the group in which it occurs.

A cursor moves through the structure.  For each segment the groups are tried from the innermost open one outwards: (1)
the segment occurs at or after the cursor, directly or at the beginning of a group; (2) it begins a group that is there
already and does not repeat, which then does (a second OBR of one ORC), or its place in a group that is there is empty;
(3) as (1), with groups whose required first segment is missing; (4) it occurs before the cursor.  (2) counts only
where (3) would be possible: else a segment out of order would begin another patient or order.  No segment but PID
begins a further group with a patient by (3): what follows would have no subject.

A segment that no place is for stays in the open group, but IAM goes where AL1 has its place: a procedure or an
insurance before it does not have the allergy.

Source: HL7 v2.9 section 2.12 (chapter formats, abstract message syntax)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from ipf.hl7.structure import PRIOR_RESULT, Definition, Group, Path, Structure, newest_structure

_MOST_WARNINGS = 50
_PREVIOUS_RESULTS = "PR"
_ROLES = frozenset(("ROL", "PRT"))
_LIKE = {"IAM": "AL1"}
"""By segment: another one whose place it takes where it has none."""
_REQUEST = re.compile(r"(?!PR|RE)[A-Z]{2}")  # ORC-1 of an order, not of results


class Named(Protocol):
    """Anything with a segment name."""

    @property
    def name(self) -> str:
        """Such as `PID`."""

    def children(self, name: str) -> list[Any]:
        """Fields of this name."""


class _Open:
    """An open group: its definition and the slot of its last child."""

    __slots__ = ("definition", "group", "slot")

    def __init__(self, group: Group, definition: Definition) -> None:
        self.group = group
        self.definition = definition
        self.slot = -1

    def next_slot(self) -> int:
        """The next slot to try: the same one when it may repeat."""
        return self.slot if self.slot >= 0 and self.definition.slots[self.slot].repeats else self.slot + 1


def arrange(stated: Structure, segments: Sequence[Named]) -> tuple[Structure, Group, list[str]]:
    """The tree of a message, with a warning for each misplaced segment.

    A role that the stated version has below a procedure only, and that comes without one, is placed by the newest
    version of the structure.  The structure is the one that was used.
    """
    tree, warnings, beginning = _arrange(stated, segments)
    if not beginning or not _ROLES.issuperset(beginning):
        return stated, tree, warnings
    newest = newest_structure(stated.name)
    names = {segment.name for segment in segments} & stated.all_names
    if newest is None or newest is stated or not names <= newest.all_names:
        return stated, tree, warnings
    other, others, left = _arrange(newest, segments)
    if left:
        return stated, tree, warnings
    text = f"no place in {stated.name} of v{stated.version}, read as in v{newest.version}"
    return newest, other, [f"{', '.join(sorted(set(beginning)))}: {text}", *others]


def _arrange(structure: Structure, segments: Iterable[Named]) -> tuple[Group, list[str], list[str]]:
    """The tree, the warnings, and the segments that begin a group whose required first segment is missing."""
    root = Group(structure.name)
    opened = [_Open(root, structure.root)]
    warnings: list[str] = []
    beginning: list[str] = []
    for number, segment in enumerate(segments, 1):
        if segment.name == "ORC" and PRIOR_RESULT in structure.group_names and _begin_prior_result(opened, segment):
            continue
        is_filled = segment.name == "PID" and _fill_patient(opened, segment)
        if not is_filled and _go_on(opened, segment, lenient=False):
            continue
        known = segment.name in structure.all_names
        depth = _depth_without_beginning(opened, segment.name) if known and not is_filled else None
        if depth is not None and _repeat(opened, segment, depth):
            continue
        is_placed = depth is not None and _fill_place(opened, segment, depth)
        if depth is not None and not is_placed and _go_on(opened, segment, lenient=True):
            beginning.append(segment.name)
            continue
        known = is_placed or is_filled or (known and _put_back(opened, segment))
        if not known:
            _group_for(opened, segment.name).add(segment)
        if (known or not segment.name.startswith("Z")) and len(warnings) < _MOST_WARNINGS:
            reason = "is out of order" if known else f"is not part of {structure.name} in v{structure.version}"
            warnings.append(f"segment {number} ({segment.name}) {reason}")
    return root, warnings, beginning


def _group_for(opened: list[_Open], name: str) -> Group:
    """The group in which a segment without a place stays."""
    like = _LIKE.get(name)
    for here in reversed(opened) if like is not None else ():
        if any(item.name == like for slot in here.definition.slots for item in slot.alternatives):
            return here.group
    return opened[-1].group


def _fill_patient(opened: list[_Open], pid: Named) -> bool:
    """Place a PID in an open group that has passed its place without one (MRG before PID)."""
    for here in reversed(opened):
        passed = here.definition.slots[: max(here.slot, 0)]
        if any(item.name == "PID" for slot in passed for item in slot.alternatives) and not here.group.children("PID"):
            here.group.add(pid)
            return True
    return False


def _go_on(opened: list[_Open], segment: Named, *, lenient: bool) -> bool:
    """Place the segment at or after the cursor, and move the cursor."""
    for depth in range(len(opened) - 1, -1, -1):
        here = opened[depth]
        path = here.definition.path(segment.name, here.next_slot(), lenient)
        if path is not None and not (lenient and _leaves_patient(here.group, path, segment.name)):
            del opened[depth + 1 :]
            _open(opened, path, segment)
            return True
    return False


def _leaves_patient(group: Group, path: Path, name: str) -> bool:
    """Whether a group with a patient would begin again without a PID: a second PV1 of ORU is no second patient."""
    return any(
        item.group is not None and name != "PID" and item.group.has_patient and group.children(item.name)
        for _, item in path[:1]
    )


def _open(opened: list[_Open], path: Path, segment: Named) -> None:
    """Open the groups of a path from the innermost open one, and add the segment."""
    for slot, item in path:
        opened[-1].slot = slot
        if item.group is not None:
            group = Group(item.name)
            opened[-1].group.add(group)
            opened.append(_Open(group, item.group))
    opened[-1].group.add(segment)


def _begin_prior_result(opened: list[_Open], orc: Named) -> bool:
    """Open PRIOR_RESULT for an ORC that says it is one; close it for an ORC that is an order, and do not place it."""
    control = next((field.text or "" for field in orc.children("ORC_1")), "")
    inside = next((depth for depth, here in enumerate(opened) if here.group.name == PRIOR_RESULT), None)
    if control != _PREVIOUS_RESULTS or inside is not None:
        if inside is not None and _REQUEST.fullmatch(control):
            del opened[inside:]
        return False
    for depth in range(len(opened) - 1, -1, -1):
        for index, slot in enumerate(opened[depth].definition.slots):
            for item in slot.alternatives:
                if item.name == PRIOR_RESULT and item.group is not None:
                    del opened[depth + 1 :]
                    _open(opened, ((index, item), *(item.group.path("ORC", 0, True) or ())), orc)
                    return True
    return False


def _depth_without_beginning(opened: list[_Open], name: str) -> int | None:
    """Where a segment could be placed after the cursor, in a group whose required first segment is missing."""
    for depth in range(len(opened) - 1, -1, -1):
        if opened[depth].definition.path(name, opened[depth].next_slot(), True) is not None:
            return depth
    return None


def _repeat(opened: list[_Open], segment: Named, above: int) -> bool:
    """Begin a group again that does not repeat, in an open group below depth `above`."""
    for depth in range(len(opened) - 1, above, -1):
        here = opened[depth]
        for index in range(here.slot, -1, -1):
            for item in here.definition.slots[index].alternatives:
                if item.group is not None and segment.name in item.group.first and here.group.children(item.name):
                    del opened[depth + 1 :]
                    _open(opened, ((index, item), *(item.group.path(segment.name, 0, False) or ())), segment)
                    return True
    return False


def _fill_place(opened: list[_Open], segment: Named, above: int) -> bool:
    """Place a segment that occurs once where it is missing, in an open group below depth `above`; the cursor stays."""
    return any(_fill(here.group, here.definition, segment) for here in reversed(opened[above + 1 :]))


def _fill(group: Group, definition: Definition, segment: Named) -> bool:
    for slot in definition.slots:
        for item in slot.alternatives:
            held = group.children(item.name)
            if item.group is None:
                if item.name == segment.name and not slot.repeats and not held:
                    group.add(segment)
                    return True
            elif held:
                if _fill(held[-1], item.group, segment):
                    return True
            elif segment.name in item.group.first:
                made = Group(item.name)
                group.add(made)
                return _fill(made, item.group, segment)
    return False


def _put_back(opened: list[_Open], segment: Named) -> bool:
    """Place a segment before the cursor; the cursor stays."""
    for here in reversed(opened):
        path = here.definition.path(segment.name, 0, True)
        if path is not None:
            target = here.group
            for _, item in path[:-1]:
                there = target.children(item.name)
                if not there:
                    target.add(Group(item.name))
                target = target.children(item.name)[-1]
            target.add(segment)
            return True
    return False
