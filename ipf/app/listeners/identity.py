"""Answers of operators to identity conflicts: the admin API over the stores and the FHIR server's merge."""

from __future__ import annotations

from ipf.app.runtime.process import now
from ipf.app.runtime.stores import OpenedStores
from ipf.rest.operations.merge import PatientMerge, merge_patients
from ipf.rest.write.ids import new_id
from ipf.rest.write.repository import Repository
from ipf.store.resources.identity import PostgresIdentityAnswers
from ipf.wire.admin.identity import IdentityAdmin


def identity_admin(stores: OpenedStores, repository: Repository, actor: str) -> IdentityAdmin:
    """Identity conflicts and answers in the admin API.  `actor`: named as the author of answers and merges."""

    async def merge(tenant: str, source: str, target: str, who: str, reason: str, correlation_id: str) -> object:
        return await merge_patients(repository, PatientMerge(tenant, source, target, who, reason, correlation_id))

    answers = PostgresIdentityAnswers(stores.fhir_database)
    return IdentityAdmin(stores.conflicts, answers, stores.fhir, merge, lambda: new_id(now()), stores.notifier, actor)
