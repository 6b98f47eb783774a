"""Identity conflicts, candidates and answers as JSON, with the query of the match and what an operator can do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from ipf.ports.identity import ConflictKind, ConflictRow, IdentityAnswer, IdentityFinding, IdentityKey
from ipf.wire.admin.messages import timestamp

Item = dict[str, Any]

_SEVERAL_PATIENTS = """merge: they are one person; take: the message means this one, and the others are other persons;
apart: it means none of them, and a new Patient is created"""
_SEVERAL = "take: the message means this one; apart: it means none of them, and a new one is created"
_OTHER_PATIENT = """take: it is this person all the same, and the stored data is out of date;
apart: it is another person, and a new Patient is created"""
_OTHER_PERSON = """the number is of another person by family name, birth date or sex; apart: it is another person, and
a new Patient is created; take: it is this person all the same, and the stored data is wrong or out of date"""
_DIFFERENCE = """nothing waits: the message was stored for this Patient by an equal number, though family name, birth
date or sex differ in part; if it is another person, correct the number at the sender, and the Patient from its
history"""
_OTHER = "take: the message means this one; apart: it means another, and a new one is created"
_OTHER_SUBJECT = """the match belongs to another patient; take: the message means this one, which moves to the patient
of the message; apart: it means another, and a new one is created; if both patients are one person, merge them
(Patient/$merge) and retry the message"""
_WHAT_TO_DO = {
    ConflictKind.AMBIGUOUS: (_SEVERAL_PATIENTS, _SEVERAL),
    ConflictKind.CONTRADICTION: (_OTHER_PATIENT, _OTHER),
    ConflictKind.OVERLAY: (_OTHER_PERSON, _OTHER),
    ConflictKind.DIFFERENCE: (_DIFFERENCE, _DIFFERENCE),
    ConflictKind.SUBJECT: (_OTHER_SUBJECT, _OTHER_SUBJECT),
}
_MARKS = str.maketrans({mark: f"\\{mark}" for mark in "\\|,$"})


def conflict_item(row: ConflictRow) -> Item:
    """A row of the review queue.  `query`: finds the candidates on `/fhir`."""
    finding = row.finding
    return {
        "id": row.id,
        "status": row.status.value,
        "kind": finding.kind.value,
        "resource_type": finding.resource_type,
        "place": finding.place,
        "keys": [{"system": key.system, "type": key.type or None, "value": key.value} for key in finding.keys],
        "query": query_of(finding),
        "candidates": list(finding.candidates),
        "subject": finding.subject,
        "what_to_do": what_to_do(finding),
        "message_id": row.message_id,
        "conversion_id": row.conversion_id,
        "message_status": row.message_status,
        "message_type": row.message_type,
        "source_system": row.source_system,
        "source_id": row.source_id,
        "correlation_id": row.correlation_id,
        "detected_at": timestamp(row.detected_at),
        "answer": None if row.answer is None else row.answer.value,
        "target": row.target,
        "answered_by": row.answered_by,
        "answered_at": timestamp(row.answered_at),
        "tenant": row.tenant,
    }


def what_to_do(finding: IdentityFinding) -> str:
    """The answers that make sense, and what each means."""
    of_patient, of_other = _WHAT_TO_DO[finding.kind]
    return " ".join((of_patient if finding.resource_type == "Patient" else of_other).split())


def query_of(finding: IdentityFinding) -> str | None:
    """A search that finds the resources with one of the identifiers; None: there are none."""
    if not finding.keys:
        return None
    values = ",".join(dict.fromkeys(_token(key) for key in finding.keys))
    return f"{finding.resource_type}?identifier={quote(values, safe='|,:/')}"


def _token(key: IdentityKey) -> str:
    """https://hl7.org/fhir/R4/search.html#token; escaped as #escaping says."""
    return f"{key.system.translate(_MARKS)}|{key.value.translate(_MARKS)}"


def candidate_item(reference: str, resource: Mapping[str, Any] | None) -> Item:
    """What tells a candidate from the others; all None when the resource does not exist any more."""
    found = resource or {}
    return {
        "reference": reference,
        "exists": resource is not None,
        "active": found.get("active"),
        "status": found.get("status") if isinstance(found.get("status"), str) else None,
        "identifiers": [_identifier(one) for one in _objects(found.get("identifier"))],
        "names": [text for one in _objects(found.get("name")) if (text := _name(one))],
        "birth_date": found.get("birthDate"),
        "gender": found.get("gender"),
        "subject": _reference(found.get("subject") or found.get("patient")),
        "replaced_by": next(
            (_reference(one.get("other")) for one in _objects(found.get("link")) if one.get("type") == "replaced-by"),
            None,
        ),
        "last_updated": (found.get("meta") or {}).get("lastUpdated"),
    }


def answer_item(row: IdentityAnswer) -> Item:
    """A stored answer.  `key`: `system|type|value` of the identifier that it is for."""
    return {
        "id": row.id,
        "resource_type": row.resource_type,
        "key": row.key,
        "answer": row.kind.value,
        "target": f"{row.resource_type}/{row.resource_id}",
        "reason": row.reason or None,
        "answered_by": row.answered_by,
        "answered_at": timestamp(row.answered_at),
        "tenant": row.tenant,
    }


def _objects(value: Any) -> Iterable[Mapping[str, Any]]:
    """The objects of a list, or an object alone (Encounter.identifier is a list, Bundle.identifier is not)."""
    return [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, dict)]


def _identifier(identifier: Mapping[str, Any]) -> Item:
    codings = _objects((identifier.get("type") or {}).get("coding"))
    return {
        "system": identifier.get("system"),
        "type": next((one["code"] for one in codings if "code" in one), None),
        "value": identifier.get("value"),
        "use": identifier.get("use"),
    }


def _name(name: Mapping[str, Any]) -> str:
    text = name.get("text")
    if isinstance(text, str):
        return text
    parts = [*name.get("given", ()), name.get("family", "")]
    return " ".join(part for part in parts if isinstance(part, str) and part)


def _reference(value: Any) -> str | None:
    return value.get("reference") if isinstance(value, dict) else None
