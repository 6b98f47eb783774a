"""Which stored order of a number a message means, when the number covers several tests.

What arrives: the service of the order in the message, and the stored orders of the same patient with its number.  What
leaves: the orders that are meant; none: the order is new.

- An order with the same service is meant.  Of several, the one with the same filler's number, else the oldest (for a
  result the caller decides).
- An order without a service (a cancellation of the number, ORC alone) means all orders of the number.
- An order that was stored without a service is meant by the first that names one.
- A new order (ORC-1 NW) with another service is another order.  A change or a result with another service means the
  only order of the number, since placers and fillers often use codes of their own; but not one of another filler's
  number, and a result not one that only an earlier result has named.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ipf.fhir.model.identifier import identifiers_of, key_of
from ipf.mapping.bundle.merging import other_types
from ipf.mapping.bundle.orders import order_event, service_codes
from ipf.ports import Json
from ipf.ports.identity import Service, ServiceCode
from ipf.rest.identity.decisions import Candidate

_FILLER = "FILL"
_OF_RESULTS = frozenset(("", "RE", "PR"))  # ORC-1 of an order that only a result has named


def meant_orders(service: Service, order: Json, stored: Sequence[Candidate], *, is_mentioned: bool) -> list[Candidate]:
    """The stored orders that are meant.  `stored`: oldest first.  `is_mentioned`: by a result; it is not updated."""
    if not service.codes:
        return list(stored)
    same = [one for one in stored if _agree(service.codes, service_codes(one.resource))]
    if same:
        fillers = _fillers(order)
        same = [one for one in same if fillers & _fillers(one.resource)] or same
        return same if is_mentioned else same[:1]
    others = [one for one in stored if not service.siblings.agree(service_codes(one.resource))]
    without = [one for one in others if not service_codes(one.resource)]
    if without or service.is_new:
        return without[:1]
    if len(stored) != 1 or (service.siblings.are_any and not is_mentioned):
        return []
    if is_mentioned and order_event(stored[0].resource) in _OF_RESULTS:
        return []
    return [one for one in others if not _contradict(_fillers(order), _fillers(one.resource))]


def with_details(order: Json, stored: Json) -> Json:
    """An order of ORC alone with what the stored one says beside it: code, notes, specimens ...; neither is changed."""
    changed = {name for key in order for name in (key, f"_{key}", *other_types("ServiceRequest", key))}
    kept = {key: value for key, value in stored.items() if key not in changed and key not in ("id", "meta", "text")}
    made = {**order, **kept}
    sent = {key_of(one) for one in identifiers_of(order)}
    further = [one for one in identifiers_of(stored) if key_of(one) not in sent]
    if further:
        made["identifier"] = [*identifiers_of(order), *further]
    urls = {one.get("url") for one in order.get("extension", ())}
    extensions: list[Any] = [one for one in stored.get("extension", ()) if one.get("url") not in urls]
    if extensions:
        made["extension"] = [*order.get("extension", ()), *extensions]
    return made


def _agree(codes: frozenset[ServiceCode], others: frozenset[ServiceCode]) -> bool:
    """Whether two services have a code in common; a code without a system agrees with the same one of any system."""
    return any(
        code == other and (system == of or not system or not of) for system, code in codes for of, other in others
    )


def _fillers(order: Json) -> set[tuple[str, str]]:
    keys = [key_of(one) for one in identifiers_of(order)]
    return {(key.system, key.value) for key in keys if key.type == _FILLER}


def _contradict(numbers: set[tuple[str, str]], others: set[tuple[str, str]]) -> bool:
    """Whether both have filler's numbers of one authority, and none agrees."""
    return not numbers & others and bool({one[0] for one in numbers} & {one[0] for one in others})
