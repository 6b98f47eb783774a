"""GET [base]/[type]?[parameters] and POST [base]/[type]/_search: https://hl7.org/fhir/R4/http.html#search

A page continues with `_cursor`, the store's own token, so that pages neither repeat nor skip while others write.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from urllib.parse import urlencode

from ipf.errors import Category, Problem
from ipf.fhir.bundle import Link, searchset
from ipf.fhir.query import Query, parse_query
from ipf.ports import Answer, Request
from ipf.rest.exchange import media_type, parameters, preference, selection
from ipf.rest.repository import Repository

CURSOR = "_cursor"

Pairs = Sequence[tuple[str, str]]


async def search(request: Request, repository: Repository) -> Answer:
    """A searchset Bundle; 400 names a parameter that is not known, unless `Prefer: handling=lenient` leaves it out."""
    return await _search(request, repository, selection(request.query))


async def search_by_post(request: Request, repository: Repository) -> Answer:
    """The same with parameters in the body, in the URL, or in both."""
    sent = media_type(request.headers.get("content-type", "application/x-www-form-urlencoded"))
    if sent != "application/x-www-form-urlencoded":
        raise Problem(Category.MEDIA_TYPE, f"send application/x-www-form-urlencoded, not {sent}")
    pairs = parameters(request.body.decode("utf-8", "replace"))
    return await _search(request, repository, selection([*request.query, *pairs]))


async def _search(request: Request, repository: Repository, pairs: Pairs) -> Answer:
    resource_type = request.path[0]
    cursor = next((value for name, value in pairs if name == CURSOR), None)
    used = [pair for pair in pairs if pair[0] != CURSOR]
    strict = preference(request, "handling") != "lenient"
    query = _bounded(parse_query(resource_type, used, strict=strict, now=repository.clock()), repository)
    page = await repository.store.search(request.tenant, query, cursor)
    used = [pair for pair in used if pair[0] not in query.ignored]
    links = [_link("self", request, used, cursor)]
    if page.next is not None:
        links.append(_link("next", request, used, page.next))
    return Answer(200, searchset(page.matches, page.total, request.base_url, links))


def _bounded(query: Query, repository: Repository) -> Query:
    wanted = repository.page_size if query.count is None else query.count
    return replace(query, count=min(wanted, repository.max_page_size))


def _link(relation: str, request: Request, pairs: Pairs, cursor: str | None) -> Link:
    text = urlencode([*pairs, (CURSOR, cursor)] if cursor is not None else list(pairs))
    url = f"{request.base_url}/{request.path[0]}"
    return Link(relation, f"{url}?{text}" if text else url)
