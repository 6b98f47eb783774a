"""Searches: GET [base]/[type]?[parameters], POST [base]/[type]/_search, the same for the system and for compartments.

The parameters of a posted form are in `request.query` (`exchange.with_posted_parameters`).

A page continues with `_cursor`, a token of the store, so that concurrent writes cause no repeated or skipped matches.

Source: https://hl7.org/fhir/R4/http.html#search, https://hl7.org/fhir/R4/search.html
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from urllib.parse import quote_plus, urlencode

from ipf.errors import Category, Problem
from ipf.fhir.model.bundle import Link, searchset
from ipf.fhir.model.definitions import definitions
from ipf.fhir.model.json import dumps
from ipf.fhir.search.language.query import parse_query
from ipf.fhir.search.parameters.compartments import compartments, membership
from ipf.ports import Answer, Request, SearchPage
from ipf.ports.queries.predicates import Test
from ipf.ports.queries.search import Query, Term
from ipf.ports.threads import run_by_size
from ipf.rest.http.exchange import applied, preference, selection
from ipf.rest.http.outcome import warning
from ipf.rest.interactions.searches.distances import distances
from ipf.rest.interactions.searches.expand import expanded
from ipf.rest.interactions.searches.include import Included
from ipf.rest.interactions.searches.types import search_types
from ipf.rest.write.permission import limited, searchable
from ipf.rest.write.repository import Repository

_PLAIN = re.compile(r"[A-Za-z0-9_.~-]*", re.ASCII)
CURSOR = "_cursor"
BACKWARDS = "<"  # before the token of a page that ends where the token is
_TYPE = "_type"
_TRAIL = "AuditEvent"
_SORT = "_sort"
_HANDLING = ("handling", "lenient", "strict")
_SHOWN = frozenset({_SORT, "_summary", "_include", "_revinclude"})  # with their values, which are no data
_ANY = "Basic"  # a type whose parameters are those of all types

Pairs = Sequence[tuple[str, str]]
Restrict = Callable[[str], Test | None]


@dataclass(frozen=True, slots=True)
class Scope:
    """The searched `types`, limited by `restrict`.  `path`: of the links.  `single`: the URL names one type.

    `check`: of who makes other queries of them and adds the limits of the caller to these; it may refuse a query.
    """

    types: Sequence[str]
    path: str
    single: bool = True
    restrict: Restrict | None = None
    check: Callable[[Query], None] | None = None


async def search_system(request: Request, repository: Repository) -> Answer:
    """Search the types in `_type`, or all types."""
    return await _search_system(request, repository, selection(request.query))


async def search_compartment(request: Request, repository: Repository) -> Answer:
    """Search [base]/[compartment]/[id]/[type]; `*` stands for all types."""
    compartment, id, wanted = request.path[:3]
    if compartment not in compartments():
        raise Problem(Category.NOT_FOUND, f"there is no compartment of a {compartment}")
    pairs = selection(request.query)
    path, members = "/".join(request.path[:3]), compartments()[compartment]

    def restrict(resource_type: str) -> Test | None:
        return membership(compartment, id, resource_type)

    if wanted != "*":
        if wanted not in members:
            raise Problem(Category.NOT_FOUND, f"the compartment of a {compartment} has no {wanted}")
        return await search_response(request, repository, pairs, Scope((wanted,), path, True, restrict))
    named, pairs = types_of(pairs)
    possible = [one for one in sorted(members) if not named or one in named]
    types = await types_found(request, repository, possible, named)
    return await search_response(request, repository, pairs, Scope(types, path, False, restrict), named)


async def _search_system(request: Request, repository: Repository, pairs: Pairs) -> Answer:
    named, rest = types_of(pairs)
    types = await types_found(request, repository, named or sorted(definitions().resource_types), named)
    return await search_response(request, repository, rest, Scope(types, "", False), named)


async def types_found(
    request: Request, repository: Repository, possible: Sequence[str], named: Sequence[str]
) -> list[str]:
    """The types to search among `possible`: the `named` ones, else those of which the caller can find a resource.

    Problem UNAUTHORIZED when a named type is not granted, or none is.  Types of which he sees nothing are left out like
    those of which nothing is stored: which parameters are known depends on the types, and page tokens name them.
    """
    granted = searchable(request.caller, possible, named)
    if named:
        return granted
    tenant, store = request.tenant, repository.store
    present = set(await store.types(tenant))
    found = [one for one in granted if one in present]
    if request.caller.is_unlimited:
        return found
    kept = []
    for one in found:
        query = limited(Query(one, (), count=1, total="none"), request.caller)
        if not query.terms or (await store.search(tenant, query)).matches:
            kept.append(one)
    return kept


async def search_response(
    request: Request, repository: Repository, pairs: Pairs, scope: Scope, named: Sequence[str] = ()
) -> Answer:
    """A page of search results.  `named`: the types in `_type`."""
    cursor, parameters_used = cursor_of(pairs)
    queries = await queries_of(request, repository, parameters_used, scope)
    opened, queries = directed(queries, await repository.opened(cursor))
    page = await _page(request, repository, queries, scope, opened)
    is_trail = _TRAIL in scope.types  # whose resources name patients, but are none of theirs, and which has no way back
    page = replace(page, previous=None) if is_trail else page
    ignored = queries[0].ignored
    if ignored:
        parameters_used = without(parameters_used, ignored)
    if named:
        parameters_used.append((_TYPE, ",".join(named)))
    page_links = await links(request, repository, scope.path, parameters_used, cursor, page)
    includes = [one for query in queries for one in query.includes]
    notes = distances(queries, page.matches)
    if not (includes or ignored):
        body = searchset(page.matches, page.total, request.base_url, page_links, notes=notes)
        return Answer(200, body, applied(request, *_HANDLING), about=() if is_trail else page.matches)
    included = Included(repository.store, request.tenant, request.base_url, repository.max_page_size, request.caller)
    await included.add(includes, page.matches)
    return Answer(200, searchset(
        page.matches, page.total, request.base_url, page_links, included=included.versions,
        outcome=warnings_of(ignored, included.left_out), notes=notes,
    ), applied(request, *_HANDLING), about=() if is_trail else (*page.matches, *included.versions))  # fmt: skip


async def queries_of(request: Request, repository: Repository, pairs: Pairs, scope: Scope) -> list[Query]:
    """The search as one query per type of the scope that can have matches.

    Another process may have added an unknown parameter: the search parameters are reloaded once.
    """
    try:
        found = await _parsed(request, repository, pairs, scope)
    except Problem as refused:
        if refused.category is not Category.NOT_SUPPORTED or not await repository.refresh():
            raise
        return await _parsed(request, repository, pairs, scope)
    if found[0].ignored and await repository.refresh():
        return await _parsed(request, repository, pairs, scope)
    return found


async def _parsed(request: Request, repository: Repository, pairs: Pairs, scope: Scope) -> list[Query]:
    found = []
    for query in _queries(request, repository, pairs, scope):
        if scope.restrict is not None:
            test = scope.restrict(query.resource_type)
            if test is None:
                continue
            query = replace(query, terms=(Term("", "", test), *query.terms), canonical=f"{query.canonical}&{test}")
        if scope.check is not None:
            scope.check(query)
        elif scope.types:
            query = limited(query, request.caller)
        found.append(await expanded(query, request.tenant, repository, request.caller))
    if not found:
        raise Problem(Category.NOT_FOUND, "no resource of these types can be in the compartment")
    return found


def _queries(request: Request, repository: Repository, pairs: Pairs, scope: Scope) -> list[Query]:
    """One query per type.  A parameter that one of them does not know is ignored for all, and listed in each."""
    types, now, strict = scope.types or (_ANY,), repository.clock(), is_strict(request, repository)
    sizes = repository.page_size, repository.max_page_size

    def read(used: Pairs) -> list[Query]:
        url = request.base_url
        return [parse_query(one, used, strict=strict, now=now, page_sizes=sizes, base_url=url) for one in types]

    found = read(pairs)
    ignored = tuple(dict.fromkeys(pair for query in found for pair in query.ignored))
    if any(set(query.ignored) != {*ignored} for query in found):
        found = read(without(pairs, ignored))
    return [replace(query, ignored=ignored) for query in found] if ignored else found


def is_strict(request: Request, repository: Repository) -> bool:
    """Whether unknown parameters are refused: as `Prefer: handling` says, else as the setting says."""
    return {"strict": True, "lenient": False}.get(preference(request, "handling") or "", repository.strict_search)


def without(pairs: Pairs, ignored: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The parameters that are used; of `_sort` the keys that are used."""
    found = []
    for name, value in pairs:
        if name == _SORT:
            value = ",".join(key for key in value.split(",") if key and (name, key) not in ignored)
            if not value:
                continue
        if (name, value) not in ignored:
            found.append((name, value))
    return found


async def _page(
    request: Request, repository: Repository, queries: Sequence[Query], scope: Scope, cursor: str | None
) -> SearchPage:
    if scope.single:
        page = await repository.store.search(request.tenant, queries[0], cursor)
        if cursor is not None or repository.conformance is None:
            return page
        add = partial(repository.conformance.with_own_definitions, queries[0], page)
        return await run_by_size(sum(len(one.body) for one in page.matches), repository.run_in_thread, add)
    if not scope.types:
        return SearchPage(0, (), None)
    return await search_types(repository.store, request.tenant, queries, cursor)


def types_of(pairs: Pairs) -> tuple[list[str], list[tuple[str, str]]]:
    """The types in `_type`, and the other parameters."""
    named: list[str] = []
    for name, value in pairs:
        if name == _TYPE:
            named += [one for one in value.split(",") if one]
            if not named:
                raise Problem(Category.VALUE, "search parameter _type has no value", _TYPE)
    for one in named:
        if one not in definitions().resource_types:
            raise Problem(
                Category.NOT_SUPPORTED, f"search parameter _type: {one[:60]} is no resource type of R4", _TYPE
            )
    return list(dict.fromkeys(named)), [pair for pair in pairs if pair[0] != _TYPE]


def warnings_of(ignored: Sequence[tuple[str, str]], left_out: Sequence[str] = ()) -> bytes:
    """Warnings about the results as an OperationOutcome; empty when there are none.  `left_out`: further warnings."""
    named = [f"{name}={value}"[:200] if name.partition(":")[0] in _SHOWN else name[:200] for name, value in ignored]
    texts = [f"search parameter {name} was ignored: unknown or not supported" for name in dict.fromkeys(named)]
    texts += left_out
    return dumps(warning(texts)) if texts else b""


def cursor_of(pairs: Pairs) -> tuple[str | None, list[tuple[str, str]]]:
    """The page token of a request, and the other parameters."""
    cursor = next((value for name, value in pairs if name == CURSOR), None)
    return cursor, [pair for pair in pairs if pair[0] != CURSOR]


def directed(queries: list[Query], opened: str | None) -> tuple[str | None, list[Query]]:
    """The store's token in an opened one, and the queries in its direction."""
    if opened is None or not opened.startswith(BACKWARDS):
        return opened, queries
    return opened.removeprefix(BACKWARDS), [replace(query, backwards=True) for query in queries]


def self_link(request: Request, path: str, pairs: Pairs) -> Link:
    """The self link of a result without pages."""
    return _link("self", f"{request.base_url}/{path}", _query_string(pairs), None)


async def links(
    request: Request, repository: Repository, path: str, pairs: Pairs, cursor: str | None, page: SearchPage
) -> list[Link]:
    """The links of a page: self; where there are several pages also first, previous and next."""
    url = f"{request.base_url}/{path}" if path else request.base_url
    query_string = _query_string(pairs)
    links = [_link("self", url, query_string, cursor)]
    if cursor is not None or page.next is not None:
        links.append(_link("first", url, query_string, None))
    if page.previous is not None:
        links.append(_link("previous", url, query_string, await repository.sealed(BACKWARDS + page.previous)))
    if page.next is not None:
        links.append(_link("next", url, query_string, await repository.sealed(page.next)))
    return links


def _query_string(pairs: Pairs) -> str:
    return "&".join([f"{_encoded(name)}={_encoded(value)}" for name, value in pairs])


def _encoded(text: str) -> str:
    """The URL-encoded text; most texts need no encoding."""
    return text if _PLAIN.fullmatch(text) else quote_plus(text)


def _link(relation: str, url: str, query_string: str, cursor: str | None) -> Link:
    if cursor is not None:
        query_string += f"{'&' if query_string else ''}{urlencode([(CURSOR, cursor)])}"
    return Link(relation, f"{url}?{query_string}" if query_string else url)
