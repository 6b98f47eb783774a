"""GET [base]/[type]/_history and GET [base]/_history: https://hl7.org/fhir/R4/http.html#history

A page continues after the last entry of the previous one, so that concurrent writes cause neither repeated nor skipped
entries.  There is no total, since counting all versions is expensive.
"""

from __future__ import annotations

from ipf.errors import Category, Problem
from ipf.fhir.model.bundle import Link, history
from ipf.fhir.model.definitions import definitions
from ipf.ports import Answer, Request, Version
from ipf.ports.history import HistoryCursor
from ipf.rest.interactions.history import HistoryParameters, cursor_of, history_parameters, token_of
from ipf.rest.write.permission import searchable
from ipf.rest.write.repository import Repository
from ipf.rest.write.visibility import visible_now

_SCANNED = 100  # versions read at once for a caller with limits
_MOST_SCANNED = 10_000


async def history_type(request: Request, repository: Repository) -> Answer:
    """Versions of all resources of a type, including deletions, newest first."""
    return await _history(request, repository, request.path[0])


async def history_system(request: Request, repository: Repository) -> Answer:
    """Versions of all resources that the caller may see, including deletions, newest first."""
    searchable(request.caller, sorted(definitions().resource_types), ())
    return await _history(request, repository, None)


async def _history(request: Request, repository: Repository, resource_type: str | None) -> Answer:
    parameters = history_parameters(request, repository, "_cursor")
    after = await repository.opened(parameters.after)
    before = None if after is None else cursor_of(after)
    found = await _visible_page(request, repository, resource_type, parameters, before)
    versions = found[: parameters.limit]
    url = "/".join((request.base_url, *request.path)) + f"?{parameters.text}"
    links = [Link("self", url if parameters.after is None else f"{url}&_cursor={parameters.after}")]
    if len(found) > len(versions):
        token = await repository.sealed(token_of(HistoryCursor.of(versions[-1])))
        links.append(Link("next", f"{url}&_cursor={token}"))
    return Answer(200, history(versions, None, request.base_url, links))


async def _visible_page(
    request: Request,
    repository: Repository,
    resource_type: str | None,
    parameters: HistoryParameters,
    before: HistoryCursor | None,
) -> list[Version]:
    """The visible versions of a page and one more, if there is one.

    A page of a caller with limits is filled from further pages of the store, since a short page, or a link to an empty
    one, would tell him how many versions he does not see.  Problem COSTLY when these are very many.
    """
    wanted = parameters.limit + 1
    size = wanted if request.caller.is_unlimited else max(wanted, _SCANNED)
    found: list[Version] = []
    for _ in range(_MOST_SCANNED // size + 1):
        page = await repository.histories.page(request.tenant, resource_type, size, parameters.since, before)
        found += await visible_now(page, request.caller, request.tenant, repository.store)
        if len(found) >= wanted or len(page) < size:
            return found[:wanted]
        before = HistoryCursor.of(page[-1])
    text = f"more than {_MOST_SCANNED} versions would have to be read: give _since, or search, or read one history"
    raise Problem(Category.COSTLY, text)
