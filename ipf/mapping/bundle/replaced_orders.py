"""Orders of a message that replace orders before them: RO after RP, RQ or RU.

What arrives: the ServiceRequests of a map, and what each is made from.  What leaves: `replaces` of each replacement
order (RO), with the orders (and their numbers) that are replaced directly before it.  Several
may replace several.

Source: HL7 v2.9 section 4.5.1.1 (ORC-1), table 0119
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ipf.hl7.structure import Group
from ipf.mapping.bundle.identity import match_identifier
from ipf.mapping.bundle.orders import ORDER
from ipf.mapping.runtime.run import Run
from ipf.ports import Json

_REPLACED = frozenset(("RP", "RQ", "RU"))
_REPLACEMENT = "RO"


def link_replaced(resources: Iterable[Json], run: Run) -> None:
    """Write the references.  Problem COSTLY: they are too many."""
    replaced: list[Json] = []
    is_complete = False
    for order in resources:
        if order["resourceType"] != ORDER:
            continue
        control = _control(run.made_from.get(id(order), ()))
        if control in _REPLACED:
            if is_complete:
                replaced, is_complete = [], False
            replaced.append(order)
        elif control == _REPLACEMENT:
            is_complete = True
            _link(order, replaced, run)


def _link(order: Json, replaced: Sequence[Json], run: Run) -> None:
    run.spend(len(replaced))
    for one in replaced:
        reference: Json = {"reference": run.reference(one), "type": ORDER}
        number = match_identifier(one)
        if number is not None:
            reference["identifier"] = dict(number)
        order.setdefault("replaces", []).append(reference)
        run.references.append((reference, "reference", one))


def _control(nodes: Sequence[object]) -> str:
    """ORC-1 of the order."""
    for node in reversed(nodes):
        for orc in node.children("ORC")[:1] if type(node) is Group else ():
            return next((one.text or "" for one in orc.children("1")), "")
    return ""
