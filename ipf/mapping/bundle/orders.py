"""Several orders of one number: what tells the ServiceRequests of a message apart.

A placer's number often covers several tests: one ORC, or several, with an OBR each.  Each OBR is a ServiceRequest of
its own, told apart by its service (OBR-4).  The same service twice under one number, both times as a new order (ORC-1
NW), is two orders too: the second gets a computed identifier.  Any other entry with the same number and service is the
same order, told twice.

Source: HL7 v2.9 sections 4.4 (order message), 4.5.3.4 (OBR-4); https://hl7.org/fhir/R4/servicerequest.html
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b

from ipf.fhir.model.identifier import key_of
from ipf.ports import Json
from ipf.ports.identity import IdentityKey, Service, ServiceCode, Siblings

ORDER = "ServiceRequest"
_EVENT = "http://hl7.org/fhir/StructureDefinition/businessEvent"
_NEW = frozenset(("NW", "RO", "CH"))  # table 0119: new order, replacement order, child order


def services(orders: Sequence[tuple[Json, Json]], once: set[int]) -> dict[int, tuple[Service, int]]:
    """The service of each order, by its id(), and how many new orders of the message before it have the same.

    `orders`: ServiceRequests with the identifier that finds them.  `once`: the id() of those that are only mentioned.
    """
    by_number: dict[IdentityKey, list[Json]] = {}
    for resource, identifier in orders:
        by_number.setdefault(key_of(identifier), []).append(resource)
    found: dict[int, tuple[Service, int]] = {}
    for held in by_number.values():
        codes = [service_codes(one) for one in held]
        different = frozenset(codes) - {frozenset()}
        counts = _counts(different)
        before: dict[frozenset[ServiceCode], int] = {}
        for resource, own in zip(held, codes, strict=True):
            is_new = id(resource) not in once and order_event(resource) in _NEW
            service = Service(own, Siblings(counts, own, len(different) > bool(own)), is_new)
            found[id(resource)] = service, before.get(own, 0) if is_new and own else 0
            if is_new:
                before[own] = before.get(own, 0) + 1
    return found


def _counts(services: Iterable[frozenset[ServiceCode]]) -> dict[str, dict[str, int]]:
    """By code and system, how many services have it."""
    counts: dict[str, dict[str, int]] = {}
    for system, code in (one for codes in services for one in codes):
        of_code = counts.setdefault(code, {})
        of_code[system] = of_code.get(system, 0) + 1
    return counts


def repeated_number(key: IdentityKey, service: Service, repeat: int) -> str:
    """The computed number of a further order of one number and service."""
    parts = (key.system, key.type, key.value, *sorted("|".join(one) for one in service.codes), str(repeat))
    return blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()


def service_codes(order: Json) -> frozenset[ServiceCode]:
    """System and code of each coding; without one, the text."""
    concept = order.get("code")
    if type(concept) is not dict:
        return frozenset()
    codings = concept.get("coding", ())
    codes = {(str(one.get("system", "")), str(one["code"])) for one in codings if type(one) is dict and "code" in one}
    if not codes and "text" in concept:
        codes = {("text", str(concept["text"]))}
    return frozenset(codes or {("text", str(one["display"])) for one in codings if "display" in one})


def code_condition(service: Service) -> str:
    """What a search has beside the number, when the message has several orders of this number; else empty."""
    if not service.siblings.are_any or not service.codes:
        return ""
    system, code = min(service.codes)
    return f"code:text={code}" if system == "text" else f"code={code}"


def order_event(order: Json) -> str:
    """ORC-1, which the maps write as an extension; empty when there was no ORC."""
    for one in order.get("extension", ()):
        if one.get("url") == _EVENT:
            for part in one.get("extension", ()):
                for coding in part.get("valueCodeableConcept", {}).get("coding", ()):
                    return str(coding.get("code", ""))
    return ""
