"""Reads of the FHIR server on a standby."""

from __future__ import annotations

from ipf.app.runtime.stores import OpenedStores
from ipf.config.settings import Settings
from ipf.rest.audit.audit_store import AuditedStore
from ipf.rest.reads import REASONS, REPLICA, ReplicaReads
from ipf.store.audit.audit import PostgresAuditStore
from ipf.store.resources.history import PostgresHistories


def replica_reads(settings: Settings, stores: OpenedStores) -> ReplicaReads | None:
    """What a standby answers; None without one.  The audit trail is read from the primary."""
    if stores.replica is None:
        return None
    from ipf.telemetry import replica_metrics  # they exist only where there is a standby

    replica_metrics.announce((REPLICA, *REASONS))
    standby = stores.replica.database
    trail = PostgresAuditStore(stores.fhir_database)
    store = AuditedStore(stores.fhir.reading_from(standby), trail, settings.base_url)
    return ReplicaReads(stores.replica, store, PostgresHistories(standby), replica_metrics.read)
