"""The doors: HTTP and MLLP listeners, built over the stores and opened.  Part of the composition root (`service.py`).

A TCP listener binds loopback, unless it names an interface, while FHIR tokens or the admin token are not asked for
(decisions section 1).
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from time import time
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IListeningPort

from ipf import __version__
from ipf.app.converter import NotifierRouter, Stores, milliseconds, now, trail_of
from ipf.app.endpoints import HTTP, MLLP, bound, is_protected, listen, most_clients, most_senders, raise_file_limit
from ipf.app.maps import MappedByVendor, mapper_of, run_in_thread
from ipf.app.monitoring import Watching
from ipf.app.packages import load_packages
from ipf.app.processes import ConverterProcesses
from ipf.app.vendor_profiles import Vendors
from ipf.config.settings import Listener, Settings
from ipf.mapping.library.installation import Installation
from ipf.mapping.library.service import MappingAdminService, as_claimed
from ipf.pipeline.receive.group_commit import GroupCommit
from ipf.pipeline.receive.receive import ListenerReceiver, MllpListener, Receiver
from ipf.pipeline.tracing import TracedCommit, traced_handler
from ipf.ports import (
    ANONYMOUS,
    DEFAULT_TENANT,
    Answer,
    AuditBinding,
    Authenticate,
    Handler,
    Request,
    Session,
    WebsocketHub,
)
from ipf.rest.audit.audit_store import AuditedStore
from ipf.rest.audit.recorder import listeners, observer, records_of
from ipf.rest.http.exchange import Observe
from ipf.rest.http.outcome import refuse
from ipf.rest.operations.mapping_service import mapping_handler
from ipf.rest.operations.replay_preview import ReplayPreviewer
from ipf.rest.operations.subscription_status import set_status
from ipf.rest.operations.terminology import TenantTerminology
from ipf.rest.router import handler
from ipf.rest.write.conformance import DEFINITIONS, Conformance
from ipf.rest.write.integrity import Integrity
from ipf.rest.write.permission import OPEN_PATHS
from ipf.rest.write.repository import Repository
from ipf.security.audit import AuditRules, tails
from ipf.security.tenancy import Tenancy, placing
from ipf.security.tokens import Rules
from ipf.security.vault import Vault
from ipf.store.audit.audit import PostgresAuditStore
from ipf.store.deliveries.bindings import PostgresBindingTokens
from ipf.store.inbox.bulk import PostgresMessageAdmin
from ipf.store.resources.effects import PostgresEffects
from ipf.store.resources.exports import PostgresExports
from ipf.store.resources.history import PostgresHistories
from ipf.store.resources.integrity import PostgresReferrers
from ipf.store.resources.reindex import PostgresReindexQueue
from ipf.subscriptions.policy import STRICT, ChannelPolicy
from ipf.telemetry import metrics
from ipf.telemetry.correlation import new_correlation_id
from ipf.wire.admin import actuator
from ipf.wire.admin import app as admin
from ipf.wire.admin import audit as admin_audit
from ipf.wire.admin import profiles as admin_profiles
from ipf.wire.admin.actuator import Component, Health
from ipf.wire.admin.app import Gate
from ipf.wire.admin.routes import Operations
from ipf.wire.admin.subscriptions import SubscriptionAdmin
from ipf.wire.channels import websocket_resource as websocket_door
from ipf.wire.client.remote_service import RemoteService, Response
from ipf.wire.http.bearer import Bearer
from ipf.wire.http.limits import HttpLimits
from ipf.wire.http.oidc import KeySource
from ipf.wire.http.site import FhirResource, site
from ipf.wire.mllp.access import Gate as SenderGate
from ipf.wire.mllp.access import GatedMllpFactory, networks_of
from ipf.wire.mllp.limits import Limits
from ipf.wire.mllp.protocol import MllpFactory
from ipf.wire.observe.app import Beside

reactor: Any = _reactor  # its interfaces are mixed in at run time

_PROVIDER_SECONDS = 5.0
_LARGEST_KEY_SET = 1024 * 1024

Closer = Callable[[], Awaitable[object]]


def bearer_of(keys: KeySource, settings: Settings) -> Bearer:
    """What turns tokens into callers."""
    return Bearer(keys, rules_of(settings), time, OPEN_PATHS, tenancy_of(settings))


def rules_of(settings: Settings) -> Rules:
    """What is asked of a bearer token."""
    return Rules(
        settings.auth_issuer or "",
        settings.auth_audience,
        settings.auth_skew_seconds,
        settings.tenant_claim,
        settings.auth_patient_claim,
    )


def key_source(settings: Settings) -> KeySource:
    """The keys of the issuer."""
    remote = RemoteService(reactor, _PROVIDER_SECONDS, "the identity provider", body_limit=_LARGEST_KEY_SET)

    async def fetch(url: str) -> Response:
        return await remote.get(url, {"Accept": "application/json"})

    return KeySource(settings.auth_issuer or "", fetch, reactor, settings.auth_jwks_url)


class Doors:
    """Opens the listeners; `on_stop(what, close)` is told how each is closed again."""

    def __init__(
        self,
        settings: Settings,
        stores: Stores,
        installation: Installation,
        on_stop: Callable[[str, Closer], None],
        sockets: WebsocketHub,
        watching: Watching,
        vendors: Vendors,
    ) -> None:
        self._watching = watching
        self._vendors = vendors
        self._sockets = sockets
        self._settings = settings
        self._stores = stores
        self._installation = installation
        self.desk = MappingAdminService(installation, stores.inbox, run_in_thread)
        self._on_stop = on_stop
        self._most_senders = settings.mllp_max_connections
        self._notifier = NotifierRouter(stores.inbox_notifier, stores.fhir_notifier)
        self._tails, tenancy = tails(), tenancy_of(settings)
        self._rules = AuditRules(settings.audit_reads, settings.audit_searches, tenancy.is_enabled)
        self._trail = trail_of(settings, stores, reactor, make=partial(records_of, self._rules, self._tails))
        self.keys = key_source(settings) if settings.auth_enabled else None
        self.bearer = None if self.keys is None else bearer_of(self.keys, settings)

    async def open_http(self, processes: Callable[[], ConverterProcesses | None]) -> None:
        """`/fhir`, `/mapping`, `/admin` and `/actuator` on one listener."""
        settings, stores, notifier = self._settings, self._stores, self._notifier
        if self.keys is not None:
            Deferred.fromCoroutine(self.keys.start())
        if self._trail is not None:
            self._on_stop("audit trail", partial(self._trail.stop, settings.stop_seconds))
        gate = Gate(settings.admin_token, settings.admin_read_token)
        identify = None if self.bearer is None else placing(self.bearer.identify, tenancy_of(settings))
        health = Health(self._components(processes), reactor)
        watch = self._watch(gate)
        operators = admin.resource(
            stores.inbox, notifier, gate, stores.codes, self.desk, self._subscriptions(),
            more=self._admin_routes(), watch=watch,
        )  # fmt: skip
        observe = self._observer()
        fhir = handler(self._repository(), identify, observe)
        mapping = mapping_handler(self._installation, notifier, run_in_thread, identify, observe)
        if stores.spans is not None:
            fhir = traced_handler(fhir, stores.spans)
        mounts = {
            "fhir": FhirResource(ringing(fhir, notifier), refuse),
            "mapping": FhirResource(mapping, refuse),
            "admin": Beside(operators, self._watching.mounts(health, gate, watch)),
            "actuator": actuator.resource(health),
            "websocket": websocket_door.resource(self._sockets, reactor, self._session(), self._listeners()),
        }
        limits = http_limits(settings, most_clients(settings, raise_file_limit()))
        factory = site(mounts, max_body=settings.http_max_body_bytes, limits=limits)
        port = await self._listen(settings.http_listen, factory, "HTTP", HTTP)
        self._on_stop("HTTP", lambda: maybeDeferred(port.stopListening))

    def _session(self) -> Authenticate:
        """Who a websocket client is.  In mode strict without bearer tokens only binding tokens bind."""
        if self.bearer is not None:
            return self.bearer.session
        return nobody if self._settings.channel_security == STRICT else websocket_door.everybody

    def _admin_routes(self) -> list[admin.Routes]:
        """Paths of the admin API with stores of their own."""
        return [
            admin_audit.routes(PostgresAuditStore(self._stores.fhir_database)),
            admin_profiles.routes(self._vendors, self._notifier),
            self._operations(),
        ]

    def _operations(self) -> Operations:
        """Effects, replay, jobs, rejects, settings."""
        settings, stores = self._settings, self._stores
        mapper = mapper_of(settings, self._installation, reactor)
        rehearsal = ReplayPreviewer(
            stores.inbox, mapper, stores.fhir, stores.matcher, now, settings.passthrough_types, as_claimed,
            MappedByVendor(self._installation, now),
        )  # fmt: skip
        given = frozenset(name for name, value in os.environ.items() if value.strip())
        desk, effects = PostgresMessageAdmin(stores.inbox_database), PostgresEffects(stores.fhir_database)
        return Operations(stores.inbox, stores.codes, desk, effects, rehearsal, settings, given, __version__)

    def _watch(self, gate: Gate) -> admin_audit.Watch | None:
        """What tells the audit trail of operators."""
        return None if self._trail is None else admin_audit.watcher(self._trail.note, gate.who, now, self._tails)

    def _observer(self) -> Observe | None:
        """What tells the audit trail of requests."""
        if self._trail is None:
            return None
        trail = self._trail
        return observer(self._rules, trail.note, milliseconds, self._tails, run_in_thread, trail.note_later)

    def _listeners(self) -> AuditBinding | None:
        """What tells it of websocket clients that bind, or try to."""
        return None if self._trail is None else listeners(self._rules, self._trail.note, now, self._tails)

    def _subscriptions(self) -> SubscriptionAdmin:
        """What operators ask about subscriptions."""
        stores = self._stores

        async def change(tenant: str, id: str, status: str, error: str | None, correlation_id: str) -> object:
            store, matcher = stores.fhir, stores.matcher
            return await set_status(tenant, id, status, error, store, matcher, now, correlation_id=correlation_id)

        actor = "admin token" if self._settings.admin_token else "anonymous"
        return SubscriptionAdmin(stores.deliveries, change, self._notifier, actor)

    def _repository(self) -> Repository:
        """The FHIR server's parts."""
        settings, stores = self._settings, self._stores
        integrity = Integrity(stores.fhir, PostgresReferrers(stores.fhir_database))
        load = partial(load_packages, settings, DEFINITIONS)
        conformance = Conformance(load, stores.fhir, now, settings.validation_mode)
        return Repository(
            AuditedStore(stores.fhir, PostgresAuditStore(stores.fhir_database)),
            stores.matcher,
            now,
            PostgresHistories(stores.fhir_database),
            channel_policy(settings),
            software_version=__version__,
            smart=None if self.keys is None else self.keys.smart,
            conformance=conformance,
            terminology=TenantTerminology(conformance),
            max_bundle_entries=settings.max_bundle_entries,
            vault=Vault(settings.secret_key),
            deliveries=stores.deliveries,
            bindings=PostgresBindingTokens(stores.fhir_database),
            exports=PostgresExports(stores.fhir_database),
            reindex=PostgresReindexQueue(stores.fhir_database),
            export_hours=settings.export_hours,
            integrity=integrity if settings.referential_integrity else None,
            run_in_thread=run_in_thread,
        )

    def _components(self, processes: Callable[[], ConverterProcesses | None]) -> dict[str, Component]:
        stores = self._stores

        async def inbox() -> Mapping[str, Any]:
            return await self._watching.queue()

        async def fhir() -> None:
            await stores.fhir_database.one("SELECT 1")

        async def converters() -> Mapping[str, Any]:
            children = processes()
            if children is not None and children.running < children.wanted:
                raise RuntimeError(f"{children.running} of {children.wanted} converter processes run")
            return {"processes": children.wanted if children is not None else 0}

        provider = {} if self.keys is None else {"identity_provider": Component(self.keys.check, required=False)}
        return (
            provider
            | self._watching.downstream()
            | {
                "inbox": Component(inbox),
                "fhir": Component(fhir),
                "converters": Component(converters, required=False),
                "profiles": Component(self._vendors.health, required=False),
            }
        )

    async def open_mllp(self) -> None:
        """Every MLLP listener; from now on messages are accepted."""
        settings, stores, notifier = self._settings, self._stores, self._notifier
        self._most_senders = most_senders(settings, raise_file_limit())
        commit = (TracedCommit if stores.spans else GroupCommit)(
            stores.inbox,
            reactor,
            writers=settings.inbox_writers,
            timeout=settings.inbox_timeout_seconds,
            committed=lambda: notifier.notify("inbox"),
        )
        if isinstance(commit, TracedCommit) and stores.spans is not None:
            commit.spans = stores.spans
        receiver = Receiver(
            stores.inbox,
            commit,
            reactor,
            now=now,
            new_correlation_id=new_correlation_id,
            ordering=settings.ordering,
            map_missing=partial(is_map_missing, self._required_types(), self._installation.has_map),
            observe=count_received,
        )
        for listener in settings.mllp_listen:
            self._on_stop(f"MLLP {listener.name}", await self._mllp_listener(listener, receiver, MLLP))
        self._on_stop("MLLP of profiles", self._vendors.close)
        await self._vendors.attach(receiver, lambda one: self._mllp_listener(one, receiver))

    def _required_types(self) -> frozenset[str]:
        """Types that are refused without a map; with a mapping service elsewhere nobody here knows its maps."""
        return frozenset(self._settings.require_map_types if self._settings.mapping_url is None else ())

    async def _mllp_listener(self, listener: Listener, receiver: Receiver, variable: str | None = None) -> Closer:
        """Open one; what closes it.  `variable`: of the settings, where it is named there."""
        settings = self._settings
        tenant = dict(settings.mllp_tenants).get(listener.name, DEFAULT_TENANT)

        def receiver_for(tenant: str) -> ListenerReceiver:
            return receiver.for_listener(MllpListener(listener.name, settings.mllp_fallback_charset, tenant))

        limits = Limits(
            message=settings.mllp_max_frame_bytes,
            discard=8 * settings.mllp_max_frame_bytes,
            connections=self._most_senders,
            frame_timeout=settings.mllp_frame_timeout_seconds,
        )
        gate = sender_gate(settings, listener)
        factory = (
            MllpFactory(listener.name, receiver_for(tenant), reactor, limits)
            if gate is None
            else GatedMllpFactory(listener.name, receiver_for(tenant), reactor, limits, gate, receiver_for)
        )
        factory.connections_changed = partial(metrics.mllp_connections, listener.name)
        port = await self._listen(listener.endpoint, factory, f"MLLP {listener.name}", variable)

        async def stop() -> None:
            await maybeDeferred(port.stopListening)
            await factory.stop(settings.stop_seconds)

        return stop

    async def _listen(self, endpoint: str, factory: Any, what: str, variable: str | None = None) -> IListeningPort:
        return await listen(reactor, bound(endpoint, is_protected(self._settings)), factory, what, variable)


def channel_policy(settings: Settings) -> ChannelPolicy:
    """Which endpoints and headers a subscription may have."""
    return ChannelPolicy(settings.channel_security, settings.endpoint_allow)


async def nobody(bearer: str | None) -> Session:
    """`Authenticate` where websockets need an authenticated session, and nobody can have one."""
    return Session(may_read=lambda _: False, caller=ANONYMOUS)


def tenancy_of(settings: Settings) -> Tenancy:
    """Which tenant a token's caller belongs to."""
    return Tenancy(settings.multitenancy == "enabled", frozenset(settings.tenants))


def sender_gate(settings: Settings, listener: Listener) -> SenderGate | None:
    """Who may send to an MLLP listener; None when anybody may, without limits and without TLS."""
    is_mutual = listener.endpoint.startswith("mtls:")
    gate = SenderGate(
        networks_of(listener.name, settings.mllp_allow),
        settings.mllp_client_names if is_mutual else (),
        settings.mllp_peer_connections,
        settings.mllp_peer_rate,
    )
    return None if gate.is_open and not is_mutual and not listener.endpoint.startswith("ssl:") else gate


def http_limits(settings: Settings, connections: int) -> HttpLimits:
    """What HTTP clients may cost, and whose pages may ask."""
    return HttpLimits(settings.http_max_header_bytes, settings.http_request_seconds, settings.cors_origins, connections)


def is_map_missing(required: frozenset[str], has_map: Callable[[str], bool], message_type: str) -> bool:
    """Whether a message of this type is refused for want of a map (`IPF_REQUIRE_MAP_TYPES`)."""
    return message_type in required and not has_map(message_type)


def count_received(result: str, source_system: str) -> None:
    """`Receiver.observe` on Prometheus."""
    if result == "stored":
        metrics.message_received(source_system)
    elif result in ("duplicate", "conflicting_duplicate"):
        metrics.duplicate_received(conflicting=result == "conflicting_duplicate")
    elif result == "rejected":
        metrics.frame_rejected("AR")
    elif result in ("map_missing", "unavailable", "failed"):
        metrics.frame_rejected("AE")


def ringing(handle: Handler, notifier: NotifierRouter) -> Handler:
    """A handler that rings for activation and delivery after each request that may have written."""

    async def handle_and_ring(request: Request) -> Answer:
        answer = await handle(request)
        if request.method not in ("GET", "HEAD") and answer.status < 300:
            notifier.notify("subscription")
            notifier.notify("delivery")
        return answer

    return handle_and_ring
