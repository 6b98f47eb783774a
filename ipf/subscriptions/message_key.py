"""Keys and ids of messages to brokers: what keeps the order of a patient, and what tells a repetition.

The key of a notification is the patient of its event, so that one partition has all events of a patient in order.
For resources of no patient it is the resource.  It is the Subscription where a notification may have several events
(`backport-max-count`), or where the content level hides which resource changed.

The patient is `subject`, `patient` or the like, where that refers to a Patient, else the first Patient that the
resource refers to.  Of a deletion it is the patient of the version before.

The id is the same for each attempt to send the same events, and another after `$resend`, whose events are sent again on
purpose.

Source: https://hl7.org/fhir/R4/fivews.html (FiveWs.subject); https://kafka.apache.org/documentation (partitions);
https://docs.nats.io/using-nats/developer/develop_jetstream/model_deep_dive (message deduplication)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Any

from ipf.fhir.model.json import loads
from ipf.fhir.model.reference import parse_reference, relative_form
from ipf.ports import Event, Json, Terms

_SUBJECTS = ("subject", "patient", "beneficiary", "for", "individual")


def key_of(subscription_id: str, terms: Terms, events: Sequence[Event]) -> str:
    """The key of a notification of these events."""
    if len(events) != 1 or terms.max_count > 1 or terms.content == "empty":
        return f"Subscription/{subscription_id}"
    (event,) = events
    return patient_of(event) or f"{event.resource_type}/{event.id}"


def message_id(subscription_id: str, endpoint: str, events: Sequence[Event], resent: int) -> str:
    """The id of a notification; "" without events.  It names no resource.

    An endpoint may have had the same event numbers before, so the versions are part of it.
    """
    if not events:
        return ""
    versions = (f"{one.number} {one.resource_type}/{one.id}/{one.version_id}" for one in events)
    digest = sha256("\n".join((endpoint, str(resent), *versions)).encode()).hexdigest()[:32]
    return f"{subscription_id}/{events[0].number}/{digest}"


def patient_of(event: Event) -> str | None:
    """The patient whom an event is about: `Patient/1`; None when there is none."""
    if event.resource_type == "Patient":
        return f"Patient/{event.id}"
    body = event.body or event.last_body
    if not body:
        return None
    resource: Json = loads(body)
    subjects = (resource.get(name) for name in _SUBJECTS)
    return next((found for one in (*subjects, resource) for found in _patients(one)), None)


def _patients(element: Any) -> Iterator[str]:
    """The patients whom an element refers to, in order."""
    if isinstance(element, list):
        for one in element:
            yield from _patients(one)
    elif isinstance(element, dict):
        text = element.get("reference")
        found = parse_reference(relative_form(text)) if isinstance(text, str) else None
        if found is not None and found.resource_type == "Patient":
            yield f"{found.base}/Patient/{found.id}".lstrip("/")
        for one in element.values():
            yield from _patients(one)
