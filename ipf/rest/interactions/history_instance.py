"""GET [base]/[type]/[id]/_history: https://hl7.org/fhir/R4/http.html#history"""

from __future__ import annotations

from ipf.errors import Category, Problem
from ipf.fhir.model.bundle import Link, history
from ipf.ports import Answer, Request, Version
from ipf.rest.interactions.history import HistoryParameters, history_parameters, number
from ipf.rest.write.permission import sees_all
from ipf.rest.write.repository import Repository
from ipf.rest.write.visibility import readable_now, visible_now


async def history_instance(request: Request, repository: Repository) -> Answer:
    """Versions of one resource, also of a deleted one, newest first, in pages of `_count`.

    The total is left out where the caller may not see every version.
    """
    resource_type, id, _ = request.path
    parameters = history_parameters(request, repository, "_before")
    before = None if parameters.after is None else number("_before", parameters.after)
    newest = await repository.store.read(request.tenant, resource_type, id)
    newest = await readable_now(newest, request.caller, request.tenant, repository.store)
    if newest is None:
        raise Problem(Category.NOT_FOUND, f"{resource_type}/{id} does not exist")
    found = await _versions(request, repository, parameters, before)
    versions = found[: parameters.limit]
    has_total = parameters.since is None and sees_all(request.caller, resource_type)
    total = newest.version_id if has_total else None
    url = f"{request.base_url}/{resource_type}/{id}/_history?{parameters.text}"
    links = [Link("self", url if before is None else f"{url}&_before={before}")]
    if len(found) > len(versions):
        links.append(Link("next", f"{url}&_before={versions[-1].version_id}"))
    return Answer(200, history(versions, total, request.base_url, links))


async def _versions(
    request: Request, repository: Repository, parameters: HistoryParameters, before: int | None
) -> list[Version]:
    """The visible versions of a page and one more, if there is one."""
    resource_type, id, _ = request.path
    limit, since = parameters.limit + 1, parameters.since
    found: list[Version] = []
    while True:
        page = await repository.store.history(request.tenant, resource_type, id, limit, before)
        recent = [one for one in page if since is None or one.last_updated >= since]
        found += await visible_now(recent, request.caller, request.tenant, repository.store)
        if len(found) >= limit or len(page) < limit or len(recent) < len(page):
            return found[:limit]
        before = page[-1].version_id
