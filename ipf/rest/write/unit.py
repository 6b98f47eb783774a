"""What a FHIR transaction is made of before it is planned, and what became of it afterwards.

A converted message, an HTTP transaction, and a single create, update or delete all become a `Unit`: entries that are
stored together or not at all.  Many units may share one database transaction (`ipf.rest.write.commit`); they still
succeed
and fail one by one.

Source: https://hl7.org/fhir/R4/http.html#transaction
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from ipf.fhir.topics.basic import TOPIC_TYPES, topic_in
from ipf.ports import DEFAULT_TENANT, SYSTEM, Caller, Request, Version
from ipf.ports.entries import Entry, Link, Method
from ipf.ports.mapping import Origin

__all__ = ["EPOCH_TYPES", "Entry", "EntryResult", "Method", "Outcome", "Unit", "UnitResult", "asked_by", "single"]

EPOCH_TYPES = frozenset({"Subscription", "SearchParameter", *TOPIC_TYPES})


@dataclass(slots=True)
class Unit:
    """One FHIR transaction of one tenant.

    `receipt`: when this key was stored before, the unit is answered as done and writes nothing; otherwise the key is
    stored together with the entries.  `distinct`: two updates of one resource are refused even when they say the same,
    as R4 asks; a converted message may say a thing twice.  `references`: every reference to an entry in the resources,
    when whoever made them knows; their texts are then replaced where they stand, and the resources are this unit's own.
    None = they are looked for by the entries' `full_url`, and the resources are never changed.
    `caller`: whose grants every entry must be within, also as the store is when the unit is planned.
    `origin`: what the audit record of a converted message says more.
    """

    tenant: str
    entries: tuple[Entry, ...]
    correlation_id: str
    receipt: str | None = None
    distinct: bool = False
    references: Sequence[Link] | None = None
    caller: Caller = SYSTEM
    origin: Origin | None = None

    @property
    def changes_subscriptions(self) -> bool:
        """Whether a Subscription, a topic or a SearchParameter may be written: what every writer must know of.

        A Basic with other content counts as no topic; that it replaces one is seen when it is planned.
        """
        if EPOCH_TYPES.isdisjoint([entry.resource_type for entry in self.entries]):
            return False
        return any(entry.resource_type in EPOCH_TYPES and not _is_plain_basic(entry) for entry in self.entries)


def _is_plain_basic(entry: Entry) -> bool:
    return entry.resource_type == "Basic" and entry.resource is not None and topic_in(entry.resource) is None


class Outcome(StrEnum):
    """What became of an entry.  `found`: the If-None-Exist of a create had a match; `unchanged`: nothing was new."""

    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    FOUND = "found"
    DELETED = "deleted"


@dataclass(slots=True)
class EntryResult:
    """How one entry ended: the HTTP status that an answer gives, and the current version.

    `version` is None only for the deletion of what was not there.
    """

    status: int
    outcome: Outcome
    version: Version | None


@dataclass(slots=True)
class UnitResult:
    """How one unit ended, entry by entry in its order.  `already_done`: its receipt was there; then no entries."""

    entries: tuple[EntryResult, ...] = ()
    already_done: bool = False


def single(entry: Entry, *, correlation_id: str, tenant: str = DEFAULT_TENANT) -> Unit:
    """The unit of one change that this server makes itself."""
    return Unit(tenant, (entry,), correlation_id)


def asked_by(request: Request, *entries: Entry, distinct: bool = False) -> Unit:
    """The unit of what a request asks for, within the grants of its caller."""
    return Unit(request.tenant, entries, request.correlation_id, distinct=distinct, caller=request.caller)
