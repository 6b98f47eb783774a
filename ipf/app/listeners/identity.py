"""Answers of operators to identity conflicts: the admin API over the stores and the FHIR server's merge."""

from __future__ import annotations

from ipf.app.runtime.stores import OpenedStores
from ipf.store.resources.identity import PostgresIdentityAnswers
from ipf.wire.admin.patients.identity import IdentityAdmin, MergePatients


def identity_admin(stores: OpenedStores, merge: MergePatients, actor: str) -> IdentityAdmin:
    """Identity conflicts and answers in the admin API.  `actor`: named as the author of answers and merges."""
    answers = PostgresIdentityAnswers(stores.fhir_database)
    return IdentityAdmin(stores.conflicts, answers, stores.fhir, merge, stores.notifier, actor)
