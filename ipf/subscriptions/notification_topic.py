"""Notification Bundles of topic subscriptions, as JSON text.

There are three forms (decisions section 6).  With a content level: the guide's form for R4 (the first entry is a
Parameters resource), or with `fhirVersion=4.3` in the payload the form for R4B (the first entry is a
SubscriptionStatus).  Without one: the form of the interface specification (a SubscriptionStatus, then the resource).
Stored bodies are inserted unchanged.

References are absolute in the guide's forms, because the first entry has no base URL.

Source: http://hl7.org/fhir/uv/subscriptions-backport 1.1.0; https://hl7.org/fhir/R4B/subscriptionstatus.html;
https://hl7.org/fhir/R4/bundle.html#history; interface specification "Notification shapes".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from uuid import uuid4

from ipf.fhir.model.bundle import etag, instant
from ipf.fhir.model.json import dumps
from ipf.ports import EVENT, Event, Json, Version
from ipf.subscriptions.guide import NOTIFICATION_R4, NOTIFICATION_R4B, STATUS_R4, topic_url
from ipf.subscriptions.terms import follows_guide, payload_of

_R4B = "4.3"


class Form(Enum):
    """The form of notification Bundles."""

    PLAIN = "plain"
    R4 = "r4"
    R4B = "r4b"


def form_of(subscription: Json) -> Form:
    """The notification form of a topic Subscription."""
    if not follows_guide(subscription):
        return Form.PLAIN
    payload = payload_of(subscription.get("channel", {}))
    return Form.R4B if payload is not None and payload.fhir_version == _R4B else Form.R4


@dataclass(frozen=True, slots=True)
class NotificationContext:
    """The content of a notification Bundle besides its events.

    `kind`: handshake, heartbeat, event-notification, query-status or query-event.  `total`: number of events since the
    subscription was created; None: not shown.  `includes`: included resources by event number.
    """

    base_url: str
    now: datetime
    total: int | None
    kind: str = EVENT
    content: str = "full-resource"
    form: Form = Form.R4
    includes: Mapping[int, Sequence[Version]] = field(default_factory=dict)


def bundle(subscription: Json, events: Sequence[Event], context: NotificationContext) -> bytes:
    """The notification Bundle."""
    entries = [_status_entry(subscription, events, context)]
    if context.content != "empty":
        entries += _entries(events, context)
    head: Json = {"resourceType": "Bundle", "id": str(uuid4())}
    if context.form is not Form.PLAIN:
        head["meta"] = {"profile": [NOTIFICATION_R4 if context.form is Form.R4 else NOTIFICATION_R4B]}
    head |= {"type": "history", "timestamp": instant(context.now)}
    return dumps(head)[:-1] + b',"entry":[' + b",".join(entries) + b"]}"


def status_of(subscription: Json, events: Sequence[Event], context: NotificationContext) -> Json:
    """The status resource: first entry of a Bundle, and result of `$status`."""
    return (_parameters if context.form is Form.R4 else _status)(subscription, events, context)


def _status_entry(subscription: Json, events: Sequence[Event], context: NotificationContext) -> bytes:
    url = f"{context.base_url}/Subscription/{subscription.get('id')}/$status"
    entry = {
        "fullUrl": f"urn:uuid:{uuid4()}",
        "resource": status_of(subscription, events, context),
        "request": {"method": "GET", "url": url},
        "response": {"status": "200"},
    }
    return dumps(entry)


# -- the status


def _names_topic(context: NotificationContext) -> bool:
    return context.content != "empty"


def _parameters(subscription: Json, events: Sequence[Event], context: NotificationContext) -> Json:
    """The status as Parameters, the guide's form for R4."""
    parameters: list[Json] = [
        {"name": "subscription", "valueReference": {"reference": _url(context, _subscription_reference(subscription))}}
    ]
    topic = topic_url(subscription)
    if topic is not None and _names_topic(context):
        parameters.append({"name": "topic", "valueCanonical": topic})
    parameters += [
        {"name": "status", "valueCode": str(subscription.get("status"))},
        {"name": "type", "valueCode": context.kind},
    ]
    if context.total is not None:
        parameters.append({"name": "events-since-subscription-start", "valueString": str(context.total)})
    parameters += [{"name": "notification-event", "part": list(_parts(event, context))} for event in events]
    if subscription.get("error"):
        parameters.append({"name": "error", "valueCodeableConcept": {"text": subscription["error"]}})
    head = {"resourceType": "Parameters", "id": str(uuid4()), "meta": {"profile": [STATUS_R4]}}
    return {**head, "parameter": parameters}


def _parts(event: Event, context: NotificationContext) -> Iterator[Json]:
    yield {"name": "event-number", "valueString": str(event.number)}
    yield {"name": "timestamp", "valueInstant": instant(event.occurred_at)}
    if context.content != "empty":
        yield {"name": "focus", "valueReference": _reference(event, context)}
        for one in context.includes.get(event.number, ()):
            yield {"name": "additional-context", "valueReference": _reference(one, context)}


def _status(subscription: Json, events: Sequence[Event], context: NotificationContext) -> Json:
    """The status as SubscriptionStatus, the form for R4B."""
    status: Json = {
        "resourceType": "SubscriptionStatus",
        "id": str(uuid4()),
        "status": str(subscription.get("status")),
        "type": context.kind,
    }
    if context.total is not None:
        status["eventsSinceSubscriptionStart"] = str(context.total)
    if events:
        status["notificationEvent"] = [_event(event, context) for event in events]
    status["subscription"] = {"reference": _url(context, _subscription_reference(subscription))}
    topic = topic_url(subscription)
    if topic is not None and (_names_topic(context) or context.form is Form.PLAIN):
        status["topic"] = topic
    if subscription.get("error"):
        status["error"] = [{"text": subscription["error"]}]
    return status


def _event(event: Event, context: NotificationContext) -> Json:
    found: Json = {"eventNumber": str(event.number), "timestamp": instant(event.occurred_at)}
    if context.content != "empty":
        found["focus"] = _reference(event, context)
        others = [_reference(one, context) for one in context.includes.get(event.number, ())]
        if others:
            found["additionalContext"] = others
    return found


def _subscription_reference(subscription: Json) -> str:
    return f"Subscription/{subscription.get('id')}"


def _reference(one: Event | Version, context: NotificationContext) -> Json:
    return {"reference": _url(context, f"{one.resource_type}/{one.id}"), "type": one.resource_type}


def _url(context: NotificationContext, reference: str) -> str:
    return reference if context.form is Form.PLAIN else f"{context.base_url}/{reference}"


# -- the resources


def _entries(events: Sequence[Event], context: NotificationContext) -> Iterator[bytes]:
    """The resources of the events in order, then the included resources; each version once."""
    seen: set[tuple[str, str, int]] = set()
    focused = [_version(event) for event in events]
    others = [one for event in events for one in context.includes.get(event.number, ())]
    for version in (*focused, *others):
        key = version.resource_type, version.id, version.version_id
        if key not in seen:
            seen.add(key)
            yield _entry(version, context)


def _version(event: Event) -> Version:
    deleted = event.method == "DELETE"
    named = event.resource_type, event.id, event.version_id
    return Version(0, *named, event.occurred_at, event.body, deleted, event.method)


def _entry(version: Version, context: NotificationContext) -> bytes:
    reference = f"{version.resource_type}/{version.id}"
    url = version.resource_type if version.method == "POST" else reference
    status = "204" if version.deleted else "201" if version.version_id == 1 else "200"
    request = {"method": version.method, "url": url}
    answer = {"status": status, "etag": etag(version), "lastModified": instant(version.last_updated)}
    is_shown = context.content == "full-resource" and not version.deleted
    resource = b',"resource":' + version.body if is_shown else b""
    full_url = dumps(f"{context.base_url}/{reference}")
    return b'{"fullUrl":%s%s,"request":%s,"response":%s}' % (full_url, resource, dumps(request), dumps(answer))
