"""The HTTP listener: `/fhir`, `/mapping`, `/admin`, `/actuator` and `/websocket`, built over the stores and opened."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from twisted.web.resource import IResource

from ipf import __version__
from ipf.app.listeners.access import Access, open_access
from ipf.app.listeners.audit import AuditObservers, open_audit
from ipf.app.listeners.endpoints import HTTP, Listeners, bound, is_protected
from ipf.app.listeners.erasure import erasure_admin
from ipf.app.listeners.identity import identity_admin
from ipf.app.listeners.metrics import open_metrics
from ipf.app.listeners.names import own_names
from ipf.app.listeners.patient_merges import patient_merge_admin
from ipf.app.listeners.replica import replica_reads
from ipf.app.maps.mapper import ProfileLookup, build_mapper, service_credentials
from ipf.app.maps.packages import load_packages
from ipf.app.maps.profiles import VendorProfiles
from ipf.app.runtime.process import now, run_in_thread
from ipf.app.runtime.stores import NotifierRouter, OpenedStores, system_drafts
from ipf.app.stages.files import WatchedFolders
from ipf.app.stages.forwarding import Forwarding
from ipf.app.stages.maintenance import deidentification, message_pruner, retention_policy
from ipf.app.stages.monitoring import Monitoring
from ipf.app.stages.notifications import Notifications
from ipf.app.stages.polling import Polling
from ipf.app.stages.processes import ConverterProcesses
from ipf.app.stages.topic_failures import failing_topics
from ipf.app.stages.validation import resource_checks
from ipf.config.settings import Settings
from ipf.errors import Category, Problem
from ipf.mapping.library.installation import Installation
from ipf.mapping.library.service import MappingAdminService, as_claimed
from ipf.mapping.library.workbench import Workbench
from ipf.pipeline.deliver.handshake import TestNotification
from ipf.pipeline.maintenance.audit_feed import AuditFeed
from ipf.pipeline.maintenance.retention import would_remove
from ipf.pipeline.receive.receive import MllpListener, Receiver
from ipf.pipeline.tracing import traced_handler
from ipf.ports import SYSTEM, Answer, EffectsStore, Handler, Request
from ipf.ports.sources import OTHER
from ipf.rest.audit.audit_store import AuditedStore
from ipf.rest.http.exchange import Observe as Observer
from ipf.rest.http.outcome import refuse
from ipf.rest.operations.mapping_service import mapping_handler
from ipf.rest.operations.replay_preview import ReplayPreviewer
from ipf.rest.operations.subscription_status import set_status
from ipf.rest.operations.terminology import TenantTerminology
from ipf.rest.router import handler
from ipf.rest.write.conformance import DEFINITIONS, Conformance
from ipf.rest.write.integrity import Integrity
from ipf.rest.write.repository import Repository
from ipf.security.access import installed
from ipf.security.vault import Vault
from ipf.store.audit.audit import PostgresAuditStore
from ipf.store.audit.chain import PostgresAuditChain
from ipf.store.deliveries.bindings import PostgresBindingTokens
from ipf.store.inbox.message_admin import PostgresMessageAdmin
from ipf.store.inbox.remote_effects import PostgresRemoteEffects
from ipf.store.inbox.unread_fields import PostgresUnreadFields
from ipf.store.resources.effects import PostgresEffects
from ipf.store.resources.exports import PostgresExports
from ipf.store.resources.history import PostgresHistories
from ipf.store.resources.integrity import PostgresReferrers
from ipf.store.resources.reindex import PostgresReindexQueue
from ipf.subscriptions.policy import ChannelPolicy
from ipf.telemetry import access_metrics
from ipf.wire.admin import actuator, audit_export, audit_views
from ipf.wire.admin import app as admin
from ipf.wire.admin import audit as admin_audit
from ipf.wire.admin import destinations as admin_destinations
from ipf.wire.admin import ingest as admin_ingest
from ipf.wire.admin import profiles as admin_profiles
from ipf.wire.admin import retention as admin_retention
from ipf.wire.admin import sources as admin_sources
from ipf.wire.admin import unread as admin_unread
from ipf.wire.admin import workbench as admin_workbench
from ipf.wire.admin.access import AdminAccess
from ipf.wire.admin.actuator import Component, Health
from ipf.wire.admin.klein_app import Routes
from ipf.wire.admin.metrics_access import MetricsAccess
from ipf.wire.admin.routes import Operations
from ipf.wire.admin.subscriptions import SubscriptionAdmin
from ipf.wire.channels import websocket_resource
from ipf.wire.client.remote_service import RemoteService
from ipf.wire.client.remote_subscriptions import RemoteSubscriptions
from ipf.wire.http.app import resource as klein_resource
from ipf.wire.http.limits import HttpLimits
from ipf.wire.http.site import site
from ipf.wire.observe import app as observe_http
from ipf.wire.observe.observe import Facts, Observe
from ipf.wire.observe.observe import refusal as observe_refusal
from ipf.wire.tls import unusable

_MAPPING_TIMEOUT_SECONDS = 1.5
_OFFERS = {"fhir": "FHIR", "admin": "admin", "console": "console"}  # for the line `event=started`


@dataclass(frozen=True, slots=True)
class HttpParts:
    """The parts of the service that HTTP clients reach."""

    stores: OpenedStores
    installation: Installation
    map_folder: Path
    mapping: MappingAdminService
    profiles: VendorProfiles
    monitoring: Monitoring
    notifications: Notifications
    converters: ConverterProcesses | None
    receiver: Receiver
    listeners: Listeners
    audit_feed: AuditFeed | None
    polling: Polling
    files: WatchedFolders
    forwarding: Forwarding


async def open_http(
    settings: Settings, parts: HttpParts, connections: int, reactor: Any, stack: AsyncExitStack
) -> None:
    """Open the HTTP listener, with at most so many connections.  Problem UNAVAILABLE names IPF_HTTP_LISTEN."""
    access = open_access(settings, reactor)
    admin_access = AdminAccess(settings.admin_token, settings.admin_read_token)
    audit = open_audit(settings, parts.stores, admin_access, reactor, stack)
    health = Health(_components(settings, parts, access, reactor), reactor)
    repository = _repository(settings, parts.stores, access)
    sockets = parts.notifications.sockets
    mounts = {
        "fhir": klein_resource(_fhir(settings, repository, parts.stores, access, audit), refuse),
        "mapping": klein_resource(
            mapping_handler(parts.installation, parts.stores.notifier, run_in_thread, access.identify, audit.requests),
            refuse,
        ),
        "admin": _admin(settings, parts, repository, admin_access, audit, health, reactor),
        "actuator": actuator.resource(health, _metrics_access(settings)),
        "websocket": websocket_resource.resource(sockets, reactor, access.authenticate, audit.bindings),
    }
    limits = HttpLimits(settings.http_max_header_bytes, settings.http_request_seconds, connections=connections)
    refusals = {"fhir": refuse, "mapping": refuse, "admin/observe": observe_refusal}
    factory = site(mounts, refusals, max_body=settings.http_max_body_bytes, limits=limits, run_in_thread=run_in_thread)
    endpoint = bound(settings.http_listen, is_protected(settings))
    offers = tuple((label, f"/{path}") for path, label in _OFFERS.items() if path in mounts)
    opened = await parts.listeners.open(endpoint, factory, "HTTP", HTTP, offers)
    factory.limits = replace(limits, names=own_names(settings, opened.address, is_protected(settings)))
    stack.push_async_callback(parts.listeners.close, opened)
    await open_metrics(settings, parts.listeners, stack)


def _metrics_access(settings: Settings) -> MetricsAccess | None:
    """Who may read metrics on this listener; None when they have their own."""
    return None if settings.metrics_listen else MetricsAccess(settings.metrics_token)


def _fhir(
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


def _repository(settings: Settings, stores: OpenedStores, access: Access) -> Repository:
    """The parts of the FHIR server."""
    referrers = PostgresReferrers(stores.fhir_database)
    integrity = Integrity(stores.fhir, referrers)
    load = partial(load_packages, settings, DEFINITIONS)
    conformance = Conformance(load, stores.fhir, now, settings.validation_mode, run_in_thread)
    return Repository(
        AuditedStore(stores.fhir, PostgresAuditStore(stores.fhir_database), settings.base_url),
        stores.matcher,
        now,
        PostgresHistories(stores.fhir_database),
        ChannelPolicy(settings.channel_security, settings.endpoint_allow, settings.brokers),
        software_version=__version__,
        smart=None if access.keys is None else access.keys.smart,
        conformance=conformance,
        terminology=TenantTerminology(conformance, run_in_thread),
        strict_search=settings.search_handling == "strict",
        max_bundle_entries=settings.max_bundle_entries,
        vault=Vault(settings.secret_key),
        deliveries=stores.deliveries,
        bindings=PostgresBindingTokens(stores.fhir_database),
        exports=PostgresExports(stores.fhir_database),
        reindex=PostgresReindexQueue(stores.fhir_database),
        export_hours=settings.export_hours,
        deident=deidentification(settings),
        integrity=integrity if settings.referential_integrity else None,
        referrers=referrers,
        run_in_thread=run_in_thread,
    )


def _admin(
    settings: Settings,
    parts: HttpParts,
    repository: Repository,
    access: AdminAccess,
    audit: AuditObservers,
    health: Health,
    reactor: Any,
) -> IResource:
    """The admin API, with the observability API mounted in it."""
    stores = parts.stores
    facts = Facts(
        __version__, _toggles(settings), parts.monitoring.uptime, dict(settings.expected_intervals), _kinds(settings)
    )
    observe = Observe(parts.monitoring.statistics, health, facts, now)
    pruner, policy = message_pruner(settings, stores), retention_policy(settings)
    merges = patient_merge_admin(repository, stores.notifier, _actor(settings), audit.requests, audit.drafts)
    routes: list[Routes] = [
        admin_audit.routes(PostgresAuditStore(stores.fhir_database)),
        audit_views.routes(),
        audit_export.routes(PostgresAuditChain(stores.fhir_database), now),
        admin_profiles.routes(parts.profiles, stores.notifier),
        _operations(settings, parts, reactor),
        admin_ingest.routes(partial(_receive, parts.receiver), stores.inbox),
        admin_workbench.routes(_workbench(settings, parts), stores.notifier),
        admin_unread.routes(PostgresUnreadFields(stores.inbox_database)),
        admin_destinations.routes(parts.forwarding.store, lambda: {one.name for one in parts.forwarding.destinations}),
        admin_sources.routes(parts.polling.feeds, lambda: parts.polling.names),
        admin_retention.routes(pruner, policy, partial(would_remove, pruner, policy, now)),
        identity_admin(stores, merges.merge, _actor(settings)),
        merges,
        erasure_admin(settings, stores, _actor(settings)),
        observe_http.routes(observe, access.check, __version__, audit.admin),
    ]
    return admin.resource(
        stores.inbox,
        stores.notifier,
        access,
        stores.codes,
        parts.mapping,
        _subscription_admin(settings, stores, parts.notifications.test, reactor),
        more=routes,
        audit=audit.admin,
    )


async def _receive(receiver: Receiver, raw: bytes, tenant: str, peer: str) -> bytes | None:
    """A message that an operator sends, received as by a listener of this name."""
    return await receiver.receive(raw, MllpListener("admin", tenant=tenant, tells_all=True, protocol=OTHER), peer)


def _workbench(settings: Settings, parts: HttpParts) -> Workbench:
    """Trials of maps on the maps in use, with the validation of their results."""
    checks = resource_checks(settings, parts.stores)
    return Workbench(parts.installation, parts.stores.inbox, run_in_thread, now, parts.map_folder, checks)


def _kinds(settings: Settings) -> dict[str, str]:
    """What the listeners are whose messages came neither over MLLP nor by polling."""
    kinds = {one.name: "http" for one in settings.hl7_http_listen} | {name: "file" for name, _ in settings.file_sources}
    return kinds | {"admin": "operator"}


def _toggles(settings: Settings) -> dict[str, Any]:
    """Modes that the observability API shows."""
    return {
        "auth_enabled": bool(settings.auth_enabled),
        "validation_mode": settings.validation_mode,
        "channel_security_mode": settings.channel_security,
        "multitenancy_mode": str(settings.multitenancy),
    }


def _operations(settings: Settings, parts: HttpParts, reactor: Any) -> Operations:
    """Effects, replay, jobs, rejects and settings of the admin API."""
    stores = parts.stores
    preview = ReplayPreviewer(
        stores.inbox,
        build_mapper(settings, parts.installation, reactor),
        stores.fhir,
        stores.matcher,
        now,
        settings.passthrough_types,
        as_claimed,
        ProfileLookup(parts.installation, now).is_mapped,
    )
    given = frozenset(name for name, value in os.environ.items() if value.strip())
    messages = PostgresMessageAdmin(stores.inbox_database)
    effects: EffectsStore = PostgresEffects(stores.fhir_database)
    if settings.fhir_url is not None:
        effects = PostgresRemoteEffects(stores.inbox_database)
    return Operations(stores.inbox, stores.codes, messages, effects, preview, settings, given, __version__)


def _subscription_admin(
    settings: Settings, stores: OpenedStores, test: TestNotification, reactor: Any
) -> SubscriptionAdmin:
    """Subscriptions in the admin API: those of the FHIR server elsewhere, where there is one."""
    if settings.fhir_url is not None:
        remote = RemoteService(
            reactor, settings.fhir_timeout_ms / 1000, "the FHIR server", service_credentials(settings)
        )
        there = RemoteSubscriptions(remote, settings.fhir_url)
        return SubscriptionAdmin(there, there.change_status, stores.notifier, there.test, _actor(settings))
    drafts = system_drafts(settings)

    async def change(tenant: str, id: str, status: str, error: str | None, correlation_id: str, who: str) -> object:
        return await set_status(
            tenant, id, status, error, stores.fhir, stores.matcher, now, correlation_id=correlation_id, draft=drafts,
            caller=replace(SYSTEM, subject=who),
        )  # fmt: skip

    return SubscriptionAdmin(stores.deliveries, change, stores.notifier, test, _actor(settings))


def _actor(settings: Settings) -> str:
    """The author of changes through the admin API where the caller names no person."""
    return "admin token" if settings.admin_token else "anonymous"


def _components(settings: Settings, parts: HttpParts, access: Access, reactor: Any) -> dict[str, Component]:
    """The components of `/actuator/health`.  Only required ones make the service not ready."""

    async def fhir() -> None:
        await parts.stores.fhir_database.one("SELECT 1")

    async def converters() -> Mapping[str, Any]:
        processes = parts.converters
        if processes is not None and processes.running < processes.wanted:
            raise RuntimeError(f"{processes.running} of {processes.wanted} converter processes run")
        return {"processes": processes.wanted if processes is not None else 0}

    async def topics() -> Mapping[str, Any]:
        return failing_topics(parts.stores)

    async def tls_files() -> None:
        if reasons := unusable():
            raise RuntimeError("; ".join(reasons))

    async def startup() -> None:
        if parts.converters is not None and parts.converters.are_starting:
            raise RuntimeError("converter processes are starting")

    found = {
        "inbox": Component(parts.monitoring.queue),
        "fhir": Component(fhir),
        "converters": Component(converters, required=False),
        "startup": Component(startup),
        "profiles": Component(parts.profiles.health, required=False),
        "polling": Component(parts.polling.health, required=False),
        "forwarding": Component(parts.forwarding.health, required=False),
        "topics": Component(topics, required=False),
        "tls_files": Component(tls_files, required=False),
    }
    if parts.files.sources:
        found["files"] = Component(parts.files.health, required=False)
    if parts.audit_feed is not None:
        found["audit_feed"] = Component(parts.audit_feed.health, required=False)
    if parts.stores.replica is not None:
        found["fhir_replica"] = Component(parts.stores.replica.check, required=False)
    privacy = installed()
    if privacy is not None:
        found["consents"] = Component(privacy.check, required=False)
    if access.keys is not None:
        found["identity_provider"] = Component(access.keys.check, required=False)
    if settings.mapping_url is not None:
        found["mapping"] = _remote_mapping(settings.mapping_url, reactor)
    return found


def _remote_mapping(url: str, reactor: Any) -> Component:
    """Health of the remote mapping service."""
    remote = RemoteService(reactor, _MAPPING_TIMEOUT_SECONDS, "the mapping service")

    async def check() -> Mapping[str, Any]:
        reply = await remote.get(f"{url.rstrip('/')}/metadata", {"Accept": "application/fhir+json"})
        if reply.status >= 500:
            raise Problem(Category.UPSTREAM, f"the mapping service answers {reply.status}")
        return {"http_status": reply.status}

    return Component(check, required=False)
