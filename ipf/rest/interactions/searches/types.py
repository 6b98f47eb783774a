"""Search over several resource types: the whole system, a compartment, `$everything`.

Without `_sort` the results of the types are concatenated; sorted by `_lastUpdated` or `_id` they are merged.  A page
continues with the token `type~token~total` or `~token~total`, where `token` is the store's own.

Source: https://hl7.org/fhir/R4/http.html#search, https://hl7.org/fhir/R4/compartmentdefinition.html
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ipf.errors import Category, Problem
from ipf.ports import FhirStore, SearchPage, Version
from ipf.ports.queries.search import Query

_TOTAL = re.compile(r"[0-9]{0,15}")
_MERGED = frozenset({"id", "last_updated"})


@dataclass(frozen=True, slots=True)
class _PageToken:
    """The start of a page: type ("" when merged, or for the first type), store token, total."""

    type: str = ""
    token: str | None = None
    total: int | None = None

    @classmethod
    def parse(cls, cursor: str) -> _PageToken:
        """The parsed token; Problem VALUE when it is invalid."""
        parts = cursor.split("~")
        if len(parts) != 3 or _TOTAL.fullmatch(parts[2]) is None:
            raise Problem(Category.VALUE, "the page token is invalid", "_cursor")
        return cls(parts[0], parts[1] or None, int(parts[2]) if parts[2] else None)

    def text(self) -> str:
        """The token for a URL."""
        return f"{self.type}~{self.token or ''}~{'' if self.total is None else self.total}"


async def search_types(store: FhirStore, tenant: str, queries: Sequence[Query], cursor: str | None) -> SearchPage:
    """One page of results; the queries have the same order and page size, and one resource type each."""
    first = queries[0]
    page_token = _PageToken() if cursor is None else _PageToken.parse(cursor)
    if first.summary_count or first.count == 0:
        return SearchPage(await _total(store, tenant, queries), (), None)
    total = page_token.total if cursor is not None or first.total == "none" else await _total(store, tenant, queries)
    page_token = replace(page_token, total=total)
    if first.sort:
        return await _merged(store, tenant, queries, page_token)
    return await _concatenated(store, tenant, queries, page_token)


async def _total(store: FhirStore, tenant: str, queries: Sequence[Query]) -> int:
    found = 0
    for query in queries:
        found += (await store.search(tenant, replace(query, summary_count=True))).total or 0
    return found


async def _concatenated(store: FhirStore, tenant: str, queries: Sequence[Query], page_token: _PageToken) -> SearchPage:
    types = [query.resource_type for query in queries]
    if page_token.type and page_token.type not in types:
        raise Problem(Category.VALUE, "the page token belongs to another search", "_cursor")
    number = types.index(page_token.type) if page_token.type else 0
    if queries[0].backwards:
        return await _backwards(store, tenant, queries, page_token, number)
    count, found, token = queries[0].count or 0, list[Version](), page_token.token
    is_first_page = not (page_token.type or token)
    previous: str | None = None
    ends: list[str] = []
    while number < len(queries):
        query = replace(queries[number], count=count - len(found), total="none")
        page = await store.search(tenant, query, token)
        if page.matches and not found and (number or token) and not is_first_page:
            previous = replace(page_token, type=types[number], token=page.previous).text()
        found += page.matches
        ends += [replace(page_token, type=types[number], token=end).text() for end in page.ends]
        number, token = (number, page.next) if page.next is not None else (number + 1, None)
        if len(found) >= count:
            break
    following = replace(page_token, type=types[number], token=token).text() if number < len(queries) else None
    return SearchPage(page_token.total, tuple(found), following, tuple(ends), previous)


async def _backwards(
    store: FhirStore, tenant: str, queries: Sequence[Query], page_token: _PageToken, number: int
) -> SearchPage:
    """The page before the token; one without a token of the store is at the start of its type."""
    count, found, before = queries[0].count or 0, tuple[Version, ...](), page_token.token
    following = replace(page_token, type=queries[number].resource_type, token=None)
    is_first = True
    while len(found) < count and (before is not None or number > 0):
        number -= before is None
        query = replace(queries[number], count=count - len(found), total="none")
        page = await store.search(tenant, query, before)
        following = replace(following, token=page.next) if is_first else following
        found, before, is_first = page.matches + found, page.previous, False
    if not (before or number):
        return SearchPage(page_token.total, found, following.text())
    previous = replace(page_token, type=queries[number].resource_type, token=before).text()
    return SearchPage(page_token.total, found, following.text(), previous=previous)


async def _merged(store: FhirStore, tenant: str, queries: Sequence[Query], page_token: _PageToken) -> SearchPage:
    sort = queries[0].sort
    if len(sort) > 1 or sort[0].kind not in _MERGED:
        raise Problem(Category.NOT_SUPPORTED, "over several types, sort by _lastUpdated or by _id", "_sort")
    kind, descending, count = sort[0].kind, sort[0].descending, queries[0].count or 0
    backwards = queries[0].backwards
    name = f"{'&'.join(sorted({query.canonical.partition('?')[2] for query in queries}))}"
    rows, has_more = list[tuple[Version, str]](), False
    for query in queries:
        type_query = replace(query, total="none", each_token=True, canonical=f"*?{name}")
        page = await store.search(tenant, type_query, page_token.token)
        rows += zip(page.matches, page.ends, strict=True)
        has_more = has_more or (page.previous if backwards else page.next) is not None
    rows.sort(key=lambda row: (getattr(row[0], kind), row[0].rid), reverse=descending)
    kept, has_more = rows[-count:] if backwards else rows[:count], has_more or len(rows) > count
    matches, came_from = tuple(version for version, _ in kept), page_token.token is not None
    has_previous, has_next = (has_more, came_from) if backwards else (came_from, has_more)
    last = replace(page_token, token=kept[-1][1]).text() if kept and has_next else None
    first = replace(page_token, token=kept[0][1]).text() if kept and has_previous else None
    ends = tuple(replace(page_token, token=token).text() for _, token in kept)
    return SearchPage(page_token.total, matches, last, ends, first)
