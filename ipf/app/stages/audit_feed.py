"""The feed of audit records to a log server (`IPF_AUDIT_SYSLOG`)."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

from twisted.logger import Logger

from ipf.app.runtime.process import now, run_in_thread, worker_name
from ipf.app.runtime.stores import OpenedStores
from ipf.config.settings import Settings
from ipf.pipeline.maintenance.audit_feed import AuditFeed
from ipf.pipeline.worker import Worker
from ipf.ports.audit.feed import FedRecord
from ipf.security.audit.event import audit_event
from ipf.security.audit.syslog import frames_of
from ipf.store.audit.feed import PostgresAuditFeed

log = Logger(namespace="ipf.app.audit_feed")

POLL_SECONDS = 1.0


def start_audit_feed(settings: Settings, stores: OpenedStores, reactor: Any, stack: AsyncExitStack) -> AuditFeed | None:
    """Start to send records to the log server; None when no setting names one."""
    if not settings.audit_enabled or settings.audit_syslog is None:
        return None
    store = PostgresAuditFeed(stores.fhir_database)
    return _start(settings, settings.audit_syslog, store, stores, reactor, stack)


def _start(
    settings: Settings, server: tuple[str, int], store: PostgresAuditFeed, stores: OpenedStores, reactor: Any,
    stack: AsyncExitStack,
) -> AuditFeed:  # fmt: skip
    # imported here: most services have no feed
    from ipf.wire.client.failures import TimeLimitExceeded
    from ipf.wire.client.http_client import within
    from ipf.wire.client.syslog_stream import SyslogServer, open_stream

    files = settings.audit_syslog_ca, settings.audit_syslog_certificate, settings.audit_syslog_key
    named = SyslogServer(*server, *(None if one is None else Path(one) for one in files))
    feed = AuditFeed(
        store, partial(open_stream, reactor, named), partial(frames, settings.base_url, socket.gethostname()),
        settings.audit_syslog_surfaces, worker_name(), now, reactor.seconds, run_in_thread,
    )  # fmt: skip

    async def stop() -> None:
        with suppress(TimeLimitExceeded):
            await within(settings.stop_seconds, reactor, feed.stop())

    worker = Worker(feed.step, stores.notifier, None, POLL_SECONDS, reactor, name="audit feed")
    worker.start()
    stack.push_async_callback(stop)
    stack.push_async_callback(worker.stop, settings.stop_seconds)
    return feed


def frames(base_url: str, host: str, records: Sequence[FedRecord]) -> bytes:
    """The frames of records.  `base_url`: the address of this server; `host`: the name of this machine.

    A record that cannot be rendered is logged and left out, so that it does not stop the others.
    """
    found, process = [], os.getpid()
    for one in records:
        try:
            found.append(b"" if one.audit is None else frames_of(audit_event(one.audit, base_url), host, process))
        except Exception:
            log.failure("event=audit_record_not_sent position={position}", position=one.position)
    return b"".join(found)
