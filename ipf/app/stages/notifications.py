"""The notification stages: subscriptions are activated, and their notifications delivered over each channel."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from ipf.app.runtime.process import now, worker_name
from ipf.app.runtime.stores import OpenedStores, delivery_backoff, system_drafts
from ipf.config.settings import Settings
from ipf.errors import StoreUnreachable
from ipf.pipeline.deliver.activate import Activate, SetStatus
from ipf.pipeline.deliver.authorization import Authorization
from ipf.pipeline.deliver.compose import Composer
from ipf.pipeline.deliver.deliver import Deliver
from ipf.pipeline.deliver.handshake import TestNotification
from ipf.pipeline.deliver.websockets import WebsocketNotifier
from ipf.pipeline.tracing import TracedChannel
from ipf.pipeline.worker import Worker
from ipf.ports import Channels, Compose
from ipf.ports.delivery import AuthorizationFilter
from ipf.rest.operations.subscription_status import set_status
from ipf.rest.write.commit import refresh
from ipf.security.audit.delivery import delivery_audit
from ipf.security.audit.rules import id_suffixes
from ipf.security.vault import Vault
from ipf.store.deliveries.bindings import PostgresBindingTokens
from ipf.store.postgres.replication import position_of
from ipf.store.resources.writing.grants import PostgresGrants
from ipf.subscriptions.endpoints import EndpointRules
from ipf.subscriptions.status import FIRING, Trigger, origins
from ipf.wire.channels import open_channels

log = Logger(namespace="ipf.app.notifications")

_CHECKED_AT_START = 1000  # Subscriptions whose secrets are decrypted at start


@dataclass(frozen=True, slots=True)
class NotificationParts:
    """What composes and sends notifications, shared by the roles of a process.  `authorization`: with bearer tokens."""

    compose: Compose
    authorization: Authorization | None
    channels: Channels

    @property
    def authorization_filter(self) -> AuthorizationFilter | None:
        """Which resources a subscriber may read; None: all."""
        return None if self.authorization is None else self.authorization.authorization_filter


def open_notification_parts(
    settings: Settings, stores: OpenedStores, rules: EndpointRules, reactor: Any, stack: AsyncExitStack
) -> NotificationParts:
    """What composes and sends notifications; nothing is sent yet.  `rules`: where they may be sent to."""
    compose, authorization = _composer(settings, stores)
    channels = open_notification_channels(settings, stores, rules, reactor, stack)
    return NotificationParts(compose, authorization, channels)


def start_delivery(
    settings: Settings, stores: OpenedStores, parts: NotificationParts, reactor: Any, stack: AsyncExitStack
) -> None:
    """Start to activate subscriptions, and to deliver their notifications over every channel but websockets."""
    _start_activation(settings, stores, parts, reactor, stack)
    _start_delivery(settings, stores, parts, reactor, stack)
    Deferred.fromCoroutine(_check_secrets(settings, stores))


def start_websockets(
    settings: Settings, stores: OpenedStores, parts: NotificationParts, reactor: Any, stack: AsyncExitStack
) -> WebsocketNotifier:
    """Start the hub that websocket clients of this process connect to."""
    authorization = parts.authorization
    sockets = WebsocketNotifier(
        stores.deliveries,
        PostgresBindingTokens(stores.fhir_database),
        parts.compose,
        stores.notifier,
        reactor,
        now,
        poll_seconds=settings.worker_poll_ms / 1000,
        authorization_filter=parts.authorization_filter,
        numbered_from=authorization.numbered_from if authorization is not None else None,
        audit=delivery_audit(id_suffixes()) if settings.audits_deliveries else None,
    )
    sockets.start()
    stack.push_async_callback(sockets.stop, settings.stop_seconds)
    return sockets


def endpoint_test(stores: OpenedStores, parts: NotificationParts) -> TestNotification:
    """The test of an endpoint that operators ask for."""
    return TestNotification(stores.deliveries, parts.channels, parts.compose, now)


def _composer(settings: Settings, stores: OpenedStores) -> tuple[Compose, Authorization | None]:
    """What composes notifications; with bearer tokens, only from resources that the subscriber may read."""
    position = None if settings.fhir_read_db_url is None else partial(position_of, stores.fhir_database)
    compose: Compose = Composer(stores.fhir, stores.matcher, now, settings.base_url, position)
    if not settings.auth_enabled:
        return compose, None
    grants = PostgresGrants(stores.fhir_database)
    reads = stores.fhir.read_version, stores.fhir.read_many
    authorization = Authorization(grants, compose, *reads, subscribers_read=settings.subscribers_read)
    return authorization, authorization


def open_notification_channels(
    settings: Settings, stores: OpenedStores, rules: EndpointRules, reactor: Any, stack: AsyncExitStack
) -> Channels:
    """The channels by type, closed with the stack."""
    channels = open_channels(settings, reactor, settings.base_url, rules.forbids, stack.callback)
    if stores.spans is None:
        return channels
    return {name: TracedChannel(channel, name, stores.spans) for name, channel in channels.items()}


def _start_activation(
    settings: Settings, stores: OpenedStores, parts: NotificationParts, reactor: Any, stack: AsyncExitStack
) -> None:
    async def unserved() -> list[tuple[str, str, str, str]]:
        """Subscriptions that lost their topic, also through changes of other processes."""
        await refresh(stores.fhir, stores.matcher)
        lost = [one for one in stores.matcher.unserved.values() if one.status != "error"]
        return [(one.tenant, one.id, one.version_id, one.reason) for one in lost]

    activate = Activate(
        stores.deliveries,
        _status_setter(settings, stores, origins(Trigger.ACTIVATED)),
        parts.channels,
        parts.compose,
        now,
        _status_setter(settings, stores, FIRING),
        unserved,
        _never_sent(settings),
        reactor,
    )
    poll_seconds = settings.worker_poll_ms / 1000
    worker = Worker(activate.step, stores.notifier, "subscription", poll_seconds, reactor, name="activate")
    worker.start()
    stack.push_async_callback(activate.stop, settings.stop_seconds, reactor)
    stack.push_async_callback(worker.stop, settings.stop_seconds)


def _start_delivery(
    settings: Settings, stores: OpenedStores, parts: NotificationParts, reactor: Any, stack: AsyncExitStack
) -> None:
    deliver = Deliver(
        stores.deliveries,
        parts.channels,
        parts.compose,
        _status_setter(settings, stores, origins(Trigger.EXHAUSTED)),
        stores.notifier,
        reactor,
        now,
        worker=worker_name(),
        backoff=delivery_backoff(settings),
        poll_seconds=settings.worker_poll_ms / 1000,
        lease_seconds=settings.delivery_timeout_ms / 1000 + 5,
        in_flight=settings.delivery_in_flight,
        authorization_filter=parts.authorization_filter,
        audit=delivery_audit(id_suffixes()) if settings.audits_deliveries else None,
        never_sent=_never_sent(settings),
    )
    deliver.start()
    stack.push_async_callback(deliver.stop, settings.stop_seconds)


def _never_sent(settings: Settings) -> frozenset[str]:
    """Channel types that are accepted and never sent.  Source: interface specification "Subscription notifications"."""
    return frozenset() if settings.smtp_url is not None else frozenset({"email"})


async def _check_secrets(settings: Settings, stores: OpenedStores) -> None:
    """Warn at start about stored secrets that cannot be decrypted: notifications that need them fail."""
    try:
        found = await stores.deliveries.healths(None, _CHECKED_AT_START)
    except StoreUnreachable:
        return  # the store logs it
    vault = Vault(settings.secret_key)
    unreadable = [one.id for one in found if not vault.can_decrypt(one.resource)]
    if unreadable:
        text = "event=secrets_unreadable count={count} first={first} IPF_SECRET_KEY does not decrypt their headers"
        log.warn(text, count=len(unreadable), first=f"Subscription/{unreadable[0]}")


def _status_setter(settings: Settings, stores: OpenedStores, when: frozenset[str]) -> SetStatus:
    """Sets the status of a subscription whose present status is one of `when`."""

    drafts = system_drafts(settings)

    async def set_one(tenant: str, id: str, status: str, error: str | None, version_id: str | None) -> None:
        parts = stores.fhir, stores.matcher, now
        await set_status(tenant, id, status, error, *parts, only_from=when, version_id=version_id, draft=drafts)
        stores.notifier.notify("delivery")  # events were held until now

    return set_one
