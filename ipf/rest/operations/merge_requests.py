"""POST [base]/Patient/$merge and POST [base]/Patient/[id]/$unmerge: merges of Patients over HTTP.

`$merge` has the parameters and the response of R5, and `reason`.  `$unmerge` is an operation of this server: it undoes
the merge of `source-patient` into the Patient of the URL.

Source: https://hl7.org/fhir/R5/patient-operation-merge.html
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ipf.errors import Category, Problem
from ipf.fhir.model.json import dumps, loads
from ipf.fhir.model.reference import local_reference
from ipf.fhir.search.language.query import parse_query
from ipf.ports import Answer, Caller, Json, Request, Version
from ipf.rest.http.arguments import Arguments, parameters_of
from ipf.rest.http.exchange import resource_body
from ipf.rest.http.outcome import success
from ipf.rest.operations.merge import Merged, PatientMerge, check_rights, merge_patients
from ipf.rest.operations.unmerge import unmerge_patients
from ipf.rest.write.incoming import check_incoming
from ipf.rest.write.permission import limited
from ipf.rest.write.repository import Repository
from ipf.rest.write.visibility import readable_now

_SOURCE, _TARGET, _RESULT = "source-patient", "target-patient", "result-patient"
_MERGE = frozenset({_SOURCE, f"{_SOURCE}-identifier", _TARGET, f"{_TARGET}-identifier", _RESULT, "preview", "reason"})
_UNMERGE = frozenset({_SOURCE, f"{_SOURCE}-identifier", "reason"})
_MOST_MATCHES = 50
_OLD = "old"


async def merge(request: Request, repository: Repository) -> Answer:
    """Merge two Patients.  Parameters `input`, `outcome` and `result`, the target Patient."""
    _only_patients(request)
    check_rights(request.caller)
    arguments = await Arguments.read(request, _MERGE, repository.run_in_thread)
    result = arguments.structure(_RESULT, "Patient")
    if result is not None:
        result = _checked_result(result, repository)
    source = await _patient(arguments, _SOURCE, request, repository)
    target = await _patient(arguments, _TARGET, request, repository)
    is_preview = arguments.boolean("preview")
    wanted = replace(_wanted(request, arguments, source, target), result=result)
    merged = await merge_patients(repository, wanted, preview=is_preview)
    text = f"{_moved(merged)} {'would' if is_preview else 'now'} refer to Patient/{target} instead of Patient/{source}"
    return _answer(request, merged, text)


async def unmerge(request: Request, repository: Repository) -> Answer:
    """Undo a merge.  Parameters `input`, `outcome`, `result` (the target Patient) and `source` (the source Patient)."""
    _only_patients(request)
    check_rights(request.caller)
    arguments = await Arguments.read(request, _UNMERGE, repository.run_in_thread)
    source, target = await _patient(arguments, _SOURCE, request, repository), request.path[1]
    undone = await unmerge_patients(repository, _wanted(request, arguments, source, target))
    text = f"{_moved(undone)} refer to Patient/{source} again instead of Patient/{target}"
    return _answer(request, undone, text, {"name": "source", "resource": loads(undone.source.body)})


def _only_patients(request: Request) -> None:
    if request.path[0] != "Patient":
        raise Problem(Category.NOT_FOUND, f"{request.path[-1]} is defined for Patient, not for {request.path[0]}")


def _wanted(request: Request, arguments: Arguments, source: str, target: str) -> PatientMerge:
    reason = arguments.text("reason") or ""
    return PatientMerge(
        request.tenant,
        source,
        target,
        _name_of(request.caller),
        reason,
        request.correlation_id,
        request.caller,
        draft=request.draft,
    )


def _name_of(caller: Caller) -> str:
    """Who merges, for the Provenance."""
    return caller.user or caller.subject or caller.client or "anonymous"


def _checked_result(result: Json, repository: Repository) -> Json:
    """result-patient, checked as a client's update."""
    if result.get("resourceType") != "Patient":
        raise Problem(Category.VALUE, "result-patient must be a Patient", _RESULT)
    return check_incoming(result, repository, _RESULT)


async def _patient(arguments: Arguments, name: str, request: Request, repository: Repository) -> str:
    """The id of the source or the target, by reference or by identifiers.

    Problem REQUIRED; NOT_FOUND; AMBIGUOUS for identifiers of several Patients; BUSINESS_RULE when the Patient that is
    referred to does not have the identifiers.
    """
    reference = arguments.structure(name, "Reference") or {}
    identifiers = [_identifier(one, name) for one in arguments.structures(f"{name}-identifier", "Identifier")]
    if "identifier" in reference:
        identifiers.append(_identifier(reference["identifier"], name))
    text = reference.get("reference")
    if text is None and not identifiers:
        raise Problem(Category.REQUIRED, f"the parameter {name} or {name}-identifier is required", name)
    if text is None:
        return await _identified(identifiers, name, request, repository)
    literal = local_reference(text, request.base_url) if isinstance(text, str) else None
    if literal is None or literal.resource_type != "Patient":
        raise Problem(Category.VALUE, f"{name} must refer to a Patient of this server", name)
    version = await repository.store.read(request.tenant, "Patient", literal.id)
    version = await readable_now(version, request.caller, request.tenant, repository.store)
    if version is not None and not version.deleted and not _has(loads(version.body), identifiers, old=True):
        raise Problem(Category.BUSINESS_RULE, f"{literal} does not have the identifiers of {name}-identifier", name)
    return literal.id


def _identifier(value: Any, name: str) -> Json:
    if not isinstance(value, dict) or not isinstance(value.get("value"), str) or not value["value"]:
        raise Problem(Category.VALUE, "an identifier needs a value", f"{name}-identifier")
    return value


async def _identified(identifiers: Sequence[Json], name: str, request: Request, repository: Repository) -> str:
    """The one Patient with all these identifiers; old ones, which a merge copied, do not count."""
    pairs = [("identifier", _token(one)) for one in identifiers]
    query = parse_query("Patient", [*pairs, ("_count", str(_MOST_MATCHES))])
    page = await repository.store.search(request.tenant, limited(query, request.caller))
    found = [one.id for one in page.matches if _has(loads(one.body), identifiers, old=False)]
    if len(found) > 1 or page.next is not None:
        text = f"several Patients have the identifiers of {name}-identifier: {', '.join(found[:5])}"
        raise Problem(Category.AMBIGUOUS, text, name)
    if not found:
        raise Problem(Category.NOT_FOUND, f"no Patient has the identifiers of {name}-identifier", name)
    return found[0]


def _token(identifier: Json) -> str:
    """The value of a search by identifier."""
    parts = [identifier[part] for part in ("system", "value") if identifier.get(part)]
    return "|".join(str(one).replace("\\", "\\\\").replace("|", "\\|").replace(",", "\\,") for one in parts)


def _has(patient: Json, identifiers: Sequence[Json], *, old: bool) -> bool:
    """Whether a Patient has all these identifiers; `old`: old ones count."""
    own = [one for one in patient.get("identifier") or () if old or one.get("use") != _OLD]
    return all(any(_is_same(each, wanted) for each in own) for wanted in identifiers)


def _is_same(identifier: Json, wanted: Json) -> bool:
    """Whether an identifier has the value, and the system and type if they are given."""
    if identifier.get("value") != wanted["value"] or wanted.get("system") not in (None, identifier.get("system")):
        return False
    codes = _codes(wanted)
    return not codes or not codes.isdisjoint(_codes(identifier))


def _codes(identifier: Json) -> set[tuple[Any, Any]]:
    return {(one.get("system"), one.get("code")) for one in (identifier.get("type") or {}).get("coding") or ()}


def _moved(merged: Merged) -> str:
    """`12 resources (Encounter 2, Observation 10)`."""
    count = merged.moved.total()
    by_type = ", ".join(f"{name} {number}" for name, number in sorted(merged.moved.items()))
    least = "" if merged.is_complete else "at least "
    return f"{least}{count} resource{'' if count == 1 else 's'}{f' ({by_type})' if by_type else ''}"


def _answer(request: Request, merged: Merged, text: str, *more: Json) -> Answer:
    """The Parameters of the response; the audit record names both Patients."""
    about: tuple[Version, ...] = (merged.source, merged.target)
    answer = parameters_of(
        {"name": "input", "resource": resource_body(request, "Parameters")} if request.body else None,
        {"name": "outcome", "resource": success(text)},
        {"name": "result", "resource": loads(merged.target.body)},
        *more,
    )
    return Answer(200, dumps(answer), about=about)
