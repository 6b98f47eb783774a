"""Erasure of patients by operators, over both databases, with the key of the audit trail."""

from __future__ import annotations

from ipf.app.runtime.process import now
from ipf.app.runtime.stores import OpenedStores
from ipf.app.stages.audit_chain import signing_key
from ipf.config.settings import Settings
from ipf.pipeline.maintenance.erasure import Erasure
from ipf.pipeline.maintenance.erasure_search import ErasureRequest
from ipf.ports.fhir.erasure import ErasureReceipt
from ipf.store.audit.chain import PostgresAuditChain
from ipf.store.erasure.messages import PostgresMessageErasure
from ipf.store.erasure.resources import PostgresErasureStore
from ipf.wire.admin.patients.erasure import ErasureAdmin, Forget, Preview


def erasure_admin(settings: Settings, stores: OpenedStores, actor: str) -> ErasureAdmin:
    """The erasures of the admin API.  `actor`: named in receipts where no person is."""
    key = signing_key(settings)
    base_url = settings.base_url
    fhir = PostgresErasureStore(stores.fhir_database, base_url)
    inbox = PostgresMessageErasure(stores.inbox_database, base_url)
    erasure = Erasure(fhir, inbox, key, now, frozenset(settings.legal_holds))

    async def preview(wanted: Forget) -> Preview:
        plan = await erasure.plan(_request(wanted))
        messages = plan.found_messages
        return Preview(
            sorted(plan.found.patients), plan.counts, sorted(plan.found.shared), sorted(messages.shared),
            sorted(messages.uncertain), sorted(messages.busy), plan.subscriptions, plan.open_jobs, plan.confirm,
        )  # fmt: skip

    async def forget(wanted: Forget) -> ErasureReceipt:
        if key is not None:  # the audit trail publishes it, too, unless it is disabled
            await PostgresAuditChain(stores.fhir_database).add_key(key.id, key.public_key)
        return await erasure.forget(_request(wanted))

    def _request(wanted: Forget) -> ErasureRequest:
        return ErasureRequest(
            wanted.tenant, wanted.id, wanted.actor, wanted.reason, wanted.confirm, frozenset(wanted.redact),
            frozenset(wanted.remove), wanted.shared_messages == "remove", wanted.uncertain_messages,
        )  # fmt: skip

    return ErasureAdmin(preview, forget, erasure.receipts, actor)
