"""Events and the Subscription they belong to in, what its channel is given out (not sent here).

By criteria, as the interface specification shows it: with a payload `PUT {endpoint}/{Type}/{id}` carrying the stored
bytes of the version that fired (as XML when that is the payload); without one an empty `POST {endpoint}`.  To a topic:
a Bundle (`notification_topic.py`), posted to the endpoint under the very MIME type of the payload.

Source: interface specification "Notification shapes"; http://hl7.org/fhir/uv/subscriptions-backport.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

from ipf.fhir.model.json import loads
from ipf.fhir.xml.writer import to_xml
from ipf.ports import EVENT, Event, Json, Notification, Terms
from ipf.subscriptions.notification_topic import Form, NotificationContext, bundle, form_of
from ipf.subscriptions.terms import Payload, payload_of, terms_of

Header = tuple[str, str]

CONTENT_TYPE = ("Content-Type", "application/fhir+json; charset=UTF-8")
XML_CONTENT_TYPE = ("Content-Type", "application/fhir+xml; charset=UTF-8")


@dataclass(frozen=True, slots=True)
class NotificationTemplate:
    """What is the same in every notification of one version of a Subscription.

    `before`, `after`: around `Type/id` in the URL of a PUT; None: everything is posted to `endpoint`.
    """

    terms: Terms
    form: Form
    payload: Payload | None
    endpoint: str
    headers: Sequence[Header]
    content_type: str | None
    before: str | None
    after: str


def letterhead_of(subscription: Json) -> NotificationTemplate:
    """Read once for each version; never raises for a stored Subscription."""
    channel = subscription.get("channel")
    channel = channel if isinstance(channel, dict) else {}
    terms, form, payload = terms_of(subscription), form_of(subscription), payload_of(channel)
    headers, kind = registered_headers(channel), None
    if payload is not None:
        kind = XML_CONTENT_TYPE if payload.is_xml else CONTENT_TYPE
        if terms.is_topic and form is not Form.PLAIN and not payload.is_text:
            kind = ("Content-Type", payload.written)  # the guide: the very MIME type that was asked for
        headers = [kind, *(header for header in headers if header[0].lower() != "content-type")]
    content_type = None if kind is None or payload is None else payload.written if payload.is_text else kind[1]
    before, after = None, ""
    if payload is not None and not terms.is_topic and channel.get("type") == "rest-hook":
        before, after = _around(terms.endpoint)
    return NotificationTemplate(terms, form, payload, terms.endpoint, headers, content_type, before, after)


def notification(
    subscription: Json,
    events: Sequence[Event],
    telling: NotificationContext,
    tenant: str = "",
    head: NotificationTemplate | None = None,
) -> Notification:
    """What the subscriber is told of these events; of none by a handshake or heartbeat.  `head`: of this very one."""
    head = head or letterhead_of(subscription)
    is_topic, payload = head.terms.is_topic, head.payload
    method, url, body = "POST", head.endpoint, None
    if payload is not None:
        body = bundle(subscription, events, telling) if is_topic else events[0].body
        if payload.is_xml:
            body = to_xml(loads(body))
        if head.before is not None:
            method, url = "PUT", f"{head.before}{events[0].resource_type}/{events[0].id}{head.after}"
    return Notification(
        method,
        url,
        head.headers,
        body,
        events[-1].correlation_id if events else str(uuid4()),
        tenant,
        str(subscription.get("id", "")),
        head.content_type,
        telling.kind if is_topic else EVENT,
        telling.content,
        tuple(events),
        head.terms.timeout_seconds,
    )


def registered_headers(channel: Json) -> list[Header]:
    """`channel.header` as pairs, in the subscriber's order and spelling."""
    pairs = (header.partition(":") for header in channel.get("header", ()))
    return [(name, value.strip()) for name, _, value in pairs]


def _around(endpoint: str) -> tuple[str, str]:
    """`endpoint` in two: a path is added before its query string."""
    try:
        url = urlsplit(endpoint)
    except ValueError:
        return f"{endpoint.rstrip('/')}/", ""
    after = (f"?{url.query}" if url.query else "") + (f"#{url.fragment}" if url.fragment else "")
    return urlunsplit(url._replace(path=f"{url.path.rstrip('/')}/", query="", fragment="")), after
