"""Delivery terms of a stored Subscription: channel, payload, batch size, timeout, heartbeat period, handshake.

Reading them never fails.  Values that registration would refuse (stored by an older version) count as absent.

Source: https://hl7.org/fhir/R4/subscription.html; http://hl7.org/fhir/uv/subscriptions-backport; decisions section 6.
"""

from __future__ import annotations

from dataclasses import dataclass
from email.message import Message
from functools import lru_cache

from ipf.config.brokers import LIBRARIES, kind_of
from ipf.ports import Json, Terms
from ipf.subscriptions.guide import CONTENTS, HEARTBEAT, MAX_COUNT, TIMEOUT, content_of, topic_url, values

LEGACY_PAYLOADS = ("application/fhir+json", "application/fhir+xml")
_JSON = frozenset({"application/fhir+json", "application/json", "application/json+fhir"})
_XML = frozenset({"application/fhir+xml", "application/xml", "application/xml+fhir", "text/xml"})
_TEXT = frozenset({"text/plain", "text/html"})
_VERSIONS = {"4.0.1": "4.0", "4.3.0": "4.3"}
"""Full FHIR versions as the parameter `fhirVersion` writes them (https://hl7.org/fhir/R4/http.html#version-parameter)."""
_MOST_EVENTS = 1000
_LONGEST_TIMEOUT = 300
_LIMITS = {"backport-max-count": MAX_COUNT, "backport-timeout": TIMEOUT, "backport-heartbeat-period": HEARTBEAT}
_HANDSHAKE_CHANNELS = frozenset({"rest-hook", "message", *LIBRARIES})


@dataclass(frozen=True, slots=True)
class Payload:
    """`channel.payload`: its `text`, the `mime` type without parameters, `fhir_version` such as `4.3` or ""."""

    text: str
    mime: str
    fhir_version: str
    attach: str = ""

    @property
    def is_xml(self) -> bool:
        """Whether resources are written as XML."""
        return self.mime in _XML or self.attach in _XML

    @property
    def is_text(self) -> bool:
        """Whether it is plain text or HTML."""
        return self.mime in _TEXT

    @property
    def can_be_mailed(self) -> bool:
        """Whether an email can carry it."""
        return not self.attach or self.attach in _JSON | _XML


def payload_of(channel: Json) -> Payload | None:
    """The payload; None when it is omitted or of a type that is not supported."""
    text = channel.get("payload")
    return _payload(text) if isinstance(text, str) else None


@lru_cache(maxsize=256)
def _payload(text: str) -> Payload | None:
    header = Message()
    header["content-type"] = text
    mime = text.partition(";")[0].strip().lower()
    if mime not in _JSON | _XML | _TEXT:
        return None
    version, attach = header.get_param("fhirVersion", ""), header.get_param("attach", "")
    return Payload(text, mime, _VERSIONS.get(str(version), str(version)), str(attach).lower())


def limits_of(channel: Json) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """The guide's numeric extensions on a channel, by name; and (name, reason) of invalid ones."""
    found: dict[str, int] = {}
    refused = []
    for name, url in _LIMITS.items():
        for value in values(channel, url):
            if type(value) is int and value > 0:
                found.setdefault(name, value)
            else:
                refused.append((name, "the value must be a whole number, 1 or more"))
    return found, refused


def channel_of(channel: Json) -> str:
    """The channel that sends: `channel.type`, or for a message to a broker the kind of the broker."""
    kind = str(channel.get("type", ""))
    return (kind_of(channel.get("endpoint")) or kind) if kind == "message" else kind


def follows_guide(subscription: Json) -> bool:
    """Whether the Subscription follows the guide for R4: it names a topic and a content level."""
    return topic_url(subscription) is not None and content_of(subscription) is not None


def terms_of(subscription: Json) -> Terms:
    """The delivery terms.  Without a content level: one event per notification, no handshake, no heartbeats."""
    channel = subscription.get("channel")
    if not isinstance(channel, dict):
        return Terms("", "")
    kind, endpoint = channel_of(channel), str(channel.get("endpoint", ""))
    is_topic, content = topic_url(subscription) is not None, content_of(subscription)
    if not is_topic or content not in CONTENTS:
        content_level = "full-resource" if payload_of(channel) is not None else "empty"
        return Terms(kind, endpoint, is_topic, content=content_level)
    limits = limits_of(channel)[0]
    timeout = limits.get("backport-timeout")
    return Terms(
        kind,
        endpoint,
        is_topic,
        max_count=min(limits.get("backport-max-count", 1), _MOST_EVENTS),
        timeout_seconds=None if timeout is None else float(min(timeout, _LONGEST_TIMEOUT)),
        heartbeat_seconds=limits.get("backport-heartbeat-period"),
        needs_handshake=kind in _HANDSHAKE_CHANNELS,
        content=content,
    )
