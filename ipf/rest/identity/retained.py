"""What an update by a message keeps of a stored resource: of a Patient numbers and links, of others the subject.

An order that the message names by its number only (ORC alone) keeps its details.

A message says what its sender knows.  It must not remove a number of another authority, a number that a merge left, or
a link between Patients, since later messages find the Patient by them.  `omitted` decides about all other elements.

Source: https://hl7.org/fhir/R4/patient.html#links
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from typing import Any

from ipf.fhir.model.definitions import definitions
from ipf.fhir.model.identifier import OLD, identifiers_of, key_of
from ipf.mapping.bundle.field_sources import TOLD_AS_A_WHOLE
from ipf.ports import Json
from ipf.ports.identity import Identity, IdentityKey, Role
from ipf.rest.identity.decisions import SUBJECTS, patient_id, subject_references
from ipf.rest.identity.orders import with_details

FURTHER_NUMBER = "urn:ipf:extension:further-number"
"""Extension of a number that a Patient has beside another one of the same authority and type."""

_Kind = tuple[str, str]


def retained(resource: Json, stored: Json, identity: Identity, patients: Collection[str] = ()) -> Json:
    """The resource of a message with what it keeps of the stored one; neither is changed.

    `patients`: ids of the Patients of the message.
    """
    if identity.role is not Role.SUBJECT:
        if _names_no_service(identity):
            resource = with_details(resource, stored)
        return with_visit(with_subject(resource, stored), stored)
    kept: Json = {}
    identifiers = _identifiers(resource, stored, identity)
    if identifiers is not None:
        kept["identifier"] = identifiers
    links = _links(resource, stored, patients)
    if links:
        kept["link"] = [*resource.get("link", ()), *links]
    return {**resource, **kept} if kept else resource


def may_lack(resource: Json, identity: Identity | None) -> bool:
    """Whether an update may have to keep something of the stored resource."""
    if identity is not None and (identity.role is Role.SUBJECT or _names_no_service(identity)):
        return True
    if identity is not None and _lacks_visit(resource):
        return True
    return _has_subject(resource["resourceType"]) and not subject_references(resource)


def _lacks_visit(resource: Json) -> bool:
    """Whether it is a result, which is told as a whole, of a message without the visit."""
    return resource["resourceType"] in TOLD_AS_A_WHOLE and "encounter" not in resource


def _names_no_service(identity: Identity) -> bool:
    """Whether a message names an order by its number only (ORC alone)."""
    return identity.service is not None and not identity.service.codes


@cache
def _has_subject(resource_type: str) -> bool:
    return any(definitions().element(resource_type, name) is not None for name in SUBJECTS)


def with_subject(resource: Json, stored: Json) -> Json:
    """The resource with the subject of the stored one, when the message names none."""
    if subject_references(resource):
        return resource
    kept = {name: stored[name] for name in SUBJECTS if name in stored and name not in resource}
    return {**resource, **kept} if kept else resource


def with_visit(resource: Json, stored: Json) -> Json:
    """A result of the same subject with the visit of the stored one, when the message tells of none."""
    if not _lacks_visit(resource) or "encounter" not in stored or resource.get("subject") != stored.get("subject"):
        return resource
    return {**resource, "encounter": stored["encounter"]}


def _identifiers(patient: Json, stored: Json, identity: Identity) -> list[Any] | None:
    """The identifiers of the message, then those that are kept; None: the message has all."""
    sent = identifiers_of(patient)
    keys = [key_of(one) for one in sent]
    named = {(key.system, key.type) for key in keys}
    further = _further_kinds(identity, stored)
    whole: list[Json] = [
        _marked(one) if (key.system, key.type) in further and one.get("use") != OLD else one
        for one, key in zip(sent, keys, strict=True)
    ]
    kept: list[Json] = []
    for one in identifiers_of(stored):
        key = key_of(one)
        twin = _twin(key, keys)
        if twin is not None:
            whole[twin] = _completed(whole[twin], one)
        elif one.get("use") == OLD or (key.system, key.type) not in named or is_further(one):
            kept.append(one)
        elif (key.system, key.type) in further:
            kept.append(_marked(one))
    return [*whole, *kept] if kept or any(one is not other for one, other in zip(whole, sent, strict=True)) else None


def _twin(key: IdentityKey, keys: list[IdentityKey]) -> int | None:
    """The place of the number of the message that a stored one is: of the same type, or one of them has none."""
    same = [place for place, one in enumerate(keys) if one.value == key.value and one.system == key.system]
    for place in same:
        if keys[place].type == key.type:
            return place
    return next((place for place in same if not keys[place].type or not key.type), None)


def _completed(sent: Json, stored: Json) -> Json:
    """A number of the message with the type that it had, and with the mark of a further number."""
    if "type" in stored and "type" not in sent:
        sent = {**sent, "type": stored["type"]}
    if is_further(stored) and not is_further(sent) and sent.get("use") != OLD:
        sent = _marked(sent)
    return sent


def is_further(identifier: Json) -> bool:
    """Whether messages that do not name this number leave it."""
    return any(type(one) is dict and one.get("url") == FURTHER_NUMBER for one in identifier.get("extension", ()))


def _marked(identifier: Json) -> Json:
    mark = {"url": FURTHER_NUMBER, "valueBoolean": True}
    return {**identifier, "extension": [*identifier.get("extension", ()), mark]}


def _further_kinds(identity: Identity, stored: Json) -> set[_Kind]:
    """Kinds of which the message has another number than the stored Patient, before the first that they share.

    So it is after a merge, when a message comes under the number of the record that was merged, and after an answer of
    an operator.  A different number of a later kind is a new one and replaces that of the Patient.
    """
    held: dict[_Kind, set[str]] = {}
    for one in identifiers_of(stored):
        if one.get("use") != OLD:
            key = key_of(one)
            held.setdefault((key.system, key.type), set()).add(key.value)
    sent: dict[_Kind, set[str]] = {}
    for key in identity.keys:
        sent.setdefault((key.system, key.type), set()).add(key.value)
    found: set[_Kind] = set()
    for kind, values in sent.items():
        if held.get(kind, set()) & values:
            break
        found.add(kind)
    return found


def _links(patient: Json, stored: Json, patients: Collection[str]) -> list[Any]:
    """The stored links to Patients that the message does not name.

    A message about both Patients (A37, unlink) says whether they see each other.
    """
    sent = patient.get("link", ())
    named = {_other(one) for one in sent}
    is_in_use_again = patient.get("active") is True and any(one.get("type") == "replaces" for one in sent)
    return [
        one
        for one in stored.get("link", ())
        if _other(one) not in named
        and not (is_in_use_again and one.get("type") == "replaced-by")
        and not (one.get("type") == "seealso" and patient_id(_other(one) or "") in patients)
    ]


def _other(link: Json) -> str | None:
    reference: str | None = link.get("other", {}).get("reference")
    return reference
