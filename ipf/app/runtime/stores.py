"""The stores of one process: connections to both databases, and everything that reads and writes through them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread

from ipf import __version__
from ipf.app.runtime.databases import DatabaseUrls, has_row_security
from ipf.app.runtime.privacy import install_privacy
from ipf.app.runtime.process import now, run_in_thread
from ipf.config.roles import FHIR
from ipf.config.settings import Settings
from ipf.errors import Category, Problem
from ipf.fhir.model.reference import install_base_url
from ipf.mapping.library.installation import MAPPING_CHANNEL
from ipf.pipeline.audit_writer import AuditLog
from ipf.ports import Backoff, Notifier, PermanentErrors
from ipf.rest.write.commit import commit
from ipf.rest.write.unit import Unit, UnitResult
from ipf.security.audit.draft import NewDraft, drafter
from ipf.security.audit.rules import AuditRules, id_suffixes
from ipf.security.audit.strangers import StrangerLimit
from ipf.store.audit.audit import PostgresAuditStore
from ipf.store.deliveries.bindings import STATEMENTS as BINDING_STATEMENTS
from ipf.store.deliveries.deliveries import STATEMENTS as DELIVERY_STATEMENTS
from ipf.store.deliveries.deliveries import PostgresDeliveryQueue
from ipf.store.inbox.conflicts import PostgresIdentityConflicts
from ipf.store.inbox.inbox import STATEMENTS as INBOX_STATEMENTS
from ipf.store.inbox.inbox import PostgresInbox
from ipf.store.inbox.unmapped_codes import PostgresUnmappedCodes
from ipf.store.postgres.database import Database
from ipf.store.postgres.notify import PostgresNotifier
from ipf.store.resources.resources import STATEMENTS as FHIR_STATEMENTS
from ipf.store.resources.resources import PostgresFhirStore
from ipf.store.resources.searches.words import prepare_words
from ipf.store.terminology.systems import STATEMENTS as TERMINOLOGY_STATEMENTS
from ipf.subscriptions.matching import MatchingIndex
from ipf.telemetry import metrics
from ipf.telemetry.spans import Spans, open_spans

if TYPE_CHECKING:
    from ipf.app.runtime.replica import ReadReplica

_INBOX_CHANNELS = frozenset(("inbox", MAPPING_CHANNEL))


class NotifierRouter:
    """`ports.Notifier` over both databases: each name is notified in the database that holds its rows."""

    def __init__(self, inbox: Notifier, fhir: Notifier) -> None:
        self._inbox = inbox
        self._fhir = fhir

    def notify(self, name: str) -> None:
        """Notify the subscribers of `name`, in every process."""
        self._notifier(name).notify(name)

    def subscribe(self, name: str, wake: Any) -> None:
        """Call `wake` at each notification of `name`."""
        self._notifier(name).subscribe(name, wake)

    def _notifier(self, name: str) -> Notifier:
        return self._inbox if name in _INBOX_CHANNELS else self._fhir


@dataclass(frozen=True, slots=True)
class OpenedStores:
    """The stores of one process, shared by all of its stages.  `spans`: None without `IPF_OTLP_URL`.

    `replica`: None without `IPF_FHIR_READ_DB_URL`, without the role fhir, and in converter processes.
    """

    inbox_database: Database
    fhir_database: Database
    inbox: PostgresInbox
    fhir: PostgresFhirStore
    notifier: NotifierRouter
    deliveries: PostgresDeliveryQueue
    codes: PostgresUnmappedCodes
    conflicts: PostgresIdentityConflicts
    matcher: MatchingIndex
    spans: Spans | None
    replica: ReadReplica | None = None

    async def submit(self, units: Sequence[Unit]) -> list[UnitResult | Problem]:
        """Store FHIR transactions; one result or Problem per unit."""
        return await commit(units, self.fhir, self.matcher, now)


async def open_stores(
    settings: Settings, urls: DatabaseUrls, process: str, connections: int, reactor: Any, stack: AsyncExitStack
) -> OpenedStores:
    """Connect to both databases, which are migrated.  StoreUnreachable when one cannot be reached.

    `process`: name of the process in spans.  `connections`: at most so many to each database.
    """
    inbox_notifier = PostgresNotifier(urls.inbox, reactor=reactor)
    fhir_notifier = PostgresNotifier(urls.fhir, reactor=reactor)
    inbox_database = Database(
        urls.inbox,
        reactor=reactor,
        size=connections,
        statements=INBOX_STATEMENTS,
        application_name="ipf-inbox",
        left=inbox_notifier.reconnect,
    )
    replica = _replica(settings, connections, reactor) if process == "main" and settings.runs(FHIR) else None
    fhir_database = Database(
        urls.fhir,
        reactor=reactor,
        size=connections,
        statements=(*FHIR_STATEMENTS, *DELIVERY_STATEMENTS, *BINDING_STATEMENTS, *TERMINOLOGY_STATEMENTS),
        application_name="ipf-fhir",
        tenants=has_row_security(settings),
        left=fhir_notifier.reconnect,
        positions=None if replica is None else replica.primary,
    )
    for part in (fhir_database, inbox_database, fhir_notifier, inbox_notifier):
        stack.push_async_callback(part.close)  # before: after a failure it goes on trying
        await part.start()
    await prepare_words(fhir_database, settings.full_text)
    if replica is not None:
        await replica.start(stack)
    install_privacy(settings, fhir_database, stack)
    install_base_url(settings.base_url)
    spans = open_spans(settings.otlp_url, __version__, process)
    if spans is not None:
        stack.push_async_callback(deferToThread, spans.close)
    return OpenedStores(
        inbox_database,
        fhir_database,
        PostgresInbox(inbox_database, holds_permanent=permanent_errors(settings).hold),
        PostgresFhirStore(fhir_database, run_in_thread),
        NotifierRouter(inbox_notifier, fhir_notifier),
        PostgresDeliveryQueue(fhir_database),
        PostgresUnmappedCodes(inbox_database),
        PostgresIdentityConflicts(inbox_database),
        _matcher(settings, reactor),
        spans,
        replica,
    )


def _matcher(settings: Settings, reactor: Any) -> MatchingIndex:
    return MatchingIndex(
        partial(deferLater, reactor, 0.0),
        metrics.topic_failed,
        needs_search=settings.criteria_need_search,
        has_grants=settings.auth_enabled,
        subscribers_read=settings.subscribers_read,
    )


def _replica(settings: Settings, connections: int, reactor: Any) -> ReadReplica | None:
    """The standby that answers reads; None without one.  Problem when its URL cannot be read."""
    if settings.fhir_read_db_url is None:
        return None
    from ipf.app.runtime.replica import ReadReplica  # its metrics exist only where there is one

    most, tenants = settings.fhir_read_max_staleness_ms / 1000, has_row_security(settings)
    try:
        return ReadReplica(settings.fhir_read_db_url, most, reactor=reactor, size=connections, tenants=tenants)
    except ValueError as unreadable:
        raise Problem(Category.VALUE, f"IPF_FHIR_READ_DB_URL: {unreadable}") from unreadable


def open_audit_log(settings: Settings, stores: OpenedStores, reactor: Any, **more: Any) -> AuditLog | None:
    """An audit log of this process; None when audit is disabled.  `more`: further arguments of AuditLog."""
    if not settings.audit_enabled:
        return None
    store = PostgresAuditStore(stores.fhir_database)
    admit = StrangerLimit().admitted
    return AuditLog(store, reactor, most=settings.audit_queue, count=metrics.audit_records, admit=admit, **more)


def system_drafts(settings: Settings) -> NewDraft | None:
    """The drafts of audit records of what this service itself writes; None when audit is disabled."""
    if not settings.audit_enabled:
        return None
    return drafter(AuditRules(), id_suffixes(), metrics.audit_records)


def conversion_backoff(settings: Settings) -> Backoff:
    """The retry policy of the convert stage."""
    return Backoff(settings.backoff_base_ms, settings.backoff_factor, settings.backoff_max_ms, settings.max_attempts)


def permanent_errors(settings: Settings) -> PermanentErrors:
    """What happens to messages with errors that no retry mends."""
    return PermanentErrors(settings.permanent_errors == "dead_letter", settings.permanent_errors_hold)


def delivery_backoff(settings: Settings) -> Backoff:
    """The retry policy of notifications."""
    return Backoff(
        settings.delivery_backoff_base_ms,
        settings.delivery_backoff_factor,
        settings.delivery_backoff_max_ms,
        settings.delivery_max_attempts,
    )
