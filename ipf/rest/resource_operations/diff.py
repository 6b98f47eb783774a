"""GET [base]/[type]/[id]/$diff and GET [base]/$diff?from=[type]/[id]&to=[type]/[id]: the difference of two versions.

An operation of this server, named as in HAPI FHIR.  It answers a FHIRPath Patch: applied to the first version, it gives
the second one, apart from the id and what the server sets in `meta`.

Source: https://hapifhir.io/hapi-fhir/docs/server_jpa/diff.html
"""

from __future__ import annotations

import re
from functools import partial

from ipf.errors import Category, Problem
from ipf.fhir.model.json import dumps, loads
from ipf.fhir.model.redaction import redact_resource
from ipf.fhir.model.reference import relative_form
from ipf.fhir.patch.patch_between import patch_between
from ipf.ports import Answer, Request, Version
from ipf.ports.threads import run_by_size
from ipf.rest.http.arguments import Arguments
from ipf.rest.write.repository import Repository
from ipf.rest.write.visibility import readable_now
from ipf.security.access import required

_NAMED = re.compile(r"([A-Z][A-Za-z]+)/([A-Za-z0-9.-]{1,64})(?:/_history/([0-9]{1,9}))?")


async def diff_instance(request: Request, repository: Repository) -> Answer:
    """From `fromVersion` (default: the version before) to the current one."""
    resource_type, id = request.path[:2]
    number = Arguments.of(request, ("fromVersion",)).number("fromVersion")
    current = await _version(request, repository, resource_type, id)
    if number is None:
        number = current.version_id - 1
        if number < 1:
            raise Problem(Category.NOT_FOUND, f"{resource_type}/{id} has no version before this one", "fromVersion")
    earlier = await _version(request, repository, resource_type, id, number)
    return await _difference(repository, earlier, current)


async def diff_system(request: Request, repository: Repository) -> Answer:
    """From one resource or version to another, `Type/id` or `Type/id/_history/n`."""
    arguments = Arguments.of(request, ("from", "to"))
    found = []
    for name in ("from", "to"):
        named = _NAMED.fullmatch(relative_form(arguments.required(name), request.base_url))
        if named is None:
            raise Problem(Category.VALUE, f"{name} must be Type/id or Type/id/_history/n", name)
        required(request.caller, named[1], "r")
        number = None if named[3] is None else int(named[3])
        found.append(await _version(request, repository, named[1], named[2], number))
    if found[0].resource_type != found[1].resource_type:
        raise Problem(Category.VALUE, "from and to must be of one resource type", "to")
    return await _difference(repository, *found)


async def _version(
    request: Request, repository: Repository, resource_type: str, id: str, number: int | None = None
) -> Version:
    """A version that the caller may read.  Problem NOT_FOUND or GONE."""
    store = repository.store
    if number is None:
        version = await store.read(request.tenant, resource_type, id)
    else:
        version = await store.read_version(request.tenant, resource_type, id, number)
    version = await readable_now(version, request.caller, request.tenant, store)
    what = f"{resource_type}/{id}" if number is None else f"{resource_type}/{id} in version {number}"
    if version is None:
        raise Problem(Category.NOT_FOUND, f"{what} does not exist")
    if version.deleted:
        raise Problem(Category.GONE, f"{what} was deleted")
    return version


async def _difference(repository: Repository, earlier: Version, later: Version) -> Answer:
    size = len(earlier.body) + len(later.body)
    body = await run_by_size(size, repository.run_in_thread, partial(_patch, earlier.body, later.body))
    return Answer(200, body, about=(earlier, later))


def _patch(earlier: bytes, later: bytes) -> bytes:
    return dumps(patch_between(redact_resource(loads(earlier)), redact_resource(loads(later))))
