"""Merges of Patients by operators: `/admin/patient-merges`; functions on values, and the paths.

They do what `Patient/$merge` and `Patient/[id]/$unmerge` of `/fhir` do, with the admin token.  Errors and
authentication are those of `/admin/messages`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from twisted.logger import Logger

from ipf.errors import Category, Problem
from ipf.ports import Answer, Request
from ipf.ports.messages.inbox import EVERY_TENANT
from ipf.telemetry.logs import event_line
from ipf.wire.admin.access import author_of
from ipf.wire.admin.messages import answer, json_body, parameters_of, tenant_of
from ipf.wire.admin.route import TENANT, Mounted, Role, Route, WhenMasked

log = Logger()

_PATIENT = re.compile(r"Patient/([A-Za-z0-9\-.]{1,64})")
_LONGEST = 1000


class MergeOperation(Protocol):
    """Merges, or undoes a merge.  Returns the number of moved resources by type.  `source`, `target`: ids."""

    async def __call__(
        self,
        tenant: str,
        source: str,
        target: str,
        who: str,
        reason: str,
        correlation_id: str,
        *,
        preview: bool = False,
    ) -> Mapping[str, int]:
        """Problem NOT_FOUND, GONE, BUSINESS_RULE, CONFLICT."""


@dataclass(frozen=True, slots=True)
class PatientMergeAdmin:
    """The two operations.  `actor`: the author where no person is named."""

    merge: MergeOperation
    undo: MergeOperation
    actor: str


async def merge(admin: PatientMergeAdmin, request: Request) -> Answer:
    """`POST /admin/patient-merges`: `{"source": "Patient/x", "target": "Patient/y"}`, `reason`, `preview`."""
    return await _perform(admin, admin.merge, "patients_merged", request, ("source", "target", "reason", "preview"))


async def undo(admin: PatientMergeAdmin, request: Request) -> Answer:
    """`POST /admin/patient-merges/undo`: `{"source": "Patient/x", "target": "Patient/y", "reason": "..."}`."""
    return await _perform(admin, admin.undo, "patients_unmerged", request, ("source", "target", "reason"))


async def _perform(
    admin: PatientMergeAdmin, operation: MergeOperation, event: str, request: Request, known: tuple[str, ...]
) -> Answer:
    tenant = tenant_of(parameters_of(request))
    if tenant == EVERY_TENANT:
        raise Problem(Category.VALUE, "a merge is within one tenant")
    body = json_body(request, {})
    if not isinstance(body, dict) or not set(body) <= set(known):
        raise Problem(Category.VALUE, f"the body is a JSON object with {', '.join(known)}")
    source, target, reason = _patient(body, "source"), _patient(body, "target"), _reason(body)
    preview = body.get("preview", False)
    if not isinstance(preview, bool):
        raise Problem(Category.VALUE, "preview must be true or false")
    who = author_of(request, admin.actor)
    moved = await operation(tenant, source, target, who, reason, request.correlation_id, preview=preview)
    found = {"source": f"Patient/{source}", "target": f"Patient/{target}", "tenant": tenant}
    if not preview:
        line = event_line(event, name="audit_event", **found, actor=who, address=request.address or None)
        log.info(line, correlation_id=request.correlation_id)
    return answer(200, {**found, "preview": preview, "moved": dict(sorted(moved.items()))})


def _patient(body: Mapping[str, Any], name: str) -> str:
    """The id of a Patient."""
    value = body.get(name)
    matched = _PATIENT.fullmatch(value) if isinstance(value, str) else None
    if matched is None:
        raise Problem(Category.VALUE, f"{name} must be a reference such as Patient/a1")
    return matched[1]


def _reason(body: Mapping[str, Any]) -> str:
    value = body.get("reason") or ""
    if not isinstance(value, str) or len(value) > _LONGEST or not value.isprintable():
        raise Problem(Category.VALUE, f"reason must be a text of at most {_LONGEST} characters in one line")
    return value.strip()


_OTHERS = "others keep changing the same resources"
ROUTES: tuple[Route[PatientMergeAdmin], ...] = (
    Route(
        "POST", "/patient-merges", "mergePatients", "Merge two Patients",
        lambda of, request, _: merge(of, request), "PatientMerged", Role.OPERATOR, WhenMasked.NO, parameters=[TENANT],
        body="PatientMergeRequest", refusals=["404", "422"], conflict=_OTHERS,
    ),
    Route(
        "POST", "/patient-merges/undo", "unmergePatients", "Undo a merge",
        lambda of, request, _: undo(of, request), "PatientMerged", Role.OPERATOR, WhenMasked.NO, parameters=[TENANT],
        body="PatientUnmergeRequest", refusals=["404", "422"], conflict=_OTHERS,
    ),
)  # fmt: skip


def routes(admin: PatientMergeAdmin) -> Mounted[PatientMergeAdmin]:
    """The paths below `/admin/patient-merges`."""
    return Mounted(ROUTES, admin)
