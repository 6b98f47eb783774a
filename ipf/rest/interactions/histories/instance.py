"""GET [base]/[type]/[id]/_history: https://hl7.org/fhir/R4/http.html#history"""

from __future__ import annotations

from dataclasses import replace

from ipf.errors import Category, Problem
from ipf.fhir.model.bundle import history
from ipf.ports import Answer, Request, Version
from ipf.ports.queries.history_filter import HistoryFilter
from ipf.rest.interactions.histories.pages import HistoryPage, HistoryParameters, history_parameters, number
from ipf.rest.write.permission import sees_all
from ipf.rest.write.repository import Repository
from ipf.rest.write.visibility import readable_now, visible_now

_BEFORE, _AFTER = "_before", "_after"


async def history_instance(request: Request, repository: Repository) -> Answer:
    """Versions of one resource, also of a deleted one, in pages of `_count`; newest first, unless `_sort` says else.

    The total is left out where the caller may not see every version.
    """
    resource_type, id, _ = request.path
    parameters = history_parameters(request, repository, _BEFORE, _AFTER)
    wanted, start = parameters.wanted, None if parameters.token is None else number(*parameters.token)
    newest = await repository.store.read(request.tenant, resource_type, id)
    newest = await readable_now(newest, request.caller, request.tenant, repository.store)
    if newest is None:
        raise Problem(Category.NOT_FOUND, f"{resource_type}/{id} does not exist")
    walked = wanted if parameters.token is None else replace(wanted, oldest_first=parameters.token[0] == _AFTER)
    found = await _versions(request, repository, parameters, walked, start)
    page = HistoryPage.of(found, parameters, walked)
    has_total = wanted.since is None and wanted.at is None and sees_all(request.caller, resource_type)

    async def link_to(version: Version, following: bool) -> str:
        return f"{_AFTER if wanted.oldest_first == following else _BEFORE}={version.version_id}"

    links = await page.links(f"{request.base_url}/{resource_type}/{id}/_history", parameters, link_to)
    total = await repository.histories.count(request.tenant, resource_type, id) if has_total else None
    return Answer(200, history(page.versions, total, request.base_url, links))


async def _versions(
    request: Request, repository: Repository, parameters: HistoryParameters, walked: HistoryFilter, start: int | None
) -> list[Version]:
    """The visible versions of a page and one more, if there is one."""
    resource_type, id, _ = request.path
    limit = parameters.limit + 1
    found: list[Version] = []
    while True:
        page = await repository.store.history(request.tenant, resource_type, id, limit, start, walked)
        found += await visible_now(page, request.caller, request.tenant, repository.store)
        if len(found) >= limit or len(page) < limit:
            return found[:limit]
        start = page[-1].version_id
