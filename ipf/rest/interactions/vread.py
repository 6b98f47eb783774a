"""GET [base]/[type]/[id]/_history/[vid]: https://hl7.org/fhir/R4/http.html#vread"""

from __future__ import annotations

from ipf.errors import Category, Problem
from ipf.ports import Answer, Request
from ipf.rest.http.exchange import version_answer
from ipf.rest.write.repository import Repository
from ipf.rest.write.visibility import readable_now

_LONGEST = 9  # digits of a version number


async def vread(request: Request, repository: Repository) -> Answer:
    """One version; 404 when it does not exist, 410 when it is a deletion."""
    resource_type, id, _, number = request.path
    unknown = Problem(Category.NOT_FOUND, f"{resource_type}/{id} has no version {number[:20]}")
    if not number.isascii() or not number.isdigit() or len(number) > _LONGEST:
        raise unknown
    version = await repository.store.read_version(request.tenant, resource_type, id, int(number))
    version = await readable_now(version, request.caller, request.tenant, repository.store)
    if version is None:
        raise unknown
    if version.deleted:
        raise Problem(Category.GONE, f"{resource_type}/{id} was deleted in version {number}")
    return version_answer(version)
