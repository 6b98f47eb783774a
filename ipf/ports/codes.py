"""What operators know about codes and maps: codes that no table had, what they answered, and what is installed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from ipf.ports.base import DEFAULT_TENANT, Json
from ipf.ports.inbox import Status

ALL_SENDERS = ""


@dataclass(frozen=True, slots=True)
class UnmappedRow:
    """An unmapped code of one sender.  `met`: conversions that met it; `messages`: of how many the number is kept.

    `override_id`: the answer that is given for it by now.
    """

    id: int
    source_system: str
    concept_map: str
    code: str
    first_seen: datetime
    last_seen: datetime
    met: int
    messages: int
    override_id: int | None
    tenant: str


@dataclass(frozen=True, slots=True)
class UnmappedFilter:
    """Exact filters; None = not filtered, EVERY_TENANT for the codes of all.  `is_answered`: an override answers it."""

    source_system: str | None = None
    concept_map: str | None = None
    code: str | None = None
    is_answered: bool | None = None
    tenant: str = DEFAULT_TENANT


@dataclass(frozen=True, slots=True)
class Override:
    """An operator's answer for a code of one sender (ALL_SENDERS: of every sender).

    `target_code` None: the code has no target, and that is right so.
    """

    source_system: str
    concept_map: str
    code: str
    target_system: str | None
    target_code: str | None
    target_display: str | None
    tenant: str = DEFAULT_TENANT
    id: int = 0
    created_at: datetime | None = None
    updated_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class OverrideFilter:
    """Exact filters; None = not filtered, EVERY_TENANT for the answers of all."""

    source_system: str | None = None
    concept_map: str | None = None
    code: str | None = None
    tenant: str = DEFAULT_TENANT


@dataclass(frozen=True, slots=True)
class Requeued:
    """What a requeue did: messages converted again, those that only come after one of them, failed ones retried."""

    converted_again: int
    following: int
    retried: int


@dataclass(frozen=True, slots=True)
class Conversion:
    """A further conversion of a stored message."""

    id: int
    message_id: int
    asked_at: datetime
    reason: str
    status: Status
    attempt_count: int
    last_attempt_at: datetime | None
    next_attempt_at: datetime | None
    last_error: str | None
    delivered_at: datetime | None
    correlation_id: str
    tenant: str


@dataclass(frozen=True, slots=True)
class Installed:
    """A StructureMap or ConceptMap that was installed over HTTP."""

    resource_type: str
    id: str
    url: str
    version: int
    updated_at: datetime
    resource: Json


class CodeQueue(Protocol):
    """Unmapped codes and their answers.  Every method is one committed transaction.

    Lists are of one tenant, or of all (EVERY_TENANT); a number finds its row in every tenant.
    """

    async def unmapped(self, wanted: UnmappedFilter, limit: int, offset: int) -> tuple[int, Sequence[UnmappedRow]]:
        """How many match, and one page, the last seen first."""

    async def unmapped_code(self, number: int) -> UnmappedRow | None:
        """One row."""

    async def messages(self, number: int, limit: int) -> list[int]:
        """Ids of messages that met it, the newest first."""

    async def answer(self, override: Override) -> Override:
        """Keep an answer; one for the same sender, ConceptMap and code is replaced."""

    async def overrides(self, wanted: OverrideFilter, limit: int, offset: int) -> tuple[int, Sequence[Override]]:
        """How many match, and one page, the last changed first."""

    async def override(self, number: int) -> Override | None:
        """One row."""

    async def delete_override(self, number: int) -> None:
        """Take an answer back.  Problem NOT_FOUND."""

    async def requeue(self, number: int, *, following: bool) -> Requeued:
        """Have the messages that met this code converted again.  Problem NOT_FOUND.

        A message that has been converted gets a further conversion, which leaves its own row as it is; one that failed
        is retried; one that waits is left alone.  `following`: also all later messages of the same tenant and ordering
        key, in order, so that old facts do not replace newer ones.
        """

    async def conversions(
        self, tenant: str, message_id: int | None, status: Status | None, limit: int, offset: int
    ) -> tuple[int, Sequence[Conversion]]:
        """How many match, and one page, the newest first."""

    async def retry_conversion(self, number: int) -> Conversion:
        """FAILED or DEAD_LETTER back to RECEIVED.  Problem NOT_FOUND; WrongState otherwise."""

    async def delete_conversion(self, number: int) -> None:
        """Remove a DEAD_LETTER conversion.  Problem NOT_FOUND; WrongState otherwise."""


class MappingStore(Protocol):
    """What a process that maps has to know, and whether it changed."""

    async def epochs(self) -> tuple[int, int]:
        """(epoch of everything, epoch of the maps): a number that grew says that there is something to load."""

    async def all_overrides(self) -> list[Override]:
        """Every answer of every tenant."""

    async def installed(self) -> list[Installed]:
        """Every StructureMap and ConceptMap that was installed over HTTP."""

    async def install(self, resource_type: str, url: str, resource_id: str, resource: Json) -> Installed:
        """Keep a resource; one with the same url is replaced and keeps its id; the epoch grows.

        WriteConflict: the id is that of another url.
        """

    async def remove(self, resource_type: str, resource_id: str) -> None:
        """Take it away; the epoch grows.  Problem NOT_FOUND."""

    async def maps_changed(self) -> None:
        """The files were read again: the epoch grows, so that every process does the same."""
