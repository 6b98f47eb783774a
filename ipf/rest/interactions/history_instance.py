"""GET [base]/[type]/[id]/_history: https://hl7.org/fhir/R4/http.html#history"""

from __future__ import annotations

from ipf.errors import Category, Problem
from ipf.fhir.model.bundle import Link, history
from ipf.ports import Answer, Request
from ipf.rest.interactions.history import history_parameters, number
from ipf.rest.write.permission import if_readable, visible
from ipf.rest.write.repository import Repository


async def history_instance(request: Request, repository: Repository) -> Answer:
    """Versions of one resource, also of a deleted one, newest first, in pages of `_count`."""
    resource_type, id, _ = request.path
    parameters = history_parameters(request, repository, "_before")
    before = None if parameters.after is None else number("_before", parameters.after)
    newest = if_readable(await repository.store.read(request.tenant, resource_type, id), request.caller)
    if newest is None:
        raise Problem(Category.NOT_FOUND, f"{resource_type}/{id} does not exist")
    versions = await repository.store.history(request.tenant, resource_type, id, parameters.limit, before)
    has_more = bool(versions) and versions[-1].version_id > 1
    total: int | None = newest.version_id
    if parameters.since is not None:
        since, total = parameters.since, None
        kept = [version for version in versions if version.last_updated >= since]
        versions, has_more = kept, has_more and len(kept) == len(versions)
    last = versions[-1].version_id if versions else 0
    versions = visible(versions, request.caller)
    url = f"{request.base_url}/{resource_type}/{id}/_history?{parameters.text}"
    links = [Link("self", url if before is None else f"{url}&_before={before}")]
    if has_more:
        links.append(Link("next", f"{url}&_before={last}"))
    return Answer(200, history(versions, total, request.base_url, links))
