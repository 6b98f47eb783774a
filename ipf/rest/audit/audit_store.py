"""The FHIR store with the audit trail in it: rows of the trail are read and searched like any other AuditEvent.

AuditEvents that clients create are ordinary resources; a search merges both, newest first unless it says otherwise.
All calls but reads of AuditEvents are passed on to the store.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter

from ipf.errors import Category, Problem
from ipf.fhir.search.predicate import parameters_that_need_store
from ipf.ports import FhirStore, FhirTransaction, SearchPage, Version
from ipf.ports.audit.records import FHIR, Audit, AuditFilter, AuditStore
from ipf.ports.queries.history_filter import EVERY_VERSION, HistoryFilter
from ipf.ports.queries.search import Query, Sort
from ipf.rest.audit.audit_search import filter_of, passes
from ipf.security.audit.event import version_of
from ipf.security.audit.rules import TYPE

MOST_LOOKED_AT = 5000
_BATCH = 500
_DEFAULT_COUNT = 50
_NEWEST = Sort("_lastUpdated", "last_updated", True)
_ORDERS = {"_lastUpdated": "last_updated", "date": "last_updated", "_id": "id"}
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
_CURSOR = re.compile(r"([0-9a-f-]{36})?\.([A-Za-z0-9_-]*)\.([0-9]{0,15})")


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a page begins: behind this row, behind this token of the store; and the total."""

    row: str | None = None
    token: str | None = None
    total: int | None = None

    @classmethod
    def parse(cls, cursor: str | None) -> _Place:
        """Problem VALUE for what this module did not write."""
        if cursor is None:
            return cls()
        read = _CURSOR.fullmatch(cursor)
        if read is None or (read[1] and not _ID.fullmatch(read[1])):
            raise Problem(Category.VALUE, "the page token cannot be read", "_cursor")
        return cls(read[1], read[2] or None, int(read[3]) if read[3] else None)

    def text(self) -> str:
        """As it travels in a URL."""
        return f"{self.row or ''}.{self.token or ''}.{'' if self.total is None else self.total}"


class AuditedStore:
    """`ports.FhirStore` around another.  `base_url`: the address of this server, which AuditEvents name."""

    def __init__(self, store: FhirStore, trail: AuditStore, base_url: str) -> None:
        self._store = store
        self._trail = trail
        self._shown = partial(version_of, base_url=base_url)
        self._with_others: set[str] = set()

    def transaction(self) -> AbstractAsyncContextManager[FhirTransaction]:
        """See `ports.FhirStore`."""
        return self._store.transaction()

    def within(self, transaction: FhirTransaction) -> FhirStore:
        """See `ports.FhirStore`.  The trail is read as it is outside of the transaction."""
        other = copy(self)
        other._store = self._store.within(transaction)
        return other

    async def new_rid(self) -> int:
        """See `ports.FhirStore`."""
        return await self._store.new_rid()

    async def read(self, tenant: str, resource_type: str, id: str) -> Version | None:
        """See `ports.FhirStore`."""
        if resource_type == TYPE and _ID.fullmatch(id):
            row = await self._row(tenant, id)
            if row is not None:
                return row
        return await self._store.read(tenant, resource_type, id)

    async def read_version(self, tenant: str, resource_type: str, id: str, version_id: int) -> Version | None:
        """See `ports.FhirStore`."""
        if resource_type == TYPE and version_id == 1 and _ID.fullmatch(id):
            row = await self._row(tenant, id)
            if row is not None:
                return row
        return await self._store.read_version(tenant, resource_type, id, version_id)

    async def history(
        self,
        tenant: str,
        resource_type: str,
        id: str,
        limit: int,
        start: int | None,
        wanted: HistoryFilter = EVERY_VERSION,
    ) -> list[Version]:
        """See `ports.FhirStore`."""
        if resource_type == TYPE and _ID.fullmatch(id):
            row = await self._row(tenant, id)
            if row is not None:
                is_after = start is None or (start < 1 if wanted.oldest_first else start > 1)
                return [row] if is_after and (wanted.at is None or row.last_updated < wanted.at[1]) else []
        return await self._store.history(tenant, resource_type, id, limit, start, wanted)

    async def lastn(self, tenant: str, query: Query, most: int, limit: int) -> list[Version]:
        """See `ports.FhirStore`: of Observations alone."""
        return await self._store.lastn(tenant, query, most, limit)

    async def read_many(self, tenant: str, keys: Sequence[tuple[str, str]]) -> list[Version]:
        """See `ports.FhirStore`."""
        found = await self._store.read_many(tenant, keys)
        ids = frozenset(id for resource_type, id in keys if resource_type == TYPE and _ID.fullmatch(id))
        if not ids:
            return found
        rows = await self._trail.find(tenant, AuditFilter(surface=FHIR, ids=ids), len(ids))
        by_key = {(one.resource_type, one.id): one for one in (*found, *map(self._shown, rows))}
        return [by_key[key] for key in dict.fromkeys(keys) if key in by_key]

    async def types(self, tenant: str) -> list[str]:
        """See `ports.FhirStore`: a search of everything leaves the trail out, since it never ends."""
        return await self._store.types(tenant)

    async def indexed(self, tenant: str, resource_type: str, code: str, limit: int) -> list[str]:
        """See `ports.FhirStore`."""
        return await self._store.indexed(tenant, resource_type, code, limit)

    async def page_token_key(self) -> bytes:
        """See `ports.FhirStore`."""
        return await self._store.page_token_key()

    async def counts(self) -> dict[str, int]:
        """See `ports.FhirStore`."""
        return await self._store.counts()

    async def search(self, tenant: str, query: Query, after: str | None = None) -> SearchPage:
        """See `ports.FhirStore`."""
        if query.resource_type != TYPE:
            return await self._store.search(tenant, query, after)
        query = replace(query, sort=query.sort or (_NEWEST,))
        sort = query.sort[0]
        if len(query.sort) > 1 or sort.code not in _ORDERS:
            raise Problem(Category.NOT_SUPPORTED, "AuditEvents are sorted by date, _lastUpdated or _id", "_sort")
        needs_store = parameters_that_need_store(query)
        if needs_store:
            names = ", ".join(needs_store)
            raise Problem(Category.NOT_SUPPORTED, f"AuditEvents cannot be searched by {names}", needs_store[0])
        return await self._page(tenant, query, _Place.parse(after))

    async def _page(self, tenant: str, query: Query, place: _Place) -> SearchPage:
        count = _DEFAULT_COUNT if query.count is None else query.count
        if query.summary_count or count == 0:
            return SearchPage(await self._total(tenant, query, is_wanted=True), (), None)
        sort = query.sort[0]
        rows = [version async for version in self._rows(tenant, query, place.row, count + 1)]
        others, more = await self._others(tenant, query, place.token, count)
        key = attrgetter(_ORDERS[sort.code])
        merged = [(row, "") for row in rows] + list(others)
        merged.sort(key=lambda one: key(one[0]), reverse=sort.descending)  # stable: the order of each is kept
        kept, more = merged[:count], more or len(merged) > count
        total = place.total
        if query.total != "none" and place == _Place():
            total = await self._total(tenant, query) if more else len(kept)
        ends = _ends(kept, replace(place, total=total))
        matches = tuple(version for version, _ in kept)
        return SearchPage(total, matches, ends[-1] if more else None, tuple(ends) if query.each_token else ())

    async def _rows(self, tenant: str, query: Query, after: str | None, limit: int) -> AsyncIterator[Version]:
        """At most `limit` matches among the rows; Problem COSTLY when too many rows would have to be looked at."""
        wanted, exact = filter_of(query)
        oldest_first, looked, found = not query.sort[0].descending, 0, 0
        while looked < MOST_LOOKED_AT or exact:
            size = limit - found if exact else _BATCH
            batch = await self._trail.find(tenant, wanted, size, after, oldest_first=oldest_first)
            for audit in batch:
                version = self._shown(audit)
                if exact or passes(query, version):
                    found += 1
                    yield version
                    if found == limit:
                        return
            if len(batch) < size:
                return
            looked, after = looked + len(batch), batch[-1].id
        raise Problem(
            Category.COSTLY, f"more than {MOST_LOOKED_AT} AuditEvents would have to be read; "
            "add entity, patient, agent, date, outcome, action or subtype",
        )  # fmt: skip

    async def _others(
        self, tenant: str, query: Query, token: str | None, count: int
    ) -> tuple[Sequence[tuple[Version, str]], bool]:
        """What clients created, with the token behind each."""
        if tenant not in self._with_others:
            if TYPE not in await self._store.types(tenant):
                return (), False
            self._with_others.add(tenant)
        asked = replace(query, count=count, total="none", each_token=True)
        page = await self._store.search(tenant, asked, token)
        return list(zip(page.matches, page.ends, strict=True)), page.next is not None

    async def _total(self, tenant: str, query: Query, *, is_wanted: bool = False) -> int | None:
        """How many match; None when too many rows would have to be looked at (Problem COSTLY when it `is_wanted`)."""
        wanted, exact = filter_of(query)
        others = (await self._store.search(tenant, replace(query, summary_count=True))).total or 0
        if exact:
            return await self._trail.count(tenant, wanted) + others
        try:
            return len([1 async for _ in self._rows(tenant, query, None, MOST_LOOKED_AT + 1)]) + others
        except Problem:
            if is_wanted:
                raise
            return None

    async def _row(self, tenant: str, id: str) -> Version | None:
        rows: list[Audit] = await self._trail.find(tenant, AuditFilter(surface=FHIR, ids=frozenset((id,))), 1)
        return self._shown(rows[0]) if rows else None


def _ends(kept: Sequence[tuple[Version, str]], place: _Place) -> list[str]:
    """The cursor behind each match."""
    ends = []
    for version, token in kept:
        place = replace(place, token=token) if token else replace(place, row=version.id)
        ends.append(place.text())
    return ends


_: type[FhirStore] = AuditedStore
