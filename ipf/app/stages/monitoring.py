"""Monitoring of the running service: gauges, message counts per hour, reactor delay, and the status for systemd.

No message depends on it.  A failure is logged, and the next round tries again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from twisted.internet.task import deferLater
from twisted.logger import Logger

from ipf import __version__
from ipf.app.runtime.periodic import run_periodically
from ipf.app.runtime.process import now
from ipf.app.runtime.stores import OpenedStores
from ipf.app.runtime.systemd import Systemd
from ipf.config.settings import Settings
from ipf.ports import Status
from ipf.ports.messages.statistics import MessageStatistics
from ipf.store.inbox.statistics import PostgresMessageStatistics
from ipf.store.inbox.text_index import PostgresMessageIndex
from ipf.store.postgres.database import Database
from ipf.telemetry import metrics, placement_metrics
from ipf.telemetry.placement_metrics import largest, total
from ipf.wire.observe import interfaces

log = Logger(namespace="ipf.app.monitoring")

GAUGES_SECONDS = 2.0
GAUGES_SHARE = 0.0025
"""At most this share of the time is spent on counting the queue: counting a long backlog delays acknowledgements."""
GAUGES_LONGEST_SECONDS = 20.0
COUNT_SECONDS = 20.0
LAG_SECONDS = 0.5


class DutyCycle:
    """Limits repeated work to a `share` of the time, and to at least one round every `longest` seconds.

    `seconds`: the clock.  A refused round is not made up for.
    """

    def __init__(self, seconds: Callable[[], float], share: float, longest: float) -> None:
        self._seconds = seconds
        self._share = share
        self._longest = longest
        self._next = 0.0

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do `work`, unless the last round was too recent."""
        began = self._seconds()
        if began < self._next:
            return
        try:
            await work()
        finally:
            ended = self._seconds()
            self._next = ended + min((ended - began) / self._share, self._longest)


@dataclass(frozen=True, slots=True)
class Monitoring:
    """What the observability API and the health endpoints read."""

    statistics: PostgresMessageStatistics
    uptime: Callable[[], float]

    async def queue(self) -> Mapping[str, int]:
        """Number of messages by status."""
        return {status.value: count for status, count in (await self.statistics.queue()).items()}


def open_monitoring(stores: OpenedStores, uptime: Callable[[], float]) -> Monitoring:
    """What the observability API and health read.  `uptime`: of the process, in seconds."""
    return Monitoring(PostgresMessageStatistics(stores.inbox_database, stores.fhir_database), uptime)


def start_measuring_process(process: str, reactor: Any, stack: AsyncExitStack) -> None:
    """Start to measure the delay of the reactor."""
    gauges_from_zero()
    _measure_reactor(process, reactor, stack)


def start_measuring_connections(settings: Settings, stores: OpenedStores, reactor: Any, stack: AsyncExitStack) -> None:
    """Start to measure the connections of this process to one pair of databases."""
    prefix = f"{settings.placement}/" if settings.placement else ""

    async def measure() -> None:
        _measure_pool(f"{prefix}inbox", stores.inbox_database)
        _measure_pool(f"{prefix}fhir", stores.fhir_database)

    run_periodically(GAUGES_SECONDS, measure, "measuring connections", reactor, stack)


def start_measuring_databases(
    settings: Settings,
    stores: OpenedStores,
    statistics: PostgresMessageStatistics,
    systemd: Systemd,
    reactor: Any,
    stack: AsyncExitStack,
) -> None:
    """Start to measure what the databases hold, the same in every process, and to count messages per hour."""
    index = PostgresMessageIndex(stores.inbox_database, reactor.seconds)
    duty_cycle = DutyCycle(reactor.seconds, GAUGES_SHARE, GAUGES_LONGEST_SECONDS)

    pair = settings.placement

    async def measure() -> None:
        await _measure_queue(pair, statistics, systemd)
        metrics.search_index_lag(total("index_lag", pair, await index.lag()))
        metrics.identity_conflicts_open(total("conflicts", pair, await stores.conflicts.open_count()))
        metrics.active_subscriptions(total("subscriptions", pair, await stores.deliveries.active()))

    async def count() -> None:
        while await statistics.count_received():
            await deferLater(reactor, 0.05)
        silent = await silent_senders(statistics, dict(settings.expected_intervals))
        metrics.silent_senders(total("silent", pair, silent))

    stack.callback(placement_metrics.forget, pair)
    run_periodically(GAUGES_SECONDS, lambda: duty_cycle.run(measure), "measuring the queue", reactor, stack)
    run_periodically(COUNT_SECONDS, count, "counting messages by hour", reactor, stack)


def gauges_from_zero() -> None:
    """Expose the gauges of the main process before they are measured.

    Of gauges that several processes may set, prometheus_client exposes those that have been set.
    """
    metrics.build(__version__)
    metrics.queue(dict.fromkeys(Status, 0), 0.0)
    metrics.active_subscriptions(0)
    metrics.identity_conflicts_open(0)
    metrics.silent_senders(0)
    metrics.search_index_lag(0)


async def silent_senders(statistics: MessageStatistics, expected: Mapping[str, int]) -> int:
    """The number of senders that were not heard for longer than expected."""
    found = await statistics.senders(now())
    return sum(interfaces.item(one, expected, now())["is_silent"] for one in found.senders)


async def _measure_queue(pair: str, statistics: PostgresMessageStatistics, systemd: Systemd) -> None:
    counts, oldest = await statistics.queue(), await statistics.oldest_waiting()
    age = 0.0 if oldest is None else max((now() - oldest).total_seconds(), 0.0)
    if pair:
        placement_metrics.queue(pair, {status.value: count for status, count in counts.items()}, age)
    totals = {status: total(status.value, pair, count) for status, count in counts.items()}
    age = largest("oldest", pair, age)
    metrics.queue({status.value: count for status, count in totals.items()}, age)
    open_rows = sum(totals[status] for status in (Status.RECEIVED, Status.TRANSFORMING, Status.FAILED))
    dead = totals[Status.DEAD_LETTER]
    systemd.status(f"{open_rows} messages in the queue, oldest {age:.0f} s; {dead} dead letters")


def _measure_pool(name: str, database: Database) -> None:
    idle, in_use, waiting = database.usage
    metrics.database_connections(name, idle, in_use, waiting)


def _measure_reactor(process: str, reactor: Any, stack: AsyncExitStack) -> None:
    """Measure how late the reactor's timers fire, twice a second."""
    expected = reactor.seconds() + LAG_SECONDS

    def measure() -> None:
        nonlocal expected
        metrics.reactor_lag(process, max(reactor.seconds() - expected, 0.0))
        expected = reactor.seconds() + LAG_SECONDS
        timer[0] = reactor.callLater(LAG_SECONDS, measure)

    timer = [reactor.callLater(LAG_SECONDS, measure)]

    def stop() -> None:
        if timer[0].active():
            timer[0].cancel()

    stack.callback(stop)
