"""Erasure of one patient: what the two databases find, and what they remove.

Records and Protocols.  Texts of resources and messages stay within the process that erases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol


class MentioningResource(NamedTuple):
    """A resource of which some version mentions a wanted reference.

    `mentioned`: all references (Type/id) in all versions.  Of a Patient, `values`: the values of its identifiers in all
    versions; `merged_with`: the Patients that a link of its current version calls the same one (replaces, replaced-by).
    """

    rid: int
    reference: str
    version_id: int
    deleted: bool
    mentioned: frozenset[str]
    values: frozenset[str]
    merged_with: frozenset[str]


class WrittenTogether(NamedTuple):
    """A resource that a message wrote: correlation id, rid, reference, and what that version mentions."""

    correlation_id: str
    rid: int
    reference: str
    mentioned: frozenset[str]


class StoredMessage(NamedTuple):
    """A message of the inbox.  `disputed`: an open conflict says that its patient cannot be told."""

    id: int
    correlation_id: str
    status: str
    charset: str
    raw: bytes
    disputed: bool = False


class StoredReject(NamedTuple):
    """A refused frame."""

    id: int
    raw: bytes


class ErasureReceipt(NamedTuple):
    """That a patient was forgotten.  `digests`: SHA-256 of salt, tenant and reference of each Patient.

    `id` 0: not stored yet.  `signature` empty: the erasure has begun, and was not finished.
    """

    tenant: str
    at: str
    actor: str
    reason: str
    counts: Mapping[str, int]
    salt: str
    digests: Sequence[str]
    key_id: str
    signature: str
    id: int = 0


@dataclass(frozen=True, slots=True)
class ErasedResources:
    """What the FHIR database removes.  `rids`: rid -> version that was seen; `since`: when the search began.

    `redacted`: resources that stay without their references to those, as `rids`.  `correlation_ids`: of messages that
    are removed.
    """

    tenant: str
    rids: Mapping[int, int]
    references: frozenset[str]
    redacted: Mapping[int, int]
    correlation_ids: frozenset[str]
    since: datetime


@dataclass(frozen=True, slots=True)
class ErasedMessages:
    """What the inbox removes.  `values`: the patient's numbers; `references`: of his resources."""

    tenant: str
    ids: Sequence[int]
    rejects: Sequence[int]
    values: frozenset[str]
    references: frozenset[str]


class FhirCounts(NamedTuple):
    """Rows of the FHIR database that concern the resources.

    `subscriptions`: Subscriptions that are not deleted, written with a token of the patient.
    """

    versions: int
    events: int
    attempts: int
    exports: int
    answers: int
    subscriptions: Sequence[str]


class ErasureStore(Protocol):
    """The FHIR database."""

    async def mentioning(self, tenant: str, references: frozenset[str]) -> Sequence[MentioningResource]:
        """Resources of which a version, also a former one, is or mentions one of these; reads the whole tenant."""

    async def existing(self, tenant: str, references: Sequence[str]) -> frozenset[str]:
        """Those of which a resource is stored, also a deleted one."""

    async def correlations(self, tenant: str, rids: Sequence[int]) -> frozenset[str]:
        """Correlation ids of all versions of these."""

    async def written_together(self, tenant: str, correlation_ids: Sequence[str]) -> Sequence[WrittenTogether]:
        """All versions with these correlation ids."""

    async def count(self, erased: ErasedResources) -> FhirCounts:
        """What `remove` would remove."""

    async def unfinished(self, tenant: str) -> Sequence[ErasureReceipt]:
        """Receipts of erasures that began and were not finished."""

    async def begin(self, receipt: ErasureReceipt) -> ErasureReceipt:
        """Store a receipt without a signature, or change the counts of an unfinished one."""

    async def remove(self, erased: ErasedResources, receipt: ErasureReceipt) -> None:
        """Remove, and store the signed receipt, in one transaction.  Problem CONFLICT when resources changed."""

    async def receipts(self, tenant: str, limit: int, offset: int) -> tuple[int, Sequence[ErasureReceipt]]:
        """Receipts of a tenant, newest first."""


class MessageErasure(Protocol):
    """The inbox database."""

    async def by_correlation(self, tenant: str, correlation_ids: Sequence[str]) -> Sequence[StoredMessage]:
        """Messages with these correlation ids."""

    async def containing(self, tenant: str, values: frozenset[str]) -> Sequence[StoredMessage]:
        """Messages that contain one of these texts; reads all messages."""

    async def rejects(self, tenant: str, values: frozenset[str]) -> Sequence[StoredReject]:
        """Rejects that contain one of these texts."""

    async def conversions(self, ids: Sequence[int]) -> int:
        """Further conversions of these messages."""

    async def remove(self, erased: ErasedMessages) -> None:
        """Remove them, and what the queues of operators have of them and of the resources, in one transaction.

        Problem CONFLICT when a message is being converted, or is gone.
        """
