"""Consents, as every process must know them before it decides on access."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ipf.ports.base import Json


@dataclass(frozen=True, slots=True)
class StoredConsent:
    """The current version of a Consent; `resource` None: it is deleted, or cannot deny anything."""

    tenant: str
    rid: int
    resource: Json | None


class ConsentSource(Protocol):
    """Reads the Consents of all tenants."""

    async def epoch(self) -> int:
        """A number that grows with every committed change of a Consent, in the order of the commits."""

    async def page(self, after_rid: int, limit: int) -> Sequence[StoredConsent]:
        """Live Consents that may deny something, in order of rid; fewer than `limit` at the end."""

    async def changes(self, since: int) -> Sequence[StoredConsent]:
        """The Consents that were written after the epoch `since`."""
