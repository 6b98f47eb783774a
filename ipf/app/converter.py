"""The converting half of the composition root: builds the convert stage, inside the service or as a process of its own.

`python -m ipf.app.converter` is what the service starts `IPF_WORKER_PROCESSES` times.  Such a process reads the same
environment, claims messages, maps them and writes FHIR resources.  It ends when its standard input closes, so it never
outlives its parent, or when it is asked to (SIGTERM; SIGINT, which a terminal sends to every process of the service):
it finishes what it has in hand and hands back what it has not begun.  Besides `ipf.app.service` this is the only module
that imports the reactor.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twisted.internet import stdio
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Protocol
from twisted.internet.task import LoopingCall, deferLater
from twisted.internet.threads import deferToThread
from twisted.logger import Logger, globalLogBeginner
from twisted.python.failure import Failure

from ipf import __version__
from ipf.app.maps import (
    MappedByVendor,
    accepted_profiles,
    credentials_of,
    mapper_of,
    open_installation,
    run_in_thread,
)
from ipf.app.packages import load_packages, serve_parameters
from ipf.collector import OF_WAVES, tune_collector
from ipf.config.settings import InvalidSetting, Settings, read
from ipf.errors import Problem
from ipf.mapping.library.installation import BELL, Installation
from ipf.pipeline.audit_writer import AuditLog
from ipf.pipeline.convert.batches import DEDICATED_PROCESS, BatchPolicy
from ipf.pipeline.convert.convert import Converter
from ipf.pipeline.maintenance.index_messages import IndexMessages
from ipf.pipeline.tracing import TracedMapper, traced_submit
from ipf.pipeline.worker import ReactorYield, Worker
from ipf.ports import Backoff, Notifier, StaleRecovery
from ipf.rest.audit.recorder import audited
from ipf.rest.write.commit import commit
from ipf.rest.write.remote_store import RemoteStore
from ipf.rest.write.unit import Unit, UnitResult
from ipf.security.audit import tails
from ipf.store.audit.audit import PostgresAuditStore
from ipf.store.deliveries.bindings import STATEMENTS as BINDING_STATEMENTS
from ipf.store.deliveries.deliveries import STATEMENTS as DELIVERY_STATEMENTS
from ipf.store.deliveries.deliveries import PostgresDeliveryQueue
from ipf.store.inbox.codes import PostgresCodes
from ipf.store.inbox.inbox import STATEMENTS as INBOX_STATEMENTS
from ipf.store.inbox.inbox import PostgresInbox
from ipf.store.inbox.text_index import PostgresMessageIndex
from ipf.store.postgres.database import Database
from ipf.store.postgres.notify import PostgresNotifier
from ipf.store.resources.resources import STATEMENTS as FHIR_STATEMENTS
from ipf.store.resources.resources import PostgresFhirStore
from ipf.subscriptions.matching import MatchingIndex
from ipf.telemetry import metrics
from ipf.telemetry.conversion_metrics import ConversionMetrics
from ipf.telemetry.heartbeat import BEAT_SECONDS, beat
from ipf.telemetry.logs import LogWriter, event_line, level_named
from ipf.telemetry.spans import Spans, open_spans
from ipf.turns import usual_turns

if TYPE_CHECKING:
    from ipf.rest.write.validation import Submit

log = Logger(namespace="ipf.app.converter")

NAME = "IPF_CONVERTER_NAME"  # set by the service for its converter processes; not a setting
_INBOX_BELLS = frozenset(("inbox", BELL))
_LOOK_SECONDS = 5.0  # a lost ring costs no more
_INDEX_SECONDS = 1.0  # how often an idle process looks for messages that search does not know yet


def now() -> datetime:
    """The clock of the whole house."""
    return datetime.now(UTC)


def milliseconds() -> int:
    """The same in milliseconds since 1970."""
    return int(time.time() * 1000)


@dataclass
class Stores:
    """The rooms on PostgreSQL, shared by all stages of one process."""

    inbox_database: Database
    fhir_database: Database
    inbox: PostgresInbox
    fhir: PostgresFhirStore
    inbox_notifier: PostgresNotifier
    fhir_notifier: PostgresNotifier
    deliveries: PostgresDeliveryQueue
    codes: PostgresCodes
    matcher: MatchingIndex
    closers: list[Callable[[], object]] = field(default_factory=list)
    spans: Spans | None = None

    async def close(self) -> None:
        """Close every connection."""
        for close in self.closers:
            close()
        if self.spans is not None:
            await deferToThread(self.spans.close)
        for part in (self.inbox_notifier, self.fhir_notifier, self.inbox_database, self.fhir_database):
            await part.close()

    async def submit(self, units: Sequence[Unit]) -> list[UnitResult | Problem]:
        """Store FHIR transactions."""
        return await commit(units, self.fhir, self.matcher, now)


class NotifierRouter:
    """`ports.Notifier` over the notifiers of both databases: each name is rung where its rows are."""

    def __init__(self, inbox: Notifier, fhir: Notifier) -> None:
        self._inbox = inbox
        self._fhir = fhir

    def notify(self, name: str) -> None:
        """Ring where the rows of `name` are."""
        (self._inbox if name in _INBOX_BELLS else self._fhir).notify(name)

    def subscribe(self, name: str, wake: Any) -> None:
        """Listen where the rows of `name` are."""
        (self._inbox if name in _INBOX_BELLS else self._fhir).subscribe(name, wake)


def is_divided(settings: Settings) -> bool:
    """Whether PostgreSQL holds tenants apart as well."""
    return settings.multitenancy == "enabled" and settings.row_security


async def open_stores(inbox_url: str, fhir_url: str, reactor: Any, *, size: int, divided: bool = False) -> Stores:
    """Connect to both databases, which are migrated already.  StoreUnreachable when one cannot be reached.

    `divided`: the FHIR database is used under row-level security, for which `row_security.secure` has made it ready.
    """
    inbox_database = Database(
        inbox_url, reactor=reactor, size=size, statements=INBOX_STATEMENTS, application_name="ipf-inbox"
    )
    fhir_database = Database(
        fhir_url,
        reactor=reactor,
        size=size,
        statements=(*FHIR_STATEMENTS, *DELIVERY_STATEMENTS, *BINDING_STATEMENTS),
        application_name="ipf-fhir",
        tenants=divided,
    )
    stores = Stores(
        inbox_database,
        fhir_database,
        PostgresInbox(inbox_database),
        PostgresFhirStore(fhir_database, run_in_thread),
        PostgresNotifier(inbox_url, reactor=reactor),
        PostgresNotifier(fhir_url, reactor=reactor),
        PostgresDeliveryQueue(fhir_database),
        PostgresCodes(inbox_database),
        MatchingIndex(partial(deferLater, reactor, 0.0)),
    )
    for part in (inbox_database, fhir_database, stores.inbox_notifier, stores.fhir_notifier):
        await part.start()
    return stores


def elsewhere(url: str, settings: Settings, reactor: Any) -> Submit:
    """Where conversions are kept when that is not in this process: the FHIR server at `IPF_FHIR_URL`."""
    from ipf.wire.client.remote_service import (
        RemoteService,  # an HTTP client and TLS are 15 MiB: only where something is elsewhere
    )

    remote = RemoteService(reactor, settings.fhir_timeout_ms / 1000, "the FHIR server", credentials_of(settings))
    headers = {"Content-Type": "application/fhir+json", "Accept": "application/fhir+json", "Prefer": "return=minimal"}

    async def post(body: bytes, correlation_id: str) -> tuple[int, bytes]:
        reply = await remote.post(url, body, headers, correlation_id)
        return reply.status, reply.body

    return RemoteStore(post).submit


def backoff_of(settings: Settings) -> Backoff:
    """The retry budget of the convert stage."""
    return Backoff(settings.backoff_base_ms, settings.backoff_factor, settings.backoff_max_ms, settings.max_attempts)


def worker_name() -> str:
    """Names this process among all replicas."""
    return f"{socket.gethostname()}:{os.getpid()}"


def is_dead(worker: str) -> bool:
    """Whether `worker` (`worker_name()`, or a converter process of it) was of this machine and its process is gone."""
    host, _, rest = worker.partition(":")
    process = rest.partition(":")[0]
    return host == socket.gethostname() and process.isdigit() and not Path("/proc", process).exists()


def tell_findings(unit: Unit, errors: int, others: int) -> None:
    """One line about what validation found in a converted message: numbers only."""
    log.warn(event_line("validation", errors=errors, warnings=others), correlation_id=unit.correlation_id)


def judging(submit: Submit, settings: Settings, stores: Stores) -> Submit:
    """`submit` behind validation."""
    from ipf.rest.write.conformance import (  # the validator: only in processes that judge messages
        DEFINITIONS,
        Conformance,
    )
    from ipf.rest.write.validation import judged

    conformance = Conformance(partial(load_packages, settings, DEFINITIONS), stores.fhir, now, settings.validation_mode)
    return judged(submit, conformance, tell_findings)


def trail_of(settings: Settings, stores: Stores, reactor: Any, **more: Any) -> AuditLog | None:
    """The audit trail of a part of this process, with `more` arguments; None when it is switched off."""
    if not settings.audit_enabled:
        return None
    store = PostgresAuditStore(stores.fhir_database)
    return AuditLog(store, reactor, most=settings.audit_queue, count=metrics.audit_records, **more)


class ConvertingPart:
    """The convert stage with its workers, the renewal of its leases and the recovery of stale rows."""

    def __init__(
        self,
        settings: Settings,
        stores: Stores,
        installation: Installation,
        reactor: Any,
        name: str,
        policy: BatchPolicy,
    ) -> None:
        mapper = mapper_of(settings, installation, reactor)
        self._settings = settings
        self._stores = stores
        self._reactor = reactor
        notifier = NotifierRouter(stores.inbox_notifier, stores.fhir_notifier)
        self._trail = trail_of(settings, stores, reactor)
        url = settings.fhir_url
        submit: Submit = stores.submit if url is None else elsewhere(url, settings, reactor)
        if self._trail is not None and url is None:
            submit = audited(submit, self._trail.note, now, tails())
        if settings.validation_mode != "off":
            submit = judging(submit, settings, stores)
        if stores.spans is not None:
            mapper, submit = TracedMapper(mapper, stores.spans), traced_submit(submit, stores.spans)
        self.converter = Converter(
            stores.inbox,
            mapper,
            submit,
            worker=name,
            backoff=backoff_of(settings),
            passthrough_types=settings.passthrough_types,
            clock=now,
            notifier=notifier,
            metrics=ConversionMetrics(),
            pause=ReactorYield(reactor),
            wait=lambda: deferLater(reactor, 0.25),
            claim_size=settings.worker_batch_size,
            policy=policy,
            dlq_level=level_named(settings.dlq_log_level),
            is_mapped=MappedByVendor(installation, now),
        )
        poll = settings.worker_poll_ms / 1000
        self._worker = Worker(
            self.converter.step, notifier, "inbox", poll, reactor, name="convert", concurrency=policy.concurrency
        )
        index = PostgresMessageIndex(stores.inbox_database, reactor.seconds)
        indexing = IndexMessages(index, partial(deferLater, reactor), reactor.seconds)
        self._indexing = Worker(indexing.step, notifier, None, _INDEX_SECONDS, reactor, name="message index")
        self._renewal = LoopingCall(lambda: Deferred.fromCoroutine(self._renew()))
        self._renewal.clock = reactor

    def start(self) -> None:
        """Begin to convert."""
        self._worker.start()
        self._indexing.start()
        self._renewal.start(self._settings.worker_stale_seconds / 3, now=False)

    async def stop(self, seconds: float) -> None:
        """Finish the current batch and release the rest."""
        if self._renewal.running:
            self._renewal.stop()
        self.converter.stop()
        await self._indexing.stop(seconds)
        await self._worker.stop(seconds)
        if self._trail is not None:
            await self._trail.stop(seconds)

    async def _renew(self) -> None:
        try:
            await self.converter.renew()
        except Problem as problem:
            log.warn("leases could not be renewed: {problem}", problem=str(problem))


async def recover_stale(settings: Settings, stores: Stores) -> Sequence[StaleRecovery]:
    """Settle rows whose worker was lost as failed attempts; those rows."""
    return await stores.inbox.recover_stale(settings.worker_stale_seconds, backoff_of(settings))


def steady_timers(reactor: Any) -> None:
    """Let the reactor's timers go by the machine's steady clock, before any is set.

    Twisted's go by the time of day: when that is set back by an hour they all stand still for an hour, polls, renewals
    of leases and time limits included; set forward they all fire at once.
    """
    ahead = time.time() - time.monotonic()
    reactor.seconds = lambda: time.monotonic() + ahead


class _Parent(Protocol):
    """Standard input: it carries nothing, and its end is the parent's."""

    def __init__(self) -> None:
        self.gone: Deferred[None] = Deferred()

    def connectionLost(self, reason: Any = None) -> None:
        """The parent closed it, or is dead."""
        if not self.gone.called:
            self.gone.callback(None)


async def run_process(reactor: Any, settings: Settings, name: str) -> None:
    """Convert until the parent is gone."""
    parent = _Parent()
    stdio.StandardIO(parent, reactor=reactor)
    for number in (signal.SIGTERM, signal.SIGINT):  # in place of Twisted's, which drop what is in hand
        signal.signal(number, lambda number, frame: reactor.callFromThread(parent.connectionLost))
    assert settings.db_url and settings.fhir_db_url
    serve_parameters(settings)
    urls = settings.db_url, settings.fhir_db_url
    stores = await open_stores(*urls, reactor, size=DEDICATED_PROCESS.concurrency + 2, divided=is_divided(settings))
    stores.spans = open_spans(settings.otlp_url, __version__, "converter")
    profiles = accepted_profiles(settings)
    tune = partial(tune_collector, OF_WAVES)
    installation = await open_installation(settings, stores, reactor, profiles, tune, tune)
    part = ConvertingPart(settings, stores, installation, reactor, name, DEDICATED_PROCESS)
    tune()
    part.start()
    if NAME in os.environ:
        LoopingCall(beat).start(BEAT_SECONDS)
    await parent.gone
    await part.stop(settings.stop_seconds)
    await stores.close()


def _reactor(settings: Settings) -> Any:
    """The reactor.  Twisted takes OpenSSL into every process that has it, 11 MiB; a process that asks nobody over HTTPS
    (PostgreSQL's client brings its own) starts as one that has it not."""
    needs_tls = settings.mapping_url is not None or settings.fhir_url is not None
    if not needs_tls:
        sys.modules["OpenSSL"] = None  # type: ignore[assignment]  # how Python is told that a module is not there
    from twisted.internet import reactor

    if not needs_tls:
        del sys.modules["OpenSSL"]
    return reactor


def main() -> None:
    """Entry of a converter process."""
    try:
        settings, _ = read(os.environ)
    except InvalidSetting as wrong:
        sys.exit(f"ipf: {wrong}")
    reactor = _reactor(settings)
    steady_timers(reactor)
    later = partial(reactor.callLater, 0)
    human = settings.log_format == "human"
    writer = LogWriter(sys.stdout.buffer, level_named(settings.log_level), human, later)
    globalLogBeginner.beginLoggingTo([writer], redirectStandardIO=False)
    os.nice(15)  # acknowledgements go first
    usual_turns()

    def failed(failure: Failure) -> None:
        log.failure("the converter process ends", failure)

    def begin() -> None:
        name = os.environ.get(NAME) or worker_name()
        running = Deferred.fromCoroutine(run_process(reactor, settings, name))
        running.addErrback(failed).addBoth(lambda _: reactor.stop())

    reactor.callWhenRunning(begin)
    reactor.run()


if __name__ == "__main__":
    main()
