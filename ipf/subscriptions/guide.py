"""Canonical URLs and extensions of the Subscriptions R5 Backport guide for R4.

Source: http://hl7.org/fhir/uv/subscriptions-backport, version 1.1.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ipf.ports import Json

GUIDE = "http://hl7.org/fhir/uv/subscriptions-backport"
_DEFINITION = f"{GUIDE}/StructureDefinition"

SUBSCRIPTION = f"{_DEFINITION}/backport-subscription"
NOTIFICATION_R4 = f"{_DEFINITION}/backport-subscription-notification-r4"
NOTIFICATION_R4B = f"{_DEFINITION}/backport-subscription-notification"
STATUS_R4 = f"{_DEFINITION}/backport-subscription-status-r4"
FILTER = f"{_DEFINITION}/backport-filter-criteria"
CONTENT = f"{_DEFINITION}/backport-payload-content"
CHANNEL_TYPE = f"{_DEFINITION}/backport-channel-type"
HEARTBEAT = f"{_DEFINITION}/backport-heartbeat-period"
TIMEOUT = f"{_DEFINITION}/backport-timeout"
MAX_COUNT = f"{_DEFINITION}/backport-max-count"
TOPICS = f"{_DEFINITION}/capabilitystatement-subscriptiontopic-canonical"
SERVER = f"{GUIDE}/CapabilityStatement/backport-subscription-server-r4"

CONTENTS = ("empty", "id-only", "full-resource")
_CANONICAL = re.compile(r"(https?://|urn:)", re.IGNORECASE)


def topic_url(subscription: Json) -> str | None:
    """The canonical URL of the topic in `Subscription.criteria`; None when the criteria are a search."""
    criteria = subscription.get("criteria")
    return criteria if isinstance(criteria, str) and _CANONICAL.match(criteria) else None


def values(element: object, url: str) -> Iterator[Any]:
    """The values of the extensions with this URL on an element, or on the `_` member of a primitive."""
    extensions = element.get("extension") if isinstance(element, dict) else None
    for one in extensions if isinstance(extensions, list) else ():
        if isinstance(one, dict) and one.get("url") == url:
            yield from (value for name, value in one.items() if name.startswith("value"))


def filters_of(subscription: Json) -> tuple[str, ...]:
    """The filters of a topic subscription, in order."""
    return tuple(str(one) for one in values(subscription.get("_criteria"), FILTER))


def content_of(subscription: Json) -> str | None:
    """The content level of the payload; None when the Subscription does not follow the guide."""
    channel = subscription.get("channel")
    found = values(channel.get("_payload"), CONTENT) if isinstance(channel, dict) else iter(())
    return next((str(one) for one in found), None)
