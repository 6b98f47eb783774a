"""Role `admin`: the admin API, with the observability API mounted in it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import orjson
from twisted.web.resource import IResource

from ipf import __version__
from ipf.app.listeners.audit import AuditObservers
from ipf.app.listeners.erasure import erasure_admin
from ipf.app.listeners.identity import identity_admin
from ipf.app.listeners.patient_merges import patient_merge_admin
from ipf.app.maps.mapper import ProfileLookup, build_mapper, service_credentials
from ipf.app.maps.trial import TrialProcesses
from ipf.app.roles.pair import Pair
from ipf.app.roles.process import Process
from ipf.app.runtime.process import now, run_in_thread
from ipf.app.runtime.stores import OpenedStores, system_drafts
from ipf.app.stages.maintenance import message_pruner, retention_policy
from ipf.app.stages.notifications import endpoint_test
from ipf.app.stages.validation import resource_checks
from ipf.config.settings import Settings
from ipf.mapping.library.service import as_claimed
from ipf.mapping.library.workbench import Workbench
from ipf.pipeline.maintenance.retention import would_remove
from ipf.pipeline.receive.receive import MllpListener, Receiver
from ipf.ports import SYSTEM, EffectsStore, Json
from ipf.ports.messages.sources import OTHER
from ipf.rest.operations.replay_preview import ReplayPreviewer
from ipf.rest.operations.subscription_status import set_status
from ipf.rest.write.repository import Repository
from ipf.store.audit.audit import PostgresAuditStore
from ipf.store.audit.chain import PostgresAuditChain
from ipf.store.inbox.message_admin import PostgresMessageAdmin
from ipf.store.inbox.remote_effects import PostgresRemoteEffects
from ipf.store.inbox.saved_views import PostgresSavedViews
from ipf.store.inbox.unread_fields import PostgresUnreadFields
from ipf.store.resources.effects import PostgresEffects
from ipf.wire.admin import app as admin
from ipf.wire.admin import messages as admin_messages
from ipf.wire.admin.access import AdminAccess
from ipf.wire.admin.audit import export as audit_export
from ipf.wire.admin.audit import records as admin_audit
from ipf.wire.admin.audit import views as audit_views
from ipf.wire.admin.inbox import effects as admin_effects
from ipf.wire.admin.inbox import ingest as admin_ingest
from ipf.wire.admin.inbox import jobs as admin_jobs
from ipf.wire.admin.inbox import rejects, unmapped
from ipf.wire.admin.inbox import unread as admin_unread
from ipf.wire.admin.mapping import maps as admin_maps
from ipf.wire.admin.mapping import profiles as admin_profiles
from ipf.wire.admin.mapping import workbench as admin_workbench
from ipf.wire.admin.patients import erasure as admin_erasure
from ipf.wire.admin.patients import identity as admin_identity
from ipf.wire.admin.patients import merges as admin_merges
from ipf.wire.admin.route import AnyMounted, Mounted
from ipf.wire.admin.systems import destinations as admin_destinations
from ipf.wire.admin.systems import retention as admin_retention
from ipf.wire.admin.systems import sources as admin_sources
from ipf.wire.admin.systems import subscriptions
from ipf.wire.admin.systems import views as admin_views
from ipf.wire.admin.systems.subscriptions import SubscriptionAdmin
from ipf.wire.client.remote_service import RemoteService
from ipf.wire.client.remote_subscriptions import RemoteSubscriptions
from ipf.wire.observe import app as observe_http
from ipf.wire.observe.observe import Facts, Observe
from ipf.wire.reference import page as reference
from ipf.wire.reference.table import DOCUMENT_ROUTES, admin_document, observe_api_document

Warnings = Callable[[Json], Sequence[str]]
"""Why a Subscription that is active is not notified."""


def admin_mount(
    process: Process, pair: Pair, repository: Repository, access: AdminAccess, audit: AuditObservers
) -> IResource:
    """`/admin`."""
    settings, stores = pair.settings, pair.stores
    facts = Facts(
        __version__, _toggles(settings), pair.monitoring.uptime, dict(settings.expected_intervals), _kinds(settings)
    )
    observe = Observe(pair.monitoring.statistics, process.health, facts, now)
    observed = observe_http.resource(observe, access.check, observe_api_document(__version__), audit.admin)
    tables = [*_message_tables(pair, process.reactor), *_system_tables(pair, process.reactor)]
    tables += [
        *_patient_tables(settings, stores, repository, audit),
        Mounted(subscriptions.ROUTES, _subscription_admin(pair, repository.policy.warnings, process.reactor)),
        *_document_tables(),
    ]
    return admin.resource(access, tables, below={"observe": observed}, audit=audit.admin)


def _message_tables(pair: Pair, reactor: Any) -> list[AnyMounted]:
    """Messages, dead letters, jobs, rejects, codes, unread fields, further conversions."""
    settings, stores = pair.settings, pair.stores
    messages = PostgresMessageAdmin(stores.inbox_database)
    effects: EffectsStore = PostgresEffects(stores.fhir_database)
    if settings.fhir_url is not None:
        effects = PostgresRemoteEffects(stores.inbox_database)
    return [
        Mounted(admin_messages.ROUTES, admin_messages.Messages(stores.inbox, stores.notifier)),
        Mounted(admin_effects.ROUTES, admin_effects.Effects(stores.inbox, messages, effects, stores.codes)),
        Mounted(admin_jobs.ROUTES, admin_jobs.Jobs(messages, _replay_preview(pair, reactor))),
        Mounted(rejects.ROUTES, messages),
        Mounted(unmapped.ROUTES, unmapped.Codes(stores.codes, stores.notifier)),
        admin_ingest.routes(partial(_receive, pair.receiver), stores.inbox),
        admin_unread.routes(PostgresUnreadFields(stores.inbox_database)),
    ]


def _system_tables(pair: Pair, reactor: Any) -> list[AnyMounted]:
    """Maps, vendor profiles, polled sources, destinations, retention, settings, views, audit."""
    settings, stores = pair.settings, pair.stores
    pruner, policy = message_pruner(settings, stores), retention_policy(settings)
    given = frozenset(name for name, value in os.environ.items() if value.strip())
    return [
        Mounted(admin_maps.ROUTES, admin_maps.Maps(pair.mapping, stores.notifier)),
        admin_workbench.routes(_workbench(pair, reactor), stores.notifier),
        admin_profiles.routes(pair.profiles, stores.notifier),
        admin_sources.routes(pair.polling.feeds, lambda: pair.polling.names),
        admin_destinations.routes(pair.forwarding.store, lambda: {one.name for one in pair.forwarding.destinations}),
        admin_retention.routes(pruner, policy, partial(would_remove, pruner, policy, now)),
        Mounted(rejects.CONFIG_ROUTES, rejects.Configuration(settings, given)),
        admin_views.routes(PostgresSavedViews(stores.inbox_database), _actor(settings)),
        admin_audit.routes(PostgresAuditStore(stores.fhir_database)),
        Mounted(audit_views.ROUTES, None),
        audit_export.routes(PostgresAuditChain(stores.fhir_database), now),
    ]


def _patient_tables(
    settings: Settings, stores: OpenedStores, repository: Repository, audit: AuditObservers
) -> list[AnyMounted]:
    """Merges, identity conflicts, erasures."""
    merges = patient_merge_admin(repository, stores.notifier, _actor(settings), audit.requests, audit.drafts)
    return [
        Mounted(admin_merges.ROUTES, merges),
        Mounted(admin_identity.ROUTES, identity_admin(stores, merges.merge, _actor(settings))),
        Mounted(admin_erasure.ROUTES, erasure_admin(settings, stores, _actor(settings))),
    ]


def _document_tables() -> list[AnyMounted]:
    """The OpenAPI document, and the page of both."""
    document = admin_document(__version__)
    pages = reference.Reference({"admin": document, "observe": observe_api_document(__version__)})
    return [Mounted(DOCUMENT_ROUTES, orjson.dumps(document)), Mounted(reference.ROUTES, pages)]


async def _receive(receiver: Receiver, raw: bytes, tenant: str, peer: str) -> bytes | None:
    """A message that an operator sends, received as by a listener of this name."""
    return await receiver.receive(raw, MllpListener("admin", tenant=tenant, tells_all=True, protocol=OTHER), peer)


def _workbench(pair: Pair, reactor: Any) -> Workbench:
    """Trials of maps on the maps in use, in processes of their own, with the validation of their results."""
    checks, maps = resource_checks(pair.settings, pair.stores), pair.maps
    trial = TrialProcesses(reactor, maps.folder, lambda: maps.installation.installed, run_in_thread)
    return Workbench(maps.installation, pair.stores.inbox, run_in_thread, now, maps.folder, checks, trial)


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


def _replay_preview(pair: Pair, reactor: Any) -> ReplayPreviewer:
    """What a replay would change."""
    settings, stores, installation = pair.settings, pair.stores, pair.maps.installation
    return ReplayPreviewer(
        stores.inbox,
        build_mapper(settings, installation, reactor),
        stores.fhir,
        stores.matcher,
        now,
        settings.passthrough_types,
        as_claimed,
        ProfileLookup(installation, now).is_mapped,
    )


def _subscription_admin(pair: Pair, warnings: Warnings, reactor: Any) -> SubscriptionAdmin:
    """Subscriptions in the admin API: those of the FHIR server elsewhere, where there is one."""
    settings, stores = pair.settings, pair.stores
    if settings.fhir_url is not None:
        remote = RemoteService(
            reactor, settings.fhir_timeout_ms / 1000, "the FHIR server", service_credentials(settings)
        )
        there = RemoteSubscriptions(remote, settings.fhir_url)
        return SubscriptionAdmin(there, there.change_status, stores.notifier, there.test, _actor(settings))
    drafts, test = system_drafts(settings), endpoint_test(stores, pair.notifications)

    async def change(tenant: str, id: str, status: str, error: str | None, correlation_id: str, who: str) -> object:
        return await set_status(
            tenant, id, status, error, stores.fhir, stores.matcher, now, correlation_id=correlation_id, draft=drafts,
            caller=replace(SYSTEM, subject=who),
        )  # fmt: skip

    return SubscriptionAdmin(stores.deliveries, change, stores.notifier, test, _actor(settings), warnings)


def _actor(settings: Settings) -> str:
    """The author of changes through the admin API where the caller names no person."""
    return "admin token" if settings.admin_token else "anonymous"
