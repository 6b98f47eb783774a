"""PUT [base]/[type]/[id] and PUT [base]/[type]?[search]: https://hl7.org/fhir/R4/http.html#update, #cond-update"""

from __future__ import annotations

from ipf.errors import Category, Problem
from ipf.ports import Answer, Request
from ipf.ports.threads import LARGE_BODY
from ipf.rest.http.exchange import condition, creates_only, if_match
from ipf.rest.interactions.provenance import provenance_of
from ipf.rest.interactions.write_response import with_sent_secrets, write_response
from ipf.rest.write.incoming import read_incoming
from ipf.rest.write.repository import Repository
from ipf.rest.write.unit import Entry, Method, unit_for


async def update(request: Request, repository: Repository) -> Answer:
    """200, or 201 for a new id; 412 when If-Match is not the current version.

    With `If-None-Match: *`, 412 when the resource exists.
    """
    resource_type, id = request.path
    sent, resource = await read_incoming(request, resource_type, repository)
    if resource.get("id") != id:
        raise Problem(Category.VALUE, "the id of the resource must equal the id in the URL", f"{resource_type}.id")
    version, must_be_new = if_match(request.headers.get("if-match")), creates_only(request.headers.get("if-none-match"))
    entry = Entry(Method.UPDATE, resource_type, id, resource, if_match=version, must_be_new=must_be_new)
    return with_sent_secrets(await _store(entry, request, repository), sent, repository)


async def conditional_update(request: Request, repository: Repository) -> Answer:
    """`update` of the one resource that the search matches; 201 for none, 412 for several."""
    (resource_type,) = request.path
    sent, resource = await read_incoming(request, resource_type, repository)
    query = condition(resource_type, request.query, request.base_url)
    version, must_be_new = if_match(request.headers.get("if-match")), creates_only(request.headers.get("if-none-match"))
    id = resource.get("id")
    entry = Entry(Method.UPDATE, resource_type, id, resource, query, if_match=version, must_be_new=must_be_new)
    return with_sent_secrets(await _store(entry, request, repository), sent, repository)


async def _store(entry: Entry, request: Request, repository: Repository) -> Answer:
    unit = unit_for(request, entry, *await provenance_of(request, repository))
    result = await repository.commit_one(unit, is_large=len(request.body) >= LARGE_BODY)
    return write_response(result.entries[0], request, await repository.warnings_of(result.entries[0], request.caller))
