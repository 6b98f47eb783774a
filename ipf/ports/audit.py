"""The audit trail: what was done, by whom, to what; rows of its own, shown as AuditEvent resources.

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
"""Surfaces: what the FHIR trail shows, and what operators alone see (the admin API, reading of the trail itself)."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Kind(NamedTuple):
    """What very many records have in common: whose, what was done, how it ended, and by whom.

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
    """One thing that was done.

    `at`: its end, in milliseconds since 1970; `tail`: what makes its id unique (`7xxx-xxxx-xxxxxxxxxxxx`).  `target`:
    what was asked for, such as `Patient?name=x`; None = the first of `entities`.  `entities`: what was written or shown
    (`Patient/1/_history/2`, at most MOST_ENTITIES); `patients`: whom it is about, beside those.  `origin`: of a message
    of a vendor profile, what the profile adds.
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
        """The end of what was done."""
        return moment_of(self.at)

    @property
    def asked(self) -> str:
        """What was asked for."""
        return base_of(self.entities[0]) if self.target is None else self.target

    @property
    def everyone(self) -> list[str]:
        """All patients whom it is about."""
        named = (base_of(one) for one in self.entities if one.startswith("Patient/"))
        return list(dict.fromkeys((*named, *self.patients)))


MOST_ENTITIES = 500

Trail = Callable[[Audit], None]
"""Takes a record at once and keeps it; never raises, never waits."""

Heard = tuple[Request, Answer, float, int]
"""A request with its answer, the seconds that it took, and when it ended, in milliseconds since 1970."""

Later = Callable[[Heard], None]
"""Takes what a record may be made of, and makes and keeps it within a moment; never raises, never waits."""

Make = Callable[[Sequence[Heard]], list[Audit]]
"""The records of what was heard; never raises."""


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
    """How the ids of a millisecond begin."""
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
        """Whether what is asked of kinds holds (everything but `keys`, `ids` and times)."""
        return (
            self.surface in (None, kind.surface)
            and (self.agents is None or kind.agent in self.agents)
            and (self.actions is None or kind.action in self.actions)
            and (self.outcomes is None or kind.outcome in self.outcomes)
            and (self.interactions is None or kind.interaction in self.interactions)
        )


def keys_of(audit: Audit) -> list[str]:
    """What a record is found by: `e:` what it is about, `a:` who did it, `c:` its correlation id."""
    about = set(map(base_of, audit.entities))
    keys = [f"e:{one}" for one in sorted(about.union(audit.patients))]
    keys += agent_keys(audit.kind)
    if audit.correlation_id:
        keys.append(f"c:{audit.correlation_id}")
    return keys


def agent_keys(kind: Kind) -> list[str]:
    """Of the keys, those that say who did it."""
    keys = [f"a:{kind.agent}\t{kind.issuer}"]
    if kind.user:
        keys.append(f"a:{kind.user}")
    return keys


class AuditStore(Protocol):
    """The records.  Everything is of one tenant, but for `page` without one and `purge`."""

    async def append(self, audits: Sequence[Audit]) -> None:
        """Store all, durable when it returns; the same ones together once more change nothing."""

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
