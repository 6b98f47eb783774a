"""Searches of one type: plain ones, and with `_contained` those for contained resources.

A contained resource is found in the resource that contains it, and only by who may search that one: each type of
containers is searched with tests on what they contain (`ipf/fhir/search/language/contained.py`) and the limits of the
caller on that type.

With `_containedType=contained` a page holds contained resources in the order of their containers, cut off anywhere in a
container: its token says how many of the next container were returned already, and the total where it was counted.

Source: https://hl7.org/fhir/R4/search.html#contained
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ipf.errors import Category, Problem
from ipf.fhir.index.extract import extract
from ipf.fhir.model.bundle import searchset
from ipf.fhir.model.definitions import definitions
from ipf.fhir.model.json import dumps, loads
from ipf.fhir.search.evaluation.match import Candidate
from ipf.fhir.search.language.contained import (
    RETURNED,
    WHICH,
    ContainedSearch,
    of_containers,
    read_contained,
    refuse_combinations,
)
from ipf.ports import Answer, Request, SearchPage, Version
from ipf.ports.queries.predicates import AllOf, AnyOf, Contained, Test
from ipf.ports.queries.search import Query, Term
from ipf.rest.http.exchange import applied, selection
from ipf.rest.interactions.searches.search import (
    Scope,
    cursor_of,
    directed,
    links,
    queries_of,
    search_response,
    types_found,
    warnings_of,
    without,
)
from ipf.rest.interactions.searches.types import search_types
from ipf.rest.write.permission import limited
from ipf.rest.write.repository import Repository

_TRAIL = "AuditEvent"  # its records contain nothing
_TOKEN = re.compile(r"([0-9]{1,9})!([0-9]{0,9})!(.*)", re.DOTALL)
_BATCH = 400
_MOST_COUNTED = 20_000
_ID = re.compile(r"[A-Za-z0-9.-]{1,64}")


async def search(request: Request, repository: Repository) -> Answer:
    """A searchset Bundle of one type; see `search.search_response` for unknown parameters."""
    kind = request.path[0]
    asked, pairs = read_contained(selection(request.query))
    if asked is None:
        return await search_response(request, repository, selection(request.query), Scope((kind,), kind))
    cursor, used = cursor_of(pairs)
    scope = Scope((kind,), kind, check=partial(refuse_combinations, asked))
    (query,) = await queries_of(request, repository, used, scope)
    queries = await _of_containers(request, repository, query, asked)
    used = [*without(used, query.ignored), (WHICH, "both" if asked.both else "true"), (RETURNED, asked.returned)]
    opened, queries = directed(queries, await repository.opened(cursor))
    if asked.returned == "contained":
        page, shown = await _Parts(query, asked.both).page(request, repository, queries, opened)
    else:
        page = await search_types(repository.store, request.tenant, queries, opened)
        shown = list(page.matches)
    page_links = await links(request, repository, kind, used, cursor, page)
    body = searchset(shown, page.total, request.base_url, page_links, outcome=warnings_of(query.ignored))
    return Answer(200, body, applied(request, "handling", "lenient", "strict"), about=page.matches)


async def _of_containers(request: Request, repository: Repository, query: Query, asked: ContainedSearch) -> list[Query]:
    """The queries by type of container, each with the limits of the caller."""
    kind, tests = query.resource_type, of_containers(query)
    possible = [one for one in sorted(definitions().resource_types) if one != _TRAIL]
    types = await types_found(request, repository, possible, ())
    queries = {one: _query(query, one, tests) for one in types or [kind]}
    if asked.both:
        queries[kind] = await _with_others(request, repository, query, tests)
    return [limited(queries[one], request.caller) for one in sorted(queries)]


def _query(query: Query, resource_type: str, tests: Sequence[Test]) -> Query:
    terms = tuple(Term(WHICH, "", test) for test in tests)
    return replace(
        query, resource_type=resource_type, terms=terms, canonical=f"{resource_type}?{WHICH}&{query.canonical}"
    )


async def _with_others(request: Request, repository: Repository, query: Query, tests: Sequence[Test]) -> Query:
    """The query itself, and where resources of the type contain such resources, these as well."""
    kind = query.resource_type
    anything = replace(_query(query, kind, of_containers(replace(query, terms=()))), sort=(), count=1, total="none")
    canonical = f"{kind}?{WHICH}=both&{query.canonical}"
    is_container = await repository.store.search(request.tenant, replace(anything, summary_count=False))
    if not (query.terms and is_container.matches):
        return replace(query, canonical=canonical)
    either = AnyOf((_all_of([term.test for term in query.terms]), _all_of(tests)))
    return replace(query, terms=(Term(WHICH, "", either),), canonical=canonical)


def _all_of(tests: Sequence[Test]) -> Test:
    return tests[0] if len(tests) == 1 else AllOf(tuple(tests))


@dataclass(frozen=True, slots=True)
class _Parts:
    """The contained resources that a search returns.  `both`: also the resources themselves that it finds."""

    query: Query
    both: bool

    async def page(
        self, request: Request, repository: Repository, queries: Sequence[Query], cursor: str | None
    ) -> tuple[SearchPage, list[Version]]:
        """The containers of a page with the token of the next one, and what is shown of them."""
        done, total, token = _parsed(cursor)
        first, count = queries[0], queries[0].count or 0
        is_number_alone = first.summary_count or count == 0
        queries = [replace(one, total="none", each_token=True) for one in queries]
        if is_number_alone or (first.total == "accurate" and cursor is None):
            total = await self._total(request, repository, queries)
        if is_number_alone:
            return SearchPage(total, (), None), []
        page = await search_types(repository.store, request.tenant, queries, token)
        shown: list[Version] = []
        for place, container in enumerate(page.matches):
            parts, room = list(self._of(container))[done:], count - len(shown)
            shown += parts[:room]
            if len(parts) > room:
                before = page.ends[place - 1] if place else token or ""
                return SearchPage(total, page.matches[: place + 1], _token(done + room, total, before)), shown
            done = 0
        following = None if page.next is None else _token(0, total, page.next)
        return SearchPage(total, page.matches, following), shown

    async def _total(self, request: Request, repository: Repository, queries: Sequence[Query]) -> int:
        """How many contained resources there are.  Problem COSTLY beyond the containers that may be read for it."""
        pages = [replace(one, sort=(), count=_BATCH, summary_count=False, each_token=False) for one in queries]
        total, token = 0, None
        for _ in range(_MOST_COUNTED // _BATCH):
            page = await search_types(repository.store, request.tenant, pages, token)
            counted: int = await repository.run_in_thread(partial(self._count, page.matches))
            total, token = total + counted, page.next
            if token is None:
                return total
        text = f"more than {_MOST_COUNTED} containers would have to be read for the total"
        raise Problem(Category.COSTLY, text, "_total")

    def _count(self, containers: Sequence[Version]) -> int:
        return sum(1 for one in containers for _ in self._of(one))

    def _of(self, container: Version) -> Iterator[Version]:
        """What the search finds of a container, each as a version with the id that its URL ends with."""
        resource, kind = loads(container.body), self.query.resource_type
        tests = tuple(term.test for term in self.query.terms)
        whole = Candidate(container.resource_type, extract(resource), container.id, container.last_updated, resource)
        if self.both and container.resource_type == kind and all(map(whole.passes, tests)):
            yield container
        for one in whole.contained(Contained(kind, tests)):
            id = one.get("id")
            if isinstance(id, str) and _ID.fullmatch(id):  # without one it has no URL
                yield replace(container, id=f"{container.id}#{id}", body=dumps(one))


def _token(done: int, total: int | None, before: str) -> str:
    return f"{done}!{'' if total is None else total}!{before}"


def _parsed(cursor: str | None) -> tuple[int, int | None, str | None]:
    """How many parts of the first container are done, the total, and the token before it.  Problem VALUE."""
    if cursor is None:
        return 0, None, None
    found = _TOKEN.fullmatch(cursor)
    if found is None:
        raise Problem(Category.VALUE, "the page token belongs to another search", "_cursor")
    return int(found[1]), int(found[2]) if found[2] else None, found[3] or None
