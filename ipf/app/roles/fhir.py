"""Roles `fhir` and `mapping`: the FHIR API with websockets, and `StructureMap/$transform` for other systems."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from twisted.web.resource import IResource

from ipf import __version__
from ipf.app.listeners.access import Access
from ipf.app.listeners.audit import AuditObservers
from ipf.app.listeners.endpoint_rules import channel_policy
from ipf.app.listeners.replica import replica_reads
from ipf.app.maps.packages import load_packages
from ipf.app.maps.trial import TrialProcesses
from ipf.app.roles.pair import Pair
from ipf.app.roles.process import Process
from ipf.app.runtime.process import now, run_in_thread
from ipf.app.runtime.stores import NotifierRouter, OpenedStores
from ipf.app.stages.maintenance import deidentification
from ipf.app.stages.notifications import start_websockets
from ipf.config.settings import Settings
from ipf.mapping.language.identity_table import IdentityTable, read_table
from ipf.pipeline.tracing import traced_handler
from ipf.pipeline.worker import Worker
from ipf.ports import Answer, AuditBinding, Handler, Json, Request, WebsocketHub
from ipf.rest.audit.audit_store import AuditedStore
from ipf.rest.background import job_runner
from ipf.rest.http.exchange import Observe as Observer
from ipf.rest.http.job_limit import JobLimit
from ipf.rest.http.outcome import refuse
from ipf.rest.operations.mapping_service import mapping_handler
from ipf.rest.router import handler
from ipf.rest.terminology.searches import TenantTerminology
from ipf.rest.write.conformance import DEFINITIONS, Conformance
from ipf.rest.write.import_sources import ImportSources
from ipf.rest.write.integrity import Integrity
from ipf.rest.write.repository import Repository
from ipf.security.access import installed
from ipf.security.vault import Vault
from ipf.store.audit.audit import PostgresAuditStore
from ipf.store.deliveries.bindings import PostgresBindingTokens
from ipf.store.erasure.expunge import PostgresExpungeStore
from ipf.store.resources.exports import PostgresExports
from ipf.store.resources.history import PostgresHistories
from ipf.store.resources.integrity import PostgresReferrers
from ipf.store.resources.jobs import PostgresJobs
from ipf.store.resources.reindex import PostgresReindexQueue
from ipf.store.terminology.closures import PostgresClosureTables
from ipf.store.terminology.systems import PostgresCodeSystems
from ipf.subscriptions.endpoint_names import EndpointNames
from ipf.telemetry import access_metrics, limit_metrics
from ipf.wire.admin.actuator import Component
from ipf.wire.channels import websocket_resource
from ipf.wire.client.host_names import use_host_names
from ipf.wire.client.import_client import ImportClient
from ipf.wire.http.app import resource as klein_resource
from ipf.wire.http.compression import compressing

_RUNNERS = 2  # jobs at once


def fhir_mount(handle: Handler, settings: Settings) -> IResource:
    """`/fhir` or `/mapping`."""
    return klein_resource(compressing(handle, run_in_thread) if settings.http_compression else handle, refuse)


def websocket_mount(hub: WebsocketHub, access: Access, audit: AuditBinding | None, reactor: Any) -> IResource:
    """`/websocket`."""
    return websocket_resource.resource(hub, reactor, access.authenticate, audit)


def start_hub(process: Process, pair: Pair) -> WebsocketHub:
    """The hub of websocket clients, started."""
    return start_websockets(pair.settings, pair.stores, pair.notifications, process.reactor, process.stack)


def transform_handler(pair: Pair, access: Access, audit: AuditObservers, reactor: Any) -> Handler:
    """The handler of requests to `/mapping`; maps of a request run in processes of their own."""
    maps = pair.maps
    apart = TrialProcesses(reactor, maps.folder, lambda: maps.installation.installed, run_in_thread)
    return mapping_handler(
        maps.installation, pair.stores.notifier, run_in_thread, access.identify, audit.requests, apart
    )


def fhir_handler(
    settings: Settings, repository: Repository, stores: OpenedStores, access: Access, audit: AuditObservers
) -> Handler:
    """The handler of FHIR requests."""
    reads = replica_reads(settings, stores)
    fhir = handler(repository, access.identify, _counting_break_glass(audit.requests), audit.drafts, reads)
    if stores.spans is not None:
        fhir = traced_handler(fhir, stores.spans)
    return _notifying(fhir, stores.notifier)


def _counting_break_glass(observe: Observer | None) -> Observer | None:
    """`observe`, and the count of requests that lift labels and Consents, where these may limit."""
    if installed() is None:
        return observe

    def note(request: Request, answer: Answer, began: float) -> None:
        if request.caller.break_glass:
            access_metrics.break_glass_used()
        if observe is not None:
            observe(request, answer, began)

    return note


def _notifying(handle: Handler, notifier: NotifierRouter) -> Handler:
    """Notify activation and delivery after each request that may have written."""

    async def handle_and_notify(request: Request) -> Answer:
        answer = await handle(request)
        if request.method not in ("GET", "HEAD") and answer.status < 300:
            notifier.notify("subscription")
            notifier.notify("delivery")
        return answer

    return handle_and_notify


def start_jobs(process: Process, pair: Pair, repository: Repository, audit: AuditObservers) -> None:
    """Run the jobs that requests have started, here or in another process."""
    notifier = pair.stores.notifier

    def wrote() -> None:
        notifier.notify("subscription")
        notifier.notify("delivery")

    runner = job_runner(repository, _counting_break_glass(audit.requests), audit.drafts, wrote)
    seconds = pair.settings.worker_poll_ms / 1000
    worker = Worker(runner.step, notifier, None, seconds, process.reactor, name="fhir jobs", concurrency=_RUNNERS)
    worker.start()
    process.stack.push_async_callback(worker.stop, pair.settings.stop_seconds)

    async def health() -> Json:
        """RuntimeError: every step fails."""
        if worker.problem is not None:
            raise RuntimeError(worker.problem)
        return {}

    process.health.add("fhir_jobs", Component(health, required=False))


def open_repository(process: Process, settings: Settings, stores: OpenedStores, access: Access) -> Repository:
    """The parts of the FHIR server."""
    referrers = PostgresReferrers(stores.fhir_database)
    expunge = PostgresExpungeStore(stores.fhir_database, settings.base_url, settings.legal_holds)
    integrity = Integrity(stores.fhir, referrers)
    load = partial(load_packages, settings, DEFINITIONS)
    imports = ImportSources(settings.channel_security, settings.import_allow)
    inputs = ImportClient(process.reactor, settings.http_max_body_bytes, imports.forbids)
    systems = PostgresCodeSystems(stores.fhir_database)
    names = use_host_names(process.reactor)
    policy = channel_policy(settings, process.listeners, names.is_failing)
    conformance = Conformance(load, stores.fhir, now, settings.validation_mode, run_in_thread, systems)
    return Repository(
        AuditedStore(stores.fhir, PostgresAuditStore(stores.fhir_database), settings.base_url),
        stores.matcher,
        now,
        PostgresHistories(stores.fhir_database),
        policy,
        EndpointNames(policy.endpoints, names.look_up),
        software_version=__version__,
        smart=None if access.keys is None else access.keys.smart,
        conformance=conformance,
        terminology=TenantTerminology(conformance, run_in_thread),
        closures=PostgresClosureTables(stores.fhir_database),
        identity_table=read_table(Path(settings.identity_file)) if settings.identity_file else IdentityTable(),
        deletes_many=settings.conditional_delete == "multiple",
        strict_search=settings.search_handling == "strict",
        max_bundle_entries=settings.max_bundle_entries,
        vault=Vault(settings.secret_key),
        deliveries=stores.deliveries,
        bindings=PostgresBindingTokens(stores.fhir_database),
        exports=PostgresExports(stores.fhir_database),
        reindex=PostgresReindexQueue(stores.fhir_database),
        fetch=inputs.fetch,
        import_sources=imports,
        jobs=PostgresJobs(stores.fhir_database),
        job_limit=JobLimit(process.reactor.seconds, partial(limit_metrics.limited, limit_metrics.JOB)),
        export_hours=settings.export_hours,
        deident=deidentification(settings),
        expunge=expunge if settings.expunge else None,
        integrity=integrity if settings.referential_integrity else None,
        referrers=referrers,
        run_in_thread=run_in_thread,
    )
