"""What watches the service while it runs, put together.  Part of the composition root.

Gauges, counts by hour, retention, the reactor's lag, what systemd is told, and the doors of the observability API.
None of it is needed for a message to get through: whatever fails here is logged, and the next round tries again.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import LoopingCall, deferLater
from twisted.logger import Logger
from twisted.web.resource import IResource

from ipf import __version__
from ipf.app.converter import NotifierRouter, Stores, now, worker_name
from ipf.app.systemd import Systemd
from ipf.config.settings import Settings
from ipf.errors import Category, Problem, StoreUnreachable
from ipf.pipeline.maintenance.retention import Retention, would_remove
from ipf.pipeline.worker import Worker
from ipf.ports import Status
from ipf.ports.statistics import RetentionPolicy
from ipf.store.inbox.retention import PostgresPruner
from ipf.store.inbox.statistics import PostgresObservatory
from ipf.store.inbox.text_index import PostgresMessageIndex
from ipf.store.postgres.database import Database
from ipf.telemetry import metrics
from ipf.wire.admin import retention as admin_retention
from ipf.wire.admin.actuator import Component, Health
from ipf.wire.admin.app import Gate
from ipf.wire.admin.audit import Watch
from ipf.wire.client.remote_service import RemoteService
from ipf.wire.observe import app as observe_http
from ipf.wire.observe.observe import Facts, Observe

log = Logger(namespace="ipf.app.monitoring")

GAUGES_SECONDS = 2.0
GAUGES_SHARE = 0.0025
"""The most of its time that looking at the queue may take: counting a long backlog is seen by those who send."""
GAUGES_LONGEST_SECONDS = 20.0
COUNT_SECONDS = 20.0
RETENTION_POLL_SECONDS = 60.0
LAG_SECONDS = 0.5

Closer = Callable[[], Awaitable[object]]


class DutyCycle:
    """Lets a round of work pass no more often than makes it `share` of the time, and at least every `longest` seconds.

    `seconds`: the clock.  A round that is refused is not made up for.
    """

    def __init__(self, seconds: Callable[[], float], share: float, longest: float) -> None:
        self._seconds = seconds
        self._share = share
        self._longest = longest
        self._next = 0.0

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do `work` unless it is too soon after the last time."""
        began = self._seconds()
        if began < self._next:
            return
        try:
            await work()
        finally:
            ended = self._seconds()
            self._next = ended + min((ended - began) / self._share, self._longest)


class Watching:
    """Started once the stores are open; `on_stop(what, close)` is told how each part ends."""

    def __init__(
        self, settings: Settings, stores: Stores, reactor: Any, on_stop: Callable[[str, Closer], None]
    ) -> None:
        self._settings = settings
        self._stores = stores
        self._reactor = reactor
        self._on_stop = on_stop
        self._began = reactor.seconds()
        self._observatory = PostgresObservatory(stores.inbox_database, stores.fhir_database)
        self._pruner = PostgresPruner(stores.inbox_database, stores.fhir_database)
        self._index = PostgresMessageIndex(stores.inbox_database, reactor.seconds)
        self._policy = RetentionPolicy(settings.retention_days, settings.dead_letter_days, settings.history_days)
        self.systemd = Systemd(os.environ, reactor)

    def start(self) -> None:
        """Begin to watch."""
        metrics.build(__version__)
        seldom = DutyCycle(self._reactor.seconds, GAUGES_SHARE, GAUGES_LONGEST_SECONDS)
        self._every(GAUGES_SECONDS, lambda: seldom.run(self._look), "looking at the queue")
        self._every(COUNT_SECONDS, self._count, "counting messages by hour")
        watch_process("main", self._reactor, self._on_stop)
        retention = Retention(
            self._pruner, self._policy, worker_name(), now, partial(deferLater, self._reactor), self._reactor.seconds
        )
        notifier = NotifierRouter(self._stores.inbox_notifier, self._stores.fhir_notifier)
        worker = Worker(retention.step, notifier, None, RETENTION_POLL_SECONDS, self._reactor, name="retention")
        worker.start()

        async def stop() -> None:
            retention.stop()
            await worker.stop(self._settings.stop_seconds)

        self._on_stop("retention", stop)

    def accepting(self) -> None:
        """The doors are open: systemd may know; and when they begin to close."""
        self.systemd.ready()

        async def stop() -> None:
            self.systemd.stopping()

        self._on_stop("systemd", stop)

    def mounts(self, health: Health, gate: Gate, watch: Watch | None) -> Mapping[str, IResource]:
        """What answers below `/admin` beside the admin API, by its first segment."""
        settings = self._settings
        toggles = {
            "auth_enabled": bool(settings.auth_enabled),
            "validation_mode": settings.validation_mode,
            "channel_security_mode": settings.channel_security,
            "multitenancy_mode": str(settings.multitenancy),
        }
        facts = Facts(__version__, toggles, lambda: self._reactor.seconds() - self._began)
        observe = Observe(self._observatory, health, facts, now)
        count = partial(would_remove, self._pruner, self._policy, now)
        return {
            "observe": observe_http.resource(observe, gate.check, __version__, watch),
            "retention": admin_retention.resource(self._pruner, self._policy, count, gate, watch),
        }

    def downstream(self) -> dict[str, Component]:
        """Parts elsewhere: shown, and never taking readiness down."""
        url = self._settings.mapping_url
        if url is None:
            return {}
        remote = RemoteService(self._reactor, 1.5, "the mapping service")

        async def mapping() -> Mapping[str, Any]:
            reply = await remote.get(f"{url.rstrip('/')}/metadata", {"Accept": "application/fhir+json"})
            if reply.status >= 500:
                raise Problem(Category.UPSTREAM, f"the mapping service answers {reply.status}")
            return {"http_status": reply.status}

        return {"mapping": Component(mapping, required=False)}

    async def queue(self) -> Mapping[str, int]:
        """Sizes of the queues, for the health of the inbox."""
        return {status.value: count for status, count in (await self._observatory.queue()).items()}

    async def _look(self) -> None:
        counts, oldest = await self._observatory.queue(), await self._observatory.oldest_waiting()
        age = 0.0 if oldest is None else max((now() - oldest).total_seconds(), 0.0)
        metrics.queue({status.value: count for status, count in counts.items()}, age)
        metrics.search_index_lag(await self._index.lag())
        open_rows = sum(counts[status] for status in (Status.RECEIVED, Status.TRANSFORMING, Status.FAILED))
        dead = counts[Status.DEAD_LETTER]
        self.systemd.status(f"{open_rows} messages in the queue, the oldest for {age:.0f} s; {dead} dead letters")
        for name, database in (("inbox", self._stores.inbox_database), ("fhir", self._stores.fhir_database)):
            measure_pool(name, database)

    async def _count(self) -> None:
        while await self._observatory.count_received():
            await deferLater(self._reactor, 0.05)

    def _every(self, seconds: float, work: Callable[[], Awaitable[None]], what: str) -> None:
        async def guarded() -> None:
            try:
                await work()
            except StoreUnreachable:
                pass  # the store says so itself
            except Exception:
                log.failure("{what} failed", what=what)

        repeat(seconds, lambda: Deferred.fromCoroutine(guarded()), self._reactor, what, self._on_stop)


def measure_pool(name: str, database: Database) -> None:
    """The connections of one database, as gauges."""
    idle, in_use, waiting = database.usage
    metrics.database_connections(name, idle, in_use, waiting)


def watch_process(name: str, reactor: Any, on_stop: Callable[[str, Closer], None]) -> None:
    """Measure the lag of the reactor's timers."""
    expected = reactor.seconds() + LAG_SECONDS

    def look() -> None:
        nonlocal expected
        metrics.reactor_lag(name, max(reactor.seconds() - expected, 0.0))
        expected = reactor.seconds() + LAG_SECONDS
        call[0] = reactor.callLater(LAG_SECONDS, look)

    call = [reactor.callLater(LAG_SECONDS, look)]

    async def stop() -> None:
        if call[0].active():
            call[0].cancel()

    on_stop("metrics", stop)


def repeat(
    seconds: float, work: Callable[[], Any], reactor: Any, what: str, on_stop: Callable[[str, Closer], None]
) -> None:
    """Call `work` now and every so many seconds."""
    loop = LoopingCall(work)
    loop.clock = reactor
    loop.start(seconds, now=True)

    async def stop() -> None:
        loop.stop()

    on_stop(what, stop)
