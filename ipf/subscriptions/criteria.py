"""Criteria of a Subscription: a search, or a topic with filters.

Criteria that cannot be evaluated are refused at registration; a subscription never silently matches everything or
nothing.  `check` looks at the resource alone.  The transaction that stores it checks the topic and its filters
(`ports.Matcher.check`), because only the transaction knows the topics exactly.

Source: https://hl7.org/fhir/R4/subscription.html; decisions section 6.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from ipf.errors import Category, Issue, Problem
from ipf.fhir.search.language.query import parse_criteria
from ipf.fhir.topics.topic import alone
from ipf.ports import Json
from ipf.ports.queries.search import Query
from ipf.ports.queries.topics import Topic
from ipf.subscriptions.extensions import refused_extensions
from ipf.subscriptions.filters import queries_of
from ipf.subscriptions.guide import CHANNEL_TYPE, CONTENT, CONTENTS, FILTER, filters_of, topic_url, values
from ipf.subscriptions.policy import ChannelPolicy
from ipf.subscriptions.status import SUBMITTABLE
from ipf.subscriptions.terms import LEGACY_PAYLOADS, limits_of, payload_of

CHANNELS = ("rest-hook", "websocket", "email", "message")
_CRITERIA = "Subscription.criteria"
_PAYLOAD = "Subscription.channel.payload"


@dataclass(frozen=True, slots=True)
class Criteria:
    """The criteria of one stored subscription.  `topic_url`: without a version; "" when the criteria are a search.

    `error`: `Subscription.error`.  `version_id`: of the Subscription; "" before it is stored.
    """

    tenant: str
    id: str
    criteria: str
    topic_url: str = ""
    filters: tuple[str, ...] = ()
    ends_at: datetime | None = None
    status: str = ""
    error: str = ""
    version_id: str = ""


def criteria_of(tenant: str, id: str, subscription: Json) -> Criteria:
    """The criteria of a stored Subscription; never raises."""
    criteria, topic = str(subscription.get("criteria", "")), topic_url(subscription)
    status, error = str(subscription.get("status", "")), str(subscription.get("error", ""))
    version_id = str(subscription.get("meta", {}).get("versionId", ""))
    url, filters = ("", ()) if topic is None else (topic.partition("|")[0], filters_of(subscription))
    return Criteria(tenant, id, criteria, url, filters, end_of(subscription), status, error, version_id)


def end_of(subscription: Json) -> datetime | None:
    """`Subscription.end`; None when it is absent or cannot be parsed."""
    try:
        end = datetime.fromisoformat(str(subscription["end"]))
    except (KeyError, ValueError):
        return None
    return end if end.tzinfo is not None else None


def queries_for(criteria: Criteria, topic: Topic | None) -> dict[str, Query]:
    """By resource type, the search that a changed resource must match.  Problem BUSINESS_RULE when it is not served."""
    if not criteria.topic_url:
        query = query_of(criteria.criteria)
        return {query.resource_type: query}
    if topic is None:
        raise Problem(Category.BUSINESS_RULE, f"this server has no active topic {criteria.criteria}", _CRITERIA)
    return queries_of(topic, criteria.filters)


def query_of(criteria: str) -> Query:
    """The search of a subscription by criteria."""
    try:
        return alone(parse_criteria(criteria))
    except Problem as refused:
        raise Problem(Category.BUSINESS_RULE, refused.text, _CRITERIA) from refused


def check(subscription: Json, policy: ChannelPolicy) -> None:
    """Refuse a submitted Subscription that cannot be served.  Problem BUSINESS_RULE with one issue per reason."""
    issues = [*_required(subscription), *policy.violations(subscription), *_channel(subscription)]
    issues += refused_extensions(subscription)
    criteria = subscription.get("criteria")
    if not isinstance(criteria, str) or not criteria:
        issues.append(Issue("a subscription needs criteria", _CRITERIA, Category.INVALID))
    elif topic_url(subscription) is None:
        issues += _search(subscription, criteria)
    if issues:
        raise Problem(Category.BUSINESS_RULE, "the subscription cannot be served", issues=tuple(issues))


def _search(subscription: Json, criteria: str) -> Iterator[Issue]:
    if any(True for _ in values(subscription.get("_criteria"), FILTER)):
        yield Issue("filters are for topic subscriptions; add them to the search", f"{_CRITERIA}.extension",
                    Category.BUSINESS_RULE)  # fmt: skip
    try:
        query_of(criteria)
    except Problem as refused:
        yield from refused.issues


def _required(subscription: Json) -> Iterator[Issue]:
    if not subscription.get("reason"):
        yield Issue("a subscription needs a reason", "Subscription.reason", Category.INVALID)
    if subscription.get("status") not in SUBMITTABLE and not _is_offered(subscription):
        text = "submit a subscription with status requested or off; the server sets active and error"
        yield Issue(text, "Subscription.status", Category.BUSINESS_RULE)
    if "end" in subscription and end_of(subscription) is None:
        yield Issue("end must be an instant with a time zone", "Subscription.end", Category.INVALID)


def _is_offered(subscription: Json) -> bool:
    """Whether the client submits `active`, as the guide allows; it is stored as `requested`."""
    return topic_url(subscription) is not None and subscription.get("status") == "active"


def _channel(subscription: Json) -> Iterator[Issue]:
    channel = subscription.get("channel")
    if not isinstance(channel, dict):
        return
    kind, custom = channel.get("type"), list(values(channel.get("_type"), CHANNEL_TYPE))
    if kind not in CHANNELS or custom:
        text = f"channel type {custom[0] if custom else kind} is not supported; use one of {', '.join(CHANNELS)}"
        hint = ", for a message broker message with an endpoint such as kafka://host:9092/topic" if custom else ""
        yield Issue(text + hint, "Subscription.channel.type", Category.BUSINESS_RULE)
    yield from _payload(subscription, channel)
    for name, reason in limits_of(channel)[1]:
        yield Issue(reason, f"Subscription.channel.extension({name})", Category.BUSINESS_RULE)


def _payload(subscription: Json, channel: Json) -> Iterator[Issue]:
    levels, payload = list(values(channel.get("_payload"), CONTENT)), payload_of(channel)
    if levels and (len(levels) > 1 or levels[0] not in CONTENTS):
        text = f"the content level must be one of {', '.join(CONTENTS)}"
        yield Issue(text, f"{_PAYLOAD}.extension", Category.BUSINESS_RULE)
    if levels and topic_url(subscription) is None:
        text = "a content level is for topic subscriptions; these criteria are a search"
        yield Issue(text, f"{_PAYLOAD}.extension", Category.BUSINESS_RULE)
    if payload is None:
        if "payload" in channel:
            text = f"payload {channel['payload']} is not supported; use {' or '.join(LEGACY_PAYLOADS)}, or omit it"
            yield Issue(text, _PAYLOAD, Category.BUSINESS_RULE)
        elif levels:
            yield Issue("a content level needs a payload with the MIME type", _PAYLOAD, Category.BUSINESS_RULE)
    elif payload.fhir_version not in _versions(subscription):
        text = f"FHIR version {payload.fhir_version} is not supported; use 4.0 (4.0.1) or, for topics, 4.3 (4.3.0)"
        yield Issue(text, _PAYLOAD, Category.BUSINESS_RULE)
    elif channel.get("type") == "email" and not payload.can_be_mailed:
        yield Issue("an email payload must be text/plain, text/html or a FHIR format", _PAYLOAD, Category.BUSINESS_RULE)
    elif channel.get("type") != "email" and payload.is_text:
        yield Issue(f"payload {channel['payload']} is for email only", _PAYLOAD, Category.BUSINESS_RULE)


def _versions(subscription: Json) -> tuple[str, ...]:
    return ("", "4.0", "4.3") if topic_url(subscription) is not None else ("", "4.0")
