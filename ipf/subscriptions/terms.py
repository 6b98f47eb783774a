"""What a stored Subscription asks of its delivery: channel, batches, limits of time, heartbeats, handshake.

Read from the resource as it is stored, so that nothing here can fail: what does not say what it should counts as not
said (registration has refused it, or it was stored by an older version).

Source: https://hl7.org/fhir/R4/subscription.html; Backport guide, "Subscription" profile.
"""

from __future__ import annotations

from ipf.ports import Json, Terms


def terms_of(subscription: Json) -> Terms:
    """The terms of a legacy subscription: one event a notification, no handshake, no heartbeats."""
    channel = subscription.get("channel")
    if not isinstance(channel, dict):
        return Terms("", "")
    return Terms(str(channel.get("type", "")), str(channel.get("endpoint", "")))
