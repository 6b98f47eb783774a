"""One transaction of several tenants under row-level security: each statement string serves one tenant.

Arrives: lookups and writes of units of different tenants, from the convert stage.  They are split by tenant, each part
runs behind its tenant's prologue (`tenant_scope.py`), and the results are put back in the order of the lookup.  With
one tenant nothing is split.  Parts are written in the order of tenant names, and within a part in the order of
`statements.py`, so that concurrent transactions take locks in the same order.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace

from ipf.errors import Category, Problem
from ipf.ports import Changes, FhirTransaction, Lookup, LookupResult, MatchLocks, Version, Writes
from ipf.ports.identity import IdentityAnswer
from ipf.store.postgres.audit_calls import refusal
from ipf.store.postgres.database import Database
from ipf.store.postgres.lookup import Condition, lock_call
from ipf.store.postgres.quoting import script
from ipf.store.postgres.session import Session
from ipf.store.postgres.symbols import SymbolTable
from ipf.store.resources.writing.statements import commit_calls, tenants_of, written_parameters, written_units


class TenantTransaction:
    """`ports.FhirTransaction` around `plain`, which works on the same session."""

    def __init__(self, plain: FhirTransaction, session: Session, database: Database, symbols: SymbolTable) -> None:
        self._plain = plain
        self._session = session
        self._database = database
        self._symbols = symbols
        self._owns_subscriptions = False

    async def look_up(self, lookup: Lookup, *, subscriptions_change: bool = False) -> LookupResult:
        """See `ports.FhirTransaction.look_up`."""
        self._owns_subscriptions = subscriptions_change
        tenants = _sorted(item[0] for group in (lookup.ids, lookup.conditions, lookup.receipts) for item in group)
        if len(tenants) < 2:
            await self._set_tenant(tenants)
            return await self._plain.look_up(lookup, subscriptions_change=subscriptions_change)
        by_id: list[Version | None] = [None] * len(lookup.ids)
        by_condition: list[Sequence[Version]] = [()] * len(lookup.conditions)
        receipts: frozenset[tuple[str, str]] = frozenset()
        for tenant in tenants:
            await self._set_tenant((tenant,))
            ids, conditions = _positions(lookup.ids, tenant), _positions(lookup.conditions, tenant)
            part = Lookup(
                [lookup.ids[n] for n in ids],
                [lookup.conditions[n] for n in conditions],
                [receipt for receipt in lookup.receipts if receipt[0] == tenant],
            )
            result = await self._plain.look_up(part, subscriptions_change=subscriptions_change)
            for position, found in zip(ids, result.by_id, strict=True):
                by_id[position] = found
            for position, matches in zip(conditions, result.by_condition, strict=True):
                by_condition[position] = matches
            receipts |= result.receipts
        return LookupResult(by_id, by_condition, receipts, result.epoch)

    async def lock(self, conditions: Sequence[Condition], locks: MatchLocks) -> list[Sequence[Version]]:
        """See `ports.FhirTransaction.lock`.  Locks of all tenants come first, in their order."""
        tenants = _sorted(tenant for tenant, _ in conditions)
        await self._set_tenant(tenants[:1])
        if len(tenants) < 2:
            return list(await self._plain.lock(conditions, locks))
        await self._session.many(lock_call(locks))
        result = await self.look_up(Lookup((), conditions), subscriptions_change=self._owns_subscriptions)
        return list(result.by_condition)

    async def identity_answers(self, wanted: Sequence[tuple[str, str, str]]) -> Sequence[IdentityAnswer | None]:
        """See `ports.FhirTransaction.identity_answers`."""
        found: list[IdentityAnswer | None] = [None] * len(wanted)
        for tenant in _sorted(key[0] for key in wanted):
            await self._set_tenant((tenant,))
            places = _positions(wanted, tenant)
            answers = await self._plain.identity_answers([wanted[place] for place in places])
            for place, answer in zip(places, answers, strict=True):
                found[place] = answer
        return found

    @property
    def view(self) -> object:
        """See `ports.FhirTransaction.view`."""
        return self._plain.view

    async def changes_since(self, since: int = -1) -> Changes:
        """See `ports.FhirTransaction.changes_since`."""
        return await self._plain.changes_since(since)

    async def commit(self, writes: Writes, reads: Callable[[], Awaitable[None]] | None = None) -> str:
        """See `ports.FhirTransaction.commit`."""
        tenants = _sorted(tenants_of(writes))
        if len(tenants) < 2:
            await self._set_tenant(tenants)
            return await self._plain.commit(writes, reads)
        if writes.subscriptions or writes.topics or writes.reindex or writes.creators or reads:
            raise Problem(Category.INTERNAL, "subscriptions or reads in a transaction of several tenants")
        await self._symbols.ensure(tenants, written_parameters(writes))
        await self._symbols.ensure_units(written_units(writes))
        await self._set_tenant(())
        parts = (self._calls(tenant, _part(writes, tenant)) for tenant in tenants)
        await self._session.commit(script(*parts))
        return refusal(self._session.warnings())

    def _calls(self, tenant: str, writes: Writes) -> str:
        return script(self._database.set_tenant(tenant), *commit_calls(writes, self._symbols))

    async def _set_tenant(self, tenants: Sequence[str]) -> None:
        """Restrict the session to the rows of this tenant from now on."""
        self._session.prologue = await self._database.tenant_prologue(tenants[0]) if tenants else ""


def _sorted(tenants: Iterable[str]) -> list[str]:
    return sorted(set(tenants))


def _positions(items: Sequence[Sequence[object]], tenant: str) -> list[int]:
    return [position for position, item in enumerate(items) if item[0] == tenant]


def _part(writes: Writes, tenant: str) -> Writes:
    """The writes of one tenant; its events refer to the changes by their new positions."""
    positions = [position for position, change in enumerate(writes.changes) if change.tenant == tenant]
    renumbered = {position: number for number, position in enumerate(positions)}
    return Writes(
        [writes.changes[position] for position in positions],
        [replace(event, change=renumbered[event.change]) for event in writes.events if event.change in renumbered],
        [receipt for receipt in writes.receipts if receipt.tenant == tenant],
        audits=[audit for audit in writes.audits if audit.context.tenant == tenant],
    )


_: type[FhirTransaction] = TenantTransaction
