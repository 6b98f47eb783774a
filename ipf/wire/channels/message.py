"""The `message` channel: one notification in, one FHIR message Bundle out, posted to the endpoint.

The first entry of the Bundle is a MessageHeader.  Its event is the kind of notification; its focus is the second entry,
the changed resource (criteria subscriptions) or the notification Bundle (topic subscriptions).  The rest-hook channel
sends it.

Source: interface specification "Notification shapes"; https://hl7.org/fhir/R4/messaging.html; Backport guide.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from uuid import uuid4

from ipf.errors import Problem
from ipf.fhir.model.json import dumps, loads
from ipf.fhir.xml.writer import from_xml, to_xml
from ipf.ports import Channel, Clock, Delivered, Json, Notification

KINDS = "http://hl7.org/fhir/subscription-notification-type"
"""Code system of `MessageHeader.event`: handshake, heartbeat, event-notification."""

_DEFAULT_TYPE = "application/fhir+json"


class Message:
    """`Channel` on another that posts.  `source`: the value of `MessageHeader.source.endpoint`."""

    unavailable = None

    def __init__(
        self,
        post: Channel,
        source: str,
        *,
        now: Clock = lambda: datetime.now(UTC),
        new_id: Callable[[], object] = uuid4,
    ) -> None:
        self._post = post
        self._source = source
        self._now = now
        self._new_id = new_id

    def destination(self, endpoint: str) -> str:
        """As the channel that posts."""
        return self._post.destination(endpoint)

    async def send(self, notification: Notification) -> Delivered:
        """Wrap the notification in a message Bundle and post it."""
        try:
            wrapped = self.wrapped(notification)
        except Problem as problem:
            return Delivered(None, 0, problem.text)
        return await self._post.send(wrapped)

    def wrapped(self, notification: Notification) -> Notification:
        """The notification with its body in a message Bundle.  Problem when the body cannot be parsed."""
        kind = notification.content_type or _DEFAULT_TYPE
        is_xml = "xml" in kind
        focus = _content(notification, is_xml)
        full_url = f"urn:uuid:{self._new_id()}"
        entries = [self._header(notification, full_url, focus)]
        if focus is not None:
            entries.append({"fullUrl": full_url, "resource": focus})
        instant = self._now().isoformat(timespec="milliseconds").replace("+00:00", "Z")
        bundle = {
            "resourceType": "Bundle",
            "id": str(self._new_id()),
            "type": "message",
            "timestamp": instant,
            "entry": entries,
        }
        body = to_xml(bundle) if is_xml else dumps(bundle)
        headers = [*notification.headers]
        if all(name.lower() != "content-type" for name, _ in headers):
            headers.insert(0, ("Content-Type", kind if ";" in kind else f"{kind}; charset=UTF-8"))
        return replace(notification, method="POST", headers=headers, body=body, content_type=kind)

    def _header(self, notification: Notification, full_url: str, focus: Json | None) -> Json:
        header: Json = {
            "resourceType": "MessageHeader",
            "id": str(self._new_id()),
            "eventCoding": {"system": KINDS, "code": notification.kind},
            "destination": [{"endpoint": notification.url}],
            "source": {"name": "ipf", "endpoint": self._source},
        }
        if focus is not None:
            header["focus"] = [{"reference": full_url}]
        return {"fullUrl": f"urn:uuid:{header['id']}", "resource": header}


def _content(notification: Notification, is_xml: bool) -> Json | None:
    if not notification.body:
        return None
    return from_xml(notification.body) if is_xml else loads(notification.body)


_: type[Channel] = Message
