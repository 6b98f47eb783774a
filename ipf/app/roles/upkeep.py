"""What belongs to no single role: recovery, reports about topics, maintenance, and measurements of the databases.

Each runs where a role needs it, in any number of processes: rows are claimed with leases or SKIP LOCKED, or one
process at a time holds an advisory lock.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ipf.app.roles.pair import Pair
from ipf.app.roles.process import Process
from ipf.app.stages.audit_chain import start_audit_chain
from ipf.app.stages.audit_feed import start_audit_feed
from ipf.app.stages.maintenance import start_maintenance
from ipf.app.stages.monitoring import start_measuring_databases
from ipf.app.stages.recovery import start_recovery
from ipf.app.stages.topic_failures import failing_topics, start_topic_failures, subscriptions_without_content
from ipf.config.roles import ADMIN, CONVERT, DELIVER, FHIR, POLL
from ipf.wire.admin.actuator import Component


async def start_upkeep(process: Process, pair: Pair) -> None:
    """Start what the roles of this process need."""
    settings, stores, reactor, stack = pair.settings, pair.stores, process.reactor, process.stack
    if settings.runs(CONVERT, DELIVER):
        await start_recovery(settings, stores, reactor, stack)
    if settings.runs(CONVERT, DELIVER, FHIR):
        start_topic_failures(settings, stores, reactor, stack, withdraws=settings.runs(DELIVER))
    if settings.runs(FHIR, ADMIN):
        await _start_maintenance(process, pair)
    if settings.runs(ADMIN):
        start_measuring_databases(settings, stores, pair.monitoring.statistics, process.systemd, reactor, stack)
    _add_health(process, pair)


async def _start_maintenance(process: Process, pair: Pair) -> None:
    settings, stores, reactor, stack = pair.settings, pair.stores, process.reactor, process.stack
    chain = await start_audit_chain(settings, stores, reactor, stack)
    maintenance = start_maintenance(settings, stores, chain, reactor, stack)
    process.health.add("maintenance", Component(maintenance, required=False))
    feed = start_audit_feed(settings, stores, reactor, stack)
    if feed is not None:
        process.health.add("audit_feed", Component(feed.health, required=False))


def _add_health(process: Process, pair: Pair) -> None:
    """What the databases say about feeds and destinations is of interest where they are served, and to operators."""

    async def topics() -> Mapping[str, Any]:
        return failing_topics(pair.stores)

    async def subscriptions() -> Mapping[str, Any]:
        return subscriptions_without_content(pair.stores)

    runs, add = pair.settings.runs, process.health.add
    if runs(CONVERT, DELIVER, FHIR):
        add("topics", Component(topics, required=False))
        add("subscriptions", Component(subscriptions, required=False))
    if runs(POLL, ADMIN):
        add("polling", Component(pair.polling.health, required=False))
    if runs(DELIVER, ADMIN):
        add("forwarding", Component(pair.forwarding.health, required=False))
