"""The audit records of notifications: who was sent which version of which resource.

Each attempt to send a notification with events has records, one for each patient, also one that failed: the subscriber
may have read what it did not acknowledge.  Handshakes and heartbeats have none: they tell nothing of a resource.  The
entities are the Subscription and, unless the notification is empty, the resources.  The address is the destination:
scheme, host and port of the endpoint, never its path, its query or a header.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from urllib.parse import urlsplit

from ipf.ports import Caller, Delivered, Event, Lease, Terms, Version
from ipf.ports.audit.records import FHIR, Audit, millisecond_of
from ipf.security.audit.records import Operation, operation_records
from ipf.security.audit.rules import NOTIFICATION, NewIdSuffix, context_of
from ipf.security.audit.target import Asked

AuditDelivery = Callable[[Lease, Terms, Sequence[Event], Delivered, datetime, Caller], list[Audit]]
"""Returns the records of an attempt that ended at this time; the caller: who received it, or SYSTEM, who sent it."""

_NO_ANSWER = 8  # AuditEvent.outcome


def delivery_audit(new_id_suffix: NewIdSuffix) -> AuditDelivery:
    """Makes the records of attempts."""

    def records(
        lease: Lease, terms: Terms, events: Sequence[Event], delivered: Delivered, ended: datetime, caller: Caller
    ) -> list[Audit]:
        if not events:
            return []
        status = delivered.http_status or (200 if delivered.succeeded else 0)
        address = destination_of(terms.endpoint) or terms.channel_type
        context = context_of(lease.tenant, caller, FHIR, NOTIFICATION, "R", status, address)
        if not status:
            context = context._replace(outcome=_NO_ANSWER)
        subscription = f"Subscription/{lease.subscription_id}"
        correlation_id = events[0].correlation_id
        asked = Asked((subscription,))
        operation = Operation(context, millisecond_of(ended), delivered.duration_ms, correlation_id, asked)
        versions = [_version(event) for event in events]
        return [
            one._replace(
                target=None,
                entities=(subscription,) if terms.content == "empty" else (subscription, *one.entities),
                patients=tuple(one.all_patients) if terms.content == "empty" else one.patients,
            )
            for one in operation_records(operation, versions, new_id_suffix)
        ]

    return records


def destination_of(endpoint: str) -> str:
    """Scheme, host and port; of a mail address its domain; "" when there is none."""
    parts = urlsplit(endpoint)
    if parts.scheme == "mailto":
        return f"mailto:@{parts.path.rpartition('@')[2]}"
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}" if host else ""


def _version(event: Event) -> Version:
    body = event.body or event.last_body
    return Version(0, event.resource_type, event.id, event.version_id, event.occurred_at, body)
