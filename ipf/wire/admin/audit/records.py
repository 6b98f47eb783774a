"""`/admin/audit`: the audit trail of all tenants; and the audit records of admin requests.

A search answers newest first, with the paging rules of `/admin/messages`; its filters combine, and a blank one is none:
`actor` (a person, or the token of a caller that named nobody), `agent`, `action` (C R U D E), `outcome` (0 4 8),
`interaction`, `entity` (`Patient/7`), `patient`, `correlation_id`, `tenant` (`*`: all, as without it), `surface` (fhir,
admin), `since` and `until` (ISO 8601, included).  Every request to the admin API leaves a record on the surface
`admin`, refused ones included, but for the polling of dashboards.

Source: interface specification "FHIR AuditEvent resources"; docs/reference/audit.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from twisted.logger import Logger

from ipf.errors import Category, Problem
from ipf.ports import DEFAULT_TENANT, Answer, Caller, Clock, Request
from ipf.ports.audit.records import ADMIN, FHIR, Audit, AuditFilter, AuditSink, AuditStore
from ipf.ports.messages.mapping import Origin
from ipf.security.audit.rules import NewIdSuffix, clean, context_of, record
from ipf.security.audit.target import target_of
from ipf.wire.admin.audit.views import PATH, look_of
from ipf.wire.admin.klein_app import AuditHook
from ipf.wire.admin.messages import answer, parameters_of, timestamp, window
from ipf.wire.admin.route import SURFACE, Mounted, Route, query
from ipf.wire.admin.schemas.base import TEXT, TIME

log = Logger()

_POLLED = frozenset({("observe", "system"), ("observe", "throughput"), ("observe", "live"), ("observe", "interfaces"),
                     ("observe", "openapi.json"), ("openapi.json",), ("docs",),
                     ("subscriptions", "health"), ("dead-letters", "errors")})  # fmt: skip
_ACTIONS = {"GET": "R", "HEAD": "R", "POST": "E", "PUT": "U", "PATCH": "U", "DELETE": "D"}
_NAMES = {"GET": "read", "HEAD": "read", "PUT": "update", "PATCH": "update", "DELETE": "delete", "POST": "post"}
_WORD = re.compile(r"[a-z][a-z_-]{1,30}")
_OUTCOMES = {"0": 0, "4": 4, "8": 8}


def audit_hook(
    trail: AuditSink, caller: Callable[[Request], Caller], clock: Clock, new_id_suffix: NewIdSuffix
) -> AuditHook:
    """Writes admin requests to the audit trail.  `caller`: the token that was used, and the person for whom."""

    def hook(request: Request, given: Answer, began: datetime) -> None:
        try:
            audit = audit_of(request, given, caller(request), began, clock(), new_id_suffix)
            if audit is not None:
                trail(audit)
        except Exception:
            log.failure("event=audit_not_written", correlation_id=request.correlation_id)

    return hook


def audit_of(
    request: Request, given: Answer, caller: Caller, began: datetime, ended: datetime, new_id_suffix: NewIdSuffix
) -> Audit | None:
    """The record of an admin request; None for polling that succeeded."""
    path = request.path[1:] if request.path[:1] == ("admin",) else request.path
    path = tuple(part for part in path if part)
    if path in _POLLED and given.status < 400:
        return None
    if path == PATH and given.status < 400:
        return _view_of(request, given, caller, began, ended, new_id_suffix)
    entities = (f"{clean(path[0], 64)}/{clean(path[1], 64)}".replace(" ", "_"),) if len(path) > 1 else ()
    context = context_of(
        DEFAULT_TENANT, caller, ADMIN, _interaction(request.method, path),
        _ACTIONS.get(request.method, "E"), given.status, request.address,
    )  # fmt: skip
    target = target_of(request.path, request.query)
    return record(
        context, new_id_suffix(), began, ended, request.correlation_id, target, entities, request_id=request.request_id
    )


def _view_of(
    request: Request, given: Answer, caller: Caller, began: datetime, ended: datetime, new_id_suffix: NewIdSuffix
) -> Audit:
    """The record of what a person was shown."""
    look = look_of(request.body)
    context = context_of(DEFAULT_TENANT, caller, ADMIN, "view", "R", given.status, request.address)
    about = look.page, look.references
    return record(context, new_id_suffix(), began, ended, request.correlation_id, *about, request_id=request.request_id)


def _interaction(method: str, path: tuple[str, ...]) -> str:
    """`list`, `read`, `delete`, or the last segment of the path: `retry`, `trace`, `status`."""
    if path and (method == "POST" or len(path) > 2) and _WORD.fullmatch(path[-1]):
        return path[-1]
    if method in ("GET", "HEAD") and len(path) < 2:
        return "list"
    return _NAMES.get(method, "other")


async def list_records(store: AuditStore, request: Request) -> Answer:
    """`GET /admin/audit`: one page, newest first.  Problem VALUE for a filter that cannot be read."""
    parameters = parameters_of(request)
    limit, offset = window(parameters)
    tenant = parameters.get("tenant", "*") or "*"
    total, rows = await store.page(None if tenant == "*" else tenant, filter_of(parameters), limit, offset)
    items = [item(row) for row in rows]
    return answer(200, {"total": total, "limit": limit, "offset": offset, "items": items})


def filter_of(parameters: Mapping[str, str]) -> AuditFilter:
    """Parameters of the URL as a filter."""
    given = {name: value.replace("\0", " ") for name, value in parameters.items() if value}
    keys: list[tuple[str, ...]] = []
    if "actor" in given:
        keys.append((f"a:{given['actor']}", f"a:{given['actor']}\t"))
    if "entity" in given:
        keys.append((f"e:{given['entity']}",))
    if "patient" in given:
        keys.append((f"e:Patient/{given['patient'].removeprefix('Patient/')}",))
    if "correlation_id" in given:
        keys.append((f"c:{given['correlation_id'].lower()}",))
    surface = given.get("surface")
    if surface not in (None, FHIR, ADMIN):
        raise Problem(Category.VALUE, f"surface must be {FHIR} or {ADMIN}")
    outcomes = _set(given, "outcome", _OUTCOMES)
    return AuditFilter(
        surface=surface,
        keys=tuple(keys),
        since=_moment(given, "since"),
        until=_moment(given, "until"),
        agents=_set(given, "agent"),
        actions=_set(given, "action", {one: one for one in "CRUDE"}),
        outcomes=None if outcomes is None else frozenset(_OUTCOMES[one] for one in outcomes),
        interactions=_set(given, "interaction"),
    )


def _set(given: Mapping[str, str], name: str, allowed: Mapping[str, object] | None = None) -> frozenset[str] | None:
    """The values of a filter, separated by commas (an agent is one value and may contain commas)."""
    if name not in given:
        return None
    if allowed is None:
        return frozenset((given[name],))
    values = frozenset(one.strip() for one in given[name].split(","))
    if not values <= allowed.keys():
        raise Problem(Category.VALUE, f"{name} must be one of {', '.join(allowed)}")
    return values


def _moment(given: Mapping[str, str], name: str) -> datetime | None:
    if name not in given:
        return None
    try:
        moment = datetime.fromisoformat(given[name].replace(" ", "+"))  # a plus sign that was not encoded
    except ValueError:
        raise Problem(Category.VALUE, f"{name} must be a time in ISO 8601") from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def item(row: Audit) -> dict[str, Any]:
    """One record; every key is always present, absent values are null."""
    context = row.context
    return {
        "id": row.id,
        "recorded_at": timestamp(row.recorded_at),
        "duration_ms": row.duration_ms,
        "tenant": context.tenant,
        "surface": context.surface,
        "interaction": context.interaction,
        "action": context.action,
        "outcome": context.outcome,
        "http_status": context.status or None,
        "agent": context.agent,
        "client": context.agent_name or None,
        "issuer": context.issuer or None,
        "user": context.user or None,
        "actor": context.user or context.agent,
        "via": (context.agent_name or context.agent) if context.user else None,
        "address": context.address or None,
        "correlation_id": row.correlation_id or None,
        "target": row.request_target or None,
        "entities": list(row.entities),
        "patients": row.all_patients,
        "source": None if row.origin is None else _source(row.origin),
    }


def _source(origin: Origin) -> dict[str, Any]:
    """The origin of a converted message of a vendor profile."""
    return {
        "agent_system": origin.agent_system or None,
        "source_system": origin.source_system,
        "details": dict(origin.details),
    }


_AUDIT_FILTERS = (
    query("actor", TEXT, "a person, or the token of a caller that named nobody"),
    query("agent", TEXT, "the client or token, exactly"),
    query("action", TEXT, "of C R U D E, separated by commas"),
    query("outcome", TEXT, "of 0 (success), 4, 8 (failure), separated by commas"),
    query("interaction", TEXT, "such as read, search, retry, exactly"),
    query("entity", TEXT, "a reference, such as Patient/7"),
    query("patient", TEXT, "records about this Patient"),
    query("correlation_id", TEXT, "exactly"),
    query("tenant", TEXT, "of this tenant; * = of all, as without it"),
    SURFACE,
    query("since", TIME, "ISO 8601, included"),
    query("until", TIME, "ISO 8601, included"),
)
ROUTES: tuple[Route[AuditStore], ...] = (
    Route(
        "GET", "/audit", "audit", "Search of the audit trail, newest first",
        lambda store, request, _: list_records(store, request), "AuditList", parameters=_AUDIT_FILTERS, is_page=True,
    ),
)  # fmt: skip


def routes(store: AuditStore) -> Mounted[AuditStore]:
    """The path `/admin/audit`."""
    return Mounted(ROUTES, store)
