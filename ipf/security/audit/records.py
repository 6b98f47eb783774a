"""The records of one operation: one for each patient whom it touched, one without patient where needed.  No IO.

The record of a patient names him, the resources of his compartment that the operation wrote or showed, and no other
patient (`audit.target`).  A resource that refers to several patients is in the record of each; a Patient is
in his own alone, whatever he links to.  Resources of no patient, and a query that no record shows completely, are in a
record without patient.  So what a reader of one patient's records sees does not depend on other patients or resources.

All records of an operation have its correlation id, its time and its duration.  None has more than MOST_ENTITIES
entities: further ones are in further records.

A refused request of somebody unknown is one record of bounded size, whatever it names.  Other requests have a record
for each patient whom they found, and for the first `target.MOST_NAMED` whom they only name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ipf.ports import Answer, Request, Version
from ipf.ports.audit.records import MOST_ENTITIES, Audit, AuditContext, unversioned
from ipf.ports.messages.mapping import Origin
from ipf.security.audit.rules import NewIdSuffix, clean
from ipf.security.audit.target import PATIENT, Asked, asked_of

# Stored bodies are written by us, without blanks; in a text a quotation mark is escaped, so no text looks like this.
_IS_PATIENT = b"Patient/"
_REFERENCE = b'"reference":"'
_NOBODY = ""
_NOTHING = Asked()
_audit: Callable[[type[Audit], tuple[object, ...]], Audit] = tuple.__new__  # a quarter of the time of Audit(...)


class Operation(NamedTuple):
    """What all records of one operation have.  `ended`: milliseconds since 1970; `asked`: its path and query."""

    context: AuditContext
    ended: int
    duration_ms: int
    correlation_id: str
    asked: Asked = _NOTHING
    origin: Origin | None = None
    request_id: str = ""


def records_of(
    request: Request,
    answer: Answer,
    seconds: float,
    ended: int,
    new_id_suffix: NewIdSuffix,
    context: AuditContext,
    asked: Asked | None = None,
) -> list[Audit]:
    """The records of a request.  `seconds`: its duration; `ended`: milliseconds since 1970; `asked`: if it is known."""
    path, about = request.path, answer.about
    is_one = len(about) == 1 and len(path) == 2 and path[1] == about[0].id and path[0] == about[0].resource_type
    if is_one and not request.query and len(patients := _of_resource(about[0])) < 2:  # the frequent case, at a third
        entity = f"{path[0]}/{path[1]}/_history/{about[0].version_id}"
        return [_audit(Audit, (
            context, ended, new_id_suffix(), int(seconds * 1000), request.correlation_id, None, (entity,), patients,
            None, request.request_id,
        ))]  # fmt: skip
    operation = Operation(
        context, ended, int(seconds * 1000), request.correlation_id, asked or asked_of(request), None,
        request.request_id,
    )  # fmt: skip
    if about:
        return operation_records(operation, about, new_id_suffix)
    resource = ""
    if len(path) > 1 and path[0][:1].isupper() and path[1][:1] not in "_$":
        resource = f"{clean(path[0], 64)}/{clean(path[1], 64)}"
    patient = resource if path[:1] == ("Patient",) else _NOBODY
    if answer.status >= 400 and request.caller.is_unknown:
        return [_of_refusal(operation, patient, resource, new_id_suffix)]
    return _records(operation, {patient: {resource: None}} if resource else {}, new_id_suffix)


def _of_refusal(operation: Operation, patient: str, resource: str, new_id_suffix: NewIdSuffix) -> Audit:
    """The one record of a refused request: that of the patient in its path, else one without patient."""
    asked = operation.asked
    target = asked.target_for(patient) if patient else asked.complete
    (made,) = _of_patient(operation, target, patient, (resource,) if resource else (), new_id_suffix)
    return detailed(made, asked.details)


def operation_records(operation: Operation, versions: Sequence[Version], new_id_suffix: NewIdSuffix) -> list[Audit]:
    """The records of an operation that wrote or showed these versions."""
    return _records(operation, divided(versions), new_id_suffix)


def divided(versions: Sequence[Version]) -> dict[str, dict[str, None]]:
    """References to these versions by patient (`Patient/1`, "" = of nobody), in order, without repeats."""
    found: dict[str, dict[str, None]] = {}
    seen: dict[bytes, str | None] = {}
    for one in versions:
        reference = f"{one.resource_type}/{one.id}/_history/{one.version_id}"
        if one.resource_type == "Patient":
            found.setdefault(f"Patient/{one.id}", {})[reference] = None
            continue
        for patient in _patients(one.body, seen):
            found.setdefault(patient, {})[reference] = None
    return found


def _records(operation: Operation, groups: dict[str, dict[str, None]], new_id_suffix: NewIdSuffix) -> list[Audit]:
    asked = operation.asked
    for patient in asked.named:
        groups.setdefault(patient, {})
    nobodys = groups.pop(_NOBODY, None)
    made: list[Audit] = []
    is_shown = not asked.complete
    for patient, references in groups.items():
        target = asked.target_for(patient)
        is_shown = is_shown or target == asked.complete
        made += _of_patient(operation, target, patient, tuple(references), new_id_suffix)
    if nobodys is not None or asked.details or not (is_shown and made):
        first, *more = _of_patient(operation, asked.complete, _NOBODY, tuple(nobodys or ()), new_id_suffix)
        made += detailed(first, asked.details), *more
    return made


def detailed(record: Audit, details: tuple[tuple[str, str], ...]) -> Audit:
    """The record with further details."""
    if not details:
        return record
    origin = record.origin or Origin("", "")
    return record._replace(origin=Origin(origin.agent_system, origin.source_system, (*origin.details, *details)))


def _of_patient(
    operation: Operation, target: str, patient: str, references: tuple[str, ...], new_id_suffix: NewIdSuffix
) -> Iterator[Audit]:
    """The records of one patient, or those without one."""
    context, ended, duration_ms, correlation_id, _, origin, request_id = operation
    for first in range(0, len(references) or 1, MOST_ENTITIES):
        entities = references[first : first + MOST_ENTITIES]
        shown = None if entities and target == unversioned(entities[0]) else target
        is_named = patient == _NOBODY or f"\n{patient}/" in "\n" + "\n".join(entities) + "/"
        patients = () if is_named else (patient,)
        yield _audit(Audit, (
            context, ended, new_id_suffix(), duration_ms, correlation_id, shown, entities, patients, origin, request_id,
        ))  # fmt: skip


def _of_resource(one: Version) -> tuple[str, ...]:
    """The patients to whom one resource refers; none for a Patient."""
    if one.resource_type == "Patient" or _IS_PATIENT not in one.body:
        return ()
    return tuple(filter(None, _patients(one.body, {})))


def _patients(body: bytes, seen: dict[bytes, str | None]) -> Sequence[str]:
    """The patients to whom a resource refers, in order; `("",)`: to none.  `seen`: references read before."""
    first = body.find(_IS_PATIENT)
    if first < 0:
        return (_NOBODY,)
    start = first + len(_IS_PATIENT)
    if body.endswith(_REFERENCE, 0, first) and body.find(_IS_PATIENT, start) < 0:  # the frequent case
        reference = body[start : body.find(b'"', start)]
        if reference not in seen:
            seen[reference] = _read(reference)
        return (seen[reference] or _NOBODY,)
    found: dict[str, None] = {}
    at = body.find(_REFERENCE)
    while at >= 0:
        start = at + len(_REFERENCE)
        at = body.find(b'"', start)
        reference = body[start:at]
        at = body.find(_REFERENCE, at)
        if _IS_PATIENT not in reference:
            continue
        if reference not in seen:
            seen[reference] = _read(reference)
        patient = seen[reference]
        if patient is not None:
            found[patient] = None
    return tuple(found) or (_NOBODY,)


def _read(reference: bytes) -> str | None:
    if b"\\" in reference:
        return None
    text = reference.decode() if _IS_PATIENT in reference else f"Patient/{reference.decode()}"
    matched = PATIENT.fullmatch(text)
    return None if matched is None else matched[1]
