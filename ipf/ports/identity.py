"""How the resources of a converted message are identified, and what operators decide where that is ambiguous.

`mapping` makes an `Identity` for each entry; `rest/write` finds the stored resource for it.  What cannot be decided is
an `IdentityConflict`: the message fails, and the finding waits for an operator in the inbox database.  The answer is
stored in the FHIR database, where every later message with the same key finds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from ipf.errors import Category, Problem
from ipf.ports.base import DEFAULT_TENANT


class Role(StrEnum):
    """What an ambiguous match means: a subject and a principal fail the message, an auxiliary never does.

    `subject`: a Patient.  `principal`: what the message is about (visit, order, report, document ...).  `auxiliary`:
    what it only mentions (an Organization, a Practitioner, the order of a result).
    """

    SUBJECT = "subject"
    PRINCIPAL = "principal"
    AUXILIARY = "auxiliary"


@dataclass(frozen=True, slots=True)
class IdentityKey:
    """An identifier that identifies: system, type (code of table 0203, "" = none), value."""

    system: str
    type: str
    value: str

    @property
    def text(self) -> str:
        """`system|type|value`; the key of an answer."""
        return f"{self.system}|{self.type}|{self.value}"


OVERLAY = 3
"""How many of family name, birth date and sex differ where an equal number is of another person, unless configured."""

ServiceCode = tuple[str, str]
"""System (empty = none, `text` = the code is a text) and code of what is ordered."""


@dataclass(frozen=True, slots=True)
class Siblings:
    """The other services that a message has under the number of an order.  All orders of the number share the counts.

    `counts`: by code and system, how many services of the number have it.  `own`: the service of this order.
    `are_any`: whether there is another service.
    """

    counts: Mapping[str, Mapping[str, int]]
    own: frozenset[ServiceCode]
    are_any: bool

    def agree(self, codes: Iterable[ServiceCode]) -> bool:
        """Whether one of them has one of these codes; a code without a system agrees with the same one of any."""
        return any(self._has(system, code) for system, code in codes)

    def _has(self, system: str, code: str) -> bool:
        counts = self.counts.get(code, {})
        systems = (system, "") if system else tuple(counts)
        return any(counts.get(one, 0) > ((one, code) in self.own) for one in systems)


NO_SIBLINGS = Siblings({}, frozenset(), False)


@dataclass(frozen=True, slots=True)
class Service:
    """What tells the orders of one number apart.

    `codes`: of what is ordered; empty: the message does not say it.  `is_new`: the message says that the order is new.
    """

    codes: frozenset[ServiceCode]
    siblings: Siblings = field(compare=False)
    is_new: bool


@dataclass(frozen=True, slots=True)
class Identity:
    """How an entry of a converted message finds its resource: any of `keys`, the most important first.

    `may_move`: the map of the message moves resources of this type from one of its Patients to another.  `is_weak`: the
    keys of a Patient are of kinds that do not identify alone, but there are no others; name and birth date must agree.
    `service`: of an order, whose number may cover several.  `overlay`: of a Patient, for each of `keys` how many of
    family name, birth date and sex must differ before an equal number is a conflict; 0: never; empty: OVERLAY for all.
    `further`: what a search of another FHIR server has beside the number, when a message has several things under it.
    `is_declared`: the event says that the data of the Patient changes (a change of the identifier).
    """

    keys: tuple[IdentityKey, ...]
    role: Role
    may_move: bool = False
    is_weak: bool = False
    service: Service | None = None
    overlay: tuple[int, ...] = ()
    is_declared: bool = False
    further: str = ""


class ConflictKind(StrEnum):
    """Why a match was not made.

    `overlay`: a Patient has an equal number, and is another person by family name, birth date and sex.  `difference`: a
    match that was made, though the person differs in part; its row is closed from the start.

    `ambiguous`: several resources match.  `contradiction`: a resource matches by one identifier and differs in another
    one of the same authority and type, or in the person.  `subject`: the match belongs to another patient.
    """

    AMBIGUOUS = "ambiguous"
    CONTRADICTION = "contradiction"
    SUBJECT = "subject"
    OVERLAY = "overlay"
    DIFFERENCE = "difference"


@dataclass(frozen=True, slots=True)
class IdentityFinding:
    """A match that was not made.  `keys`: those of the entry.  `candidates`: `Type/id` of the matches, oldest first.

    `subject`: `Patient/id` of the message, when it is known.  `place`: the entry (`Bundle.entry[2]`).
    """

    kind: ConflictKind
    resource_type: str
    keys: tuple[IdentityKey, ...]
    candidates: tuple[str, ...]
    subject: str | None = None
    place: str | None = None

    @property
    def slot(self) -> str:
        """What a message has one row for: the entry; a match that was made does not replace the conflict before it."""
        place = self.place or ""
        return f"{place} {self.kind}".strip() if self.kind is ConflictKind.DIFFERENCE else place


class IdentityConflict(Problem):
    """An ambiguous or conflicting match.  No retry mends it; an answer of an operator does.

    `text` names the resource type, system and type of the keys (no values, they are data of a patient) and the
    candidates; `finding` has the values.
    """

    def __init__(self, finding: IdentityFinding, text: str) -> None:
        super().__init__(Category.AMBIGUOUS, text, finding.place)
        self.finding = finding


class AnswerKind(StrEnum):
    """`merge`: the candidates are one person.  `apart`: none of them is meant.  `take`: this one is meant."""

    MERGE = "merge"
    APART = "apart"
    TAKE = "take"


@dataclass(frozen=True, slots=True)
class IdentityAnswer:
    """A decision: what messages with `key` (IdentityKey.text) as first key mean is `resource_type/resource_id`.

    For `apart`, `resource_id` is a new id; the resource is created with it.
    """

    resource_type: str
    key: str
    resource_id: str
    kind: AnswerKind
    answered_by: str
    reason: str = ""
    tenant: str = DEFAULT_TENANT
    id: int = 0
    answered_at: datetime | None = None


class IdentityAnswers(Protocol):
    """The answers, in the FHIR database.  Every method is one committed transaction."""

    async def record(self, answer: IdentityAnswer) -> IdentityAnswer:
        """Store an answer; it replaces the one for the same tenant, type and key."""

    async def answers(self, tenant: str, limit: int, offset: int) -> tuple[int, Sequence[IdentityAnswer]]:
        """Number and one page, newest first; EVERY_TENANT = of all tenants."""

    async def revoke(self, tenant: str, number: int) -> None:
        """Delete an answer.  Problem NOT_FOUND."""


class ConflictStatus(StrEnum):
    """State of a conflict.

    `open`: waits for an answer.  `answered`: its message is converted again.  `closed`: its message was delivered or
    discarded.
    """

    OPEN = "open"
    ANSWERED = "answered"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class ConflictRow:
    """A finding in the review queue, with its message.  The last four fields are None until it is answered.

    `message_status`: state of what waits: of the message, or of its further conversion (`conversion_id`).
    """

    id: int
    message_id: int
    correlation_id: str
    source_system: str
    source_id: str
    message_type: str
    detected_at: datetime
    status: ConflictStatus
    finding: IdentityFinding
    message_status: str
    conversion_id: int | None = None
    tenant: str = DEFAULT_TENANT
    answer: AnswerKind | None = None
    target: str | None = None
    answered_by: str | None = None
    answered_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class ConflictFilter:
    """Exact filters; None = not filtered, EVERY_TENANT = of all tenants."""

    status: ConflictStatus | None = None
    source_system: str | None = None
    resource_type: str | None = None
    message_id: int | None = None
    tenant: str = DEFAULT_TENANT


@dataclass(frozen=True, slots=True)
class Released:
    """What an answer released.  `retried`: messages that waited; `converted_again`: later ones that had passed."""

    retried: int
    converted_again: int


class IdentityConflicts(Protocol):
    """The review queue, in the inbox database.  `Inbox.settle` writes the rows: a Settlement has a `conflict`.

    A message has at most one open row: a further attempt replaces what it found before.  The row is closed when the
    message is delivered, and deleted with the message.
    """

    async def conflicts(self, wanted: ConflictFilter, limit: int, offset: int) -> tuple[int, Sequence[ConflictRow]]:
        """Number of matches and one page, newest first."""

    async def conflict(self, number: int) -> ConflictRow | None:
        """One row; None when there is none."""

    async def answer(self, number: int, kind: AnswerKind, target: str | None, answered_by: str) -> Released:
        """Mark a conflict answered, and with it all open ones of the tenant that the same answer decides.

        Those have the same resource type and first key; for `merge` also those with the same candidates.  Their FAILED
        and DEAD_LETTER messages are retried.  Messages of the patient that were converted after one of them are
        converted again after it, in order.  Problem NOT_FOUND; CONFLICT when it is closed.
        """

    async def open_count(self) -> int:
        """Number of open rows of all tenants."""
