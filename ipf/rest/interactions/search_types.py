"""One search over several resource types: the whole system, a compartment, `$everything`.

Without an order the types come one after another; in the order of `_lastUpdated` or `_id` they are merged.  A page
continues with `type~token~total` or `~token~total`, made of the store's own token.

Source: https://hl7.org/fhir/R4/http.html#search, https://hl7.org/fhir/R4/compartmentdefinition.html
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ipf.errors import Category, Problem
from ipf.ports import FhirStore, SearchPage, Version
from ipf.ports.search import Query

_TOTAL = re.compile(r"[0-9]{0,15}")
_MERGED = frozenset({"id", "last_updated"})


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a page begins: in which type ("" when merged, or at the first), behind which token, and the total."""

    type: str = ""
    token: str | None = None
    total: int | None = None

    @classmethod
    def parse(cls, cursor: str) -> _Place:
        """Problem VALUE for what this module did not write."""
        parts = cursor.split("~")
        if len(parts) != 3 or _TOTAL.fullmatch(parts[2]) is None:
            raise Problem(Category.VALUE, "the page token cannot be read", "_cursor")
        return cls(parts[0], parts[1] or None, int(parts[2]) if parts[2] else None)

    def text(self) -> str:
        """As it travels in a URL."""
        return f"{self.type}~{self.token or ''}~{'' if self.total is None else self.total}"


async def search_types(store: FhirStore, tenant: str, queries: Sequence[Query], cursor: str | None) -> SearchPage:
    """One page of all; the queries have the same order and page size, and each a type of its own."""
    first = queries[0]
    place = _Place() if cursor is None else _Place.parse(cursor)
    if first.summary_count or first.count == 0:
        return SearchPage(await _total(store, tenant, queries), (), None)
    total = place.total if cursor is not None or first.total == "none" else await _total(store, tenant, queries)
    place = replace(place, total=total)
    if first.sort:
        return await _merged(store, tenant, queries, place)
    return await _one_after_another(store, tenant, queries, place)


async def _total(store: FhirStore, tenant: str, queries: Sequence[Query]) -> int:
    found = 0
    for query in queries:
        found += (await store.search(tenant, replace(query, summary_count=True))).total or 0
    return found


async def _one_after_another(store: FhirStore, tenant: str, queries: Sequence[Query], place: _Place) -> SearchPage:
    types = [query.resource_type for query in queries]
    if place.type and place.type not in types:
        raise Problem(Category.VALUE, "the page token belongs to another search", "_cursor")
    number = types.index(place.type) if place.type else 0
    wanted, found, token = queries[0].count or 0, list[Version](), place.token
    while number < len(queries):
        query = replace(queries[number], count=wanted - len(found), total="none")
        page = await store.search(tenant, query, token)
        found += page.matches
        number, token = (number, page.next) if page.next is not None else (number + 1, None)
        if len(found) >= wanted:
            break
    if number == len(queries):
        return SearchPage(place.total, tuple(found), None)
    return SearchPage(place.total, tuple(found), replace(place, type=types[number], token=token).text())


async def _merged(store: FhirStore, tenant: str, queries: Sequence[Query], place: _Place) -> SearchPage:
    sort = queries[0].sort
    if len(sort) > 1 or sort[0].kind not in _MERGED:
        raise Problem(Category.NOT_SUPPORTED, "over several types, sort by _lastUpdated or by _id", "_sort")
    kind, descending, wanted = sort[0].kind, sort[0].descending, queries[0].count or 0
    name = f"{'&'.join(sorted({query.canonical.partition('?')[2] for query in queries}))}"
    rows, more = list[tuple[Version, str]](), False
    for query in queries:
        asked = replace(query, total="none", each_token=True, canonical=f"*?{name}")
        page = await store.search(tenant, asked, place.token)
        rows += zip(page.matches, page.ends, strict=True)
        more = more or page.next is not None
    rows.sort(key=lambda row: (getattr(row[0], kind), row[0].rid), reverse=descending)
    kept, more = rows[:wanted], more or len(rows) > wanted
    last = replace(place, token=kept[-1][1]).text() if kept and more else None
    return SearchPage(place.total, tuple(version for version, _ in kept), last)
