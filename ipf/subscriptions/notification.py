"""Events and the Subscription they belong to in, what its channel is given out (not sent here).

By criteria, as the interface specification shows it: with a payload `PUT {endpoint}/{Type}/{id}` carrying the stored
bytes of the version that fired (as XML when that is the payload); without one an empty `POST {endpoint}`.  To a topic:
a Bundle (`notification_topic.py`), posted to the endpoint under the very MIME type of the payload.

Source: interface specification "Notification shapes"; http://hl7.org/fhir/uv/subscriptions-backport.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

from ipf.fhir.json import loads
from ipf.fhir.xml import to_xml
from ipf.ports import EVENT, Event, Json, Notification
from ipf.subscriptions.guide import topic_url
from ipf.subscriptions.notification_topic import Form, Telling, bundle
from ipf.subscriptions.terms import payload_of, terms_of

Header = tuple[str, str]

CONTENT_TYPE = ("Content-Type", "application/fhir+json; charset=UTF-8")
XML_CONTENT_TYPE = ("Content-Type", "application/fhir+xml; charset=UTF-8")


def notification(subscription: Json, events: Sequence[Event], telling: Telling, tenant: str = "") -> Notification:
    """What the subscriber is told of these events; of none by a handshake or heartbeat."""
    channel = subscription["channel"]
    payload, is_topic = payload_of(channel), topic_url(subscription) is not None
    endpoint, headers = str(channel.get("endpoint", "")), registered_headers(channel)
    method, url, body, kind = "POST", endpoint, None, None
    if payload is not None:
        body = bundle(subscription, events, telling) if is_topic else events[0].body
        body, kind = (to_xml(loads(body)), XML_CONTENT_TYPE) if payload.is_xml else (body, CONTENT_TYPE)
        if is_topic and telling.form is not Form.PLAIN and not payload.is_text:
            kind = ("Content-Type", payload.written)  # the guide: the very MIME type that was asked for
        headers = [kind, *(header for header in headers if header[0].lower() != "content-type")]
        if not is_topic and channel.get("type") == "rest-hook":
            method, url = "PUT", _below(endpoint, f"{events[0].resource_type}/{events[0].id}")
    return Notification(
        method,
        url,
        headers,
        body,
        events[-1].correlation_id if events else str(uuid4()),
        tenant=tenant,
        subscription_id=str(subscription.get("id", "")),
        content_type=None if kind is None or payload is None else payload.written if payload.is_text else kind[1],
        kind=telling.kind if is_topic else EVENT,
        content=telling.content,
        events=tuple(events),
        timeout_seconds=terms_of(subscription).timeout_seconds,
    )


def registered_headers(channel: Json) -> list[Header]:
    """`channel.header` as pairs, in the subscriber's order and spelling."""
    pairs = (header.partition(":") for header in channel.get("header", ()))
    return [(name, value.strip()) for name, _, value in pairs]


def _below(endpoint: str, path: str) -> str:
    """`endpoint` with `path` added before its query string."""
    url = urlsplit(endpoint)
    return urlunsplit(url._replace(path=f"{url.path.rstrip('/')}/{path}"))
