"""The audit trail: who did what to which resource; rows of its own, shown as AuditEvent resources.

Source: interface specification "FHIR AuditEvent resources"; https://hl7.org/fhir/R4/auditevent.html
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, Protocol

from ipf.ports.http import Answer, Request
from ipf.ports.mapping import Origin

FHIR, ADMIN = "fhir", "admin"
"""Surfaces: records shown as AuditEvents, and those for operators alone (the admin API, reads of the trail)."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Kind(NamedTuple):
    """What many records have in common: tenant, interaction, outcome and agent.

    `interaction`: `create`, `read`, `search` ...; on the admin surface `message-read`, `message-retry` ...  `action`:
    C R U D E.  `outcome`: 0, 4 or 8; `status`: of the HTTP answer, 0 = there was none.  `agent`: subject or client of
    the token; `agent_name`: the client; `user`: `fhirUser`.
    """

    tenant: str
    surface: str
    interaction: str
    action: str
    outcome: int
    status: int
    agent: str
    agent_name: str = ""
    issuer: str = ""
    user: str = ""
    address: str = ""


class Audit(NamedTuple):
    """One audit record.

    `at`: the end of the interaction, in milliseconds since 1970; `tail`: the rest of the id (`7xxx-xxxx-xxxxxxxxxxxx`).
    `target`: path and query of the request, such as `Patient?name=x`; None = the first of `entities`.  `entities`:
    resources written or shown (`Patient/1/_history/2`, at most MOST_ENTITIES); `patients`: further patients that these
    refer to.  `origin`: what a vendor profile adds to the record of a message.
    """

    kind: Kind
    at: int
    tail: str
    duration_ms: int
    correlation_id: str
    target: str | None = ""
    entities: tuple[str, ...] = ()
    patients: tuple[str, ...] = ()
    origin: Origin | None = None

    @property
    def id(self) -> str:
        """UUID version 7, so that ids grow with time."""
        return beginning(self.at) + self.tail

    @property
    def recorded_at(self) -> datetime:
        """The end of the interaction."""
        return moment_of(self.at)

    @property
    def asked(self) -> str:
        """Path and query of the request."""
        return base_of(self.entities[0]) if self.target is None else self.target

    @property
    def all_patients(self) -> list[str]:
        """All patients that it is about."""
        named = (base_of(one) for one in self.entities if one.startswith("Patient/"))
        return list(dict.fromkeys((*named, *self.patients)))


MOST_ENTITIES = 500

Trail = Callable[[Audit], None]
"""Takes a record; never raises, never waits."""

Exchange = tuple[Request, Answer, float, int]
"""A request, its answer, its duration in seconds, and its end in milliseconds since 1970."""

NoteExchange = Callable[[Exchange], None]
"""Takes an exchange of which a record is made a moment later, if the rules ask for one; never raises, never waits."""

MakeRecords = Callable[[Sequence[Exchange]], list[Audit]]
"""The records of these exchanges; never raises."""


def base_of(reference: str) -> str:
    """A reference without its version."""
    return reference.partition("/_history/")[0]


def millisecond_of(moment: datetime) -> int:
    """Whole milliseconds since 1970."""
    return int(moment.timestamp() * 1000 + 0.0005)  # so that what is whole stays so; times have whole microseconds


def moment_of(milliseconds: int) -> datetime:
    """The moment so many milliseconds after 1970 began."""
    return _EPOCH + timedelta(milliseconds=milliseconds)


def beginning(milliseconds: int) -> str:
    """The beginning of the ids of a millisecond."""
    text = f"{milliseconds:012x}"
    return f"{text[:8]}-{text[8:]}-"


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

    def allows(self, kind: Kind) -> bool:
        """Whether records of this kind may pass (all conditions but `keys`, `ids` and times)."""
        return (
            self.surface in (None, kind.surface)
            and (self.agents is None or kind.agent in self.agents)
            and (self.actions is None or kind.action in self.actions)
            and (self.outcomes is None or kind.outcome in self.outcomes)
            and (self.interactions is None or kind.interaction in self.interactions)
        )


def keys_of(audit: Audit) -> list[str]:
    """The keys that find a record: `e:` entities and patients, `a:` the agent, `c:` the correlation id."""
    about = set(map(base_of, audit.entities))
    keys = [f"e:{one}" for one in sorted(about.union(audit.patients))]
    keys += agent_keys(audit.kind)
    if audit.correlation_id:
        keys.append(f"c:{audit.correlation_id}")
    return keys


def agent_keys(kind: Kind) -> list[str]:
    """The keys of the agent."""
    keys = [f"a:{kind.agent}\t{kind.issuer}"]
    if kind.user:
        keys.append(f"a:{kind.user}")
    return keys


class AuditStore(Protocol):
    """The records.  All calls concern one tenant, except `page` without one and maintenance."""

    async def append(self, audits: Sequence[Audit]) -> None:
        """Store all, durable when it returns; a repeat changes nothing."""

    async def find(
        self, tenant: str, wanted: AuditFilter, limit: int, after: str | None = None, *, oldest_first: bool = False
    ) -> list[Audit]:
        """Records in the order of their ids, newest first; `after`: only those behind this id."""

    async def page(self, tenant: str | None, wanted: AuditFilter, limit: int, offset: int) -> tuple[int, list[Audit]]:
        """How many match, and a page of them, newest first; `tenant` None: of all tenants (for operators)."""

    async def count(self, tenant: str, wanted: AuditFilter) -> int:
        """How many match."""

    async def purge(self, before: datetime, limit: int) -> int:
        """Remove older records: months that have ended before at once, of the others at most `limit`.  Returns how
        many."""

    async def ensure_month(self, moment: datetime) -> None:
        """Make ready to take records of the month of this moment."""

    async def unpack(self, limit: int) -> int:
        """Make records of earlier releases searchable, `limit` blocks of them; how many records those had."""
