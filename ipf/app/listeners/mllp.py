"""The MLLP listeners: those of the settings, and those that vendor profiles open while the service runs."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ipf.app.listeners.endpoints import MLLP, Listeners, opened_as
from ipf.app.runtime.process import now
from ipf.app.runtime.stores import OpenedStores
from ipf.config.parsers import Listener
from ipf.config.settings import Settings
from ipf.hl7.queries import is_query
from ipf.mapping.library.installation import Installation
from ipf.pipeline.receive.group_commit import GroupCommit
from ipf.pipeline.receive.receive import ListenerReceiver, MllpListener, Receiver
from ipf.pipeline.receive.rejects import LimitedRejects
from ipf.pipeline.tracing import TracedCommit
from ipf.ports import DEFAULT_TENANT
from ipf.security.audit.senders import SenderRefused
from ipf.telemetry import limit_metrics, metrics
from ipf.telemetry.correlation import new_correlation_id
from ipf.wire.mllp.access import RestrictedMllpFactory, SenderAccess, networks_of
from ipf.wire.mllp.limits import Limits
from ipf.wire.mllp.protocol import MllpFactory

_COLON = re.compile(r"(?<!\\):")  # an escaped one belongs to an address


def build_receiver(settings: Settings, stores: OpenedStores, installation: Installation, reactor: Any) -> Receiver:
    """The receive stage, without sockets."""
    return Receiver(
        LimitedRejects(stores.inbox, reactor.seconds, partial(limit_metrics.limited, limit_metrics.REJECT)),
        _group_commit(settings, stores, reactor),
        reactor,
        now=now,
        new_correlation_id=new_correlation_id,
        ordering=settings.ordering,
        map_missing=partial(
            is_map_missing, _required_types(settings), frozenset(settings.passthrough_types), installation.has_map
        ),
        observe=count_received,
    )


def _group_commit(settings: Settings, stores: OpenedStores, reactor: Any) -> GroupCommit:
    commit = (TracedCommit if stores.spans else GroupCommit)(
        stores.inbox,
        reactor,
        writers=settings.inbox_writers,
        timeout=settings.inbox_timeout_seconds,
        committed=lambda: stores.notifier.notify("inbox"),
    )
    if isinstance(commit, TracedCommit) and stores.spans is not None:
        commit.spans = stores.spans
    return commit


def _required_types(settings: Settings) -> frozenset[str]:
    """Message types that are refused without a map.  The maps of a remote mapping service are not known here."""
    return frozenset(settings.require_map_types if settings.mapping_url is None else ())


@dataclass(frozen=True, slots=True)
class MllpListeners:
    """Opens MLLP listeners on one receiver.  `connections`: the limit of each listener.  `refused`: the audit trail."""

    settings: Settings
    receiver: Receiver
    connections: int
    listeners: Listeners
    reactor: Any
    refused: SenderRefused | None = None
    _connections: dict[str, int] = field(default_factory=dict)

    async def open_all(self, stack: AsyncExitStack) -> None:
        """Open the listeners of the settings.  Problem UNAVAILABLE names IPF_MLLP_LISTEN."""
        for listener in self.settings.mllp_listen:
            stack.push_async_callback(await self.open(listener, MLLP))

    async def open(self, listener: Listener, variable: str | None = None) -> Callable[[], Awaitable[None]]:
        """Open one listener; returns the function that closes it.

        `variable`: the setting that names the listener, for the Problem UNAVAILABLE.
        """
        settings = self.settings
        factory = self._factory(listener)
        factory.connections_changed = partial(self._count_connections, listener.name)
        factory.connections_changed(0)
        endpoint = opened_as(settings, MLLP, listener.endpoint)
        name = f"MLLP {listener.name}"
        opened = await self.listeners.open(endpoint, factory, name, variable, ((self._label(listener), ""),))

        async def close() -> None:
            await self.listeners.close(opened)
            await factory.stop(settings.stop_seconds)

        return close

    def _count_connections(self, name: str, count: int) -> None:
        """Listeners on several addresses of one port have the same label: their connections are added up."""
        self._connections[name] = count
        label = metric_label(name)
        metrics.mllp_connections(
            label, sum(number for one, number in self._connections.items() if metric_label(one) == label)
        )

    def _label(self, listener: Listener) -> str:
        """Its name, if it has one, and its tenant, for the line `event=started`."""
        name = "" if listener.name == listener.endpoint else f" {listener.name}"
        tenant = dict(self.settings.mllp_tenants).get(listener.name)
        return f"MLLP{name}" + (f" of tenant {tenant}" if tenant else "")

    def _factory(self, listener: Listener) -> MllpFactory:
        settings = self.settings

        def receiver_for(tenant: str) -> ListenerReceiver:
            return self.receiver.for_listener(MllpListener(listener.name, settings.mllp_fallback_charset, tenant))

        limits = Limits(
            message=settings.mllp_max_frame_bytes,
            discard=8 * settings.mllp_max_frame_bytes,
            connections=self.connections,
            frame_timeout=settings.mllp_frame_timeout_seconds,
        )
        receiver = receiver_for(dict(settings.mllp_tenants).get(listener.name, DEFAULT_TENANT))
        access = sender_access(settings, listener)
        if access is None:
            return MllpFactory(listener.name, receiver, self.reactor, limits)
        factory = RestrictedMllpFactory(listener.name, receiver, self.reactor, limits, access, receiver_for)
        factory.refused = self.refused or factory.refused
        return factory


def metric_label(name: str) -> str:
    """The name of a listener as the label of a metric: `tcp:2575` for one without a name, never its address."""
    return ":".join(part for part in _COLON.split(name) if "=" not in part or part.startswith("port="))


def sender_access(settings: Settings, listener: Listener) -> SenderAccess | None:
    """Who may send to a listener; None when anybody may, without rate limits and without TLS."""
    is_mutual = listener.endpoint.startswith("mtls:")
    access = SenderAccess(
        networks_of(listener.name, settings.mllp_allow),
        settings.mllp_client_names if is_mutual else (),
        settings.mllp_peer_connections,
        settings.mllp_peer_rate,
    )
    return None if access.is_unrestricted and not is_mutual and not listener.endpoint.startswith("ssl:") else access


def is_map_missing(
    required: frozenset[str], passthrough: frozenset[str], has_map: Callable[[str], bool], message_type: str
) -> bool:
    """Whether messages of this type are refused because no map is installed.

    Types of `IPF_REQUIRE_MAP_TYPES`, and queries, whose sender waits for an answer that nothing here gives; a query of
    `IPF_PASSTHROUGH_TYPES` is stored.
    """
    is_refused = message_type in required or (is_query(message_type) and message_type not in passthrough)
    return is_refused and not has_map(message_type)


def count_received(result: str, source_system: str, source_protocol: str) -> None:
    """`Receiver.observe`: counts the results of the receive stage as metrics."""
    if result == "stored":
        metrics.message_received(source_system, source_protocol=source_protocol)
    elif result in ("duplicate", "conflicting_duplicate"):
        metrics.duplicate_received(conflicting=result == "conflicting_duplicate")
    elif result == "rejected":
        metrics.frame_rejected("AR")
    elif result in ("map_missing", "unavailable", "failed"):
        metrics.frame_rejected("AE")
