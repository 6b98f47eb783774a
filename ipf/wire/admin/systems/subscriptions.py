"""Subscription administration as functions on values: health, history, the resource, and the change of status.

Counters and attempts are read from the ledger that delivery writes; the health of up to 500 subscriptions is one
statement.  With tenants an id finds its subscription in whatever partition it is, and `?tenant=` narrows that; health
lists all.

Source: interface specification "Subscription administration", "Subscription health item"; decisions section 3 and
"Bare Subscription ids".
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from twisted.logger import Logger

from ipf.errors import Category, Problem
from ipf.fhir.model.json import dumps, loads
from ipf.fhir.model.redaction import redact_body
from ipf.ports import Answer, Attempt, Json, Notifier, Request, SubscriptionHealth
from ipf.ports.delivery import SubscriptionLedger
from ipf.telemetry.logs import event_line
from ipf.wire.admin.access import author_of
from ipf.wire.admin.messages import InvalidStatus, answer, parameters_of, timestamp, window
from ipf.wire.admin.route import Role, Route, query
from ipf.wire.admin.schemas.base import TEXT

log = Logger()

MOST = 500
STATUSES = ("active", "off", "requested", "error")
BY_OPERATOR = "set to error by an operator"

ChangeStatus = Callable[[str, str, str, str | None, str, str], Awaitable[object]]
"""(tenant, id, status, error text, correlation id, who): written as a new version.  Problem NOT_FOUND."""

TestEndpoint = Callable[[str, str], Awaitable[Attempt]]
"""(tenant, id): sends a handshake and records it.  Problem NOT_FOUND, or BUSINESS_RULE without an endpoint."""


@dataclass(frozen=True, slots=True)
class SubscriptionAdmin:
    """The parts that these functions use.

    `test`: sends a test notification.  `actor`: the author of a change where no person is named.  `warnings`: why a
    Subscription that is active is not notified.
    """

    queue: SubscriptionLedger
    change_status: ChangeStatus
    notifier: Notifier
    test: TestEndpoint
    actor: str = "admin"
    warnings: Callable[[Json], Sequence[str]] = lambda subscription: ()


async def health(admin: SubscriptionAdmin, request: Request) -> Answer:
    """`GET /admin/subscriptions/health`: one item a subscription, oldest first, at most `MOST`."""
    found = await admin.queue.healths(parameters_of(request).get("tenant") or None, MOST)
    items = [health_item(each, admin.warnings(each.resource)) for each in found]
    return answer(200, {"total": len(items), "items": items})


async def one_health(admin: SubscriptionAdmin, subscription_id: str, request: Request) -> Answer:
    """`GET /admin/subscriptions/{id}/health`: the item of one subscription."""
    tenant = await _tenant(admin, request, subscription_id)
    found = await _find(admin, tenant, subscription_id)
    return answer(200, health_item(found, admin.warnings(found.resource)))


async def send_test(admin: SubscriptionAdmin, subscription_id: str, request: Request) -> Answer:
    """`POST /admin/subscriptions/{id}/test`: a handshake to its endpoint; 200 with the attempt, also a failed one."""
    tenant = await _tenant(admin, request, subscription_id)
    attempt = await admin.test(tenant, _id(subscription_id))
    line = event_line(
        "subscription_tested",
        name="audit_event",
        subscription_id=subscription_id,
        tenant=tenant,
        outcome="success" if attempt.succeeded else "failure",
        actor=author_of(request, admin.actor),
        address=request.address or None,
    )
    log.info(line, correlation_id=request.correlation_id)
    return answer(200, history_item(attempt))


async def history(admin: SubscriptionAdmin, subscription_id: str, request: Request) -> Answer:
    """`GET /admin/subscriptions/{id}/history`: attempts, newest first."""
    limit, offset = window(parameters_of(request))
    tenant = await _tenant(admin, request, subscription_id)
    page = await admin.queue.history(tenant, subscription_id, limit, offset)
    if page is None:
        raise _unknown(subscription_id)
    items = [history_item(attempt) for attempt in page.attempts]
    found = {"total": page.total, "limit": limit, "offset": offset, "items": items}
    return answer(200, {"subscription_id": f"Subscription/{subscription_id}", **found})


async def resource(admin: SubscriptionAdmin, subscription_id: str, request: Request) -> Answer:
    """`GET /admin/subscriptions/{id}/resource`: the FHIR resource, its secrets redacted."""
    found = await _find(admin, await _tenant(admin, request, subscription_id), subscription_id)
    return Answer(200, redact_body(dumps(found.resource)), (), "application/fhir+json;charset=utf-8")


async def change_status(admin: SubscriptionAdmin, subscription_id: str, request: Request) -> Answer:
    """`PATCH /admin/subscriptions/{id}/status`: any of the four statuses, from any status."""
    status = _status(request.body)
    tenant = await _tenant(admin, request, subscription_id)
    before = await _find(admin, tenant, subscription_id)
    error = BY_OPERATOR if status == "error" else None
    who = author_of(request, admin.actor)
    await admin.change_status(tenant, subscription_id, status, error, request.correlation_id, who)
    line = event_line(
        "subscription_status_changed",
        name="audit_event",
        subscription_id=subscription_id,
        tenant=tenant,
        old_status=before.status,
        new_status=status,
        actor=who,
        address=request.address or None,
    )
    log.info(line, correlation_id=request.correlation_id)
    admin.notifier.notify("subscription")
    admin.notifier.notify("delivery")
    after = await _find(admin, tenant, subscription_id)
    return answer(200, health_item(after, admin.warnings(after.resource)))


def health_item(found: SubscriptionHealth, warnings: Sequence[str] = ()) -> dict[str, Any]:
    """One subscription; `pending_count`: events that are not acknowledged."""
    channel = found.resource.get("channel")
    channel = channel if isinstance(channel, dict) else {}
    failed = found.status == "error"
    outcome = {None: None, True: "success", False: "failure"}[found.last_attempt_succeeded]
    return {
        "id": f"Subscription/{found.id}",
        "active": found.status == "active",
        "channel_type": str(channel.get("type", "")),
        "endpoint": str(channel.get("endpoint", "")),
        "delivery_success_count": found.success_count,
        "delivery_failure_count": found.failure_count,
        "last_attempt_at": timestamp(found.last_attempt_at),
        "last_attempt_outcome": "failure" if failed else outcome,
        "last_error": (found.error or found.last_error) if failed else found.last_error or found.error,
        "status": found.status,
        "criteria": str(found.resource.get("criteria", "")),
        "tenant": found.tenant,
        "last_event_number": found.last_event_number,
        "pending_count": found.last_event_number - found.delivered_number,
        "warnings": list(warnings),
    }


def history_item(attempt: Attempt) -> dict[str, Any]:
    """One attempt; `event_number` is null for a handshake or heartbeat."""
    return {
        "attempted_at": timestamp(attempt.attempted_at),
        "outcome": "success" if attempt.succeeded else "failure",
        "http_status": attempt.http_status,
        "error": attempt.error,
        "duration_ms": attempt.duration_ms,
        "kind": attempt.kind,
        "event_number": attempt.event_number or None,
        "to_event_number": attempt.to_event_number or attempt.event_number or None,
        "correlation_id": attempt.correlation_id,
    }


async def _find(admin: SubscriptionAdmin, tenant: str, subscription_id: str) -> SubscriptionHealth:
    found = await admin.queue.health(tenant, _id(subscription_id))
    if found is None:
        raise _unknown(subscription_id)
    return found


def _status(body: bytes) -> str:
    """The one field of the body.  Problem VALUE names what is expected; InvalidStatus: it is another."""
    text = f"the body must be JSON with a status, one of {', '.join(STATUSES)}"
    try:
        asked: Json = loads(body)
    except Problem as malformed:
        raise Problem(Category.VALUE, text) from malformed
    status = asked.get("status") if isinstance(asked, dict) else None
    if status not in STATUSES:
        raise InvalidStatus(Category.VALUE, text)
    return str(status)


async def _tenant(admin: SubscriptionAdmin, request: Request, subscription_id: str) -> str:
    """Whose subscription it is.  Problem NOT_FOUND; CONFLICT: several tenants have this id, and none is named."""
    tenant = parameters_of(request).get("tenant")
    if tenant:
        if not tenant.isprintable():
            raise Problem(Category.NOT_FOUND, "there is no such tenant")
        return tenant
    found = await admin.queue.tenants_of(_id(subscription_id))
    if not found:
        raise _unknown(subscription_id)
    if len(found) > 1:
        names = ", ".join(found)
        text = f"several tenants have a subscription with id {subscription_id}: add ?tenant= with one of {names}"
        raise Problem(Category.CONFLICT, text)
    return found[0]


def _id(text: str) -> str:
    """No subscription has an id that the store refuses as text."""
    if not text.isprintable():
        raise Problem(Category.NOT_FOUND, "there is no subscription with this id")
    return text


def _unknown(subscription_id: str) -> Problem:
    return Problem(Category.NOT_FOUND, f"there is no subscription with id {subscription_id}")


_TENANT_OF_ID = query("tenant", TEXT, "whose; without it the id is found in any tenant (409 when several have it)")
_OF_ONE: dict[str, Any] = {"variable": TEXT, "parameters": [_TENANT_OF_ID]}
ROUTES: tuple[Route[SubscriptionAdmin], ...] = (
    Route(
        "GET", "/subscriptions/health", "subscriptionHealth", "Up to 500 subscriptions",
        lambda of, request, _: health(of, request), "SubscriptionHealthList",
    ),
    Route(
        "GET", "/subscriptions/{id}/health", "oneSubscriptionHealth", "Health of one",
        lambda of, request, id: one_health(of, id, request), "SubscriptionHealth", refusals=["404", "409"], **_OF_ONE,
    ),
    Route(
        "POST", "/subscriptions/{id}/test", "testSubscription", "Send a handshake to its endpoint",
        lambda of, request, id: send_test(of, id, request), "DeliveryAttempt", Role.OPERATOR,
        refusals=["404", "409", "422"], **_OF_ONE,
    ),
    Route(
        "GET", "/subscriptions/{id}/history", "subscriptionHistory", "Tries to notify, newest first",
        lambda of, request, id: history(of, id, request), "SubscriptionHistory", is_page=True, **_OF_ONE,
    ),
    Route(
        "GET", "/subscriptions/{id}/resource", "subscriptionResource", "The FHIR resource",
        lambda of, request, id: resource(of, id, request), "Any", refusals=["404", "409"], **_OF_ONE,
    ),
    Route(
        "PATCH", "/subscriptions/{id}/status", "setSubscriptionStatus", "Set its status",
        lambda of, request, id: change_status(of, id, request), "SubscriptionHealth", Role.OPERATOR,
        body="StatusRequest", refusals=["404", "409"], **_OF_ONE,
    ),
)  # fmt: skip
