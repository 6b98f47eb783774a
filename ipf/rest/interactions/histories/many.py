"""GET [base]/[type]/_history and GET [base]/_history: https://hl7.org/fhir/R4/http.html#history

A page continues after the last entry of the previous one, so that concurrent writes cause neither repeated nor skipped
entries.  There is no total, since counting all versions is expensive.
"""

from __future__ import annotations

from dataclasses import replace

from ipf.errors import Category, Problem
from ipf.fhir.model.bundle import history
from ipf.fhir.model.definitions import definitions
from ipf.ports import Answer, Request, Version
from ipf.ports.fhir.history import HistoryCursor
from ipf.ports.queries.history_filter import HistoryFilter
from ipf.rest.interactions.histories.pages import HistoryPage, cursor_of, history_parameters, token_of
from ipf.rest.interactions.searches.search import BACKWARDS, CURSOR
from ipf.rest.write.permission import searchable
from ipf.rest.write.repository import Repository
from ipf.rest.write.visibility import visible_now

_SCANNED = 100  # versions read at once for a caller with limits
_MOST_SCANNED = 10_000


async def history_type(request: Request, repository: Repository) -> Answer:
    """Versions of all resources of a type, including deletions; newest first, unless `_sort` says else."""
    return await _history(request, repository, request.path[0])


async def history_system(request: Request, repository: Repository) -> Answer:
    """As `history_type`, of all resources that the caller may see."""
    searchable(request.caller, sorted(definitions().resource_types), ())
    return await _history(request, repository, None)


async def _history(request: Request, repository: Repository, resource_type: str | None) -> Answer:
    parameters = history_parameters(request, repository, CURSOR)
    wanted = parameters.wanted
    opened = await repository.opened(parameters.token[1] if parameters.token is not None else None) or ""
    start = cursor_of(opened.removeprefix(BACKWARDS)) if opened else None
    walked = replace(wanted, oldest_first=wanted.oldest_first != opened.startswith(BACKWARDS))
    found = await _visible_page(request, repository, resource_type, parameters.limit + 1, walked, start)
    page = HistoryPage.of(found, parameters, walked)

    async def link_to(version: Version, following: bool) -> str:
        token = token_of(HistoryCursor.of(version))
        return f"{CURSOR}={await repository.sealed(token if following else BACKWARDS + token)}"

    links = await page.links("/".join((request.base_url, *request.path)), parameters, link_to)
    return Answer(200, history(page.versions, None, request.base_url, links))


async def _visible_page(
    request: Request,
    repository: Repository,
    resource_type: str | None,
    wanted: int,
    walked: HistoryFilter,
    start: HistoryCursor | None,
) -> list[Version]:
    """The first `wanted` visible versions after `start`.

    A page of a caller with limits is filled from further pages of the store, since a short page, or a link to an empty
    one, would tell him how many versions he does not see.  Problem COSTLY when these are very many.
    """
    size = wanted if request.caller.is_unlimited else max(wanted, _SCANNED)
    found: list[Version] = []
    for _ in range(_MOST_SCANNED // size + 1):
        page = await repository.histories.page(request.tenant, resource_type, size, walked, start)
        found += await visible_now(page, request.caller, request.tenant, repository.store)
        if len(found) >= wanted or len(page) < size:
            return found[:wanted]
        start = HistoryCursor.of(page[-1])
    text = f"more than {_MOST_SCANNED} versions would have to be read: give _since, or search, or read one history"
    raise Problem(Category.COSTLY, text)
