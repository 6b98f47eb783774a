"""The audit records of refused senders: connections that the access rules of an MLLP listener did not admit.

They belong to no tenant, so operators alone see them (`GET /admin/audit?interaction=mllp-connect`).  One that tries
again and again has one record for each listener and reason in `_EVERY` seconds, so that nobody fills the trail.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from twisted.logger import Logger

from ipf.ports import ANONYMOUS, DEFAULT_TENANT, Clock
from ipf.ports.audit.records import ADMIN, AuditSink
from ipf.security.audit.rules import NewIdSuffix, clean, context_of, record

log = Logger()

SenderRefused = Callable[[str, str, str], None]
"""Takes the name of the listener, the address of the peer and the reason."""

INTERACTION = "mllp-connect"
_EVERY = timedelta(seconds=10)
_MOST = 10_000
_SERIOUS = 8  # AuditEvent.outcome


def sender_audit(trail: AuditSink, clock: Clock, new_id_suffix: NewIdSuffix) -> SenderRefused:
    """Records refused senders.  A failure here is logged; the sender is refused all the same."""
    seen: dict[tuple[str, str, str], datetime] = {}

    def refused(listener: str, host: str, reason: str) -> None:
        try:
            now = clock()
            key = listener, host, reason
            if key in seen and now - seen[key] < _EVERY:
                return
            if len(seen) >= _MOST:
                seen.clear()
            seen[key] = now
            context = context_of(DEFAULT_TENANT, ANONYMOUS, ADMIN, INTERACTION, "E", 0, host)
            target = clean(f"MLLP {listener}: {reason}")
            trail(record(context._replace(outcome=_SERIOUS), new_id_suffix(), now, now, "", target, ()))
        except Exception:
            log.failure("event=audit_not_written")

    return refused
