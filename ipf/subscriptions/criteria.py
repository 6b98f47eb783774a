"""What a Subscription listens to: `criteria` as a query, or a clear refusal.

A subscription never silently matches everything or nothing: what cannot be evaluated is refused at registration.

Source: https://hl7.org/fhir/R4/subscription.html; decisions section 6.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ipf.errors import Category, Issue, Problem
from ipf.fhir.query import Query, parse_criteria
from ipf.ports import Json
from ipf.subscriptions.policy import ChannelPolicy
from ipf.subscriptions.status import SUBMITTABLE

JSON_PAYLOAD = "application/fhir+json"

_CRITERIA = "Subscription.criteria"
_CANONICAL = re.compile(r"(https?://|urn:)", re.IGNORECASE)


def query_of(subscription: Json) -> Query:
    """The query of a legacy subscription.  Problem BUSINESS_RULE names what is not served."""
    criteria = subscription.get("criteria")
    if not isinstance(criteria, str) or not criteria:
        raise Problem(Category.INVALID, "a subscription needs criteria", _CRITERIA)
    if _CANONICAL.match(criteria):
        raise Problem(Category.BUSINESS_RULE, f"topic subscriptions are not served yet: {criteria}", _CRITERIA)
    try:
        query = parse_criteria(criteria)
    except Problem as refused:
        raise Problem(Category.BUSINESS_RULE, refused.text, _CRITERIA) from refused
    if query.needs_store or query.includes:
        names = ", ".join(query.needs_store) or "_include"
        text = f"a subscription cannot use {names}: a change is matched by itself, without other resources"
        raise Problem(Category.BUSINESS_RULE, text, _CRITERIA)
    return query


def payload_type(subscription: Json) -> str | None:
    """The media type of `channel.payload` without parameters; None when it is omitted."""
    payload = subscription["channel"].get("payload")
    return payload.partition(";")[0].strip().lower() if isinstance(payload, str) else None


def check(subscription: Json, policy: ChannelPolicy) -> None:
    """Refuse a submitted Subscription that cannot be served.  Problem BUSINESS_RULE with one issue for each reason."""
    issues = [*_required(subscription), *policy.violations(subscription), *_channel(subscription)]
    try:
        query_of(subscription)
    except Problem as refused:
        issues += refused.issues
    if issues:
        raise Problem(Category.BUSINESS_RULE, "the subscription cannot be served", issues=tuple(issues))


def _required(subscription: Json) -> Iterator[Issue]:
    if not subscription.get("reason"):
        yield Issue("a subscription needs a reason", "Subscription.reason", Category.INVALID)
    if subscription.get("status") not in SUBMITTABLE:
        text = "submit a subscription with status requested or off; the server sets active and error"
        yield Issue(text, "Subscription.status", Category.BUSINESS_RULE)


def _channel(subscription: Json) -> Iterator[Issue]:
    channel = subscription.get("channel")
    if not isinstance(channel, dict):
        return
    kind = channel.get("type")
    if kind != "rest-hook":
        text = f"channel type {kind} is not served yet" if kind else "a channel needs a type"
        yield Issue(text, "Subscription.channel.type", Category.BUSINESS_RULE)
    payload = payload_type(subscription)
    if payload is not None and payload != JSON_PAYLOAD:
        text = f"payload {payload} is not served yet; use {JSON_PAYLOAD}, or omit it"
        yield Issue(text, "Subscription.channel.payload", Category.BUSINESS_RULE)
