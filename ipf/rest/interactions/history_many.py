"""GET [base]/[type]/_history and GET [base]/_history: https://hl7.org/fhir/R4/http.html#history

A page continues after the last entry of the previous one, so that concurrent writes cause neither repeated nor skipped
entries.  There is no total, since counting all versions is expensive.
"""

from __future__ import annotations

from ipf.fhir.model.bundle import Link, history
from ipf.fhir.model.definitions import definitions
from ipf.ports import Answer, Request
from ipf.ports.history import HistoryCursor
from ipf.rest.interactions.history import cursor_of, history_parameters, token_of
from ipf.rest.write.permission import searchable, visible
from ipf.rest.write.repository import Repository


async def history_type(request: Request, repository: Repository) -> Answer:
    """Versions of all resources of a type, including deletions, newest first."""
    return await _history(request, repository, request.path[0])


async def history_system(request: Request, repository: Repository) -> Answer:
    """Versions of all resources that the caller may see, including deletions, newest first."""
    searchable(request.caller, sorted(definitions().resource_types), ())
    return await _history(request, repository, None)


async def _history(request: Request, repository: Repository, resource_type: str | None) -> Answer:
    parameters = history_parameters(request, repository, "_cursor")
    before = None if parameters.after is None else cursor_of(parameters.after)
    found = await repository.histories.page(
        request.tenant, resource_type, parameters.limit + 1, parameters.since, before
    )
    versions = found[: parameters.limit]
    url = "/".join((request.base_url, *request.path)) + f"?{parameters.text}"
    links = [
        Link("self", url if parameters.after is None else f"{url}&_cursor={token_of(cursor_of(parameters.after))}")
    ]
    if len(found) > len(versions):
        links.append(Link("next", f"{url}&_cursor={token_of(HistoryCursor.of(versions[-1]))}"))
    return Answer(200, history(visible(versions, request.caller), None, request.base_url, links))
