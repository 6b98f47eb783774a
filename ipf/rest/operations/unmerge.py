"""The undoing of a merge of two Patients, by the Provenances that recorded it.

Each Provenance is undone in one transaction, the newest first: references that the merge moved and that still point to
the target go back to the source; the Patients lose links and identifiers that the merge added; the Provenance gets the
end of the period in which the merge stood.  Other changes since the merge stay, and so does what was stored for the
target since.  The last transaction writes a Provenance of the undoing.

Crash: every transaction is complete or not there.  The same request continues with the records that still stand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from ipf.errors import Category, Problem
from ipf.fhir.model.json import loads
from ipf.fhir.search.language.query import parse_query
from ipf.ports import Json, Version
from ipf.ports.queries.field_sources import SetMove
from ipf.ports.threads import LARGE
from ipf.rest.operations.merge import ATTEMPTS, Merged, PatientMerge, check_rights, read_patient, store, updated
from ipf.rest.operations.merge_record import (
    REPLACED_BY,
    REPLACES,
    Restoration,
    ended,
    is_standing,
    links,
    move_back,
    restorations,
    restore_patient,
    unmerge_record,
)
from ipf.rest.write.repository import Repository
from ipf.rest.write.unit import Entry, Method
from ipf.security.access import required


async def unmerge_patients(repository: Repository, merge: PatientMerge) -> Merged:
    """Undo the merge of `merge.source` into `merge.target`.

    Problem NOT_FOUND, GONE, UNAUTHORIZED; BUSINESS_RULE when there is no such merge, or when the target was merged
    since; CONFLICT after repeated concurrent changes.
    """
    check_rights(merge.caller)
    await _check_target(repository, merge)
    records = await _standing_records(repository, merge)
    if not records:
        raise await _no_merge(repository, merge)
    undone = Merged(*await _read_patients(repository, merge))
    for number, id in enumerate(records, 1):
        await _undo(repository, merge, id, records if number == len(records) else (), undone)
    return undone


async def _check_target(repository: Repository, merge: PatientMerge) -> None:
    """Problem BUSINESS_RULE when the target was merged into another Patient: its references are there now."""
    target = await read_patient(repository, merge.tenant, merge.target, merge.caller)
    for other in links(loads(target.body), REPLACED_BY):
        text = f"{merge.target_reference} was merged into {other} since: undo that merge first"
        raise Problem(Category.BUSINESS_RULE, text)


async def _standing_records(repository: Repository, merge: PatientMerge) -> list[str]:
    """The ids of the Provenances of the merge, the newest first."""
    query = parse_query("Provenance", [("entity", merge.source_reference), ("_count", "20")])
    found: list[tuple[int, str]] = []
    cursor: str | None = None
    while True:
        page = await repository.store.search(merge.tenant, query, cursor)
        for one in page.matches:
            if is_standing(loads(one.body), merge.source_reference, merge.target_reference):
                found.append((one.rid, one.id))
        if page.next is None:
            return [id for _, id in sorted(found, reverse=True)]
        cursor = page.next


async def _no_merge(repository: Repository, merge: PatientMerge) -> Problem:
    """The refusal when no record of the merge stands."""
    source = await read_patient(repository, merge.tenant, merge.source, merge.caller)
    if merge.target_reference in links(loads(source.body), REPLACED_BY):
        text = (
            f"{merge.source_reference} is linked to {merge.target_reference} by a message or a client, not by $merge: "
            "no reference was moved; remove the links by updates"
        )
        return Problem(Category.BUSINESS_RULE, text)
    return Problem(
        Category.BUSINESS_RULE, f"{merge.source_reference} is not merged into {merge.target_reference}, or no longer"
    )


async def _undo(
    repository: Repository, merge: PatientMerge, record_id: str, records: Sequence[str], undone: Merged
) -> None:
    """Undo what one Provenance records.  `records`: all of them, when this is the last."""
    for _ in range(ATTEMPTS):
        record = await repository.store.read(merge.tenant, "Provenance", record_id)
        recorded: Json = {} if record is None or record.deleted else loads(record.body)
        if record is None or not is_standing(recorded, merge.source_reference, merge.target_reference):
            raise Problem(Category.CONFLICT, "the merge was undone by another request")
        patients = await _read_patients(repository, merge)
        resources = {(one.resource_type, one.id): loads(one.body) for one in patients}
        current = {(one.resource_type, one.id): one for one in patients}
        plan = restorations(recorded)
        await _read(repository, merge, plan, current)
        moved = await repository.run_in_thread(partial(_restore, merge, plan, current, resources))
        entries = [updated(current[key], resource) for key, resource in resources.items()]
        entries[1] = replace(entries[1], set_move=SetMove(merge.source, is_undone=True))  # of the target
        now = repository.clock()
        entries.append(updated(record, ended(recorded, now)))
        if records:
            made = unmerge_record(*patients, records, merge.who, merge.reason, now)
            entries.append(Entry(Method.CREATE, "Provenance", None, made))
        try:
            undone.source, undone.target = await store(repository, merge, entries)
        except Problem as problem:
            if problem.category is not Category.PRECONDITION:
                raise
            continue
        undone.moved.update(moved)
        return
    raise Problem(Category.CONFLICT, "other writers keep changing the resources of this merge; try again")


async def _read_patients(repository: Repository, merge: PatientMerge) -> tuple[Version, Version]:
    source = await read_patient(repository, merge.tenant, merge.source, merge.caller)
    return source, await read_patient(repository, merge.tenant, merge.target, merge.caller)


async def _read(
    repository: Repository,
    merge: PatientMerge,
    plan: Sequence[Restoration],
    current: dict[tuple[str, str], Version],
) -> None:
    """Add the current versions of the resources of a record; those that were deleted since are left out."""
    keys = [(one.resource_type, one.id) for one in plan if one.resource_type != "Patient"]
    for start in range(0, len(keys), LARGE):
        for version in await repository.store.read_many(merge.tenant, keys[start : start + LARGE]):
            current[version.resource_type, version.id] = version


def _restore(
    merge: PatientMerge,
    plan: Sequence[Restoration],
    current: dict[tuple[str, str], Version],
    resources: dict[tuple[str, str], Json],
) -> Counter[str]:
    """Restore the Patients in place, and add the resources with references that go back; their number by type."""
    moved: Counter[str] = Counter()
    for one in plan:
        key = one.resource_type, one.id
        if key not in current:
            continue
        if key == ("Patient", merge.source):
            restore_patient(resources[key], one.changes, one.copied, REPLACED_BY, merge.target_reference)
        elif key == ("Patient", merge.target):
            restore_patient(resources[key], one.changes, one.copied, REPLACES, merge.source_reference)
        else:
            resource = loads(current[key].body)
            if move_back(resource, one.changes, merge.target_reference, merge.source_reference):
                required(merge.caller, one.resource_type, "u")
                resources[key] = resource
                moved[one.resource_type] += 1
    return moved
