"""Merges of Patients by operators: the FHIR server's merge and its undoing, in the audit trail of the Patients."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from time import perf_counter

from ipf.app.runtime.stores import NotifierRouter
from ipf.ports import SYSTEM, Answer, Request
from ipf.rest.http.exchange import Observe
from ipf.rest.operations.merge import Merged, PatientMerge, merge_patients
from ipf.rest.operations.unmerge import unmerge_patients
from ipf.rest.write.repository import Repository
from ipf.security.audit.draft import NewDraft
from ipf.wire.admin.patients.merges import PatientMergeAdmin


def patient_merge_admin(
    repository: Repository,
    notifier: NotifierRouter,
    actor: str,
    observe: Observe | None,
    draft: NewDraft | None = None,
) -> PatientMergeAdmin:
    """The merges of the admin API.  `actor`: named as their author.

    `observe`, `draft`: take each merge as if it were a request to `/fhir`, so that the audit trail of the Patients has
    it.
    """

    async def perform(
        wanted: PatientMerge, path: tuple[str, ...], work: Callable[[PatientMerge], Awaitable[Merged]]
    ) -> Mapping[str, int]:
        began, caller = perf_counter(), replace(SYSTEM, subject=wanted.who)
        request = Request("POST", path, (), {}, b"", "", wanted.correlation_id, wanted.tenant, caller)
        request.draft = draft(request, began) if draft is not None else None
        merged = await work(replace(wanted, draft=request.draft))
        if observe is not None:
            observe(request, Answer(200, about=(merged.source, merged.target)), began)
        for name in ("subscription", "delivery"):
            notifier.notify(name)
        return merged.moved

    async def merge(
        tenant: str, source: str, target: str, who: str, reason: str, correlation_id: str, *, preview: bool = False
    ) -> Mapping[str, int]:
        wanted = PatientMerge(tenant, source, target, who, reason, correlation_id)
        if preview:
            return (await merge_patients(repository, wanted, preview=True)).moved
        return await perform(wanted, ("Patient", "$merge"), partial(merge_patients, repository))

    async def undo(
        tenant: str, source: str, target: str, who: str, reason: str, correlation_id: str, *, preview: bool = False
    ) -> Mapping[str, int]:
        wanted = PatientMerge(tenant, source, target, who, reason, correlation_id)
        return await perform(wanted, ("Patient", target, "$unmerge"), partial(unmerge_patients, repository))

    return PatientMergeAdmin(merge, undo, actor)
