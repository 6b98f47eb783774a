"""Expunge: versions of resources are removed from the database."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from ipf.ports.audit.records import Audit
from ipf.ports.fhir.resources import Version

Record = Callable[[Sequence[Version]], Sequence[Audit]]
"""From the versions that a step removes, the audit records that are written with their removal."""

DEFINITION_TYPES = frozenset({"Basic", "Consent", "SearchParameter", "Subscription", "SubscriptionTopic"})
"""Types of which every process has a copy: their last version stays, so that processes learn of the deletion."""


@dataclass(frozen=True, slots=True)
class ExpungeRequest:
    """What may be removed: of all resources of a tenant, of a type, one resource or one version.

    `previous`: former versions, also of deleted resources.  `deleted`: deleted resources with all their versions.
    """

    tenant: str
    resource_type: str | None = None
    id: str | None = None
    version_id: int | None = None
    previous: bool = False
    deleted: bool = False


class ExpungeCursor(NamedTuple):
    """The next step looks at the versions after this one."""

    rid: int = 0
    version_id: int = 0


@dataclass(frozen=True, slots=True)
class ExpungeStep:
    """The versions that one step removed, those that it kept by reason, and where the next begins; None at the end.

    Reasons: legal-hold, event (undelivered), export (running), job (its result or answer has the resource), provenance
    (a Provenance names the version), versions (a deletion with other versions), definition (`DEFINITION_TYPES`).
    """

    removed: Sequence[Version] = ()
    kept: Mapping[str, int] = field(default_factory=dict)
    next: ExpungeCursor | None = None
    refused: str = ""


class ExpungeStore(Protocol):
    """The FHIR database."""

    async def expunge(
        self, wanted: ExpungeRequest, limit: int, after: ExpungeCursor, record: Record = lambda versions: ()
    ) -> ExpungeStep:
        """Look at `limit` versions at most, in order of rid and version, and remove them in one transaction.

        The current version of a resource that is not deleted is never removed.
        """
