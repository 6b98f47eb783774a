"""What the listeners report to the audit log: FHIR and admin requests, websocket bindings, refused senders."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from ipf.app.runtime.process import milliseconds, now, run_in_thread
from ipf.app.runtime.stores import OpenedStores, open_audit_log
from ipf.config.settings import Settings
from ipf.ports import AuditBinding
from ipf.rest.audit.recorder import binding_recorder, observer, records_of
from ipf.rest.http.exchange import Observe
from ipf.security.audit.draft import NewDraft, drafter
from ipf.security.audit.rules import AuditRules, id_suffixes
from ipf.security.audit.senders import SenderRefused, sender_audit
from ipf.telemetry import metrics
from ipf.wire.admin.access import AdminAccess
from ipf.wire.admin.audit import records as admin_audit
from ipf.wire.admin.klein_app import AuditHook


@dataclass(frozen=True, slots=True)
class AuditObservers:
    """Each is called for every event of its kind; None when audit is disabled.  `drafts`: of requests that write."""

    requests: Observe | None = None
    admin: AuditHook | None = None
    bindings: AuditBinding | None = None
    drafts: NewDraft | None = None


def open_sender_audit(
    settings: Settings, stores: OpenedStores, reactor: Any, stack: AsyncExitStack
) -> SenderRefused | None:
    """Open the audit log of the MLLP listeners.  On stop it writes what it holds."""
    audit_log = open_audit_log(settings, stores, reactor)
    if audit_log is None:
        return None
    stack.push_async_callback(audit_log.stop, settings.stop_seconds)
    return sender_audit(audit_log.note, now, id_suffixes())


def open_audit(
    settings: Settings, stores: OpenedStores, access: AdminAccess, reactor: Any, stack: AsyncExitStack
) -> AuditObservers:
    """Open the audit log of the HTTP listener.  On stop it writes what it holds."""
    new_id_suffix = id_suffixes()
    rules = AuditRules(settings.audit_reads, settings.audit_searches, settings.multitenancy == "enabled")
    audit_log = open_audit_log(settings, stores, reactor, make=partial(records_of, rules, new_id_suffix))
    if audit_log is None:
        return AuditObservers()
    stack.push_async_callback(audit_log.stop, settings.stop_seconds)
    return AuditObservers(
        observer(rules, audit_log.note, milliseconds, new_id_suffix, run_in_thread, audit_log.note_exchange),
        admin_audit.audit_hook(audit_log.note, access.caller, now, new_id_suffix),
        binding_recorder(rules, audit_log.note, now, new_id_suffix),
        drafter(rules, new_id_suffix, metrics.audit_records),
    )
