"""What a stored Subscription asks of its delivery: channel, form, batches, limits of time, heartbeats, handshake.

Read from the resource as it is stored, so that nothing here can fail: what does not say what it should counts as not
said (registration has refused it, or it was stored by an older version).

Source: https://hl7.org/fhir/R4/subscription.html; http://hl7.org/fhir/uv/subscriptions-backport; decisions section 6.
"""

from __future__ import annotations

from dataclasses import dataclass
from email.message import Message
from functools import lru_cache

from ipf.ports import Json, Terms
from ipf.subscriptions.guide import CONTENTS, HEARTBEAT, MAX_COUNT, TIMEOUT, content_of, topic_url, values

LEGACY_PAYLOADS = ("application/fhir+json", "application/fhir+xml")
_JSON = frozenset({"application/fhir+json", "application/json", "application/json+fhir"})
_XML = frozenset({"application/fhir+xml", "application/xml", "application/xml+fhir", "text/xml"})
_TEXT = frozenset({"text/plain", "text/html"})
_MOST_EVENTS = 1000
_LONGEST_TIMEOUT = 300
_LIMITS = {"backport-max-count": MAX_COUNT, "backport-timeout": TIMEOUT, "backport-heartbeat-period": HEARTBEAT}
_SHAKING = frozenset({"rest-hook", "message"})


@dataclass(frozen=True, slots=True)
class Payload:
    """`channel.payload`: `written` as it is, `mime` without parameters, `fhir_version` such as `4.3` or ""."""

    written: str
    mime: str
    fhir_version: str
    attach: str = ""

    @property
    def is_xml(self) -> bool:
        """Whether resources are written as XML."""
        return self.mime in _XML or self.attach in _XML

    @property
    def is_text(self) -> bool:
        """Whether it names a text for people."""
        return self.mime in _TEXT

    @property
    def fits_email(self) -> bool:
        """Whether an email can be made of it."""
        return not self.attach or self.attach in _JSON | _XML


def payload_of(channel: Json) -> Payload | None:
    """The payload; None when it is omitted or of a type that is not served."""
    written = channel.get("payload")
    return _payload(written) if isinstance(written, str) else None


@lru_cache(maxsize=256)
def _payload(written: str) -> Payload | None:
    header = Message()
    header["content-type"] = written
    mime = written.partition(";")[0].strip().lower()
    if mime not in _JSON | _XML | _TEXT:
        return None
    version, attach = header.get_param("fhirVersion", ""), header.get_param("attach", "")
    return Payload(written, mime, str(version), str(attach).lower())


def limits_of(channel: Json) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """The guide's extensions on a channel that hold a number, by name; and (name, reason) of those that cannot be."""
    found: dict[str, int] = {}
    refused = []
    for name, url in _LIMITS.items():
        for value in values(channel, url):
            if type(value) is int and value > 0:
                found.setdefault(name, value)
            else:
                refused.append((name, "write a whole number, 1 or more"))
    return found, refused


def is_guided(subscription: Json) -> bool:
    """Whether it follows the published guide for R4: a topic, with a content level."""
    return topic_url(subscription) is not None and content_of(subscription) is not None


def terms_of(subscription: Json) -> Terms:
    """The terms.  Without a content level: one event a notification, no handshake, no heartbeats."""
    channel = subscription.get("channel")
    if not isinstance(channel, dict):
        return Terms("", "")
    kind, endpoint = str(channel.get("type", "")), str(channel.get("endpoint", ""))
    is_topic, content = topic_url(subscription) is not None, content_of(subscription)
    if not is_topic or content not in CONTENTS:
        bare = "full-resource" if payload_of(channel) is not None else "empty"
        return Terms(kind, endpoint, is_topic, content=bare)
    limits = limits_of(channel)[0]
    timeout = limits.get("backport-timeout")
    return Terms(
        kind,
        endpoint,
        is_topic,
        max_count=min(limits.get("backport-max-count", 1), _MOST_EVENTS),
        timeout_seconds=None if timeout is None else float(min(timeout, _LONGEST_TIMEOUT)),
        heartbeat_seconds=limits.get("backport-heartbeat-period"),
        needs_handshake=kind in _SHAKING,
        content=content,
    )
