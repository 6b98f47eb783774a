"""Notifications of topic subscriptions: what happened in, the JSON text of a history Bundle out.

Three forms (decisions section 6): of a subscription with a content level, the published guide's for R4 (first entry a
Parameters resource), or with `fhirVersion=4.3` in the payload R4B's (first entry a SubscriptionStatus); of any other,
the interface specification's (a SubscriptionStatus, then the resource).  Stored bodies are spliced in as they are.

References are absolute in the guide's forms, since the first entry has no URL that they could be relative to.

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
from ipf.subscriptions.terms import is_guided, payload_of

_R4B = "4.3"


class Form(Enum):
    """How a topic subscription is told."""

    PLAIN = "plain"
    R4 = "r4"
    R4B = "r4b"


def form_of(subscription: Json) -> Form:
    """The form that a topic Subscription asks for."""
    if not is_guided(subscription):
        return Form.PLAIN
    payload = payload_of(subscription.get("channel", {}))
    return Form.R4B if payload is not None and payload.fhir_version == _R4B else Form.R4


@dataclass(frozen=True, slots=True)
class NotificationContext:
    """What a Bundle says besides its events.

    `kind`: handshake, heartbeat, event-notification, query-status or query-event.  `total`: the events since the
    subscription was created.  `includes`: by event number, what goes along with its resource.
    """

    base_url: str
    now: datetime
    total: int
    kind: str = EVENT
    content: str = "full-resource"
    form: Form = Form.R4
    includes: Mapping[int, Sequence[Version]] = field(default_factory=dict)


def bundle(subscription: Json, events: Sequence[Event], telling: NotificationContext) -> bytes:
    """The notification Bundle."""
    entries = [_status_entry(subscription, events, telling)]
    if telling.content != "empty":
        entries += _entries(events, telling)
    head: Json = {"resourceType": "Bundle", "id": str(uuid4())}
    if telling.form is not Form.PLAIN:
        head["meta"] = {"profile": [NOTIFICATION_R4 if telling.form is Form.R4 else NOTIFICATION_R4B]}
    head |= {"type": "history", "timestamp": instant(telling.now)}
    return dumps(head)[:-1] + b',"entry":[' + b",".join(entries) + b"]}"


def status_of(subscription: Json, events: Sequence[Event], telling: NotificationContext) -> Json:
    """The status that leads a Bundle, and that `$status` answers."""
    return (_parameters if telling.form is Form.R4 else _status)(subscription, events, telling)


def _status_entry(subscription: Json, events: Sequence[Event], telling: NotificationContext) -> bytes:
    url = f"{telling.base_url}/Subscription/{subscription.get('id')}/$status"
    entry = {
        "fullUrl": f"urn:uuid:{uuid4()}",
        "resource": status_of(subscription, events, telling),
        "request": {"method": "GET", "url": url},
        "response": {"status": "200"},
    }
    return dumps(entry)


# -- the status


def _says_topic(telling: NotificationContext) -> bool:
    return telling.content != "empty"


def _parameters(subscription: Json, events: Sequence[Event], telling: NotificationContext) -> Json:
    """As Parameters, the guide's form for R4."""
    said: list[Json] = [{"name": "subscription", "valueReference": {"reference": _url(telling, _own(subscription))}}]
    topic = topic_url(subscription)
    if topic is not None and _says_topic(telling):
        said.append({"name": "topic", "valueCanonical": topic})
    said += [
        {"name": "status", "valueCode": str(subscription.get("status"))},
        {"name": "type", "valueCode": telling.kind},
        {"name": "events-since-subscription-start", "valueString": str(telling.total)},
    ]
    said += [{"name": "notification-event", "part": list(_parts(event, telling))} for event in events]
    if subscription.get("error"):
        said.append({"name": "error", "valueCodeableConcept": {"text": subscription["error"]}})
    head = {"resourceType": "Parameters", "id": str(uuid4()), "meta": {"profile": [STATUS_R4]}}
    return {**head, "parameter": said}


def _parts(event: Event, telling: NotificationContext) -> Iterator[Json]:
    yield {"name": "event-number", "valueString": str(event.number)}
    yield {"name": "timestamp", "valueInstant": instant(event.occurred_at)}
    if telling.content != "empty":
        yield {"name": "focus", "valueReference": _reference(event, telling)}
        for one in telling.includes.get(event.number, ()):
            yield {"name": "additional-context", "valueReference": _reference(one, telling)}


def _status(subscription: Json, events: Sequence[Event], telling: NotificationContext) -> Json:
    """As SubscriptionStatus, R4B's form."""
    status: Json = {
        "resourceType": "SubscriptionStatus",
        "id": str(uuid4()),
        "status": str(subscription.get("status")),
        "type": telling.kind,
        "eventsSinceSubscriptionStart": str(telling.total),
    }
    if events:
        status["notificationEvent"] = [_event(event, telling) for event in events]
    status["subscription"] = {"reference": _url(telling, _own(subscription))}
    topic = topic_url(subscription)
    if topic is not None and (_says_topic(telling) or telling.form is Form.PLAIN):
        status["topic"] = topic
    if subscription.get("error"):
        status["error"] = [{"text": subscription["error"]}]
    return status


def _event(event: Event, telling: NotificationContext) -> Json:
    said: Json = {"eventNumber": str(event.number), "timestamp": instant(event.occurred_at)}
    if telling.content != "empty":
        said["focus"] = _reference(event, telling)
        others = [_reference(one, telling) for one in telling.includes.get(event.number, ())]
        if others:
            said["additionalContext"] = others
    return said


def _own(subscription: Json) -> str:
    return f"Subscription/{subscription.get('id')}"


def _reference(one: Event | Version, telling: NotificationContext) -> Json:
    return {"reference": _url(telling, f"{one.resource_type}/{one.id}"), "type": one.resource_type}


def _url(telling: NotificationContext, reference: str) -> str:
    return reference if telling.form is Form.PLAIN else f"{telling.base_url}/{reference}"


# -- the resources


def _entries(events: Sequence[Event], telling: NotificationContext) -> Iterator[bytes]:
    """The resources of the events in their order, then what goes along, each version once."""
    seen: set[tuple[str, str, int]] = set()
    focused = [_version(event) for event in events]
    others = [one for event in events for one in telling.includes.get(event.number, ())]
    for version in (*focused, *others):
        key = version.resource_type, version.id, version.version_id
        if key not in seen:
            seen.add(key)
            yield _entry(version, telling)


def _version(event: Event) -> Version:
    deleted = event.method == "DELETE"
    named = event.resource_type, event.id, event.version_id
    return Version(0, *named, event.occurred_at, event.body, deleted, event.method)


def _entry(version: Version, telling: NotificationContext) -> bytes:
    reference = f"{version.resource_type}/{version.id}"
    url = version.resource_type if version.method == "POST" else reference
    status = "204" if version.deleted else "201" if version.version_id == 1 else "200"
    request = {"method": version.method, "url": url}
    answer = {"status": status, "etag": etag(version), "lastModified": instant(version.last_updated)}
    is_shown = telling.content == "full-resource" and not version.deleted
    resource = b',"resource":' + version.body if is_shown else b""
    full_url = dumps(f"{telling.base_url}/{reference}")
    return b'{"fullUrl":%s%s,"request":%s,"response":%s}' % (full_url, resource, dumps(request), dumps(answer))
