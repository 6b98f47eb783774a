"""What R4 requires of the elements that a map has made, and how it is met when the message does not say enough.

What arrives: the elements of the transaction of a message, each with the rules of its type.  What leaves: the same,
valid.  Senders leave out what R4 requires and send what it forbids; the rest of the message must not be lost for that:

- A required element that did not come is there with the extension `data-absent-reason`, code `unknown`.
- A value that R4 does not allow in its element (no date, an end before the start) stays as it was sent in the
  extension `urn:ipf:StructureDefinition/value-as-sent` of that element.
- An extension without a value or inner extensions is removed.

Sources: https://hl7.org/fhir/R4/extension-data-absent-reason.html, https://hl7.org/fhir/R4/element.html (ext-1), the
invariants of each type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache

from ipf.fhir.fhirpath.items.values import compare, parse_datetime
from ipf.fhir.model.definitions import Element, definitions
from ipf.fhir.structure.required_codes import is_media_type
from ipf.ports import Json

ABSENT = "http://hl7.org/fhir/StructureDefinition/data-absent-reason"
AS_SENT = "urn:ipf:StructureDefinition/value-as-sent"
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_DRIVEN = frozenset(("Extension", "Bundle", "Narrative"))
"""Types that the engine finishes by other means."""


@dataclass(frozen=True, slots=True, eq=False)
class TypeRules:
    """The rules of one type.  `required`: for each required element the keys that may hold it, and how to add it."""

    required: tuple[tuple[tuple[str, ...], Callable[[Json], None]], ...]
    mend: Callable[[Json], None] | None = None

    def complete(self, element: Json) -> None:
        """Make an element valid, in place."""
        for keys, add in self.required:
            for key in keys:
                if key in element:
                    break
            else:
                add(element)
        if self.mend is not None:
            self.mend(element)


@lru_cache(maxsize=4096)
def rules_of(type_path: str) -> TypeRules | None:
    """The rules of a type or backbone element (`Condition`, `Appointment.participant`); None when it has none."""
    if type_path.partition(".")[0] in _DRIVEN:
        return None
    members = definitions().members(type_path).values()
    required = tuple((_keys(one), _adder(one)) for one in members if one.required)
    mend = _MENDS.get(type_path)
    return TypeRules(required, mend) if required or mend is not None else None


def absent() -> Json:
    """An element that says that its value is unknown."""
    return {"extension": [{"url": ABSENT, "valueCode": "unknown"}]}


def keep_as_sent(owner: Json, key: str, text: str) -> None:
    """Keep a value that R4 does not allow beside its primitive element."""
    held = owner.setdefault(f"_{key}", {})
    if type(held) is dict:
        held.setdefault("extension", []).append({"url": AS_SENT, "valueString": printable(text)})


def printable(text: str) -> str:
    """The text with U+FFFD for each control character: R4 allows none but tab, line feed and carriage return."""
    return text if text.isprintable() else _CONTROLS.sub("\ufffd", text)


def drop_void(extensions: Iterable[Json]) -> bool:
    """Empty the extensions that have only a url (ext-1); True when there were any."""
    dropped = False
    for one in extensions:
        if len(one) == 1:
            one.clear()
            dropped = True
    return dropped


def align(lists: Iterable[tuple[Json, str]]) -> bool:
    """Give lists of primitives and of their extensions the same length, without empty items; True when one got shorter.

    Source: https://hl7.org/fhir/R4/json.html#primitive
    """
    shorter = False
    for owner, key in lists:
        values, extras = owner.get(key), owner.get(f"_{key}")
        if type(values) is not list or type(extras) is not list:
            continue
        extras += [None] * (len(values) - len(extras))
        pairs = [(value, extra or None) for value, extra in zip(values, extras, strict=False)]
        kept = [pair for pair in pairs if pair != (None, None)]
        values[:], extras[:] = [value for value, _ in kept], [extra for _, extra in kept]
        if not any(extras):
            del owner[f"_{key}"]
        if not kept:
            del owner[key]
        shorter = shorter or len(kept) < len(pairs)
    return shorter


def _keys(element: Element) -> tuple[str, ...]:
    names = [element.json_name(one) for one in element.types] if element.choice else [element.name]
    return (*names, *(f"_{one}" for one in names))


def _adder(element: Element) -> Callable[[Json], None]:
    """Adds an element that says that it is unknown, or one whose own required elements do."""
    type_name = element.types[0]
    key, many = element.json_name(type_name), element.many
    if type_name in definitions().primitive_types:
        return lambda owner: _put(owner, f"_{key}", absent(), many=many)

    def add(owner: Json) -> None:
        made: Json = {}
        inner = rules_of(type_name)
        if inner is not None:
            inner.complete(made)
        _put(owner, key, made or absent(), many=many)

    return add


def _put(owner: Json, key: str, value: Json, *, many: bool) -> None:
    owner[key] = [value] if many else value


# --------------------------------------------------------------------------------------------- invariants by type


def _period(period: Json) -> None:
    """per-1: a period ends after it starts.  The start stays."""
    start, end = period.get("start"), period.get("end")
    if not start or not end or (start <= end and start[-6:] == end[-6:]):
        return
    first, last = parse_datetime(start), parse_datetime(end)
    if first is not None and last is not None and compare(first, last) == 1:
        del period["end"]
        keep_as_sent(period, "end", end)


def _contact_point(point: Json) -> None:
    """cpt-2: a value has a system."""
    if "value" in point:
        point.setdefault("system", "other")


def _organization(organization: Json) -> None:
    """org-1: an organization has a name or an identifier.  org-2, org-3: what it uses is no home."""
    if "name" not in organization and "identifier" not in organization:
        organization["_name"] = absent()
    for name in ("telecom", "address"):
        for one in organization.get(name, ()):
            if one.get("use") == "home":
                del one["use"]
                keep_as_sent(one, "use", "home")


def _repeat(repeat: Json) -> None:
    """tim-1, tim-2: durations and periods have units.  tim-4, tim-5: they are not negative.  tim-9: an offset is that
    of an event of the day.  tim-10: a time of day goes before such an event."""
    for name, unit in (("duration", "durationUnit"), ("period", "periodUnit")):
        if repeat.get(name, 0) < 0:
            keep_as_sent(repeat, name, str(repeat.pop(name)))
        if (name in repeat or f"_{name}" in repeat) and unit not in repeat:
            repeat.setdefault(f"_{unit}", absent())
    if "timeOfDay" in repeat:
        repeat.pop("when", None)
    if "when" not in repeat and repeat.keys() & {"offset", "_offset"}:
        if "offset" in repeat:
            keep_as_sent(repeat, "offset", str(repeat.pop("offset")))
        repeat.setdefault("extension", []).extend(repeat.pop("_offset").get("extension", ()))


def _range(range: Json) -> None:
    """rng-2: a range goes from low to high.  The low end stays."""
    low, high = range.get("low", {}).get("value"), range.get("high", {}).get("value")
    if low is not None and high is not None and high < low:
        range.setdefault("extension", []).append({"url": AS_SENT, "valueQuantity": range.pop("high")})


def _ratio(ratio: Json) -> None:
    """rat-1: a ratio has a numerator and a denominator."""
    for name in ("numerator", "denominator"):
        ratio.setdefault(name, absent())


def _money(money: Json) -> None:
    """The currency is a code of ISO 4217."""
    from ipf.fhir.terminology.open_systems import OPEN_SYSTEMS  # on first use: few messages have amounts

    currency = money.get("currency")
    if currency is not None and not OPEN_SYSTEMS["urn:iso:std:iso:4217"](currency):
        keep_as_sent(money, "currency", money.pop("currency"))


def _attachment(attachment: Json) -> None:
    """The content type has the form of a media type.  att-1: data have a content type."""
    kind = attachment.get("contentType")
    if kind is not None and not is_media_type(kind):
        keep_as_sent(attachment, "contentType", attachment.pop("contentType"))
    if "data" in attachment and "contentType" not in attachment:
        attachment.setdefault("_contentType", absent())


def _education(education: Json) -> None:
    """imm-1: what a patient was given to read has a type or a reference."""
    if not education.keys() & {"documentType", "_documentType", "reference", "_reference"}:
        education["_documentType"] = absent()


def _without_status_of_errors(resource: Json) -> None:
    """ait-2, con-5: what was entered in error has no clinical status."""
    codings = resource.get("verificationStatus", {}).get("coding", ())
    if any(one.get("code") == "entered-in-error" for one in codings):
        resource.pop("clinicalStatus", None)


def _allergy(allergy: Json) -> None:
    """ait-1: an allergy has a clinical status unless it was entered in error.  ait-2."""
    _without_status_of_errors(allergy)
    codings = allergy.get("verificationStatus", {}).get("coding", ())
    if not any(one.get("code") == "entered-in-error" for one in codings):
        allergy.setdefault("clinicalStatus", absent())


def _appointment(appointment: Json) -> None:
    """app-2, app-3: an appointment that is not only proposed or cancelled has a start and an end."""
    missing = [name for name in ("start", "end") if name not in appointment and f"_{name}" not in appointment]
    if len(missing) == 1 or (missing and appointment.get("status") not in ("proposed", "cancelled", "waitlist")):
        for name in missing:
            appointment[f"_{name}"] = absent()


def _participant(participant: Json) -> None:
    """app-1: a participant has a type or an actor."""
    if "type" not in participant and "actor" not in participant:
        participant["actor"] = absent()


def _dosage(dosage: Json) -> None:
    """mad-1: what was given has a dose or a rate."""
    if not dosage.keys() & {"dose", "rateQuantity", "rateRatio"}:
        dosage["dose"] = absent()


def _service_request(request: Json) -> None:
    """prr-1: details of an order need its code."""
    if "orderDetail" in request and "code" not in request:
        request["code"] = absent()


def _contact(contact: Json) -> None:
    """pat-1: a contact has a name, an address, a number or an organization."""
    if not contact.keys() & {"name", "telecom", "address", "organization"}:
        contact["name"] = absent()


_MENDS: dict[str, Callable[[Json], None]] = {
    "AllergyIntolerance": _allergy,
    "Appointment": _appointment,
    "Appointment.participant": _participant,
    "Attachment": _attachment,
    "Condition": _without_status_of_errors,
    "ContactPoint": _contact_point,
    "Immunization.education": _education,
    "MedicationAdministration.dosage": _dosage,
    "Money": _money,
    "Organization": _organization,
    "Patient.contact": _contact,
    "Period": _period,
    "Range": _range,
    "Ratio": _ratio,
    "ServiceRequest": _service_request,
    "Timing.repeat": _repeat,
}
