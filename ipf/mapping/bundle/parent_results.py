"""Results of a message that are derived from a result before them: a susceptibility and its organism.

What arrives: the resources of a map, before they become entries, and what each is made from.  The maps name the parent
(OBR-26) by a reference without a target.  What leaves: the reference to the one Observation of the same patient, of the
order with the number of OBR-29, with code (PRL.1) and sub-ID (PRL.2).  Without such an order it is the only Observation
with both.  What is not found keeps its name, and the store looks for it (`numbered_links`).

The Observations are found by an index, so that the work of many panels grows with their number.

Source: HL7 v2.9 sections 4.5.3.26 (OBR-26), 4.5.3.29 (OBR-29), 7.4.2.4 (OBX-4)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ipf.hl7.message import Segment
from ipf.hl7.structure import Group
from ipf.mapping.runtime.run import Run
from ipf.ports import Json

OBSERVATION = "Observation"
_PLACER, _FILLER = 2, 3
"""Fields of ORC and OBR with the numbers of the order, and components of OBR-29 in the same order from 1 on."""


@dataclass(frozen=True, slots=True)
class Parent:
    """What OBR-26 and OBR-29 name: code and sub-ID of the result, the numbers of its order (empty: none)."""

    code: str
    sub_id: str
    placer: str = ""
    filler: str = ""


def parent_of(nodes: Sequence[object]) -> Parent:
    """The parent that the order of an Observation names.  `nodes`: what the Observation is made from."""
    order = _segment(nodes, "OBR")
    result = _first(order, 26)
    numbers = _first(order, 29)
    return Parent(_part(result, 1), _part(result, 2), _part(numbers, 1), _part(numbers, 2))


def link_parents(resources: Iterable[Json], run: Run) -> None:
    """Write the references to parents that go before in the message."""
    observations = [one for one in resources if one["resourceType"] == OBSERVATION]
    if not any(_unknown(one) for one in observations):
        return
    before = _Before()
    for observation in observations:
        nodes = run.made_from.get(id(observation), ())
        for reference in _unknown(observation):
            found = before.find(_subject(observation), parent_of(nodes))
            if found is not None:
                reference["reference"] = run.reference(found)
                run.references.append((reference, "reference", found))
        before.add(observation, nodes)


def _unknown(observation: Json) -> list[Json]:
    """The references to results that name no resource."""
    held = observation.get("derivedFrom", ())
    return [one for one in held if one.get("type") == OBSERVATION and "reference" not in one]


class _Before:
    """The Observations so far, by patient, code and sub-ID, and by these with a number of their order."""

    def __init__(self) -> None:
        self._all: dict[tuple[str, ...], list[Json]] = {}
        self._of_order: dict[tuple[str, ...], list[Json]] = {}

    def add(self, observation: Json, nodes: Sequence[object]) -> None:
        """Add an Observation that is made from OBX."""
        obx = _segment(nodes, "OBX")
        if obx is None:
            return
        key = _subject(observation), _part(_first(obx, 3), 1), _text(_first(obx, 4))
        self._all.setdefault(key, []).append(observation)
        for field in (_PLACER, _FILLER):
            number = _number(nodes, field)
            if number:
                self._of_order.setdefault((*key, str(field), number), []).append(observation)

    def find(self, subject: str, parent: Parent) -> Json | None:
        """The only one that is meant."""
        if not parent.code:
            return None
        key = subject, parent.code, parent.sub_id
        named = ((*key, str(field), number) for field, number in ((_PLACER, parent.placer), (_FILLER, parent.filler)))
        found = {id(one): one for name in named for one in self._of_order.get(name, ())}
        held = list(found.values()) or self._all.get(key, [])
        return held[0] if len(held) == 1 else None


def _number(nodes: Sequence[object], field: int) -> str:
    """The placer's or the filler's number of an order: of OBR, else of ORC."""
    number = _part(_first(_segment(nodes, "OBR"), field), 1)
    return number or next(filter(None, (_part(_first(one, field), 1) for one in _controls(nodes))), "")


def _controls(nodes: Sequence[object]) -> Iterator[Segment]:
    """The ORC segments of the groups around an Observation."""
    for node in nodes:
        if type(node) is Group:
            yield from node.children("ORC")
            for common in node.children("COMMON_ORDER"):
                yield from common.children("ORC")


def _segment(nodes: Sequence[object], name: str) -> Segment | None:
    return next((one for one in nodes if type(one) is Segment and one.name == name), None)


def _first(segment: Segment | None, number: int) -> Any:
    """The first repetition of a field."""
    return None if segment is None else next(iter(segment.children(str(number))), None)


def _part(field: Any, number: int) -> str:
    """The first value of a component."""
    held = () if field is None else field.children(str(number))
    return (held[0].text or "") if held else ""


def _text(field: Any) -> str:
    return "" if field is None else field.text or ""


def _subject(observation: Json) -> str:
    subject = observation.get("subject", {})
    return str(subject.get("reference", ""))
