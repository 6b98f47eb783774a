"""Answers of operators to identity conflicts: the admin API over the stores and the FHIR server's merge."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter

from ipf.app.runtime.stores import OpenedStores
from ipf.ports import SYSTEM, Answer, Request
from ipf.rest.http.exchange import Observe
from ipf.rest.operations.merge import PatientMerge, merge_patients
from ipf.rest.write.repository import Repository
from ipf.store.resources.identity import PostgresIdentityAnswers
from ipf.wire.admin.identity import IdentityAdmin


def identity_admin(stores: OpenedStores, repository: Repository, actor: str, observe: Observe | None) -> IdentityAdmin:
    """Identity conflicts and answers in the admin API.  `actor`: named as the author of answers and merges.

    `observe`: takes each merge as if it were a request to `/fhir`, so that the audit trail of the Patients has it.
    """

    async def merge(tenant: str, source: str, target: str, who: str, reason: str, correlation_id: str) -> object:
        began = perf_counter()
        merged = await merge_patients(repository, PatientMerge(tenant, source, target, who, reason, correlation_id))
        if observe is not None:
            caller = replace(SYSTEM, subject=who)
            request = Request("POST", ("Patient", "$merge"), (), {}, b"", "", correlation_id, tenant, caller)
            observe(request, Answer(200, about=(merged.source, merged.target)), began)
        for name in ("subscription", "delivery"):
            stores.notifier.notify(name)
        return merged

    answers = PostgresIdentityAnswers(stores.fhir_database)
    return IdentityAdmin(stores.conflicts, answers, stores.fhir, merge, stores.notifier, actor)
