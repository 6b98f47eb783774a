"""The audit trail: who did what to which resource.  The FHIR API shows records as AuditEvent resources.

Source: interface specification "FHIR AuditEvent resources"; https://hl7.org/fhir/R4/auditevent.html
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, Protocol

from ipf.ports.messages.mapping import Origin

FHIR, ADMIN = "fhir", "admin"
"""Surfaces: records that FHIR clients may read, and those for operators only (the admin API, reads of the trail)."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class AuditContext(NamedTuple):
    """Tenant, interaction, outcome and agent of a record.  Many records share one object.

    `interaction`: `create`, `read`, `search` ...; on the admin surface `message-read`, `message-retry` ...  `action`:
    C R U D E.  `outcome`: 0, 4 or 8.  `status`: HTTP status, 0 = no response.  `agent`: subject or client of the token.
    `agent_name`: the client.  `user`: `fhirUser`.  `purpose`: purposes of use of the token, `system|code` each.
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
    purpose: tuple[str, ...] = ()


class Audit(NamedTuple):
    """One audit record.

    `at`: end of the interaction in milliseconds since 1970.  `id_suffix`: the id after the time
    (`7xxx-xxxx-xxxxxxxxxxxx`).  `target`: path and query of the request, such as `Patient?name=x`; None = the first of
    `entities`.  `entities`: resources written or returned (`Patient/1/_history/2`, at most MOST_ENTITIES).  `patients`:
    further patients that these resources refer to.  `origin`: source details of a message from a vendor profile.
    `request_id`: X-Request-Id as the client sent it.
    """

    context: AuditContext
    at: int
    id_suffix: str
    duration_ms: int
    correlation_id: str
    target: str | None = ""
    entities: tuple[str, ...] = ()
    patients: tuple[str, ...] = ()
    origin: Origin | None = None
    request_id: str = ""

    @property
    def id(self) -> str:
        """UUID version 7: ids increase with time."""
        return id_prefix(self.at) + self.id_suffix

    @property
    def recorded_at(self) -> datetime:
        """The end of the interaction."""
        return datetime_of(self.at)

    @property
    def request_target(self) -> str:
        """Path and query of the request."""
        return unversioned(self.entities[0]) if self.target is None else self.target

    @property
    def all_patients(self) -> list[str]:
        """All patients among the entities, and those that they refer to."""
        named = (unversioned(one) for one in self.entities if one.startswith("Patient/"))
        return list(dict.fromkeys((*named, *self.patients)))


MOST_ENTITIES = 500

AuditSink = Callable[[Audit], None]
"""Accepts a record; never raises, never blocks."""


def unversioned(reference: str) -> str:
    """A reference without its version."""
    return reference.partition("/_history/")[0]


def millisecond_of(moment: datetime) -> int:
    """Whole milliseconds since 1970."""
    return int(moment.timestamp() * 1000 + 0.0005)  # rounds: times have whole microseconds


def datetime_of(milliseconds: int) -> datetime:
    """The time that is this many milliseconds after 1970-01-01 UTC."""
    return _EPOCH + timedelta(milliseconds=milliseconds)


def id_prefix(milliseconds: int) -> str:
    """The prefix of all ids of a millisecond."""
    text = f"{milliseconds:012x}"
    return f"{text[:8]}-{text[8:]}-"


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Conditions combined with AND.  None = no condition.

    `keys`: for each group, the record has at least one of its keys (`keys_of`).  `since` and `until`: inclusive bounds
    of `recorded_at`.  The sets contain the allowed values; an empty set allows none.
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

    def allows(self, context: AuditContext) -> bool:
        """Whether the conditions on the context hold (all but `keys`, `ids` and times)."""
        return (
            self.surface in (None, context.surface)
            and (self.agents is None or context.agent in self.agents)
            and (self.actions is None or context.action in self.actions)
            and (self.outcomes is None or context.outcome in self.outcomes)
            and (self.interactions is None or context.interaction in self.interactions)
        )


def keys_of(audit: Audit) -> list[str]:
    """The index keys of a record: `e:` entities and patients, `a:` agent, `c:` correlation id."""
    about = set(map(unversioned, audit.entities))
    keys = [f"e:{one}" for one in sorted(about.union(audit.patients))]
    keys += agent_keys(audit.context)
    if audit.correlation_id:
        keys.append(f"c:{audit.correlation_id}")
    return keys


def agent_keys(context: AuditContext) -> list[str]:
    """The index keys of the agents: who asked, and the client of a person."""
    keys = [f"a:{context.agent}\t{context.issuer}"]
    if context.user:
        keys.append(f"a:{context.user}")
        if context.agent_name not in ("", context.agent):
            keys.append(f"a:{context.agent_name}\t{context.issuer}")
    return keys


class AuditStore(Protocol):
    """Storage of audit records.  Calls are limited to one tenant, except maintenance and `page` with tenant None."""

    async def append(self, audits: Sequence[Audit]) -> None:
        """Store all records, durable on return.  Repeating the call has no effect."""

    async def find(
        self, tenant: str, wanted: AuditFilter, limit: int, after: str | None = None, *, oldest_first: bool = False
    ) -> list[Audit]:
        """Records in order of id, newest first by default.  `after`: only those after this id in that order."""

    async def page(self, tenant: str | None, wanted: AuditFilter, limit: int, offset: int) -> tuple[int, list[Audit]]:
        """Number of matches and one page, newest first.  `tenant` None: all tenants (for operators)."""

    async def count(self, tenant: str, wanted: AuditFilter) -> int:
        """Number of matches."""

    async def purge(self, before: datetime, limit: int) -> int:
        """Delete older records: complete months as a whole, of other months at most `limit`.  Returns the number."""

    async def ensure_month(self, moment: datetime) -> None:
        """Create the partition of this month if it does not exist."""
