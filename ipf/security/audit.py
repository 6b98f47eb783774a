"""Which requests leave an audit record, and what stands in it: rules as functions, no IO.

Rules (interface specification "FHIR AuditEvent resources"): writes always; reads and searches when their switch is on;
failures always; never `metadata`.  Operations that only look (`$everything`, `$validate` ...) count as reads, all
others as writes.  Requests about AuditEvent itself are never in the FHIR trail; operators find them on the
admin surface.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache, partial
from itertools import islice
from urllib.parse import urlencode

from ipf.errors import Category, Problem
from ipf.ports import Answer, Caller, Request, Version
from ipf.ports.audit import ADMIN, FHIR, MOST_ENTITIES, Audit
from ipf.ports.mapping import Origin

ANONYMOUS = "anonymous"
TYPE = "AuditEvent"
LONGEST_TARGET = 2000
LONGEST_NAME = 200

INTERACTIONS = (
    "create", "read", "vread", "history", "update", "patch", "delete", "search", "transaction", "batch", "operation",
)  # fmt: skip
_ACTIONS = {"create": "C", "read": "R", "vread": "R", "history": "R", "update": "U", "patch": "U", "delete": "D"}
_BY_METHOD = {"GET": "search", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_BY_METHOD_AND_ID = {"GET": "read", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_READS = frozenset({"read", "vread", "history"})
_LOOKING = frozenset((
    "$everything", "$validate", "$expand", "$lookup", "$translate", "$validate-code", "$transform", "$status",
    "$events", "$export-status", "$subsumes", "$meta", "$dry-run",
))  # fmt: skip
_UNAUDITED = frozenset({"metadata", ".well-known"})
# Stored bodies are written by us, without blanks; in a text a quotation mark is escaped, so no text looks like this.
_REFERENCE = re.compile(rb'"reference":"([^"\\]*Patient/[^"\\]*)"')
_PATIENT = re.compile(r"(?:.*/)?(Patient/[A-Za-z0-9\-.]{1,64})(?:/_history/.*)?")
_PATIENT_PARAMETERS = frozenset({"patient", "subject", "patient._id", "subject._id"})
_CONTROLS = re.compile("[\x00-\x1f\x7f\x85\u2028\u2029\ud800-\udfff]")
_BATCH = re.compile(rb'"type"\s*:\s*"batch"')

NewId = Callable[[], str]


@dataclass(frozen=True, slots=True)
class AuditRules:
    """What is recorded of requests to /fhir.  `reads`, `searches`: also those that succeed.

    `divided`: there are tenants, so what nobody who is known has asked for is no tenant's: operators see it.
    """

    reads: bool = False
    searches: bool = False
    divided: bool = False

    def surface(self, interaction: str, request: Request, status: int) -> str | None:
        """Where the record of a request is shown; None: there is none."""
        path = request.path
        if (path and path[0] in _UNAUDITED) or request.method == "OPTIONS":
            return None
        if path and TYPE in (path[0], path[-1]):
            return ADMIN
        if self.divided and (request.caller.is_anonymous or request.caller.is_open):
            return ADMIN
        if status >= 400:
            return FHIR
        if interaction in _READS or (interaction == "operation" and not _LOOKING.isdisjoint(path)):
            return FHIR if self.reads else None
        if interaction == "search":
            return FHIR if self.searches else None
        return FHIR


def check_unchanging(resource_type: str, method: str) -> None:
    """Problem METHOD for what would change or remove an AuditEvent."""
    if resource_type == TYPE and method.upper() not in ("GET", "HEAD", "POST", "CREATE", "OPTIONS"):
        raise Problem(Category.METHOD, "AuditEvents are never changed and never deleted")


def interaction_of(request: Request) -> str:
    """The name of the interaction as FHIR has it (`search` and `history` of every kind under one name)."""
    method, path = "GET" if request.method == "HEAD" else request.method, request.path
    if not path:
        return "search" if method == "GET" else "batch" if _BATCH.search(request.body, 0, 4096) else "transaction"
    if any(part.startswith("$") for part in path):
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


def outcome_of(status: int) -> int:
    """AuditEvent.outcome: 0 success, 4 minor failure (4xx), 8 serious failure (401 and 5xx)."""
    if status < 400:
        return 0
    return 8 if status == 401 or status >= 500 else 4


def audit_of(
    request: Request, answer: Answer, rules: AuditRules, began: datetime, ended: datetime, new_id: NewId
) -> Audit | None:
    """The record of a request that was answered; None when there is none by the rules."""
    make = recorded(request, answer, rules, began, ended, new_id)
    return None if make is None else make()


def recorded(
    request: Request, answer: Answer, rules: AuditRules, began: datetime, ended: datetime, new_id: NewId
) -> Callable[[], Audit] | None:
    """What makes the record of a request that was answered, now or later; None when there is none by the rules."""
    interaction = interaction_of(request)
    surface = rules.surface(interaction, request, answer.status)
    if surface is None:
        return None
    return partial(_record, request, answer, began, ended, new_id(), surface, interaction)


def _record(
    request: Request, answer: Answer, began: datetime, ended: datetime, id: str, surface: str, interaction: str
) -> Audit:
    path, about = request.path, answer.about
    entities, patients = (written(about), patients_of(about)) if about else ((), ())
    if not entities and len(path) > 1 and path[0][:1].isupper() and path[1][:1] not in "_$":
        entities = (f"{clean(path[0], 64)}/{clean(path[1], 64)}",)
    if request.query or not patients:
        patients += tuple(one for one in asked_patients(request, entities) if one not in patients)
    return record(
        request.tenant, request.caller, id, began, ended,
        surface=surface, interaction=interaction, action=_ACTIONS.get(interaction, "E"), status=answer.status,
        correlation_id=request.correlation_id, address=request.address, target=target_of(request),
        entities=entities, patients=patients,
    )  # fmt: skip


def record(
    tenant: str,
    caller: Caller,
    id: str,
    began: datetime,
    ended: datetime,
    *,
    surface: str,
    interaction: str,
    action: str,
    status: int,
    correlation_id: str,
    address: str = "",
    target: str = "",
    entities: tuple[str, ...] = (),
    patients: tuple[str, ...] = (),
    origin: Origin | None = None,
) -> Audit:
    """A record of what `caller` did between two moments."""
    recorded = ended.replace(microsecond=ended.microsecond // 1000 * 1000)
    lasted = ended - began
    milliseconds = lasted.days * 86_400_000 + lasted.seconds * 1000 + lasted.microseconds // 1000
    agent, client, issuer, user = _named(caller.subject, caller.client, caller.issuer, caller.user)
    return Audit(
        tenant, id, recorded, max(milliseconds, 0), surface, interaction, action, outcome_of(status), status,
        agent, correlation_id, client, issuer, user, clean(address, 64), target,
        entities[:MOST_ENTITIES], patients[:MOST_ENTITIES], origin,
    )  # fmt: skip


@lru_cache(maxsize=2048)
def _named(subject: str, client: str, issuer: str, user: str | None) -> tuple[str, str, str, str]:
    """How a caller is named in all its records: agent, client, issuer, user."""
    return clean(subject or client) or ANONYMOUS, clean(client), clean(issuer), clean(user or "")


def written(versions: Iterable[Version]) -> tuple[str, ...]:
    """References to these versions: as many as a record names."""
    some = islice(versions, MOST_ENTITIES)
    return tuple(f"{one.resource_type}/{one.id}/_history/{one.version_id}" for one in some)


def patients_of(versions: Iterable[Version]) -> tuple[str, ...]:
    """The patients whom these resources are, or refer to anywhere, in order: as many as a record names."""
    found: dict[str, None] = {}
    for version in versions:
        if len(found) >= MOST_ENTITIES:
            break
        if version.resource_type == "Patient":
            found[f"Patient/{version.id}"] = None
        for reference in _REFERENCE.findall(version.body):
            matched = _PATIENT.fullmatch(reference.decode())
            if matched is not None:
                found[matched[1]] = None
    return tuple(found)


def asked_patients(request: Request, entities: Sequence[str]) -> Iterable[str]:
    """The patients that a request names: in its path, or as a parameter of a search."""
    for entity in entities[:1]:
        if entity.startswith("Patient/"):
            yield entity.partition("/_history/")[0]
    for name, value in request.query:
        if name.partition(":")[0] in _PATIENT_PARAMETERS:
            for one in value.split(","):
                matched = _PATIENT.fullmatch(one if "/" in one else f"Patient/{one}")
                if matched is not None:
                    yield matched[1]


def target_of(request: Request) -> str:
    """Path and parameters, bounded, without control characters."""
    query = f"?{urlencode(request.query)}" if request.query else ""
    return clean("/".join(request.path) + query, LONGEST_TARGET)


def clean(text: str, longest: int = LONGEST_NAME) -> str:
    """Text of others, bounded, on one line."""
    text = text[:longest]
    return _CONTROLS.sub(" ", text) if not text.isprintable() else text
