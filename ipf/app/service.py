"""The composition root: reads Settings, builds every room, opens the doors; and closes them in the reverse order.

Start: PostgreSQL (embedded, when no URL is given), migrations, maps, stores, stale rows recovered, converter processes,
HTTP, and at last the MLLP listeners: nothing is accepted before it can be kept.  Whatever cannot be built stops the
start with the reason, and the process ends with status 1.

Stop (SIGTERM): the listeners close, what was received is stored and acknowledged, conversions and deliveries in hand
finish, one part after another, each within `IPF_STOP_SECONDS`; then the embedded PostgreSQL that we started is stopped.
What did not finish is in rows, and the next start goes on with it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

from twisted.application.service import IService, Service
from twisted.internet import reactor as _reactor
from twisted.internet.defer import CancelledError, Deferred, maybeDeferred
from twisted.internet.task import LoopingCall, deferLater
from twisted.logger import ILogObserver, Logger
from twisted.python.components import Componentized
from twisted.python.failure import Failure
from twisted.python.logfile import LogFile
from zope.interface import implementer

from ipf import __version__
from ipf.app.converter import (
    NAME,
    ConvertingPart,
    NotifierRouter,
    Stores,
    backoff_of,
    is_dead,
    is_divided,
    now,
    open_stores,
    recover_stale,
    steady_timers,
    worker_name,
)
from ipf.app.endpoints import check_places, is_protected
from ipf.app.listeners import Doors
from ipf.app.map_check import python_path
from ipf.app.maps import maps_folder, open_installation
from ipf.app.monitoring import Watching
from ipf.app.notifications import Notifying
from ipf.app.packages import serve_parameters
from ipf.app.processes import SHORTEST_PATIENCE_SECONDS, ConverterProcesses
from ipf.app.vendor_profiles import Vendors
from ipf.collector import tune_collector
from ipf.config.settings import Settings
from ipf.errors import Category, Problem, StoreUnreachable
from ipf.mapping.library.installation import BELL, Installation
from ipf.mapping.library.service import MappingAdminService
from ipf.mapping.library.snapshot import Snapshot
from ipf.pipeline.convert.batches import SHARED_PROCESS
from ipf.pipeline.convert.log_lines import report_recovery
from ipf.pipeline.maintenance.audit_maintenance import EVERY_SECONDS, AuditMaintenance
from ipf.pipeline.maintenance.export import Export
from ipf.pipeline.maintenance.jobs import Jobs
from ipf.pipeline.maintenance.reindex import Reindex
from ipf.pipeline.worker import Worker
from ipf.rest.write.commit import refresh
from ipf.store.audit.audit import PostgresAuditStore
from ipf.store.inbox.bulk import PostgresMessageAdmin
from ipf.store.postgres.migrate import migrate
from ipf.store.postgres.row_security import secure
from ipf.store.postgres.supervisor import PostgresSupervisor
from ipf.store.resources.exports import PostgresExports
from ipf.store.resources.reindex import PostgresReindexQueue
from ipf.telemetry import metrics
from ipf.telemetry.conversion_metrics import ConversionMetrics
from ipf.telemetry.logs import LogWriter, level_named
from ipf.telemetry.metrics_directory import PART
from ipf.telemetry.spans import open_spans
from ipf.turns import short_turns

log = Logger(namespace="ipf.app.service")

_REINDEX_POLL_SECONDS = 5.0
reactor: Any = _reactor  # its interfaces are mixed in at run time

Closer = Callable[[], Awaitable[object]]


def log_stream(in_foreground: bool, logfile: str | None) -> IO[bytes]:
    """Where log lines go: standard output in the foreground, else the log file of twistd (default `twistd.log`)."""
    if logfile == "-" or (in_foreground and not logfile):
        return (sys.__stdout__ or sys.stdout).buffer
    path = str(Path(logfile or "twistd.log").resolve())
    return cast("IO[bytes]", LogFile.fromFullPath(path, rotateLength=100_000_000, maxRotatedFiles=10))


async def _migrated(url: str, kind: str, variable: str) -> None:
    """Bring a database up to date.  Problem: it cannot be reached; named is the variable that says where it is."""
    try:
        await migrate(url, kind, reactor=reactor)
    except StoreUnreachable as away:
        raise Problem(Category.UNAVAILABLE, f"{variable}: {away.text}: {away.detail}") from away


@implementer(IService)
class Ipf(Service):
    """The one service of `twistd ipf`."""

    name = "ipf"

    def __init__(self, settings: Settings, warnings: list[str], stream: IO[bytes]) -> None:
        self._settings = settings
        self._warnings = warnings
        is_terminal = getattr(stream, "isatty", lambda: False)()  # Twisted's LogFile does not say
        human = settings.log_format == "human" or (settings.log_format == "auto" and is_terminal)
        self._human = human
        self._writer = LogWriter(stream, level_named(settings.log_level), human=human)
        self._stream = stream
        self._closers: list[tuple[str, Closer]] = []
        self._starting: Deferred[None] | None = None
        self._processes: ConverterProcesses | None = None
        self._child_maps = self._child_profiles = ""

    def setServiceParent(self, parent: Any) -> None:
        """Log records take our form wherever twistd would have written its own."""
        if isinstance(parent, Componentized):
            parent.setComponent(ILogObserver, self._writer)
        super().setServiceParent(parent)  # type: ignore[no-untyped-call]  # Twisted has no types here

    def startService(self) -> None:
        """Begin to start; a failure ends the process."""
        steady_timers(reactor)
        super().startService()  # type: ignore[no-untyped-call]  # Twisted has no types here
        self._starting = Deferred.fromCoroutine(self._start())
        self._starting.addErrback(self._cannot_start)

    def stopService(self) -> Deferred[None]:
        """Stop; fires when everything is closed."""
        super().stopService()  # type: ignore[no-untyped-call]  # Twisted has no types here
        return Deferred.fromCoroutine(self._stop())

    def _cannot_start(self, failure: Failure) -> None:
        if failure.check(CancelledError):
            return
        if failure.check(Problem):
            log.critical("ipf cannot start: {reason}", reason=failure.getErrorMessage())
        else:
            log.failure("ipf cannot start", failure)
        # twistd ends with status 0 whatever happened, and systemd must see that this was no clean end.
        reactor.addSystemEventTrigger("after", "shutdown", os._exit, 1)
        reactor.callWhenRunning(reactor.stop)  # what fails at once fails before the reactor runs

    async def _stop(self) -> None:
        if self._starting is not None and not self._starting.called:
            self._starting.cancel()
        while self._closers:
            what, close = self._closers.pop()
            try:
                await close()
            except Exception:
                log.failure("while stopping: {what}", what=what)
        log.info("ipf has stopped")

    def _on_stop(self, what: str, close: Closer) -> None:
        self._closers.append((what, close))

    # -- start, in order

    async def _start(self) -> None:
        settings = self._settings
        for warning in self._warnings:
            log.warn("{warning}", warning=warning)
        self._warn_about_open_doors()
        check_places(settings, reactor)
        short_turns()  # before a PostgreSQL of ours starts
        urls = await self._databases()
        for url, kind, variable in zip(urls, ("ipf", "fhir"), ("IPF_DB_URL", "IPF_FHIR_DB_URL"), strict=True):
            await _migrated(url, kind, variable)
        if is_divided(settings):
            await secure(urls[1], reactor=reactor)
        serve_parameters(settings)
        stores = await open_stores(*urls, reactor, size=8, divided=is_divided(settings))
        stores.spans = open_spans(settings.otlp_url, __version__, "main")
        self._on_stop("stores", stores.close)
        snapshot = Snapshot(maps_folder(settings), Path(settings.data_dir, f"maps-{os.getpid()}"))
        self._child_maps = str(snapshot.current)
        self._on_stop("maps", partial(maybeDeferred, snapshot.remove))
        vendors = Vendors(settings, os.getpid())
        self._child_profiles = str(vendors.folder.current)
        self._on_stop("profiles", partial(maybeDeferred, vendors.folder.remove))

        def swapped() -> None:
            tune_collector()
            vendors.swapped()

        installation = await open_installation(
            settings, stores, reactor, vendors.folder, swapped, tune_collector, snapshot
        )
        vendors.use(installation)
        await self._release_the_dead(stores)
        await self._recovery(stores)
        watching = Watching(settings, stores, reactor, self._on_stop)
        watching.start()
        notifying = Notifying(settings, stores, reactor)
        notifying.start(self._on_stop)
        self._export(stores)
        self._reindex(stores)
        self._jobs(stores)
        self._audit_maintenance(stores)
        if settings.worker_enabled:
            self._conversion(stores, installation, urls)
        doors = Doors(settings, stores, installation, self._on_stop, notifying.sockets, watching, vendors)
        await doors.open_http(lambda: self._processes)
        await doors.open_mllp()
        self._reload_on_hangup(doors.desk, stores)
        tune_collector()
        watching.accepting()
        log.info("event=started ipf accepts messages")

    def _reload_on_hangup(self, desk: MappingAdminService, stores: Stores) -> None:
        """SIGHUP reads the maps again, as `POST /admin/mapping/reload` does."""

        async def reload() -> None:
            try:
                await desk.reload()
                stores.inbox_notifier.notify(BELL)
            except Problem as problem:
                log.error("event=mapping_not_loaded {reason}", reason=str(problem))

        def hung_up(number: int, frame: object) -> None:
            reactor.callFromThread(lambda: Deferred.fromCoroutine(reload()))

        before = signal.signal(signal.SIGHUP, hung_up)

        async def forget() -> None:
            signal.signal(signal.SIGHUP, before)

        self._on_stop("SIGHUP", forget)

    def _warn_about_open_doors(self) -> None:
        if self._settings.admin_token is None:
            log.warn("IPF_ADMIN_AUTH_TOKEN is not set: the admin API is open to everybody who reaches it")
        if not self._settings.auth_enabled:
            log.warn("requests to /fhir are not authenticated: SUBSCRIPTION_SERVICE_AUTH_ENABLED is false")
        if not is_protected(self._settings):
            log.warn("without both tokens listeners bind loopback, unless an interface is named")
        elif str(self._settings.auth_issuer).startswith("http://"):
            log.warn("SUBSCRIPTION_SERVICE_AUTH_ISSUER is not https: its keys can be forged on the way")
        if self._settings.channel_security == "permissive":
            log.warn("SUBSCRIPTION_SERVICE_CHANNEL_SECURITY is permissive: notifications may go out unprotected")
        if self._settings.multitenancy == "enabled" and not self._settings.row_security:
            log.warn("SUBSCRIPTION_SERVICE_MULTITENANCY_ROW_SECURITY is false: tenants are held apart by queries alone")
        if self._settings.secret_key is None:
            log.warn("IPF_SECRET_KEY is not set: secrets in channel.header are stored without encryption")

    async def _databases(self) -> tuple[str, str]:
        """URLs of both databases; an embedded server is started when none are given."""
        settings = self._settings
        if settings.db_url and settings.fhir_db_url:
            return settings.db_url, settings.fhir_db_url
        from ipf.store.postgres.embedded import EmbeddedPostgres  # not where the operator has a PostgreSQL

        postgres = EmbeddedPostgres(Path(settings.data_dir), reactor)
        await postgres.start()
        self._on_stop("embedded PostgreSQL", postgres.stop)
        caretaker = PostgresSupervisor(postgres, reactor)
        caretaker.start()
        self._on_stop("caretaker of PostgreSQL", caretaker.stop)
        return postgres.url("ipf"), postgres.url("fhir")

    # -- the stages

    async def _release_the_dead(self, stores: Stores) -> None:
        """What processes of this machine held that are gone now (kill -9) need not wait for its time to run out."""
        level = level_named(self._settings.dlq_log_level)
        for worker in filter(is_dead, await stores.deliveries.holders()):
            await stores.deliveries.release(worker)
        for worker in filter(is_dead, await stores.inbox.holders()):
            for row in await stores.inbox.recover_worker(worker, backoff_of(self._settings)):
                report_recovery(row, ConversionMetrics(), backoff_of(self._settings), level)

    async def _recovery(self, stores: Stores) -> None:
        """Rows whose worker was lost: now, and while running."""
        settings = self._settings
        level = level_named(settings.dlq_log_level)

        async def recover() -> None:
            for row in await recover_stale(settings, stores):
                report_recovery(row, ConversionMetrics(), backoff_of(self._settings), level)

        async def recover_while_running() -> None:
            try:
                await recover()
                metrics.active_subscriptions(await stores.deliveries.active())
            except StoreUnreachable:
                pass  # the store says so itself; the next round finds what is stale then

        await recover()
        self._every(min(5.0, settings.worker_stale_seconds / 2), recover_while_running, "stale recovery")

    def _every(self, seconds: float, work: Callable[[], Awaitable[None]], what: str) -> None:
        async def guarded() -> None:
            try:
                await work()
            except Exception:
                log.failure("{what} failed", what=what)

        loop = LoopingCall(lambda: Deferred.fromCoroutine(guarded()))
        loop.clock = reactor
        loop.start(seconds, now=True)

        async def stop() -> None:
            loop.stop()

        self._on_stop(what, stop)

    def _export(self, stores: Stores) -> None:
        """Bulk export; its jobs are polled for, since nobody waits for their first second."""
        settings, notifier = self._settings, NotifierRouter(stores.inbox_notifier, stores.fhir_notifier)
        export = Export(PostgresExports(stores.fhir_database), stores.fhir)
        worker = Worker(export.step, notifier, None, settings.worker_poll_ms / 1000, reactor, name="export")
        worker.start()
        self._on_stop("export", partial(worker.stop, settings.stop_seconds))

    def _jobs(self, stores: Stores) -> None:
        """Work on many messages that operators asked for."""
        settings, notifier = self._settings, NotifierRouter(stores.inbox_notifier, stores.fhir_notifier)
        jobs = Jobs(PostgresMessageAdmin(stores.inbox_database), notifier, partial(deferLater, reactor))
        worker = Worker(jobs.step, notifier, None, settings.worker_poll_ms / 1000, reactor, name="jobs")
        worker.start()
        self._on_stop("jobs", partial(worker.stop, settings.stop_seconds))

    def _reindex(self, stores: Stores) -> None:
        """Index entries of search parameters that were added; nobody waits for them, so jobs are polled for."""

        async def learn() -> None:
            await refresh(stores.fhir, stores.matcher)

        notifier = NotifierRouter(stores.inbox_notifier, stores.fhir_notifier)
        pause = partial(deferLater, reactor)
        reindex = Reindex(PostgresReindexQueue(stores.fhir_database), learn, pause, reactor.seconds)
        worker = Worker(reindex.step, notifier, None, _REINDEX_POLL_SECONDS, reactor, name="reindex")
        worker.start()
        self._on_stop("reindex", partial(worker.stop, self._settings.stop_seconds))

    def _audit_maintenance(self, stores: Stores) -> None:
        """Partitions of the audit trail; old records go, where the operator asked for it."""
        settings, store = self._settings, PostgresAuditStore(stores.fhir_database)
        days = settings.audit_days if settings.audit_enabled and settings.audit_purge else None
        maintenance = AuditMaintenance(store, days, now, partial(deferLater, reactor))
        self._every(EVERY_SECONDS, maintenance.run, "audit maintenance")

    def _conversion(self, stores: Stores, installation: Installation, urls: tuple[str, str]) -> None:
        """In converter processes, or in this one."""
        settings = self._settings
        if settings.worker_processes == 0:
            part = ConvertingPart(settings, stores, installation, reactor, worker_name(), SHARED_PROCESS)
            part.start()
            self._on_stop("conversion", partial(part.stop, settings.stop_seconds))
            return
        level = level_named(settings.dlq_log_level)

        async def lost(name: str) -> None:
            for row in await stores.inbox.recover_worker(name, backoff_of(settings)):
                report_recovery(row, ConversionMetrics(), backoff_of(self._settings), level)

        processes = ConverterProcesses(
            reactor,
            settings.worker_processes,
            partial(self._child_environment, urls),
            write_lines=self._write_lines,
            lost=lost,
            worker_name=worker_name(),
            patience_seconds=max(SHORTEST_PATIENCE_SECONDS, 2 * settings.worker_stale_seconds),
        )
        processes.start()
        self._processes = processes
        self._on_stop("converter processes", partial(processes.stop, settings.stop_seconds))

    def _child_environment(self, urls: tuple[str, str], name: str) -> Mapping[str, str]:
        return os.environ | {
            NAME: name,
            PART: f"converter{name.rpartition(':')[2]}",
            "IPF_DB_URL": urls[0],
            "IPF_FHIR_DB_URL": urls[1],
            "IPF_MAPS_DIR": self._child_maps,
            "IPF_PROFILE_DIR": self._child_profiles,
            "IPF_LOG_FORMAT": "human" if self._human else "json",
            "PYTHONPATH": python_path(),
        }

    def _write_lines(self, lines: bytes) -> None:
        self._stream.write(lines)
        self._stream.flush()
