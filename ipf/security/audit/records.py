"""The records of one operation: one for each patient whom it touched, one without patient where needed.  No IO.

The record of a patient names him, the resources of his compartment that the operation wrote or showed, and no other
patient (`audit_target.target_for`).  A resource that refers to several patients is in the record of each; a Patient is
in his own alone, whatever he links to.  Resources of no patient, and a query that no record shows completely, are in a
record without patient.  So what a reader of one patient's records sees does not depend on other patients or resources.

All records of an operation have its correlation id, its time and its duration.  None has more than MOST_ENTITIES
entities: further ones are in further records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ipf.ports import Answer, Request, Version
from ipf.ports.audit.records import MOST_ENTITIES, Audit, AuditContext, unversioned
from ipf.ports.messages.mapping import Origin
from ipf.security.audit.rules import NewIdSuffix, clean
from ipf.security.audit.target import PATIENT, Pairs, patients_asked_for, query_of, target_for, target_of

# Stored bodies are written by us, without blanks; in a text a quotation mark is escaped, so no text looks like this.
_REFERENCE, _IS_PATIENT = b'"reference":"', b"Patient/"
_TO_PATIENT = _REFERENCE + _IS_PATIENT
_NOBODY = ""
_audit: Callable[[type[Audit], tuple[object, ...]], Audit] = tuple.__new__  # a quarter of the time of Audit(...)


class Operation(NamedTuple):
    """What all records of one operation have.  `ended`: milliseconds since 1970; `path`, `query`: of its request."""

    context: AuditContext
    ended: int
    duration_ms: int
    correlation_id: str
    path: Sequence[str] = ()
    query: Pairs = ()
    origin: Origin | None = None
    request_id: str = ""


def records_of(
    request: Request, answer: Answer, seconds: float, ended: int, new_id_suffix: NewIdSuffix, context: AuditContext
) -> list[Audit]:
    """The records of a request.  `seconds`: its duration; `ended`: milliseconds since 1970."""
    path, about = request.path, answer.about
    is_one = len(about) == 1 and len(path) == 2 and path[1] == about[0].id and path[0] == about[0].resource_type
    if is_one and not request.query and len(patients := _of_resource(about[0])) < 2:  # the frequent case, at a third
        entity = f"{path[0]}/{path[1]}/_history/{about[0].version_id}"
        return [_audit(Audit, (
            context, ended, new_id_suffix(), int(seconds * 1000), request.correlation_id, None, (entity,), patients,
            None, request.request_id,
        ))]  # fmt: skip
    query = query_of(request)
    operation = Operation(
        context, ended, int(seconds * 1000), request.correlation_id, path, query, None, request.request_id
    )
    if not about and len(path) > 1 and path[0][:1].isupper() and path[1][:1] not in "_$":
        resource = f"{clean(path[0], 64)}/{clean(path[1], 64)}"
        return _records(operation, {resource if path[0] == "Patient" else _NOBODY: {resource: None}}, new_id_suffix)
    return operation_records(operation, about, new_id_suffix)


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
    path, query = operation.path, operation.query
    if query:
        for patient in patients_asked_for(path, query):
            groups.setdefault(patient, {})
    complete = target_of(path, query)
    nobodys = groups.pop(_NOBODY, None)
    made: list[Audit] = []
    is_shown = not complete
    for patient, references in groups.items():
        target = target_for(patient, path, query, complete)
        is_shown = is_shown or target == complete
        made += _of_patient(operation, target, patient, tuple(references), new_id_suffix)
    if nobodys is not None or not (is_shown and made):
        made += _of_patient(operation, complete, _NOBODY, tuple(nobodys or ()), new_id_suffix)
    return made


def _of_patient(
    operation: Operation, target: str, patient: str, references: tuple[str, ...], new_id_suffix: NewIdSuffix
) -> Iterator[Audit]:
    """The records of one patient, or those without one."""
    context, ended, duration_ms, correlation_id, _, _, origin, request_id = operation
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
    count = body.count(_IS_PATIENT)
    if count == 0:
        return (_NOBODY,)
    first = body.find(_TO_PATIENT) + len(_TO_PATIENT)
    if count == 1 and first >= len(_TO_PATIENT):  # the frequent case
        reference = body[first : body.find(b'"', first)]
        if reference not in seen:
            seen[reference] = _read(reference)
        return (seen[reference] or _NOBODY,)
    found: dict[str, None] = {}
    before, *rest = body.split(_IS_PATIENT)
    for piece in rest:
        end = piece.find(b'"')
        if end < 0:  # the same text goes on: http://host/Patient/fhir/Patient/7
            before += _IS_PATIENT + piece
            continue
        if before.endswith(_REFERENCE):
            reference = piece[:end]
        else:
            start = before.rfind(b'"') + 1
            reference = before[start:] + _IS_PATIENT + piece[:end] if before.endswith(_REFERENCE, 0, start) else b"\\"
        before = piece
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
