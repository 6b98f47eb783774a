"""Units of FHIR writes and their results.

A converted message, an HTTP transaction, and a single create, update or delete each become a `Unit`: entries that are
stored completely or not at all.  Units may share one database transaction (`ipf.rest.write.commit`); each succeeds or
fails individually.

Source: https://hl7.org/fhir/R4/http.html#transaction
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from ipf.errors import Problem
from ipf.fhir.topics.basic import TOPIC_TYPES, topic_in
from ipf.ports import DEFAULT_TENANT, SYSTEM, Caller, Request, Version
from ipf.ports.audit_draft import AuditDraft
from ipf.ports.identity import IdentityFinding
from ipf.ports.messages.mapping import Origin
from ipf.ports.queries.entries import Entry, Link, Method

__all__ = [
    "EPOCH_TYPES", "Entry", "EntryResult", "Method", "Outcome", "Submit", "Unit", "UnitResult", "single", "unit_for",
]  # fmt: skip

EPOCH_TYPES = frozenset({"Subscription", "SearchParameter", *TOPIC_TYPES})


@dataclass(slots=True)
class Unit:
    """One FHIR transaction of one tenant.

    `receipt`: stored with the entries; when it is already stored, the unit is done and writes nothing.  `distinct`: two
    entries that change one resource are refused even when they are equal or one deletes what is not there, as R4
    requires; a converted message may repeat itself.
    `references`: the positions of all references to entries, which are then completed in place (the unit owns its
    resources).  None = the resources are searched for the `full_url` of entries, and are not modified.
    `caller`: its grants must cover every entry.  `origin`: more data for the audit record of a converted message.
    `draft`: of the audit records that are written with it; None = there are none.  `part`: (id, number) of the part
    of a job that it is; its result is stored with the entries, and it is refused when there is one.  `base_url`: where
    its request reached this server, "" without one.
    """

    tenant: str
    entries: tuple[Entry, ...]
    correlation_id: str
    receipt: str | None = None
    distinct: bool = False
    references: Sequence[Link] | None = None
    caller: Caller = SYSTEM
    origin: Origin | None = None
    draft: AuditDraft | None = None
    part: tuple[str, int] | None = None
    base_url: str = ""

    @property
    def is_conversion(self) -> bool:
        """Whether it is a converted message; only these have a receipt."""
        return self.receipt is not None

    @property
    def changes_subscriptions(self) -> bool:
        """Whether the unit may write a Subscription, a topic or a SearchParameter, which every writer must know.

        A Basic without a topic does not count; the plan detects when it replaces one with a topic.
        """
        if EPOCH_TYPES.isdisjoint([entry.resource_type for entry in self.entries]):
            return False
        return any(entry.resource_type in EPOCH_TYPES and not _is_plain_basic(entry) for entry in self.entries)


def _is_plain_basic(entry: Entry) -> bool:
    return entry.resource_type == "Basic" and entry.resource is not None and topic_in(entry.resource) is None


class Outcome(StrEnum):
    """The outcome of an entry.  `found`: the If-None-Exist of a create had a match.  `unchanged`: equal content."""

    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    FOUND = "found"
    DELETED = "deleted"


@dataclass(slots=True)
class EntryResult:
    """The result of one entry: HTTP status, outcome, current version.

    `version` is None only for the deletion of a resource that does not exist.  `kept`: the elements that an update by a
    message kept of the stored resource.  `left_out`: of a resource that it ended, the segment whose set no longer has
    it.
    """

    status: int
    outcome: Outcome
    version: Version | None
    kept: tuple[str, ...] = ()
    left_out: str = ""


@dataclass(slots=True)
class UnitResult:
    """The results of the entries of one unit, in order.  `already_done`: its receipt was stored; then no entries.

    `warnings`: resource type and sentence of each match of a converted message that was not clear.
    `differences`: Patients that it matched though the person differs in part.  `ended`: resources of segments that its
    sets no longer have.
    """

    entries: tuple[EntryResult, ...] = ()
    already_done: bool = False
    warnings: tuple[tuple[str, str], ...] = ()
    differences: tuple[IdentityFinding, ...] = ()
    ended: tuple[EntryResult, ...] = ()


class Submit(Protocol):
    """Stores FHIR transactions: one result or Problem per unit, in order."""

    async def __call__(self, units: Sequence[Unit]) -> list[UnitResult | Problem]:
        """StoreUnreachable when the outcome of every unit is unknown."""


def single(entry: Entry, *, correlation_id: str, tenant: str = DEFAULT_TENANT) -> Unit:
    """The unit of one change by the server itself."""
    return Unit(tenant, (entry,), correlation_id)


def unit_for(request: Request, *entries: Entry, distinct: bool = False, part: tuple[str, int] | None = None) -> Unit:
    """The unit of a request, within the grants of its caller.  `part`: of a job."""
    tenant, caller, draft = request.tenant, request.caller, request.draft
    return Unit(
        tenant, entries, request.correlation_id, distinct=distinct, caller=caller, draft=draft, part=part,
        base_url=request.base_url,
    )  # fmt: skip
