"""The hash chain of the audit trail: links, signed heads, and the store of both.

A chain has the records of one tenant and surface.  `security.audit_chain` computes hashes and says what they cover.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, Protocol

Chain = tuple[str, str]
"""Tenant and surface."""

Record = dict[str, Any]
"""The columns of a row of `audit_records` that a hash covers, as JSON."""


COLUMNS = (
    "partition_id", "surface", "recorded_at", "id", "interaction", "action", "outcome", "status", "agent", "agent_name",
    "issuer", "user_reference", "address", "duration_ms", "correlation_id", "target", "entities", "patients", "origin",
    "keys", "purpose", "request_id",
)  # fmt: skip
"""The columns that the digest of a record covers in version 1."""


class Link(NamedTuple):
    """The place of a record.  `number`: within the day, from 1.  Hashes in hexadecimal digits.

    `digest`: of the record; None: the record was missing when it was to be chained.  `recorded_at`: as the database
    writes it in JSON.  `day`: ISO 8601, the day on which the record was chained.
    """

    position: int
    tenant: str
    surface: str
    day: str
    number: int
    id: str
    recorded_at: str
    version: int
    digest: str | None
    hash: str

    @property
    def chain(self) -> Chain:
        """Tenant and surface."""
        return self.tenant, self.surface


class Head(NamedTuple):
    """A signed statement on a chain: at the time `at` its last link was this one.

    `reason`: `hour`, `day`, `stop`; or `retention`: records from before `before` were removed because of their age.
    """

    tenant: str
    surface: str
    day: str
    number: int
    hash: str
    at: str
    reason: str
    before: str | None
    key_id: str
    signature: str

    @property
    def chain(self) -> Chain:
        """Tenant and surface."""
        return self.tenant, self.surface


class PublicKey(NamedTuple):
    """A public key (Ed25519, 32 bytes in hexadecimal digits) that has signed heads."""

    key_id: str
    public_key: str
    created_at: str


class Waiting(NamedTuple):
    """A committed record that is in no chain yet.  `record` None: its row is gone."""

    tenant: str
    surface: str
    recorded_at: str
    id: str
    record: Record | None


class Linked(NamedTuple):
    """A link and its record; None: the row is gone."""

    link: Link
    record: Record | None


@dataclass(frozen=True, slots=True)
class ChainFilter:
    """Which links; None = no condition.  `since` and `until`: days, both included."""

    tenant: str | None = None
    surface: str | None = None
    since: str | None = None
    until: str | None = None


MakeLinks = Callable[[str, Sequence[Waiting], Mapping[Chain, Link], int], tuple[list[Link], list[Head]]]
"""Installation, records in order, last link of each chain, last position: their links, and heads of days that end."""


class AuditChainStore(Protocol):
    """Storage of chains.  Each call is a transaction of its own."""

    async def take_up(self, limit: int, make: MakeLinks) -> int:
        """Chain up to `limit` waiting records; their number.  0 as well while another process does so."""

    async def backlog(self) -> tuple[int, datetime | None]:
        """Waiting records (counted up to 100,000), and the time of the first."""

    async def tails(self, without_head_since: datetime | None) -> list[Link]:
        """Last links without a head.  With a time: of chains that have no head since then."""

    async def add_heads(self, heads: Sequence[Head]) -> None:
        """Store heads."""

    async def add_key(self, key_id: str, public_key: str) -> None:
        """Store a public key, once."""

    async def keys(self) -> list[PublicKey]:
        """All public keys, oldest first."""

    async def installation(self) -> str:
        """The id of this installation."""

    async def heads(self, wanted: ChainFilter, limit: int, offset: int) -> tuple[int, list[Head]]:
        """Number of heads and one page, newest first."""

    async def cuts(self, before: datetime) -> list[Link]:
        """For each chain the last link with only older records before it, itself included."""

    async def remove_links(self, limit: int) -> int:
        """Remove up to `limit` links before the newest head of reason `retention`, and heads there; their number."""

    async def anchors(self, wanted: ChainFilter) -> list[Link]:
        """For each chain the last link before `wanted.since`."""

    async def links(self, wanted: ChainFilter, after: int, limit: int) -> list[Linked]:
        """Links and records by position."""

    async def unlinked(self, wanted: ChainFilter, day: str, limit: int) -> tuple[list[Record], str | None]:
        """Records of a day that are in no chain and do not wait for it; and the next day that has records."""
