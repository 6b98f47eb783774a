"""Rules of the audit trail: which requests are recorded, and the content of a record.  No IO.

Rules (interface specification "FHIR AuditEvent resources"): writes always; reads and searches when their switch is on;
failures always; never `metadata`.  Operations that only look (`$everything`, `$validate` ...) count as reads, all
others as writes.  Requests about AuditEvent itself are never in the FHIR trail; operators find them on the
admin surface.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from os import urandom

from ipf.errors import Category, Problem
from ipf.ports import Caller, Request
from ipf.ports.audit.records import ADMIN, FHIR, Audit, AuditContext, millisecond_of
from ipf.ports.messages.mapping import Origin

ANONYMOUS = "anonymous"
TYPE = "AuditEvent"
LONGEST_TARGET = 2000
LONGEST_FORM = 64 * 1024
LONGEST_NAME = 200
MOST_SEGMENTS = 16
"""Segments of a path that are read; no route has more than 6."""

ORIGIN_SYSTEM, ENGINE, CLIENT = "urn:ipf:CodeSystem/audit-origin", "engine", "client"
"""The tag (`meta.tag`) of an AuditEvent: a record of this service, or a resource that a client sent."""

NOTIFICATION = "notification"
BREAK_GLASS = "break-glass"
"""The interaction of a notification to a subscriber; no interaction of FHIR."""

INTERACTIONS = (
    "create", "read", "vread", "history", "update", "patch", "delete", "search", "transaction", "batch", "operation",
    NOTIFICATION, BREAK_GLASS,
)  # fmt: skip
_ACTIONS = {"create": "C", "read": "R", "vread": "R", "history": "R", "update": "U", "patch": "U", "delete": "D"}
_BY_METHOD = {"GET": "search", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_BY_METHOD_AND_ID = {"GET": "read", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_READS = frozenset({"read", "vread", "history"})
_LOOKING = frozenset((
    "$everything", "$validate", "$expand", "$lookup", "$translate", "$validate-code", "$transform", "$status",
    "$docref", "$lastn", "$events", "$export-status", "$job-status", "$subsumes", "$meta", "$diff", "$match",
    "$dry-run",
    "$find-matches", "$fhirpath",
))  # fmt: skip
_UNAUDITED = frozenset({"metadata", ".well-known"})
_CONTROLS = re.compile("[\x00-\x1f\x7f\x85\u2028\u2029\ud800-\udfff]")
_VARIANTS = {digit: "89ab"[number & 3] for number, digit in enumerate("0123456789abcdef")}  # of RFC 9562
_MILLISECOND = timedelta(milliseconds=1)
_BATCH = re.compile(rb'"type"\s*:\s*"batch"')

NewIdSuffix = Callable[[], str]
"""Returns a new `Audit.id_suffix`; thread-safe."""


@dataclass(frozen=True, slots=True)
class AuditRules:
    """What is recorded of requests to /fhir.  `reads`, `searches`: also those that succeed.

    `divided`: there are tenants, so a request of an unknown caller belongs to none of them: operators alone see it.
    """

    reads: bool = False
    searches: bool = False
    divided: bool = False

    def unrecorded(self) -> frozenset[int]:
        """Numbers of path segments of GETs (`is_plain`) that are not recorded when they succeed."""
        if self.divided:
            return frozenset()
        return frozenset(size for size, is_recorded in ((1, self.searches), (2, self.reads)) if not is_recorded)

    def surface(self, interaction: str, request: Request, status: int) -> str | None:
        """Where the record of a request is shown; None: there is none."""
        path = request.path
        if (path and path[0] in _UNAUDITED) or request.method == "OPTIONS":
            return None
        if path and TYPE in (path[0], path[-1]):
            return ADMIN
        if self.has_no_tenant(request.caller):
            return ADMIN
        if status >= 400:
            return FHIR
        if interaction in _READS or (interaction == "operation" and not _LOOKING.isdisjoint(path)):
            return FHIR if self.reads else None
        if interaction == "search":
            return FHIR if self.searches else None
        return FHIR

    def has_no_tenant(self, caller: Caller) -> bool:
        """Whether the requests of a caller belong to no tenant."""
        return self.divided and (caller.is_anonymous or caller.is_open)


def check_immutable(resource_type: str, method: str) -> None:
    """Problem METHOD for a request that would change or delete an AuditEvent."""
    if resource_type == TYPE and method.upper() not in ("GET", "HEAD", "POST", "CREATE", "OPTIONS"):
        raise Problem(Category.METHOD, "AuditEvents cannot be changed or deleted")


def is_plain(path: Sequence[str]) -> bool:
    """Whether a GET of this path searches a type or reads a resource of one, which is no AuditEvent."""
    return path[0] != TYPE and path[0][:1] not in "$_" and path[-1][:1] not in "$_"


def interaction_of(request: Request) -> str:
    """The name of the interaction as FHIR has it (`search` and `history` of every context under one name)."""
    method, path = "GET" if request.method == "HEAD" else request.method, request.path
    if len(path) == 2 and path[0][:1] not in "$_" and path[1][:1] not in "$_":
        return _BY_METHOD_AND_ID.get(method, "operation")
    if not path:
        return "search" if method == "GET" else "batch" if _BATCH.search(request.body, 0, 4096) else "transaction"
    if any(part.startswith("$") for part in path[:MOST_SEGMENTS]):
        return "operation"
    if path[-1] == "_search":
        return "search"
    if "_history" in path:
        return "history" if path[-1] == "_history" else "vread"
    if len(path) == 1:
        return _BY_METHOD.get(method, "operation")
    if len(path) == 2:
        return _BY_METHOD_AND_ID.get(method, "operation")
    return "search"


def action_of(interaction: str) -> str:
    """AuditEvent.action: C R U D E."""
    return _ACTIONS.get(interaction, "E")


def outcome_of(status: int) -> int:
    """AuditEvent.outcome: 0 success, 4 minor failure (4xx), 8 serious failure (401 and 5xx)."""
    if status < 400:
        return 0
    return 8 if status == 401 or status >= 500 else 4


def id_suffixes() -> NewIdSuffix:
    """A source of id suffixes: 74 random bits of the operating system.

    An id tells the time of its record and nothing else: there is no counter that would say how many records of others
    lie between two.  Source: RFC 9562, section 6.9 (unguessability).
    """

    def new_id_suffix() -> str:
        text = urandom(10).hex()
        return f"7{text[1:4]}-{_VARIANTS[text[4]]}{text[5:8]}-{text[8:]}"

    return new_id_suffix


class ContextCache:
    """The audit contexts of one batch of requests, each computed once.

    It lives no longer than the batch: its keys hold `id()` of callers, which may be reused later.
    """

    def __init__(self, rules: AuditRules) -> None:
        self._rules = rules
        self._known: dict[tuple[object, ...], AuditContext | None] = {}

    def of(self, request: Request, status: int) -> AuditContext | None:
        """The context of the record of a request; None when the request is not recorded."""
        path = request.path
        if not 0 < len(path) < 3 or not is_plain(path):
            return self._context_of(request, status)
        key = request.method, len(path), status, id(request.caller), request.address, request.tenant
        try:
            return self._known[key]
        except KeyError:
            context = self._known[key] = self._context_of(request, status)
            return context

    def _context_of(self, request: Request, status: int) -> AuditContext | None:
        interaction = interaction_of(request)
        surface = self._rules.surface(interaction, request, status)
        if surface is None:
            return None
        action = action_of(interaction)
        return context_of(request.tenant, request.caller, surface, interaction, action, status, request.address)


def context_of(
    tenant: str, caller: Caller, surface: str, interaction: str, action: str, status: int, address: str = ""
) -> AuditContext:
    """The context of records of `caller`; equal contexts are the same object."""
    return _context(
        tenant, surface, interaction, action, status, caller.subject, caller.client, caller.issuer, caller.user,
        address, caller.purpose,
    )  # fmt: skip


@lru_cache(maxsize=4096)
def _context(
    tenant: str, surface: str, interaction: str, action: str, status: int, subject: str, client: str, issuer: str,
    user: str | None, address: str, purpose: tuple[str, ...],
) -> AuditContext:  # fmt: skip
    agent = clean(subject or client) or ANONYMOUS
    return AuditContext(
        tenant, surface, interaction, action, outcome_of(status), status,
        agent, clean(client), clean(issuer), clean(user or ""), clean(address, 64), purpose,
    )  # fmt: skip


def record(
    context: AuditContext,
    id_suffix: str,
    began: datetime,
    ended: datetime,
    correlation_id: str,
    target: str | None,
    entities: tuple[str, ...],
    patients: tuple[str, ...] = (),
    origin: Origin | None = None,
    request_id: str = "",
) -> Audit:
    """A record of an interaction between two moments; at most MOST_ENTITIES entities and patients each."""
    lasted = (ended - began) // _MILLISECOND
    lasted = lasted if lasted > 0 else 0
    about = correlation_id, target, entities, patients, origin, request_id
    return Audit(context, millisecond_of(ended), id_suffix, lasted, *about)


def clean(text: str, longest: int = LONGEST_NAME) -> str:
    """Foreign text, bounded, on one line."""
    text = text[:longest]
    return _CONTROLS.sub(" ", text) if not text.isprintable() else text
