"""Maintenance in the background: bulk export, reindexing, jobs of operators, retention, audit partitions.

Nobody waits for their first second, so their queues are polled.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

from twisted.internet.task import deferLater

from ipf.app.runtime.periodic import run_periodically
from ipf.app.runtime.process import now, run_in_thread, worker_name
from ipf.app.runtime.stores import OpenedStores
from ipf.config.settings import Settings
from ipf.pipeline.maintenance.audit_chain import AuditChain
from ipf.pipeline.maintenance.audit_maintenance import EVERY_SECONDS, AuditMaintenance
from ipf.pipeline.maintenance.export import Export
from ipf.pipeline.maintenance.jobs import Jobs
from ipf.pipeline.maintenance.reindex import Reindex
from ipf.pipeline.maintenance.retention import Retention
from ipf.pipeline.worker import Step, Worker
from ipf.ports import Json
from ipf.ports.messages.statistics import RetentionPolicy
from ipf.rest.write.commit import refresh
from ipf.security.deident.profile import built_in, read_profile
from ipf.security.deident.pseudonyms import Pseudonyms
from ipf.security.deident.resource import Deidentification
from ipf.store.audit.audit import PostgresAuditStore
from ipf.store.inbox import message_partitions
from ipf.store.inbox.message_admin import PostgresMessageAdmin
from ipf.store.inbox.retention import PostgresPruner
from ipf.store.resources.exports import PostgresExports
from ipf.store.resources.reindex import PostgresReindexQueue

REINDEX_POLL_SECONDS = 5.0
RETENTION_POLL_SECONDS = 60.0


def start_maintenance(
    settings: Settings, stores: OpenedStores, chain: AuditChain | None, reactor: Any, stack: AsyncExitStack
) -> Callable[[], Awaitable[Json]]:
    """Start one worker for each kind of maintenance; its health check.  `chain`: of the audit trail."""
    workers: list[Worker] = []
    pause, poll_seconds = partial(deferLater, reactor), settings.worker_poll_ms / 1000

    def start(name: str, step: Step, seconds: float) -> None:
        worker = Worker(step, stores.notifier, None, seconds, reactor, name=name)
        worker.start()
        workers.append(worker)
        stack.push_async_callback(worker.stop, settings.stop_seconds)

    async def refresh_matcher() -> None:
        await refresh(stores.fhir, stores.matcher)

    jobs = Jobs(PostgresMessageAdmin(stores.inbox_database), stores.notifier, pause)
    queue = PostgresReindexQueue(stores.fhir_database, run_in_thread)
    reindex = Reindex(queue, refresh_matcher, pause, reactor.seconds)
    retention = Retention(
        message_pruner(settings, stores), retention_policy(settings), worker_name(), now, pause, reactor.seconds
    )
    exports = PostgresExports(stores.fhir_database)
    export = Export(exports, stores.fhir, deidentification(settings), run_in_thread=run_in_thread)
    start("export", export.step, poll_seconds)
    start("reindex", reindex.step, REINDEX_POLL_SECONDS)
    start("jobs", jobs.step, poll_seconds)
    start("retention", retention.step, RETENTION_POLL_SECONDS)
    stack.callback(retention.stop)
    ahead = message_partitions.PartitionsAhead(
        stores.inbox_database, stores.fhir_database, settings.retention_days
    )  # fmt: skip
    run_periodically(message_partitions.EVERY_SECONDS, ahead.run, "partitions ahead", reactor, stack)
    audit_days = settings.audit_days if settings.audit_enabled and settings.audit_purge else None
    audit = AuditMaintenance(PostgresAuditStore(stores.fhir_database), audit_days, now, pause, chain)
    run_periodically(EVERY_SECONDS, audit.run, "audit maintenance", reactor, stack)

    async def health() -> Json:
        """RuntimeError names the work that fails again and again."""
        found = [(one.name, one.problem) for one in workers] + [("retention", retention.problem)]
        failing = [f"{name}: {problem}" for name, problem in found if problem is not None]
        if failing:
            raise RuntimeError("; ".join(failing))
        return {"workers": [one.name for one in workers]}

    return health


def deidentification(settings: Settings) -> Deidentification | None:
    """How exports are de-identified; None without IPF_SECRET_KEY.  Problem VALUE names IPF_DEIDENT_PROFILE."""
    path = settings.deident_profile
    profile = built_in() if path is None else read_profile(Path(path))
    keys = (settings.secret_key or "").split()
    return Deidentification(profile, Pseudonyms(keys[0])) if keys else None


def retention_policy(settings: Settings) -> RetentionPolicy:
    """How long messages, dead letters and former versions are kept."""
    return RetentionPolicy(settings.retention_days, settings.dead_letter_days, settings.history_days)


def message_pruner(settings: Settings, stores: OpenedStores) -> PostgresPruner:
    """Removes messages, dead letters and former versions, except those of patients under a legal hold."""
    return PostgresPruner(stores.inbox_database, stores.fhir_database, settings.legal_holds)
