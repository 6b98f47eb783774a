"""The audit trail: what was done, by whom, to what; rows of its own, shown as AuditEvent resources.

Source: interface specification "FHIR AuditEvent resources"; https://hl7.org/fhir/R4/auditevent.html
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from ipf.ports.mapping import Origin

FHIR, ADMIN = "fhir", "admin"
"""Surfaces: what the FHIR trail shows, and what operators alone see (the admin API, reading of the trail itself)."""


@dataclass(slots=True)  # not frozen: that would triple the cost of making one, and one is made for every request
class Audit:
    """One thing that was done.  Never changed once it is made.

    `id`: UUID version 7, so that ids grow with `recorded_at`, which has whole milliseconds.  `interaction`: `create`,
    `read`, `search` ...; on the admin surface `message-read`, `message-retry` ...  `action`: C R U D E.  `outcome`:
    0, 4 or 8; `status`: of the HTTP answer, 0 = there was none.  `agent`: subject or client of the token; `agent_name`:
    the client; `user`: `fhirUser`.  `target`: what was asked for, such as `Patient?name=x`.  `entities`: what was
    written or shown (`Patient/1/_history/2`, at most MOST_ENTITIES); `patients`: whom it is about.
    `origin`: of a message of a vendor profile, what the profile adds.
    """

    tenant: str
    id: str
    recorded_at: datetime
    duration_ms: int
    surface: str
    interaction: str
    action: str
    outcome: int
    status: int
    agent: str
    correlation_id: str
    agent_name: str = ""
    issuer: str = ""
    user: str = ""
    address: str = ""
    target: str = ""
    entities: tuple[str, ...] = ()
    patients: tuple[str, ...] = ()
    origin: Origin | None = None


MOST_ENTITIES = 500

Trail = Callable[[Audit], None]
"""Takes a record at once and keeps it; never raises, never waits."""

Later = Callable[[Callable[[], Audit]], None]
"""Takes what makes a record, and makes and keeps it within a moment; never raises, never waits."""


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """What to look for; all must hold.  None and empty = no filter.

    `keys`: of each group one must be among the record's (`keys_of`).  `since` and `until`: inclusive bounds of
    `recorded_at`.  The sets name allowed values; an empty set allows none.
    """

    surface: str | None = None
    keys: tuple[tuple[str, ...], ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    ids: frozenset[str] | None = None
    agents: frozenset[str] | None = None
    actions: frozenset[str] | None = None
    outcomes: frozenset[int] | None = None
    interactions: frozenset[str] | None = None


def keys_of(audit: Audit) -> list[str]:
    """What a record is found by: `e:` what it is about, `a:` who did it, `c:` its correlation id."""
    about = {entity.partition("/_history/")[0] for entity in audit.entities}
    keys = [f"e:{one}" for one in sorted(about.union(audit.patients))]
    keys.append(f"a:{audit.agent}\t{audit.issuer}")
    if audit.user:
        keys.append(f"a:{audit.user}")
    if audit.correlation_id:
        keys.append(f"c:{audit.correlation_id}")
    return keys


class AuditStore(Protocol):
    """The rows.  Everything is of one tenant, but for `purge`."""

    async def append(self, audits: Sequence[Audit]) -> None:
        """Store all, durable when it returns; those that are there already are left as they are."""

    async def find(
        self, tenant: str, wanted: AuditFilter, limit: int, after: str | None = None, *, oldest_first: bool = False
    ) -> list[Audit]:
        """Records in the order of their ids, newest first; `after`: only those behind this id."""

    async def page(self, tenant: str | None, wanted: AuditFilter, limit: int, offset: int) -> tuple[int, list[Audit]]:
        """How many match, and a page of them, newest first; `tenant` None: of all tenants (for operators)."""

    async def count(self, tenant: str, wanted: AuditFilter) -> int:
        """How many match."""

    async def purge(self, before: datetime, limit: int) -> int:
        """Remove at most `limit` records that are older; how many were."""
