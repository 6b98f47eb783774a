"""GET [base]/[type]/[id]/_history: https://hl7.org/fhir/R4/http.html#history"""

from __future__ import annotations

from ipf.errors import Category, Problem
from ipf.fhir.model.bundle import Link, history
from ipf.ports import Answer, Request
from ipf.rest.interactions.history import asked, number
from ipf.rest.write.permission import if_readable, visible
from ipf.rest.write.repository import Repository


async def history_instance(request: Request, repository: Repository) -> Answer:
    """Versions of one resource, newest first, in pages of `_count`; a deleted resource has a history as well."""
    resource_type, id, _ = request.path
    want = asked(request, repository, "_before")
    before = None if want.after is None else number("_before", want.after)
    newest = if_readable(await repository.store.read(request.tenant, resource_type, id), request.caller)
    if newest is None:
        raise Problem(Category.NOT_FOUND, f"{resource_type}/{id} is not known")
    versions = await repository.store.history(request.tenant, resource_type, id, want.limit, before)
    more = bool(versions) and versions[-1].version_id > 1
    total: int | None = newest.version_id
    if want.since is not None:
        since, total = want.since, None
        kept = [version for version in versions if version.last_updated >= since]
        versions, more = kept, more and len(kept) == len(versions)
    last = versions[-1].version_id if versions else 0
    versions = visible(versions, request.caller)
    url = f"{request.base_url}/{resource_type}/{id}/_history?{want.text}"
    links = [Link("self", url if before is None else f"{url}&_before={before}")]
    if more:
        links.append(Link("next", f"{url}&_before={last}"))
    return Answer(200, history(versions, total, request.base_url, links))
