"""GET [base]/[type]/_history and GET [base]/_history: https://hl7.org/fhir/R4/http.html#history

Pages go on from the place of their last entry, so that they neither repeat nor skip while others write.  There is no
total: counting all versions would cost more than the page.
"""

from __future__ import annotations

from ipf.fhir.model.bundle import Link, history
from ipf.fhir.model.definitions import definitions
from ipf.ports import Answer, Request
from ipf.ports.history import HistoryMark
from ipf.rest.interactions.history import asked, mark_of, token_of
from ipf.rest.write.permission import searchable, visible
from ipf.rest.write.repository import Repository


async def history_type(request: Request, repository: Repository) -> Answer:
    """Versions of all resources of a type, deletions among them, newest first."""
    return await _history(request, repository, request.path[0])


async def history_system(request: Request, repository: Repository) -> Answer:
    """Versions of all resources that the caller may see, deletions among them, newest first."""
    searchable(request.caller, sorted(definitions().resource_types), ())
    return await _history(request, repository, None)


async def _history(request: Request, repository: Repository, resource_type: str | None) -> Answer:
    want = asked(request, repository, "_cursor")
    before = None if want.after is None else mark_of(want.after)
    found = await repository.histories.page(request.tenant, resource_type, want.limit + 1, want.since, before)
    versions = found[: want.limit]
    url = "/".join((request.base_url, *request.path)) + f"?{want.text}"
    links = [Link("self", url if want.after is None else f"{url}&_cursor={token_of(mark_of(want.after))}")]
    if len(found) > len(versions):
        links.append(Link("next", f"{url}&_cursor={token_of(HistoryMark.of(versions[-1]))}"))
    return Answer(200, history(visible(versions, request.caller), None, request.base_url, links))
