"""The merge of two Patients: the source is replaced by the target, and what refers to the source refers to the target.

One transaction writes both Patients, up to `PIECE` resources that refer to the source, and a Provenance that records
what was changed (`merge_record`), so that `unmerge` can undo it.  More references follow in further transactions, each
with a Provenance: a Patient of many years has more resources than one transaction should write.  Each write requires
the version that was read; after a concurrent change the transaction is planned again from the new versions.

Not changed: Provenance and AuditEvent (they tell what happened to a resource), Patient and Linkage (they link
Patients), references to a version (`Patient/1/_history/2`), and references that no search parameter indexes.

Crash: every transaction is complete or not there, and the Patients are linked by the first one.  The same merge,
requested again, moves the rest.

Source: https://hl7.org/fhir/R5/patient-operation-merge.html
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from ipf.errors import Category, Problem
from ipf.fhir.model.definitions import definitions
from ipf.fhir.model.json import dumps, loads
from ipf.ports import SYSTEM, Caller, Json, Version
from ipf.ports.audit_draft import AuditDraft
from ipf.ports.queries.field_sources import SetMove
from ipf.ports.threads import LARGE
from ipf.rest.operations.merge_record import (
    CONTENT,
    LINK,
    REPLACED_BY,
    REPLACES,
    Changed,
    links,
    merge_record,
    move_references,
    replace_source,
    replace_target,
)
from ipf.rest.write.commit import commit
from ipf.rest.write.repository import Repository
from ipf.rest.write.unit import Entry, Method, Unit
from ipf.rest.write.visibility import readable_now
from ipf.security.access import granted_or_refused, insufficient

PIECE = 5000
"""References that one transaction moves."""

_PAGE = 500
ATTEMPTS = 8
_UNTOUCHED = frozenset({"Patient", "Provenance", "AuditEvent", "Linkage"})


@dataclass(frozen=True, slots=True)
class PatientMerge:
    """A merge, or the merge to undo.  `source`, `target`: ids of Patients.  `who`: a reference or a name.

    `result`: the content that the target gets, linked to the source; None = its own.  `draft`: of the audit records.
    """

    tenant: str
    source: str
    target: str
    who: str
    reason: str = ""
    correlation_id: str = ""
    caller: Caller = SYSTEM
    result: Json | None = None
    draft: AuditDraft | None = None

    @property
    def source_reference(self) -> str:
        """`Patient/id` of the source."""
        return f"Patient/{self.source}"

    @property
    def target_reference(self) -> str:
        """`Patient/id` of the target."""
        return f"Patient/{self.target}"


@dataclass(slots=True)
class Merged:
    """The Patients after a merge or its undoing, and the number of moved resources by type.

    Those of a preview are the current versions with the content that the merge would give them.
    """

    source: Version
    target: Version
    moved: Counter[str] = field(default_factory=Counter)
    is_complete: bool = True


@dataclass(slots=True)
class _Piece:
    """One planned transaction.  `entries`: first the two Patients; `last_rid`: of its last page, None = the end."""

    source: Version
    target: Version
    entries: list[Entry]
    changed: list[Changed]
    moved: Counter[str] = field(default_factory=Counter)
    last_rid: int | None = None


async def merge_patients(repository: Repository, merge: PatientMerge, *, preview: bool = False) -> Merged:
    """Merge two Patients; `preview`: only tell what would be written.

    Problem NOT_FOUND, GONE, BUSINESS_RULE (also when it is done already), UNAUTHORIZED; CONFLICT after repeated
    concurrent changes.
    """
    check_rights(merge.caller)
    if merge.source == merge.target:
        raise Problem(Category.BUSINESS_RULE, "source and target of a merge are the same Patient")
    piece = await _next_piece(repository, merge, None, preview)
    if not piece.changed and piece.last_rid is None:
        text = f"{merge.source_reference} is merged into {merge.target_reference} already, and nothing refers to it"
        raise Problem(Category.BUSINESS_RULE, text)
    if preview:
        return _preview(piece)
    merged, moved_in_round = Merged(piece.source, piece.target, Counter(piece.moved)), piece.moved.total()
    while piece.last_rid is not None or moved_in_round:
        if piece.last_rid is None:  # a message stored meanwhile may refer to the source: look again from the start
            moved_in_round = 0
        piece = await _next_piece(repository, merge, piece, preview)
        merged.moved += piece.moved
        moved_in_round += piece.moved.total()
    return merged


def _preview(piece: _Piece) -> Merged:
    """What the first transaction would write."""
    source, target = (
        replace(version, body=dumps(entry.resource))
        for version, entry in zip((piece.source, piece.target), piece.entries, strict=False)
    )
    return Merged(source, target, piece.moved, is_complete=piece.last_rid is None)


def check_rights(caller: Caller) -> None:
    """Problem UNAUTHORIZED unless the caller may read and update every Patient, write every Provenance, and update
    whatever may refer to a Patient: the answer must not depend on what he does not see."""
    for resource_type, rights in (("Patient", "rsu"), ("Provenance", "rscu")):
        for right in rights:
            _check_unlimited(caller, resource_type, right)
    for resource_type in sorted(definitions().resource_types - _UNTOUCHED):
        _check_unlimited(caller, resource_type, "u")


def _check_unlimited(caller: Caller, resource_type: str, right: str) -> None:
    if granted_or_refused(caller, resource_type, right).test is not None:
        raise insufficient(resource_type, right)


async def read_patient(repository: Repository, tenant: str, id: str, caller: Caller) -> Version:
    """The current version.  Problem NOT_FOUND, also when the caller may not read it, or GONE when it was deleted."""
    version = await repository.store.read(tenant, "Patient", id)
    version = await readable_now(version, caller, tenant, repository.store)
    if version is None or version.deleted:
        category = Category.NOT_FOUND if version is None else Category.GONE
        raise Problem(category, f"Patient/{id} {'does not exist' if version is None else 'was deleted'}")
    return version


async def _next_piece(repository: Repository, merge: PatientMerge, before: _Piece | None, preview: bool) -> _Piece:
    """Plan and store the next transaction, again after a concurrent change."""
    after = (before.last_rid or 0) if before is not None else 0
    for _ in range(ATTEMPTS):
        piece = await _plan(repository, merge, after, is_first=before is None)
        if preview or not piece.changed:
            return piece
        try:
            await _store(repository, merge, piece)
        except Problem as problem:
            if problem.category is not Category.PRECONDITION:
                raise
            continue
        return piece
    raise Problem(Category.CONFLICT, "other writers keep changing the resources of this merge; try again")


async def _plan(repository: Repository, merge: PatientMerge, after: int, *, is_first: bool) -> _Piece:
    source = await read_patient(repository, merge.tenant, merge.source, merge.caller)
    target = await read_patient(repository, merge.tenant, merge.target, merge.caller)
    piece = _patients(merge, source, target, is_first)
    if repository.referrers is None:
        raise Problem(Category.NOT_SUPPORTED, "this server cannot look up references to a Patient")
    while len(piece.changed) < PIECE:
        page = await repository.referrers.referring(merge.tenant, merge.source_reference, after, _PAGE)
        if not page:
            return piece
        after = page[-1].rid
        movable = [one for one in page if one.resource_type not in _UNTOUCHED]
        await repository.run_in_thread(partial(_move, merge, movable, piece))
    piece.last_rid = after
    return piece


def _patients(merge: PatientMerge, source: Version, target: Version, is_first: bool) -> _Piece:
    """The Patients after the merge, and nothing moved yet.  Later pieces require that they are still merged."""
    new_source, new_target = loads(source.body), loads(target.body)
    _check_links(merge, new_source, new_target)
    changed = []
    if is_first:
        if source_changes := replace_source(new_source, merge.target_reference):
            changed.append(Changed(source, source_changes))
        new_target, target_changes, copied = _merged_target(merge, new_target, new_source)
        if target_changes or copied:
            changed.append(Changed(target, target_changes, copied))
    elif merge.target_reference not in links(new_source, REPLACED_BY):
        raise Problem(Category.CONFLICT, "the merge was undone while it moved references")
    taking = replace(updated(target, new_target), set_move=SetMove(merge.source))
    entries = [updated(source, new_source), taking]
    return _Piece(source, target, entries, changed)


def _merged_target(merge: PatientMerge, target: Json, source: Json) -> tuple[Json, list[str], list[Json]]:
    """The target after the merge, what was changed, and the identifiers that were added."""
    if merge.result is None:
        changes, copied = replace_target(target, source, merge.source_reference)
        return target, changes, copied
    if merge.result.get("id") != merge.target:
        raise Problem(Category.VALUE, "the id of result-patient must be that of the target", "result-patient")
    if merge.source_reference not in links(merge.result, REPLACES):
        text = f"result-patient must have a link of type replaces to {merge.source_reference}"
        raise Problem(Category.VALUE, text, "result-patient")
    changes = [CONTENT] if merge.source_reference in links(target, REPLACES) else [CONTENT, LINK]
    known = target.get("identifier") or ()
    return merge.result, changes, [one for one in merge.result.get("identifier") or () if one not in known]


def _check_links(merge: PatientMerge, source: Json, target: Json) -> None:
    """Problem BUSINESS_RULE when one of the Patients was merged into another one."""
    others = [one for one in links(source, REPLACED_BY) if one != merge.target_reference]
    if others:
        raise Problem(Category.BUSINESS_RULE, f"{merge.source_reference} is merged into {others[0]} already")
    for other in links(target, REPLACED_BY):
        text = f"{merge.target_reference} is merged into {other}: merge into that Patient, or undo that merge first"
        raise Problem(Category.BUSINESS_RULE, text)


def _move(merge: PatientMerge, versions: Sequence[Version], piece: _Piece) -> None:
    """Add the resources whose references are moved to the piece."""
    for version in versions:
        resource = loads(version.body)
        if paths := move_references(resource, merge.source_reference, merge.target_reference):
            piece.entries.append(updated(version, resource))
            piece.changed.append(Changed(version, paths))
            piece.moved[version.resource_type] += 1


async def _store(repository: Repository, merge: PatientMerge, piece: _Piece) -> None:
    """Store a piece with its record.  Problem PRECONDITION: a resource was changed meanwhile."""
    now = repository.clock()
    record = merge_record(piece.source, piece.target, piece.changed, merge.who, merge.reason, now)
    entries = (*piece.entries, Entry(Method.CREATE, "Provenance", None, record))
    source, target = await store(repository, merge, entries)
    piece.source, piece.target = source, target


async def store(repository: Repository, merge: PatientMerge, entries: Sequence[Entry]) -> tuple[Version, Version]:
    """Store entries, of which the first two are the Patients, in one transaction; their versions.

    Problem PRECONDITION when a resource was changed meanwhile.
    """
    unit = Unit(merge.tenant, tuple(entries), merge.correlation_id, caller=merge.caller, draft=merge.draft)
    (result,) = await commit(
        [unit], repository.store, repository.matcher, repository.clock,
        run_in_thread=repository.run_in_thread, is_large=len(entries) >= LARGE,
    )  # fmt: skip
    if isinstance(result, Problem):
        raise result
    source, target = (end.version for end in result.entries[:2])
    assert source is not None and target is not None
    return source, target


def updated(version: Version, resource: Json) -> Entry:
    """The update of a resource that must still have this version."""
    return Entry(Method.UPDATE, version.resource_type, version.id, resource, if_match=version.version_id)
