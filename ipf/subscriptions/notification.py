"""Notifications: what a channel sends for events of a Subscription.

Subscription by criteria: with a payload, `PUT {endpoint}/{Type}/{id}` with the stored bytes of the version that fired
(as XML when the payload says so); without one, an empty `POST {endpoint}`.  Topic subscription: a Bundle
(`notification_topic.py`), posted to the endpoint with the MIME type of the payload.

Source: interface specification "Notification shapes"; http://hl7.org/fhir/uv/subscriptions-backport.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

from ipf.config.brokers import LIBRARIES
from ipf.fhir.model.json import loads
from ipf.fhir.xml.writer import to_xml
from ipf.ports import EVENT, Event, Json, Notification, Terms
from ipf.subscriptions.guide import topic_url
from ipf.subscriptions.message_key import key_of, message_id
from ipf.subscriptions.notification_topic import Form, NotificationContext, bundle, form_of
from ipf.subscriptions.terms import Payload, payload_of, terms_of

Header = tuple[str, str]

CONTENT_TYPE = "application/fhir+json; charset=UTF-8"
XML_CONTENT_TYPE = "application/fhir+xml; charset=UTF-8"


@dataclass(frozen=True, slots=True)
class NotificationTemplate:
    """The parts that all notifications of one version of a Subscription share.

    `headers`: the registered ones.  `body_headers`: those of a request with a body: a Content-Type, unless one is
    registered.  `content_type`: of the body.
    `url_prefix`, `url_suffix`: the URL of a PUT before and after `Type/id`; None: `endpoint` takes POSTs.
    """

    terms: Terms
    form: Form
    payload: Payload | None
    endpoint: str
    headers: Sequence[Header]
    content_type: str | None
    body_headers: Sequence[Header]
    url_prefix: str | None
    url_suffix: str


def template_of(subscription: Json) -> NotificationTemplate:
    """The template of a Subscription version; never raises for a stored Subscription."""
    channel = subscription.get("channel")
    channel = channel if isinstance(channel, dict) else {}
    terms, form, payload = terms_of(subscription), form_of(subscription), payload_of(channel)
    headers, kind = registered_headers(channel), None
    if payload is not None:
        kind = XML_CONTENT_TYPE if payload.is_xml else CONTENT_TYPE
        if terms.is_topic and form is not Form.PLAIN and not payload.is_text:
            kind = payload.text  # the guide: exactly the requested MIME type
    content_type = None if kind is None or payload is None else payload.text if payload.is_text else kind
    sent = headers if kind is None else with_content_type(headers, kind)
    url_prefix, url_suffix = None, ""
    if payload is not None and not terms.is_topic and channel.get("type") == "rest-hook":
        url_prefix, url_suffix = _split_at_path(terms.endpoint)
    return NotificationTemplate(
        terms, form, payload, terms.endpoint, headers, content_type, sent, url_prefix, url_suffix
    )


def notification(
    subscription: Json,
    events: Sequence[Event],
    context: NotificationContext,
    tenant: str = "",
    template: NotificationTemplate | None = None,
    resent: int = 0,
) -> Notification:
    """The notification of these events; a handshake or heartbeat has none.  `template`: of the same version.

    A handshake by search is an empty POST to the endpoint: its form has no place for one.  `resent`: see `Lease`.
    """
    template = template or template_of(subscription)
    is_topic, payload = template.terms.is_topic, template.payload
    method, url, body, headers = "POST", template.endpoint, None, template.headers
    if not is_topic and not _has_resource(events, context):
        payload = None
    if payload is not None:
        body = bundle(subscription, events, context) if is_topic else events[0].body
        if payload.is_xml:
            body = to_xml(loads(body))
        if template.url_prefix is not None:
            method, url = "PUT", f"{template.url_prefix}{events[0].resource_type}/{events[0].id}{template.url_suffix}"
        headers = template.body_headers
    made = Notification(
        method,
        url,
        headers,
        body,
        events[-1].correlation_id if events else str(uuid4()),
        tenant,
        str(subscription.get("id", "")),
        template.content_type,
        context.kind if is_topic or not events else EVENT,
        context.content,
        tuple(events),
        template.terms.timeout_seconds,
    )
    if template.terms.channel_type in LIBRARIES:
        made.key = key_of(made.subscription_id, replace(template.terms, content=context.content), events)
        made.message_id = message_id(made.subscription_id, url, events, resent)
        made.topic_url = topic_url(subscription) or ""
    return made


def with_content_type(headers: Sequence[Header], content_type: str) -> list[Header]:
    """The registered headers, and this Content-Type unless they have one."""
    has_own = any(name.lower() == "content-type" for name, _ in headers)
    return [*headers] if has_own else [("Content-Type", content_type), *headers]


def _has_resource(events: Sequence[Event], context: NotificationContext) -> bool:
    """Whether a notification by search has a resource to send: not a handshake, nor one whose content is withheld."""
    return bool(events) and context.content != "empty"


def registered_headers(channel: Json) -> list[Header]:
    """`channel.header` as (name, value) pairs, in the subscriber's order and spelling."""
    pairs = (header.partition(":") for header in channel.get("header", ()))
    return [(name, value.strip()) for name, _, value in pairs]


def _split_at_path(endpoint: str) -> tuple[str, str]:
    """`endpoint` before and after the place where a path is inserted, in front of its query string."""
    try:
        url = urlsplit(endpoint)
    except ValueError:
        return f"{endpoint.rstrip('/')}/", ""
    url_suffix = (f"?{url.query}" if url.query else "") + (f"#{url.fragment}" if url.fragment else "")
    return urlunsplit(url._replace(path=f"{url.path.rstrip('/')}/", query="", fragment="")), url_suffix
