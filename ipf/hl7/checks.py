"""What a message must not be: several messages, broken lines, a message without its subject, or one with two.

Each of these would put data on somebody else's record, or end as delivered although nothing of the subject was stored.
`check_message` looks at every message before it is mapped, stored or not; Problems are permanent errors.

* Each line is a segment: three characters, a capital letter first, then the field separator, which a segment without
  fields may leave out if its name is known.
* There is one MSH, and no header of a batch.
* What the structure requires and maps need is there, and says something: PID, MRG, OBR, TXA and others (`_CONTENT`).  A
  PID names a person: by a number or a name.  EVN and PV1 may be missing, as senders leave them out and nothing depends
  on them.
* MRG has a number of what the event merges, moves or renames: a patient, an account, a visit.
* A message of orders has an order: ORC, OBR, RXO or another of them.
* A structure with an optional PID has one, unless an operator lists the message type (IPF_WITHOUT_PATIENT_TYPES).
* Where the structure has one PID, PV1, MRG or TXA, there are not two of different subjects.  Senders repeat them before
  each order, so two are one when they share a number, or when no field contradicts.

Source: HL7 v2.9 sections 2.5.2 (segments), 2.10.3.1 (batches), 3.4.2 (PID), 4.4.6 (PRIOR_RESULT of OML)
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from typing import Any

from ipf.errors import Category, Problem
from ipf.hl7.escape import NULL
from ipf.hl7.message import Message, Segment
from ipf.hl7.structure import PRIOR_RESULT, Definition, Group, Item, all_segment_names

_SEGMENT = re.compile(r"[A-Z][A-Z0-9]{2}")
_HEADERS = frozenset(("MSH", "FHS", "BHS", "BTS", "FTS"))
_CONTENT = frozenset(
    ("PID", "MRG", "OBR", "TXA", "SCH", "FT1", "PRB", "GOL", "RXE", "RXD", "RXG", "RXA", "RXO", "STF", "LOC", "NPU")
)
_ORDERING = ("ORC", "OBR", "RXO", "RXE", "RXD", "RXG", "RXA", "RQD", "RQ1", "ODS", "ODT")
"""The segments that make an order; senders leave ORC out."""
_MERGED = {
    **dict.fromkeys(("A18", "A30", "A34", "A36", "A39", "A40", "A43", "A46", "A47"), ("MRG_1", "MRG_4")),
    "A48": ("MRG_1", "MRG_2", "MRG_4"),
    **dict.fromkeys(("A35", "A41", "A44", "A49"), ("MRG_3",)),
    **dict.fromkeys(("A42", "A45", "A50", "A51"), ("MRG_5", "MRG_6")),
}
"""The fields of MRG, by event, of which one has the number: of a patient, an account, a visit."""
_PERSON_NUMBERS = ("PID_3", "PID_2", "PID_4", "PID_19", "PID_20")
_NAME_PARTS = 6  # components of PID-5 that are names; the others say what kind of name it is
_NUMBERS = {"PID": "PID_3", "PV1": "PV1_19", "MRG": "MRG_1", "TXA": "TXA_12"}
"""The segments that name a subject, and the field with its number."""


def check_message(message: Message, without_patient: Collection[str] = ()) -> None:
    """Problem MALFORMED, REQUIRED or VALUE names segment and rule; `without_patient`: message types without a PID."""
    _check_lines(message)
    definition = message.definition
    if definition is None:
        return
    tree = message.tree()
    names = {segment.name for segment in message.all_segments}
    may_lack_patient = message.message_type in without_patient
    _check_content(tree, definition.root, definition.name, _CONTENT - {"PID"} if may_lack_patient else _CONTENT)
    if not may_lack_patient and any(not _says_something(one) for one in tree.children("PID")):
        raise _missing("PID", f"{definition.name} requires it", is_empty=True)
    _check_merge(message)
    if _lacks_order(message, definition.root):
        raise _missing("ORC", f"{definition.name} without an order")
    if not names.isdisjoint(_NUMBERS):
        _check_subjects(tree, definition.root)
    if PRIOR_RESULT in definition.group_names and "PID" in names:
        _check_prior(message)
    if "PID" in definition.all_names and not may_lack_patient and not _has_patient(tree):
        raise _missing("PID", f"{definition.name} without a patient; IPF_WITHOUT_PATIENT_TYPES permits it")


def _check_lines(message: Message) -> None:
    separator = message.encoding.separators.field
    for number, segment in enumerate(message.all_segments, 1):
        is_known = segment.name in all_segment_names() or segment.name.startswith("Z")
        is_alone = is_known and len(segment.raw.rstrip()) == len(segment.name)
        if not _SEGMENT.fullmatch(segment.name) or (segment.raw[3:4] != separator and not is_alone):
            raise Problem(Category.MALFORMED, "this is no segment: the message is broken here", f"line {number}")
        if number > 1 and segment.name in _HEADERS:
            raise Problem(Category.MALFORMED, f"a second message begins here ({segment.name})", f"line {number}")


# --------------------------------------------------------------------------------------------------------------
# What is missing


def _check_content(group: Group, definition: Definition, structure: str, content: Collection[str]) -> None:
    """Problem REQUIRED: a segment of `content` that the group requires is missing, or says nothing."""
    for slot in definition.slots:
        present = [
            (item, node)
            for item in slot.alternatives
            for node in group.children(item.name)
            if _is_begun(item, node, content)
        ]
        if not present and slot.required:
            missing = next((name for item in slot.alternatives if (name := _required(item, content))), None)
            if missing is not None:
                raise _missing(missing, f"{structure} requires it", is_empty=bool(group.children(missing)))
        for item, node in present:
            if item.group is not None and item.name != PRIOR_RESULT:
                _check_content(node, item.group, structure, content)


def _is_begun(item: Item, node: Any, content: Collection[str]) -> bool:
    """Whether a segment says something, and a group has a segment that begins it: an OBX before the first OBR stands in
    a group of its own."""
    if item.group is None:
        return item.name not in content or _says_something(node)
    return any(name in item.group.first for name in _segment_names(node))


def _says_something(segment: Segment) -> bool:
    """Whether a field has a value; of a PID one that names the person."""
    if segment.name == "PID":
        has_number = any(field.text for name in _PERSON_NUMBERS for field in segment.children(name))
        parts = (part for field in segment.children("PID_5") for part in field.parts[:_NAME_PARTS])
        return has_number or any(part and part != NULL for part in parts)
    return any(field and field != NULL for field in segment.fields[1:])


def _segment_names(group: Group) -> Iterator[str]:
    for node in group.nodes:
        if node.kind == "group":
            yield from _segment_names(node)
        else:
            yield node.name


def _required(item: Item, content: Collection[str]) -> str | None:
    """The first segment of `content` that is missing with this item."""
    if item.group is None:
        return item.name if item.name in content else None
    slots = (slot for slot in item.group.slots if slot.required)
    return next((name for slot in slots for one in slot.alternatives if (name := _required(one, content))), None)


def _check_merge(message: Message) -> None:
    """Problem REQUIRED: MRG has no number of what the event merges, moves or renames."""
    needed = _MERGED.get(message.header.trigger if message.header.message_code == "ADT" else "")
    if needed is None:
        return
    for segment in message.segments("MRG"):
        if not any(field.text for name in needed for field in segment.children(name)):
            fields = " or ".join(name.replace("_", "-") for name in needed)
            raise Problem(Category.REQUIRED, f"the segment has no {fields}: {message.message_type} requires it", "MRG")


def _lacks_order(message: Message, definition: Definition) -> bool:
    """Whether a message of orders has none."""
    return _requires_order(definition) and not any(
        _says_something(one) for name in _ORDERING for one in message.segments(name)
    )


@lru_cache(maxsize=256)
def _requires_order(definition: Definition) -> bool:
    return _required(Item("", definition), ("ORC",)) is not None


def _has_patient(group: Group) -> bool:
    """Whether there is a PID that is not that of a prior result."""
    if any(_says_something(one) for one in group.children("PID")):
        return True
    return any(_has_patient(node) for node in group.nodes if node.kind == "group" and node.name != PRIOR_RESULT)


def _missing(name: str, text: str, *, is_empty: bool = False) -> Problem:
    state = "is missing"
    if is_empty:
        state = "names nobody (no number, no name)" if name == "PID" else "is empty"
    return Problem(Category.REQUIRED, f"the segment {state}: {text}", name)


# --------------------------------------------------------------------------------------------------------------
# Two in a place of one


def _check_subjects(group: Group, definition: Definition) -> None:
    """Problem VALUE: two subjects in a place of one."""
    for name, number in _NUMBERS.items():
        found = list(_of_one_place(group, definition, name))
        if len(found) > 1 and _places(definition, name) == 1 and _has_other(_Subject(found[0], number), found[1:]):
            raise Problem(Category.VALUE, f"{group.name} has one {name}, and the message has two that differ", name)
    for slot in definition.slots:
        for item in slot.alternatives:
            if item.group is not None:
                for node in group.children(item.name):
                    _check_subjects(node, item.group)


def _of_one_place(group: Group, definition: Definition, name: str) -> Iterator[Segment]:
    """The segments of this name for which the group has one place: its own, and those of groups that do not repeat."""
    for slot in definition.slots:
        if slot.repeats:
            continue
        for item in slot.alternatives:
            for node in group.children(item.name):
                if item.group is not None:
                    yield from _of_one_place(node, item.group, name)
                elif item.name == name:
                    yield node


def _places(definition: Definition, name: str) -> int:
    """How many places such a group has for them: the structure of A17 has two PID."""
    items = [item for slot in definition.slots if not slot.repeats for item in slot.alternatives]
    return sum(item.name == name if item.group is None else _places(item.group, name) for item in items)


def _check_prior(message: Message) -> None:
    """Problem VALUE: a PID before what may be a prior result, but has no order of one (OBR), is of another patient."""
    first = _Subject(message.segments("PID")[0], _NUMBERS["PID"])
    for prior in _groups(message.tree(), PRIOR_RESULT):
        persons = [pid for group in prior.children("PATIENT_PRIOR") for pid in group.children("PID")]
        has_order = any(order.children("OBR") for order in prior.children("ORDER_PRIOR"))
        if not has_order and _has_other(first, persons):
            raise Problem(Category.VALUE, "the PID before an order is of another patient than the message", "PID")


def _groups(group: Group, name: str) -> Iterator[Group]:
    for node in group.nodes:
        if node.kind == "group":
            if node.name == name:
                yield node
            yield from _groups(node, name)


class _Subject:
    """Whom a segment names: its numbers (with the assigning authorities of each, empty when not said), and its fields.

    The numbers are looked up, not compared one by one: a message may have thousands of them.
    """

    def __init__(self, segment: Segment, number: str) -> None:
        self._number = number
        self._fields = segment.fields[2:]  # the first field is the set id
        self._authorities: dict[str, set[str]] = {}
        for one, authority in _numbers(segment, number):
            self._authorities.setdefault(one, set()).add(authority)

    def is_other(self, segment: Segment) -> bool:
        """Whether they differ: no number in common; without numbers, a field in which both differ."""
        numbers = list(_numbers(segment, self._number)) if self._authorities else []
        if numbers:
            return not any(self._has(one, authority) for one, authority in numbers)
        pairs = zip(self._fields, segment.fields[2:], strict=False)
        return any(left and right and left != right for left, right in pairs)

    def _has(self, number: str, authority: str) -> bool:
        held = self._authorities.get(number, ())
        return bool(held) and (not authority or authority in held or "" in held)


def _has_other(subject: _Subject, segments: Iterable[Segment]) -> bool:
    return any(subject.is_other(one) for one in segments)


def _numbers(segment: Segment, number: str) -> Iterator[tuple[str, str]]:
    """(number, its assigning authority, empty when not said) of each repetition."""
    for field in segment.children(number):
        if field.text:
            yield field.text, next((one.text or "" for one in field.children("CX_4")), "")
