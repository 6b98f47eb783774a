"""GET [base]/[type]/[id]: https://hl7.org/fhir/R4/http.html#read"""

from __future__ import annotations

from email.utils import parsedate_to_datetime

from ipf.errors import Category, Problem
from ipf.ports import Answer, Request, Version
from ipf.rest.http.exchange import entity_tags, version_answer, version_headers
from ipf.rest.write.permission import if_readable
from ipf.rest.write.repository import Repository
from ipf.rest.write.visibility import readable_now


async def read(request: Request, repository: Repository) -> Answer:
    """The current version; 304 when the client has it, 404 when it never existed, 410 when it is deleted."""
    resource_type, id = request.path
    version = await repository.store.read(request.tenant, resource_type, id)
    version = await readable_now(version, request.caller, request.tenant, repository.store)
    if version is None and repository.conformance is not None:
        version = if_readable(repository.conformance.read(resource_type, id), request.caller)
    if version is None:
        raise Problem(Category.NOT_FOUND, f"{resource_type}/{id} does not exist")
    if version.deleted:
        raise Problem(Category.GONE, f"{resource_type}/{id} was deleted")
    if _is_known(request, version):
        return Answer(304, b"", version_headers(version))
    return version_answer(version)


def _is_known(request: Request, version: Version) -> bool:
    """Whether the client has this version (RFC 9110 section 13: If-None-Match overrides If-Modified-Since)."""
    tags = request.headers.get("if-none-match")
    if tags is not None:
        return tags.strip() == "*" or str(version.version_id) in entity_tags(tags)
    since = request.headers.get("if-modified-since")
    if since is None:
        return False
    try:
        return version.last_updated.replace(microsecond=0) <= parsedate_to_datetime(since)
    except (ValueError, TypeError):  # an invalid date, or one without a zone, is ignored
        return False
