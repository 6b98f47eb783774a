"""GET [base]/[type]/[id]/_history: https://hl7.org/fhir/R4/http.html#history"""

from __future__ import annotations

from ipf.errors import Category, Problem
from ipf.fhir.bundle import Link, history
from ipf.ports import Answer, Request
from ipf.rest.exchange import selection
from ipf.rest.repository import Repository

_LONGEST = 9


async def history_instance(request: Request, repository: Repository) -> Answer:
    """Versions of one resource, newest first, in pages of `_count`; a deleted resource has a history as well."""
    resource_type, id, _ = request.path
    limit, before = repository.page_size, None
    for name, value in selection(request.query):
        number = _number(name, value)
        if name == "_count":
            limit = max(1, min(number, repository.max_page_size))
        else:
            before = number
    newest = await repository.store.read(request.tenant, resource_type, id)
    if newest is None:
        raise Problem(Category.NOT_FOUND, f"{resource_type}/{id} is not known")
    versions = await repository.store.history(request.tenant, resource_type, id, limit, before)
    url = f"{request.base_url}/{resource_type}/{id}/_history?_count={limit}"
    links = [Link("self", url if before is None else f"{url}&_before={before}")]
    if versions and versions[-1].version_id > 1:
        links.append(Link("next", f"{url}&_before={versions[-1].version_id}"))
    return Answer(200, history(versions, newest.version_id, request.base_url, links))


def _number(name: str, value: str) -> int:
    if name not in ("_count", "_before"):
        raise Problem(Category.NOT_SUPPORTED, f"history does not know the parameter {name}", name)
    if not value.isascii() or not value.isdigit() or len(value) > _LONGEST:
        raise Problem(Category.VALUE, f"{name} must be a whole number", name)
    return int(value)
