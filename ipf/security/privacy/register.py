"""The denials of all Consents in force, in memory, as this process decides by them.

In: Consents as they are stored (`ports.ConsentSource`) and the time.  Out: per tenant, the denials in force, those that
concern every caller grouped by what they select.  `refresh` asks for the epoch of the last committed change and reads
what has changed since: a Consent that was committed before a request counts for it, in every process.  The beginning
and the end of a period count from their instant on.

Nothing is kept over a restart.  While the store cannot be reached, `refresh` raises StoreUnreachable: no decision is
made with a state that may be old.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count

from twisted.internet.defer import DeferredLock
from twisted.logger import Logger

from ipf.ports import Caller, Clock, Json
from ipf.ports.fhir.consents import ConsentSource, StoredConsent
from ipf.security.privacy.conditions import Patients
from ipf.security.privacy.consent import Denial, Selection, denials_of, names_no_patient
from ipf.security.privacy.viewpoint import denies, permits

log = Logger()

_PAGE = 2000
_registers = count()
_NEVER = datetime.max.replace(tzinfo=UTC)

Group = tuple[Selection, tuple[Selection, ...], Patients]
"""What is denied, except for what, of whom."""


@dataclass(slots=True)
class InForce:
    """The denials of one tenant that are in force.  `plain`: those that concern every caller.  `others`: the rest."""

    plain: Sequence[Group]
    others: Sequence[Denial]

    def groups(self, caller: Caller, right: str) -> Iterator[Group]:
        """What is denied to a caller with a right."""
        yield from self.plain
        found: dict[tuple[Selection, tuple[Selection, ...]], set[str]] = {}
        for one in self.others:
            if denies(one.rule, caller, right):
                allowed = tuple(rule.selection for rule in one.exceptions if permits(rule, caller, right))
                found.setdefault((one.rule.selection, allowed), set()).add(one.patient)
        for (selection, exceptions), patients in found.items():
            yield selection, exceptions, Patients(patients)


NONE = InForce((), ())


@dataclass(slots=True)
class _Tenant:
    """The denials of each Consent by rid, and what of them is in force until `until`."""

    denials: dict[int, tuple[Denial, ...]] = field(default_factory=dict)
    in_force: InForce | None = None
    until: datetime = _NEVER


class ConsentRegister:
    """`stamp` grows whenever what is in force may have changed."""

    def __init__(self, source: ConsentSource, now: Clock) -> None:
        self._source = source
        self._now = now
        self._epoch = -1
        self._tenants: dict[str, _Tenant] = {}
        self._unreadable: dict[int, str] = {}
        self._lock = DeferredLock()
        self._stamp = next(_registers) << 32  # what was kept for another register never counts for this one
        self._until = _NEVER

    async def refresh(self) -> None:
        """Apply all committed changes.  StoreUnreachable."""
        epoch = await self._source.epoch()
        if epoch == self._epoch:
            return
        await self._lock.acquire()
        try:
            if self._epoch < epoch:
                await self._load(epoch)
        finally:
            self._lock.release()

    async def _load(self, epoch: int) -> None:
        """What is read may be newer than `epoch`: it is read again then, to the same effect."""
        if self._epoch >= 0:
            self._take(await self._source.changes(self._epoch))
        else:
            after, size = 0, _PAGE
            while size == _PAGE:
                page = await self._source.page(after, _PAGE)
                self._take(page)
                after, size = page[-1].rid if page else after, len(page)
        self._epoch = epoch

    def _take(self, consents: Sequence[StoredConsent]) -> None:
        for one in consents:
            tenant = self._tenants.setdefault(one.tenant, _Tenant())
            found = () if one.resource is None else denials_of(one.resource)
            self._note(one, found)
            if found:
                tenant.denials[one.rid] = found
            elif tenant.denials.pop(one.rid, None) is None:
                continue
            tenant.in_force = None
            self._stamp += 1

    def _note(self, one: StoredConsent, found: Sequence[Denial]) -> None:
        """Log what denies more, or less, than the Consent says."""
        self._unreadable.pop(one.rid, None)
        if one.resource is None:
            return
        what = "widened" if any(denial.is_widened for denial in found) else ""
        what = "without_patient" if not found and names_no_patient(one.resource) else what
        if what:
            self._unreadable[one.rid] = what
            name = f"Consent/{one.resource.get('id', '')}"
            log.warn("event=consent_{what} consent={consent}", event=f"consent_{what}", what=what, consent=name)

    def stamp(self) -> int:
        """A number that changes with what is in force."""
        if self._now() >= self._until:
            now = self._now()
            for tenant in self._tenants.values():
                if now >= tenant.until:
                    tenant.in_force = None
            self._stamp += 1
            self._until = min((one.until for one in self._tenants.values() if one.in_force is not None), default=_NEVER)
        return self._stamp

    def in_force(self, tenant: str) -> InForce:
        """What is in force of a tenant."""
        kept = self._tenants.get(tenant)
        if kept is None:
            return NONE
        self.stamp()
        if kept.in_force is None:
            now = self._now()
            kept.in_force = _in_force([one for found in kept.denials.values() for one in found], now)
            kept.until = _following(kept.denials, now)
            self._until = min(self._until, kept.until)
        return kept.in_force

    async def check(self) -> Json:
        """The health check: how many Consents deny something, and how many are not read as they are written."""
        values = list(self._unreadable.values())
        return {
            "denying": sum(len(one.denials) for one in self._tenants.values()),
            "widened": values.count("widened"),
            "without_patient": values.count("without_patient"),
        }


def _in_force(denials: Sequence[Denial], now: datetime) -> InForce:
    plain: dict[Selection, set[str]] = {}
    others = []
    for one in denials:
        if not one.rule.is_in_force(now):
            continue
        exceptions = tuple(rule for rule in one.exceptions if rule.is_in_force(now))
        if one.rule.concerns_everybody and not exceptions:
            plain.setdefault(one.rule.selection, set()).add(one.patient)
        else:
            others.append(Denial(one.patient, one.rule, exceptions, one.is_widened))
    return InForce([(selection, (), Patients(ids)) for selection, ids in plain.items()], others)


def _following(denials: Mapping[int, Sequence[Denial]], now: datetime) -> datetime:
    """The next instant at which a rule begins or ends."""
    rules = (rule for found in denials.values() for one in found for rule in (one.rule, *one.exceptions))
    return min((at for rule in rules for at in (rule.start, rule.end) if at is not None and at > now), default=_NEVER)
