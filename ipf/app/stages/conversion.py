"""The convert stage with its workers, the renewal of its leases, and the index of message texts.

The same stage runs in the main process (`IPF_WORKER_PROCESSES=0`) or in each converter process.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from twisted.internet.task import deferLater
from twisted.logger import Logger

from ipf.app.maps.mapper import ProfileLookup, build_mapper, service_credentials
from ipf.app.runtime.periodic import run_periodically
from ipf.app.runtime.process import now
from ipf.app.runtime.stores import OpenedStores, conversion_backoff, open_audit_log, permanent_errors
from ipf.app.stages.validation import message_checks
from ipf.config.settings import Settings
from ipf.errors import Problem
from ipf.mapping.library.installation import Installation
from ipf.pipeline.audit_writer import AuditLog
from ipf.pipeline.convert.batches import BatchPolicy
from ipf.pipeline.convert.convert import Converter
from ipf.pipeline.convert.unread_counts import FLUSH_SECONDS, UnreadCounter
from ipf.pipeline.maintenance.index_messages import IndexMessages
from ipf.pipeline.tracing import TracedMapper, traced_submit
from ipf.pipeline.worker import ReactorYield, Worker
from ipf.ports import Mapper
from ipf.rest.audit.recorder import audited
from ipf.rest.write.remote_store import RemoteStore
from ipf.rest.write.unit import Submit
from ipf.security.audit.rules import id_suffixes
from ipf.store.inbox.remote_effects import PostgresRemoteEffects
from ipf.store.inbox.text_index import PostgresMessageIndex
from ipf.store.inbox.unread_fields import PostgresUnreadFields
from ipf.telemetry import metrics as audit_metrics
from ipf.telemetry.conversion_metrics import ConversionMetrics
from ipf.telemetry.logs import level_named

log = Logger(namespace="ipf.app.conversion")

_INDEX_POLL_SECONDS = 1.0  # how often an idle process looks for messages that are not indexed yet


def start_conversion_stage(
    settings: Settings,
    stores: OpenedStores,
    installation: Installation,
    name: str,
    policy: BatchPolicy,
    reactor: Any,
    stack: AsyncExitStack,
) -> None:
    """Start to convert messages.  `name`: the worker that holds their leases.

    On stop the batch in progress is finished, and claimed messages that are not begun are returned.
    """
    audit_log = open_audit_log(settings, stores, reactor)
    if audit_log is not None:
        stack.push_async_callback(audit_log.stop, settings.stop_seconds)
    mapper: Mapper = build_mapper(settings, installation, reactor)
    submit = _submit(settings, stores, audit_log, reactor)
    if stores.spans is not None:
        mapper, submit = TracedMapper(mapper, stores.spans), traced_submit(submit, stores.spans)
    metrics = ConversionMetrics()
    converter = Converter(
        stores.inbox,
        mapper,
        submit,
        worker=name,
        backoff=conversion_backoff(settings),
        permanent=permanent_errors(settings),
        passthrough_types=settings.passthrough_types,
        clock=now,
        notifier=stores.notifier,
        metrics=metrics,
        pause=ReactorYield(reactor),
        wait=lambda: deferLater(reactor, 0.25),
        claim_size=settings.worker_batch_size,
        policy=policy,
        dlq_level=level_named(settings.dlq_log_level),
        is_mapped=ProfileLookup(installation, now).is_mapped,
        unread=_unread_counter(settings, stores, metrics, reactor, stack),
        validate=message_checks(settings, stores, installation),
    )
    poll_seconds, concurrency = settings.worker_poll_ms / 1000, policy.concurrency
    worker = Worker(
        converter.step, stores.notifier, "inbox", poll_seconds, reactor, name="convert", concurrency=concurrency
    )
    worker.start()
    stack.push_async_callback(worker.stop, settings.stop_seconds)
    _start_index(settings, stores, reactor, stack)
    stack.callback(converter.stop)
    _start_renewal(settings, converter, reactor, stack)


def _unread_counter(
    settings: Settings, stores: OpenedStores, metrics: ConversionMetrics, reactor: Any, stack: AsyncExitStack
) -> UnreadCounter | None:
    """Counts the unread fields of converted messages; None when the settings say so.  Stored once more on stop."""
    if not settings.unread_fields:
        return None
    counter = UnreadCounter(PostgresUnreadFields(stores.inbox_database), metrics)
    stack.push_async_callback(counter.stop)
    run_periodically(FLUSH_SECONDS, counter.flush, "the count of unread fields", reactor, stack, now=False)
    return counter


def _start_index(settings: Settings, stores: OpenedStores, reactor: Any, stack: AsyncExitStack) -> None:
    """Index the texts of received messages, which operators search."""
    index = PostgresMessageIndex(stores.inbox_database, reactor.seconds)
    indexing = IndexMessages(index, partial(deferLater, reactor), reactor.seconds)
    worker = Worker(indexing.step, stores.notifier, None, _INDEX_POLL_SECONDS, reactor, name="message index")
    worker.start()
    stack.push_async_callback(worker.stop, settings.stop_seconds)


def _start_renewal(settings: Settings, converter: Converter, reactor: Any, stack: AsyncExitStack) -> None:
    """Renew the leases of claimed messages, three times in the time after which they are stale."""

    async def renew() -> None:
        try:
            await converter.renew()
        except Problem as problem:
            log.warn("leases could not be renewed: {problem}", problem=str(problem))

    run_periodically(settings.worker_stale_seconds / 3, renew, "lease renewal", reactor, stack, now=False)


def _submit(settings: Settings, stores: OpenedStores, audit_log: AuditLog | None, reactor: Any) -> Submit:
    """What stores converted messages: audited where they are stored here."""
    submit: Submit = stores.submit
    if settings.fhir_url is not None:
        submit = _remote_store(settings.fhir_url, settings, stores, reactor)
    elif audit_log is not None:
        submit = audited(submit, audit_log.note, now, id_suffixes(), audit_metrics.audit_records)
    return submit


def _remote_store(url: str, settings: Settings, stores: OpenedStores, reactor: Any) -> Submit:
    """Stores converted messages at the FHIR server of `IPF_FHIR_URL`."""
    from ipf.wire.client.remote_service import RemoteService  # only here: an HTTP client and TLS take 15 MiB

    remote = RemoteService(reactor, settings.fhir_timeout_ms / 1000, "the FHIR server", service_credentials(settings))
    headers = {"Content-Type": "application/fhir+json", "Accept": "application/fhir+json", "Prefer": "return=minimal"}

    async def post(body: bytes, correlation_id: str) -> tuple[int, bytes]:
        reply = await remote.post(url, body, headers, correlation_id)
        return reply.status, reply.body

    return RemoteStore(post, PostgresRemoteEffects(stores.inbox_database).record, now).submit
