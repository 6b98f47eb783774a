"""Erasure of one patient: what the two databases find, and what they remove.

Records and Protocols.  Texts of resources and messages stay within the process that erases.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol

Identifier = tuple[str, str]
"""System and value."""


class MentioningResource(NamedTuple):
    """A resource of which some version mentions a wanted reference.

    `mentioned`: all references (Type/id) in all versions.  Of a Patient, `values`: the values of its identifiers in all
    versions; `merged_with`: the Patients that a link of its current version calls the same one (replaces, replaced-by).
    `identifiers`: these values with their systems.  `named`: identifiers of References, which may be of Patients.  Of a
    resource with criteria, `texts`: its free texts in all versions.
    """

    rid: int
    reference: str
    version_id: int
    deleted: bool
    mentioned: frozenset[str]
    values: frozenset[str]
    merged_with: frozenset[str]
    identifiers: frozenset[Identifier] = frozenset()
    named: frozenset[Identifier] = frozenset()
    texts: frozenset[str] = frozenset()


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


class StoredSearch(NamedTuple):
    """What somebody searched messages for: the selection of a job of operators, or a saved view of the console.

    `texts`: names and conditions; `words`: that it looks for inside of messages.  `ended`: False for a job that still
    needs its selection.
    """

    kind: str
    id: int
    texts: Sequence[str]
    words: str = ""
    ended: bool = True


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
    are removed.  `values`: the patient's numbers; `texts`: these, and all else that names him; `identifiers`: his, by
    which a Reference may name him.
    """

    tenant: str
    rids: Mapping[int, int]
    references: frozenset[str]
    redacted: Mapping[int, int]
    correlation_ids: frozenset[str]
    since: datetime
    values: frozenset[str] = frozenset()
    texts: frozenset[str] = frozenset()
    identifiers: frozenset[Identifier] = frozenset()


@dataclass(frozen=True, slots=True)
class ErasedMessages:
    """What the inbox removes.  `values`: the patient's numbers; `references`: of his resources.

    `jobs`, `views`: those of `StoredSearch` that are his; `known`: kind and id of all searches that were looked at.
    """

    tenant: str
    ids: Sequence[int]
    rejects: Sequence[int]
    values: frozenset[str]
    references: frozenset[str]
    jobs: Sequence[int] = ()
    views: Sequence[int] = ()
    known: frozenset[tuple[str, int]] = frozenset()


class FhirCounts(NamedTuple):
    """Rows of the FHIR database that concern the resources.

    `subscriptions`: Subscriptions that are not deleted, written with a token of the patient.
    """

    versions: int
    events: int
    attempts: int
    exports: int
    jobs: int
    answers: int
    tokens: int
    subscriptions: Sequence[str]


class InboxCounts(NamedTuple):
    """Rows of the inbox that concern the messages and resources.  `errors`: of other messages, that are rewritten."""

    conversions: int
    unmapped_codes: int
    conflicts: int
    errors: int


class ErasureStore(Protocol):
    """The FHIR database."""

    async def mentioning(
        self, tenant: str, references: frozenset[str], identifiers: frozenset[Identifier] = frozenset()
    ) -> Sequence[MentioningResource]:
        """Resources of which a version, also a former one, is or mentions one of these; reads the whole tenant.

        And Patients with one of these identifiers, and resources with a Reference by one.
        """

    async def searching(self, tenant: str) -> Sequence[MentioningResource]:
        """Subscriptions and topics, whose criteria may name a patient without a reference; with their `texts`."""

    async def texts(self, tenant: str, rids: Sequence[int]) -> frozenset[str]:
        """What names the person in all versions of these resources: numbers, names, addresses, telephone numbers."""

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

    async def searches(self, tenant: str) -> Sequence[StoredSearch]:
        """Jobs that were selected by a text, and all saved views."""

    async def finds_others(self, tenant: str, words: str, ids: Collection[int]) -> bool:
        """Whether a message other than these contains all these words."""

    async def count(self, erased: ErasedMessages) -> InboxCounts:
        """What `remove` would remove beside messages, rejects and searches."""

    async def remove(self, erased: ErasedMessages) -> None:
        """Remove them, and what the queues of operators have of them and of the resources, in one transaction.

        Problem CONFLICT when a message is being converted, or is gone; or when somebody searched since.
        """
