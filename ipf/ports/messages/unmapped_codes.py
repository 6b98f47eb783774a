"""Unmapped codes and their overrides, further conversions of messages, and installed maps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from ipf.ports.base import DEFAULT_TENANT, Json
from ipf.ports.messages.inbox import Status

ALL_SENDERS = ""


@dataclass(frozen=True, slots=True)
class UnmappedRow:
    """A code of one sender that its ConceptMap does not contain.

    `occurrences`: number of conversions with this code.  `messages`: number of message ids that are kept for a requeue.
    `override_id`: the override that applies now.
    """

    id: int
    source_system: str
    concept_map: str
    code: str
    first_seen: datetime
    last_seen: datetime
    occurrences: int
    messages: int
    override_id: int | None
    tenant: str


@dataclass(frozen=True, slots=True)
class UnmappedFilter:
    """Exact filters; None = not filtered, EVERY_TENANT = codes of all tenants."""

    source_system: str | None = None
    concept_map: str | None = None
    code: str | None = None
    has_override: bool | None = None
    tenant: str = DEFAULT_TENANT


@dataclass(frozen=True, slots=True)
class Override:
    """The target of a code of one sender (ALL_SENDERS: of every sender), set by an operator.

    `target_code` None: the code deliberately has no target.
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
    """Exact filters; None = not filtered, EVERY_TENANT = overrides of all tenants."""

    source_system: str | None = None
    concept_map: str | None = None
    code: str | None = None
    tenant: str = DEFAULT_TENANT


@dataclass(frozen=True, slots=True)
class Requeued:
    """Number of messages that a requeue converts again, of later messages converted after them, and of retries."""

    converted_again: int
    following: int
    retried: int


@dataclass(frozen=True, slots=True)
class Conversion:
    """A further conversion of a stored message.  `permanent`: no retry mends the last error.

    `reason`: the job, unmapped code or identity conflict that requested it, or that it had passed an earlier message.
    """

    id: int
    message_id: int
    requested_at: datetime
    reason: str
    status: Status
    attempt_count: int
    last_attempt_at: datetime | None
    next_attempt_at: datetime | None
    last_error: str | None
    delivered_at: datetime | None
    correlation_id: str
    tenant: str
    permanent: bool = False


@dataclass(frozen=True, slots=True)
class InstalledMap:
    """A StructureMap, ConceptMap or StructureDefinition installed over HTTP."""

    resource_type: str
    id: str
    url: str
    version: int
    updated_at: datetime
    resource: Json


class UnmappedCodes(Protocol):
    """Unmapped codes, overrides and further conversions.  Every method is one committed transaction.

    Lists contain rows of one tenant, or of all (EVERY_TENANT); row numbers are unique across tenants.
    """

    async def unmapped(self, wanted: UnmappedFilter, limit: int, offset: int) -> tuple[int, Sequence[UnmappedRow]]:
        """Number of matches and one page, most recently seen first."""

    async def unmapped_code(self, number: int) -> UnmappedRow | None:
        """One row; None when there is none."""

    async def message_ids(self, number: int, limit: int) -> list[int]:
        """Ids of messages with this code, newest first."""

    async def set_override(self, override: Override) -> Override:
        """Store an override; replaces the one of the same sender, ConceptMap and code."""

    async def overrides(self, wanted: OverrideFilter, limit: int, offset: int) -> tuple[int, Sequence[Override]]:
        """Number of matches and one page, most recently changed first."""

    async def override(self, number: int) -> Override | None:
        """One row; None when there is none."""

    async def delete_override(self, number: int) -> None:
        """Delete an override.  Problem NOT_FOUND."""

    async def requeue(self, number: int, *, following: bool) -> Requeued:
        """Convert the messages with this code again.  Problem NOT_FOUND.

        A converted message gets a further conversion; its own row does not change.  A failed message is retried.  A
        waiting message is not changed.  `following`: also convert all later messages of the same tenant and ordering
        key again, in order, so that older data does not replace newer data.
        """

    async def conversions(
        self, tenant: str, message_id: int | None, status: Status | None, limit: int, offset: int
    ) -> tuple[int, Sequence[Conversion]]:
        """Number of matches and one page, newest first."""

    async def retry_conversion(self, number: int) -> Conversion:
        """Reset FAILED or DEAD_LETTER to RECEIVED.  Problem NOT_FOUND; WrongState in any other state."""

    async def delete_conversion(self, number: int) -> None:
        """Delete a DEAD_LETTER conversion.  Problem NOT_FOUND; WrongState in any other state."""


class MappingStore(Protocol):
    """Overrides and installed maps for the processes that map.  Epochs show whether something changed."""

    async def epochs(self) -> tuple[int, int]:
        """(epoch of overrides and maps, epoch of maps).  An increased epoch requires a reload."""

    async def all_overrides(self) -> list[Override]:
        """All overrides of all tenants."""

    async def installed(self) -> list[InstalledMap]:
        """All installed StructureMaps, ConceptMaps and StructureDefinitions."""

    async def install(self, resource_type: str, url: str, resource_id: str, resource: Json) -> InstalledMap:
        """Store a resource and increase the epoch.  A resource with the same url is replaced and keeps its id.

        WriteConflict: the id belongs to another url.
        """

    async def remove(self, resource_type: str, resource_id: str) -> None:
        """Delete a resource and increase the epoch.  Problem NOT_FOUND."""

    async def maps_changed(self) -> None:
        """Increase the epoch, so that every process reloads the map files."""
