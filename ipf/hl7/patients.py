"""Whether a message has more patients than its structure has.

A second PID where the structure has one would put two persons on one record: such a message is refused, unless both PID
have a number in common (senders repeat PID before each order).

Source: HL7 v2.9 sections 3.4.2 (PID), 4.4.6 (PRIOR_RESULT of OML)
"""

from __future__ import annotations

from typing import Any

from ipf.errors import Category, Problem
from ipf.hl7.message import Message
from ipf.hl7.structure import PRIOR_RESULT


def check_patients(message: Message) -> None:
    """Problem VALUE: two patients in a place of one."""
    segments = message.segments("PID")
    if len(segments) < 2:
        return
    tree = message.tree()
    _check_group(tree)
    first = next(iter(segments))
    for prior in _groups(tree, PRIOR_RESULT):
        persons = [pid for group in prior.children("PATIENT_PRIOR") for pid in group.children("PID")]
        if not prior.children("ORDER_PRIOR") and any(_differ(first, pid) for pid in persons):
            raise _problem("the PID before an order is of another patient than the message")


def _check_group(group: Any) -> None:
    persons = group.children("PID")
    if any(_differ(persons[0], other) for other in persons[1:]):
        raise _problem(f"{group.name} has one patient, and the message has PID of two")
    for node in group.nodes:
        if node.kind == "group":
            _check_group(node)


def _groups(group: Any, name: str) -> list[Any]:
    inner = [node for node in group.nodes if node.kind == "group"]
    return [*group.children(name), *(one for node in inner for one in _groups(node, name))]


def _differ(one: Any, other: Any) -> bool:
    """Whether two PID have numbers (PID-3), and none in common."""
    numbers, others = _numbers(one), _numbers(other)
    return bool(numbers and others) and not numbers & others


def _numbers(pid: Any) -> set[str]:
    return {field.text for field in pid.children("PID_3") if field.text}


def _problem(text: str) -> Problem:
    return Problem(Category.VALUE, text, "PID")
