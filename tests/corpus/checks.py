"""Is a Bundle well formed R4?  Elements, cardinality, primitive types, required codes, references: faults as text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from ipf.fhir.model.definitions import Element, definitions

_DATE = r"\d{4}(-\d\d(-\d\d)?)?"
PATTERNS = {
    "date": re.compile(_DATE),
    "dateTime": re.compile(_DATE + r"(T\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d))?"),
    "instant": re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)"),
    "time": re.compile(r"\d\d:\d\d:\d\d(\.\d+)?"),
    "code": re.compile(r"\S+( \S+)*"),
    "id": re.compile(r"[A-Za-z0-9.-]{1,64}"),
    "uri": re.compile(r"\S+"),
    "canonical": re.compile(r"\S+"),
    "url": re.compile(r"\S+"),
}
_ACTIVE = {"active", "cancelled", "draft", "entered-in-error"}
_REQUEST = {"draft", "active", "on-hold", "revoked", "completed", "entered-in-error", "unknown"}
_INTENT = {"order", "original-order", "reflex-order", "filler-order", "instance-order", "plan", "proposal", "option"}
_PRIORITY = {"routine", "urgent", "asap", "stat"}
_TIME = {"s", "min", "h", "d", "wk", "mo", "a"}
CODES = {
    "Patient.gender": {"male", "female", "other", "unknown"},
    "Patient.contact.gender": {"male", "female", "other", "unknown"},
    "RelatedPerson.gender": {"male", "female", "other", "unknown"},
    "HumanName.use": {"usual", "official", "temp", "nickname", "anonymous", "old", "maiden"},
    "Address.use": {"home", "work", "temp", "old", "billing"},
    "Address.type": {"postal", "physical", "both"},
    "ContactPoint.system": {"phone", "fax", "email", "pager", "url", "sms", "other"},
    "ContactPoint.use": {"home", "work", "temp", "old", "mobile"},
    "Identifier.use": {"usual", "official", "temp", "secondary", "old"},
    "Encounter.status": {
        "planned",
        "arrived",
        "triaged",
        "in-progress",
        "onleave",
        "finished",
        "cancelled",
        "entered-in-error",
        "unknown",
    },
    "Encounter.location.status": {"planned", "active", "reserved", "completed"},
    "Location.mode": {"instance", "kind"},
    "AllergyIntolerance.type": {"allergy", "intolerance"},
    "AllergyIntolerance.category": {"food", "medication", "environment", "biologic"},
    "AllergyIntolerance.criticality": {"low", "high", "unable-to-assess"},
    "Observation.status": {
        "registered",
        "preliminary",
        "final",
        "amended",
        "corrected",
        "cancelled",
        "entered-in-error",
        "unknown",
    },
    "Procedure.status": {
        "preparation",
        "in-progress",
        "not-done",
        "on-hold",
        "stopped",
        "completed",
        "entered-in-error",
        "unknown",
    },
    "Coverage.status": _ACTIVE,
    "ServiceRequest.status": _REQUEST,
    "ServiceRequest.intent": _INTENT,
    "ServiceRequest.priority": _PRIORITY,
    "MedicationRequest.status": _REQUEST - {"revoked"} | {"cancelled", "stopped"},
    "MedicationRequest.intent": _INTENT,
    "MedicationRequest.priority": _PRIORITY,
    "Timing.repeat.periodUnit": _TIME,
    "Timing.repeat.durationUnit": _TIME,
    "Timing.repeat.dayOfWeek": {"mon", "tue", "wed", "thu", "fri", "sat", "sun"},
    "Timing.repeat.when": {"MORN", "EVE", "HS", "AC", "PC", "ACM", "ACD", "ACV", "PCM", "PCD", "PCV"},
    "Appointment.status": {
        "proposed",
        "pending",
        "booked",
        "arrived",
        "fulfilled",
        "cancelled",
        "noshow",
        "entered-in-error",
        "checked-in",
        "waitlist",
    },
    "Appointment.participant.status": {"accepted", "declined", "tentative", "needs-action"},
    "ChargeItem.status": {"planned", "billable", "not-billable", "aborted", "billed", "entered-in-error", "unknown"},
    "Goal.lifecycleStatus": {
        "proposed",
        "planned",
        "accepted",
        "active",
        "on-hold",
        "completed",
        "cancelled",
        "entered-in-error",
        "rejected",
    },
    "CarePlan.status": _REQUEST,
    "Account.status": {"active", "inactive", "entered-in-error", "on-hold", "unknown"},
    "Bundle.entry.request.method": {"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH"},
}
"""Required bindings that the maps touch."""


def faults(bundle: dict[str, Any]) -> list[str]:
    """Everything that is wrong with a transaction Bundle; empty = well formed."""
    urls = {one["fullUrl"]: one["resource"]["resourceType"] for one in bundle.get("entry", ())}
    found = list(_object("Bundle", bundle, "Bundle", urls))
    if len(urls) != len(bundle.get("entry", ())):
        found.append("two entries with one fullUrl")
    return found


def _object(type_path: str, value: Any, place: str, urls: dict[str, str]) -> Iterator[str]:
    if not isinstance(value, dict) or not value:
        yield f"{place}: should be an object with content"
        return
    if type_path in ("Resource", "DomainResource"):
        type_path = value.get("resourceType", "?")
    if type_path not in definitions().resource_types and not definitions().is_type(type_path):
        yield f"{place}: unknown type {type_path}"
        return
    for name, content in value.items():
        if name != "resourceType":
            yield from _member(type_path, value, name, content, f"{place}.{name}", urls)
    yield from _missing(type_path, value, place)
    yield from _rules(type_path, value, place, urls)


def _missing(type_path: str, value: dict[str, Any], place: str) -> Iterator[str]:
    for element in definitions().members(type_path).values():
        held = [element.json_name(one) for one in element.types] if element.choice else [element.name]
        if element.required and not any(one in value or f"_{one}" in value for one in held):
            yield f"{place}: {element.name} is required"


def _member(
    type_path: str, owner: dict[str, Any], name: str, content: Any, place: str, urls: dict[str, str]
) -> Iterator[str]:
    plain = name.removeprefix("_")
    element = definitions().element(type_path, plain)
    if element is None or (element.choice and plain == element.name):
        yield f"{place}: no such element"
        return
    if isinstance(content, list) is not element.many:
        yield f"{place}: {'should' if element.many else 'should not'} be a list"
        return
    items = content if element.many else [content]
    if not items:
        yield f"{place}: empty list"
    for number, item in enumerate(items):
        here = f"{place}[{number}]" if element.many else place
        if item is None:
            if not element.many or not (owner.get(plain) and owner.get(f"_{plain}")):
                yield f"{here}: null"
        elif name.startswith("_"):
            yield from _object("Element", item, here, urls)
        else:
            yield from _value(element, item, here, urls)


def _value(element: Element, item: Any, place: str, urls: dict[str, str]) -> Iterator[str]:
    type_name = element.types[0]
    if type_name not in definitions().primitive_types and not type_name.startswith("http"):
        yield from _object(type_name, item, place, urls)
        return
    allowed = CODES.get(element.path)
    if allowed is not None and item not in allowed:
        yield f"{place}: '{item}' is not of the required binding"
    if not _is_primitive(type_name, item):
        yield f"{place}: {item!r} is no {type_name}"


def _is_primitive(type_name: str, item: Any) -> bool:
    if type_name == "boolean":
        return isinstance(item, bool)
    if type_name in ("integer", "positiveInt", "unsignedInt"):
        least = {"integer": -(2**31), "unsignedInt": 0, "positiveInt": 1}[type_name]
        return isinstance(item, int) and not isinstance(item, bool) and item >= least
    if type_name == "decimal":
        return isinstance(item, (int, Decimal)) and not isinstance(item, bool)
    pattern = PATTERNS.get(type_name)
    return isinstance(item, str) and bool(item.strip()) and (pattern is None or pattern.fullmatch(item) is not None)


def _rules(type_path: str, value: dict[str, Any], place: str, urls: dict[str, str]) -> Iterator[str]:
    """Invariants of R4 that maps can break: ref, cpt-2, org-1, per-1, ait-1, ext-1, con-5, app-2, prr-1."""
    if type_path == "Reference" and value.get("reference", "#")[0] != "#" and value["reference"] not in urls:
        yield f"{place}: {value['reference']} is not in the Bundle"
    if type_path == "ContactPoint" and "value" in value and "system" not in value:
        yield f"{place}: a value needs a system"
    if type_path == "Organization" and not ("name" in value or "identifier" in value):
        yield f"{place}: needs a name or an identifier"
    if type_path == "Period" and value.get("end", "9999")[:10] < value.get("start", "")[:10]:
        yield f"{place}: ends before it starts"
    if type_path == "AllergyIntolerance" and ("clinicalStatus" in value) is _is_in_error(value):
        yield f"{place}: clinicalStatus is required, unless the allergy is entered in error (ait-1, ait-2)"
    if type_path == "Extension" and ("extension" in value) is any(one.startswith("value") for one in value):
        yield f"{place}: needs either a value or extensions"
    if type_path == "Appointment" and ("start" in value) is not ("end" in value):
        yield f"{place}: needs both start and end or neither"
    if type_path == "ServiceRequest" and "orderDetail" in value and "code" not in value:
        yield f"{place}: details of an order without a code"
    if type_path == "Coding" and not ("code" in value or "display" in value):
        yield f"{place}: a coding without code and display"
    if type_path == "Identifier" and "value" not in value:
        yield f"{place}: an identifier without a value"


def _is_in_error(allergy: dict[str, Any]) -> bool:
    return "entered-in-error" in str(allergy.get("verificationStatus"))
