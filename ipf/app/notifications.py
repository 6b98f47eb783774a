"""What tells subscribers, put together: channels, activation, delivery, websockets.  Part of the composition root."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from ipf.app.converter import NotifierRouter, Stores, now, worker_name
from ipf.app.listeners import channel_policy
from ipf.config.settings import Settings
from ipf.errors import StoreUnreachable
from ipf.pipeline.deliver.activate import Activate, SetStatus
from ipf.pipeline.deliver.authorization import Authorization
from ipf.pipeline.deliver.compose import Composer
from ipf.pipeline.deliver.deliver import Deliver
from ipf.pipeline.deliver.websockets import WebsocketNotifier
from ipf.pipeline.tracing import TracedChannel
from ipf.pipeline.worker import Worker
from ipf.ports import Backoff, Channels, Compose
from ipf.ports.delivery import AuthorizationFilter
from ipf.rest.operations.subscription_status import set_status
from ipf.rest.write.commit import refresh
from ipf.security.vault import Vault
from ipf.store.deliveries.bindings import PostgresBindingTokens
from ipf.store.resources.grants import PostgresGrants
from ipf.subscriptions.status import FIRING, Trigger, origins
from ipf.wire.channels import open_channels

log = Logger()

Closer = Callable[[], Awaitable[object]]

_LOOKED_AT = 1000  # Subscriptions whose secrets are tried at start


class Notifying:
    """The stages after a commit, and what they share."""

    def __init__(self, settings: Settings, stores: Stores, reactor: Any) -> None:
        self._settings = settings
        self._stores = stores
        self._reactor = reactor
        self._notifier = NotifierRouter(stores.inbox_notifier, stores.fhir_notifier)
        self._poll_seconds = settings.worker_poll_ms / 1000
        self.bindings = PostgresBindingTokens(stores.fhir_database)
        self.compose: Compose = Composer(stores.fhir, stores.matcher, now, settings.base_url)
        self._authorization_filter: AuthorizationFilter | None = None
        if settings.auth_enabled:
            release = Authorization(PostgresGrants(stores.fhir_database), self.compose)
            self.compose, self._authorization_filter = release, release.authorization_filter
        permits = channel_policy(settings).permits
        self.channels: Channels = open_channels(settings, reactor, settings.base_url, permits)
        if stores.spans is not None:
            self.channels = {n: TracedChannel(each, n, stores.spans) for n, each in self.channels.items()}
        self.sockets = WebsocketNotifier(
            stores.deliveries,
            self.bindings,
            self.compose,
            self._notifier,
            reactor,
            now,
            poll_seconds=self._poll_seconds,
            authorization_filter=self._authorization_filter,
        )

        self._activate = Activate(
            stores.deliveries,
            self._status_setter(origins(Trigger.ACTIVATED)),
            self.channels,
            self.compose,
            now,
            self._status_setter(FIRING),
            self._unserved,
        )

    async def _unserved(self) -> list[tuple[str, str, str]]:
        """What changed meanwhile in other processes may have taken a topic away."""
        matcher = self._stores.matcher
        await refresh(self._stores.fhir, matcher)
        return [(one.tenant, one.id, one.reason) for one in matcher.unserved.values() if one.status != "error"]

    def start(self, on_stop: Callable[[str, Closer], None]) -> None:
        """Begin; `on_stop` is told how each part is stopped."""
        seconds = self._settings.stop_seconds
        activation, deliver = self._activation(), self._delivery()
        activation.start()
        deliver.start()
        self.sockets.start()
        Deferred.fromCoroutine(self._look_at_secrets())
        on_stop("handshakes", partial(self._activate.stop, seconds, self._reactor))
        on_stop("activation", partial(activation.stop, seconds))
        on_stop("delivery", partial(deliver.stop, seconds))
        on_stop("websockets", partial(self.sockets.stop, seconds))

    async def _look_at_secrets(self) -> None:
        """Say at once that stored secrets cannot be opened: each notification that needs one would fail instead."""
        try:
            found = await self._stores.deliveries.healths(None, _LOOKED_AT)
        except StoreUnreachable:
            return  # the store says so itself
        vault = Vault(self._settings.secret_key)
        locked = [one.id for one in found if not vault.opens(one.resource)]
        if locked:
            text = "event=secrets_unreadable count={count} first={first} IPF_SECRET_KEY does not open their headers"
            log.warn(text, count=len(locked), first=f"Subscription/{locked[0]}")

    def _activation(self) -> Worker:
        activate = self._activate
        return Worker(activate.step, self._notifier, "subscription", self._poll_seconds, self._reactor, name="activate")

    def _delivery(self) -> Deliver:
        return Deliver(
            self._stores.deliveries,
            self.channels,
            self.compose,
            self._status_setter(origins(Trigger.EXHAUSTED)),
            self._notifier,
            self._reactor,
            now,
            worker=worker_name(),
            backoff=delivery_backoff(self._settings),
            poll_seconds=self._poll_seconds,
            lease_seconds=self._settings.delivery_timeout_ms / 1000 + 5,
            authorization_filter=self._authorization_filter,
        )

    def _status_setter(self, when: frozenset[str]) -> SetStatus:
        stores = self._stores

        async def set_one(tenant: str, subscription_id: str, status: str, error: str | None) -> None:
            await set_status(tenant, subscription_id, status, error, stores.fhir, stores.matcher, now, when=when)
            stores.fhir_notifier.notify("delivery")  # events were held until now

        return set_one


def delivery_backoff(settings: Settings) -> Backoff:
    """The retry budget of a notification."""
    return Backoff(
        settings.delivery_backoff_base_ms,
        settings.delivery_backoff_factor,
        settings.delivery_backoff_max_ms,
        settings.delivery_max_attempts,
    )
