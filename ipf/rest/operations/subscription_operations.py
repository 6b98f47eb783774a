"""Operations on subscriptions: `$status`, `$events`, `$resend` and `$get-ws-binding-token`.

Source: http://hl7.org/fhir/uv/subscriptions-backport 1.1.0 (`$resend`: 1.2), OperationDefinitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

from ipf.errors import Category, Problem
from ipf.fhir.model.bundle import instant
from ipf.fhir.model.json import dumps
from ipf.ports import Answer, Caller, DeliveryQueue, Event, Json, Lease, Request, SubscriptionHealth, Version
from ipf.rest.http.arguments import Arguments, parameters_of
from ipf.rest.http.outcome import success
from ipf.rest.operations.notification_includes import included_resources
from ipf.rest.write.repository import Repository
from ipf.rest.write.visibility import visible_now
from ipf.security.access import Unauthorized, limits, may_hide, may_hold
from ipf.security.event_access import Decision, decide, numbered_from
from ipf.subscriptions.guide import CONTENTS
from ipf.subscriptions.notification_topic import Form, NotificationContext, bundle, status_of
from ipf.subscriptions.status import STATUSES
from ipf.subscriptions.terms import terms_of

MOST_EVENTS = 1000
MOST_SUBSCRIPTIONS = 10_000
TOKEN_MINUTES = 60
_MAX_NUMBER = 2**62


async def status(request: Request, repository: Repository) -> Answer:
    """GET or POST [base]/Subscription/$status and [base]/Subscription/[id]/$status: a searchset of statuses."""
    arguments = await Arguments.read(request, {"id", "status"}, repository.run_in_thread)
    queue = _queue(request, repository)
    if len(request.path) == 3:
        found = [await _one(request, queue)]
    else:
        ids, statuses = arguments.texts("id"), frozenset(arguments.texts("status"))
        if statuses - STATUSES:
            raise Problem(Category.VALUE, f"status must be one of {', '.join(sorted(STATUSES))}", "status")
        rows = [await queue.health(request.tenant, id) for id in dict.fromkeys(ids)]
        if not ids:
            rows = list(await queue.healths(request.tenant, MOST_SUBSCRIPTIONS))
        readable = [one for one in rows if one is not None and may_hold(request.caller, "r", one.resource)]
        found = [one for one in readable if not statuses or one.status in statuses]
    now = repository.clock()
    entries: list[Json] = []
    for one in found:
        content = terms_of(one.resource).content
        context = NotificationContext(request.base_url, now, _total(one, request.caller), "query-status", content)
        resource = {**one.resource, "status": one.status}
        entries.append({"fullUrl": f"urn:uuid:{uuid4()}", "resource": status_of(resource, (), context),
                        "search": {"mode": "match"}})  # fmt: skip
    bundle_body: Json = {"resourceType": "Bundle", "type": "searchset", "total": len(entries)}
    return Answer(200, dumps({**bundle_body, "entry": entries} if entries else bundle_body))


async def events(request: Request, repository: Repository) -> Answer:
    """GET or POST [base]/Subscription/[id]/$events: a history Bundle of at most `MOST_EVENTS` events."""
    arguments = await Arguments.read(
        request, {"eventsSinceNumber", "eventsUntilNumber", "content"}, repository.run_in_thread
    )
    first, last = arguments.number("eventsSinceNumber"), arguments.number("eventsUntilNumber")
    queue = _queue(request, repository)
    health = await _one(request, queue)
    content = arguments.text("content") or terms_of(health.resource).content
    if content not in CONTENTS:
        raise Problem(Category.VALUE, f"content must be one of {', '.join(CONTENTS)}", "content")
    before = _numbered_from(health, request.caller)
    until = _MAX_NUMBER if last is None else min(last, _MAX_NUMBER - before) + before
    read = await queue.event_range(request.tenant, health.id, (first or 1) + before, until, MOST_EVENTS)
    is_narrow = may_hide(request.caller)
    visible_events = await _visible(read, request, repository) if is_narrow or content != "empty" else read
    visible_events = [replace(event, number=event.number - before) for event in visible_events]
    lease = Lease(request.tenant, health.rid, health.id, 0, repository.clock(), health.resource, 0, None,
                  callers=(request.caller,))  # fmt: skip
    includes = await included_resources(lease, visible_events, repository.store, repository.matcher, request.base_url)
    resource = {**health.resource, "status": health.status}
    now, total = repository.clock(), health.last_event_number - before
    context = NotificationContext(request.base_url, now, total, "query-event", content, Form.R4, includes)
    return Answer(200, bundle(resource, visible_events, context))


async def _visible(read: Sequence[Event], request: Request, repository: Repository) -> list[Event]:
    """The events with a resource that the caller may see; of a deletion, the version before."""
    caller, found = request.caller, []
    for event in read:
        if event.method == "DELETE" and event.version_id > 1 and may_hide(caller):
            named = event.resource_type, event.id, event.version_id - 1
            last = await repository.store.read_version(request.tenant, *named)
            event = event if last is None else replace(event, last_body=last.body)
        if decide(caller, event) is Decision.SEND:
            found.append(event)
    if not limits(caller):
        return found
    versions = [
        Version(number, one.resource_type, one.id, one.version_id, one.occurred_at, one.body, not one.body)
        for number, one in enumerate(found)
    ]
    seen = await visible_now(versions, caller, request.tenant, repository.store)
    return [found[version.rid] for version in seen]


def _total(health: SubscriptionHealth, caller: Caller) -> int | None:
    """The number of events as the caller counts them; None when the count would tell of hidden ones."""
    before = numbered_from(caller, health.writers)
    return None if before is None else health.last_event_number - before


def _numbered_from(health: SubscriptionHealth, caller: Caller) -> int:
    """The number before the caller's first event.  Problem UNAUTHORIZED: numbers would tell of hidden ones."""
    before = numbered_from(caller, health.writers)
    if before is None:
        text = "the events of this Subscription are counted within other grants than those of the token"
        raise Unauthorized(text, 'error="insufficient_scope"')
    return before


async def resend(request: Request, repository: Repository) -> Answer:
    """POST [base]/Subscription/[id]/$resend: send events `eventsSinceNumber` to `eventsUntilNumber` again, in order.

    Without an end, all later events.  Then delivery continues.  409 when the Subscription is not active.
    """
    arguments = await Arguments.read(request, {"eventsSinceNumber", "eventsUntilNumber"}, repository.run_in_thread)
    first, last = arguments.number("eventsSinceNumber"), arguments.number("eventsUntilNumber")
    queue = _queue(request, repository)
    health = await _one(request, queue, "u")
    before = _numbered_from(health, request.caller)
    newest = health.last_event_number - before
    if not first or first > newest:
        raise Problem(Category.VALUE, f"eventsSinceNumber must be a number from 1 to {newest}", "eventsSinceNumber")
    if last is None:
        last = newest
    elif last < first:
        raise Problem(Category.VALUE, "eventsUntilNumber must not be less than eventsSinceNumber", "eventsUntilNumber")
    due = await queue.resend(request.tenant, health.id, first + before, min(last, newest) + before)
    if due is None:
        kind = terms_of(health.resource).channel_type
        text = f"$resend requires status active and no websocket; this is {health.status}, {kind}: use $events"
        raise Problem(Category.CONFLICT, text)
    return Answer(
        200, dumps(success(f"{due} events are due from number {first} on; events up to {last} are sent again"))
    )


async def binding_token(request: Request, repository: Repository) -> Answer:
    """GET or POST [base]/Subscription/$get-ws-binding-token, also on an instance: a token for `bind-with-token`."""
    arguments = await Arguments.read(request, {"id"}, repository.run_in_thread)
    queue, bindings = _queue(request, repository), repository.bindings
    if bindings is None:
        raise Problem(Category.NOT_SUPPORTED, "this server does not support websockets")
    ids = [request.path[1]] if len(request.path) == 3 else arguments.texts("id")
    if ids:
        rows = [(id, await queue.health(request.tenant, id)) for id in dict.fromkeys(ids)]
    else:
        rows = [(one.id, one) for one in await queue.healths(request.tenant, MOST_SUBSCRIPTIONS) if _is_socket(one)]
    if not ids:
        rows = [(id, row) for id, row in rows if row is not None and may_hold(request.caller, "r", row.resource)]
    for id, row in rows:
        if row is None or not may_hold(request.caller, "r", row.resource):
            raise Problem(Category.NOT_FOUND, f"Subscription/{id[:64]} does not exist")
        if not _is_socket(row):
            raise Problem(Category.BUSINESS_RULE, f"Subscription/{id} is not of channel type websocket")
    if not rows:
        raise Problem(Category.NOT_FOUND, "there is no subscription of channel type websocket")
    until = _token_expiry(request.caller, repository.clock())
    token = await bindings.issue(request.tenant, [id for id, _ in rows], until, request.caller)
    resource: list[Json] = [
        {"name": "token", "valueString": token},
        {"name": "expiration", "valueDateTime": instant(until)},
        *({"name": "subscription", "valueString": id} for id, _ in rows),
        {"name": "websocket-url", "valueUrl": _socket_url(request.base_url)},
    ]
    return Answer(200, dumps(parameters_of(*resource)))


def _token_expiry(caller: Caller, now: datetime) -> datetime:
    """The expiry of a binding token: in an hour, and not after the caller's bearer token."""
    latest = now + timedelta(minutes=TOKEN_MINUTES)
    return latest if caller.expires_at is None else min(latest, datetime.fromtimestamp(caller.expires_at, UTC))


def _is_socket(row: SubscriptionHealth) -> bool:
    return terms_of(row.resource).channel_type == "websocket"


def _socket_url(base_url: str) -> str:
    url = urlsplit(base_url)
    path = url.path.rstrip("/").removesuffix("/fhir")
    return urlunsplit(("wss" if url.scheme == "https" else "ws", url.netloc, f"{path}/websocket", "", ""))


def only_subscriptions(request: Request) -> None:
    """Problem NOT_FOUND for an operation of Subscription on another type."""
    if request.path[0] != "Subscription":
        raise Problem(Category.NOT_FOUND, f"{request.path[-1]} is defined for Subscription, not for {request.path[0]}")


async def _one(request: Request, queue: DeliveryQueue, right: str = "r") -> SubscriptionHealth:
    """The subscription in the path; NOT_FOUND also when the caller lacks the right."""
    health = await queue.health(request.tenant, request.path[1])
    if health is None or not may_hold(request.caller, right, health.resource):
        raise Problem(Category.NOT_FOUND, f"Subscription/{request.path[1]} does not exist")
    return health


def _queue(request: Request, repository: Repository) -> DeliveryQueue:
    only_subscriptions(request)
    if repository.deliveries is None:
        raise Problem(Category.NOT_SUPPORTED, "this server does not deliver notifications")
    return repository.deliveries
