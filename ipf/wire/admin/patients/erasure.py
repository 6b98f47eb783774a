"""Erasure of a patient: `POST /admin/patients/{id}/forget`, and the receipts; functions on values, and the paths.

Without `"dry_run": false` nothing is changed.  The removal needs the `confirm` of the dry run, and is refused with 409
when it would remove something else.  Errors and authentication are those of `/admin/messages`.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from twisted.logger import Logger

from ipf.errors import Category, Problem
from ipf.ports import Answer, Request
from ipf.ports.fhir.erasure import ErasureReceipt
from ipf.ports.messages.inbox import EVERY_TENANT
from ipf.telemetry.logs import event_line
from ipf.wire.admin.access import author_of
from ipf.wire.admin.messages import answer, json_body, parameters_of, tenant_of, window
from ipf.wire.admin.route import TENANT, Mounted, Role, Route, WhenMasked
from ipf.wire.admin.schemas.base import TEXT

log = Logger()

_ID = re.compile(r"[A-Za-z0-9\-.]{1,64}")
_MEMBERS: Mapping[str, type] = {
    "dry_run": bool, "reason": str, "confirm": str, "redact": list, "remove": list, "shared_messages": str,
    "uncertain_messages": str,
}  # fmt: skip
_CHOICES = {"shared_messages": ("remove",), "uncertain_messages": ("keep", "remove")}
_REFERENCE = re.compile(r"\*|[A-Z][A-Za-z]+/[A-Za-z0-9\-.]{1,64}")
_LONGEST = 1000
_MOST_NAMED = 100
KEPT = {
    "audit_trail": "records name the reference, and searches as they were asked: they are the proof of who saw what",
    "receipt": "salted digests of the references, without a name",
    "backups": "copies of the databases that were made before",
    "watched_folders": "files in done and failed: the sender's, which ipf neither reads again nor removes",
    "logs": "log files: they have ids and names of files, no content of messages",
}
PLACES: Mapping[str, Sequence[str]] = {
    "resources": ("resources", "resource_versions", "index_text", "index_date", "index_quantity", "index_words",
                  "consent_epoch", "consent_changes", "subscription_epoch", "subscription_states",
                  "subscription_topics", "subscription_grants"),
    "redacted": ("resource_versions", "index_text", "index_date", "index_quantity", "index_words", "search_parameters",
                 "index_units"),
    "events": ("subscription_events", "delivery_attempts", "subscription_states"),
    "exports": ("export_jobs", "export_parts"),
    "jobs": ("jobs", "job_files", "job_results"),
    "identity_answers": ("identity_answers",),
    "websocket_tokens": ("websocket_tokens",),
    "messages": ("message_bodies", "message_states", "message_text", "message_totals", "message_keys", "receipts",
                 "received_hours", "received_counted", "unread_fields", "unmapped_messages", "admin_job_messages",
                 "forwards", "remote_effects"),
    "errors": ("message_states",),
    "rejects": ("rejects",),
    "unmapped_codes": ("unmapped_codes", "unmapped_messages"),
    "identity_conflicts": ("identity_conflicts",),
    "operator_jobs": ("admin_jobs", "admin_job_messages"),
    "saved_views": ("saved_views",),
    "receipt": ("erasures", "audit_keys"),
}  # fmt: skip
"""The tables in which an erasure changes something, by what it removes; `counts` has the same names."""


class Forget(NamedTuple):
    """What an operator asks for.  `actor`: who he is."""

    tenant: str
    id: str
    actor: str
    reason: str = ""
    confirm: str = ""
    redact: Sequence[str] = ()
    remove: Sequence[str] = ()
    shared_messages: str = ""
    uncertain_messages: str = ""


class Preview(NamedTuple):
    """What would be removed, and what is in the way.  `patients`: those that are merged with each other."""

    patients: Sequence[str]
    counts: Mapping[str, int]
    resources: Sequence[str]
    shared: Sequence[int]
    uncertain: Sequence[int]
    busy: Sequence[int]
    subscriptions: Sequence[str]
    jobs: Sequence[int]
    confirm: str


@dataclass(frozen=True, slots=True)
class ErasureAdmin:
    """The operations.  `forget`: Problem NOT_FOUND, CONFLICT, UNAVAILABLE.  `actor`: where no person is named."""

    preview: Callable[[Forget], Awaitable[Preview]]
    forget: Callable[[Forget], Awaitable[ErasureReceipt]]
    receipts: Callable[[str, int, int], Awaitable[tuple[int, Sequence[ErasureReceipt]]]]
    actor: str


async def forget(admin: ErasureAdmin, id_: str, request: Request) -> Answer:
    """`POST /admin/patients/{id}/forget`: a preview, or with `"dry_run": false` the receipt."""
    body = _body(request)
    chosen = {name: value for name, value in body.items() if name != "dry_run"}
    wanted = Forget(_tenant(request), _id(id_), author_of(request, admin.actor), **chosen)
    if body.get("dry_run", True):
        return answer(200, {"dry_run": True, "patient": f"Patient/{wanted.id}", **_shown(await admin.preview(wanted))})
    if not wanted.confirm:
        raise Problem(Category.VALUE, "confirm must be the one of a dry run")
    if not wanted.reason.strip():
        raise Problem(Category.VALUE, "an erasure needs a reason")
    receipt = await admin.forget(wanted)
    line = event_line("patient_forgotten", name="audit_event", erasure_id=receipt.id, tenant=receipt.tenant,
                      actor=receipt.actor, address=request.address or None)  # fmt: skip
    log.info(line, correlation_id=request.correlation_id)
    return answer(200, {"dry_run": False, "receipt": receipt_item(receipt)})


async def list_receipts(admin: ErasureAdmin, request: Request) -> Answer:
    """`GET /admin/erasures`: receipts of one tenant, newest first."""
    limit, offset = window(parameters_of(request))
    total, rows = await admin.receipts(_tenant(request), limit, offset)
    return answer(200, {"total": total, "limit": limit, "offset": offset, "items": [receipt_item(row) for row in rows]})


def receipt_item(receipt: ErasureReceipt) -> dict[str, Any]:
    """A receipt; what is signed, its signature, its number, and whether the erasure was finished."""
    return {**receipt._asdict(), "counts": dict(receipt.counts), "finished": bool(receipt.signature)}


def _shown(found: Preview) -> dict[str, Any]:
    return {
        "patients": list(found.patients),
        "counts": dict(found.counts),
        "in_the_way": {
            "resources": list(found.resources[:_MOST_NAMED]),
            "shared_messages": list(found.shared[:_MOST_NAMED]),
            "uncertain_messages": list(found.uncertain[:_MOST_NAMED]),
            "messages_in_conversion": list(found.busy[:_MOST_NAMED]),
            "subscriptions": list(found.subscriptions[:_MOST_NAMED]),
            "jobs": list(found.jobs[:_MOST_NAMED]),
        },
        "places": {kind: list(tables) for kind, tables in PLACES.items()},
        "kept": KEPT,
        "confirm": found.confirm,
    }


def _tenant(request: Request) -> str:
    tenant = tenant_of(parameters_of(request))
    if tenant == EVERY_TENANT:
        raise Problem(Category.VALUE, "an erasure is within one tenant")
    return tenant


def _id(text: str) -> str:
    if _ID.fullmatch(text) is None:
        raise Problem(Category.VALUE, "the id of a Patient has 1 to 64 letters, digits, - and .")
    return text


def _body(request: Request) -> Mapping[str, Any]:
    body = json_body(request, {})
    if not isinstance(body, dict) or not set(body) <= set(_MEMBERS):
        raise Problem(Category.VALUE, f"the body is a JSON object with {', '.join(_MEMBERS)}")
    for name, value in body.items():
        if not isinstance(value, _MEMBERS[name]):
            raise Problem(Category.VALUE, f"{name} has a value of the wrong type")
        if isinstance(value, str) and (len(value) > _LONGEST or not value.isprintable()):
            raise Problem(Category.VALUE, f"{name} must be a text of at most {_LONGEST} characters in one line")
        if isinstance(value, list) and not all(isinstance(one, str) and _REFERENCE.fullmatch(one) for one in value):
            raise Problem(Category.VALUE, f"{name} must be a list of references such as Group/1, or *")
        if name in _CHOICES and value not in _CHOICES[name]:
            raise Problem(Category.VALUE, f"{name} must be one of {', '.join(_CHOICES[name])}")
    both = set(body.get("redact", ())) & set(body.get("remove", ()))
    if both:
        raise Problem(Category.VALUE, f"redact and remove both have {min(both)}")
    return body


ROUTES: tuple[Route[ErasureAdmin], ...] = (
    Route(
        "POST", "/patients/{id}/forget", "forgetPatient", "Erase a patient, or show what an erasure would remove",
        lambda of, request, id: forget(of, id, request), "Erasure", Role.ADMIN, WhenMasked.NO, variable=TEXT,
        parameters=[TENANT], body="ErasureRequest", refusals=["404"],
        conflict="something is in the way, or changed since the dry run",
    ),
    Route(
        "GET", "/erasures", "listErasures", "Receipts of erasures",
        lambda of, request, _: list_receipts(of, request), "ErasureReceiptList", masked=WhenMasked.NO,
        parameters=[TENANT], is_page=True,
    ),
)  # fmt: skip


def routes(admin: ErasureAdmin) -> Mounted[ErasureAdmin]:
    """The paths of erasures."""
    return Mounted(ROUTES, admin)
