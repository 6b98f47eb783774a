"""DELETE [base]/[type]/[id] and DELETE [base]/[type]?[search]: https://hl7.org/fhir/R4/http.html#delete, #3.1.0.7.1"""

from __future__ import annotations

from ipf.fhir.model.json import dumps
from ipf.ports import Answer, Request
from ipf.rest.http.exchange import applied, condition, if_match, preference, version_headers
from ipf.rest.http.outcome import success
from ipf.rest.interactions.delete_many import delete_many
from ipf.rest.interactions.write_response import describe
from ipf.rest.write.repository import Repository
from ipf.rest.write.unit import Entry, Method, unit_for


async def delete(request: Request, repository: Repository) -> Answer:
    """204, also when the resource does not exist (200 with `Prefer: return=OperationOutcome`)."""
    resource_type, id = request.path
    entry = Entry(Method.DELETE, resource_type, id, if_match=if_match(request.headers.get("if-match")))
    return await _remove(entry, request, repository)


async def conditional_delete(request: Request, repository: Repository) -> Answer:
    """`delete` of the one resource that the search matches; 412 for several, unless the server deletes all."""
    if repository.deletes_many:
        return await delete_many(request, repository)
    (resource_type,) = request.path
    entry = Entry(Method.DELETE, resource_type, condition=condition(resource_type, request.query, request.base_url))
    return await _remove(entry, request, repository)


async def _remove(entry: Entry, request: Request, repository: Repository) -> Answer:
    unit = unit_for(request, entry)
    result = (await repository.commit_one(unit)).entries[0]
    headers = version_headers(result.version)[:1] if result.version is not None else []
    headers += applied(request, "return", "minimal", "OperationOutcome")
    about = (result.version,) if result.version is not None else ()
    if preference(request, "return") == "OperationOutcome":
        return Answer(200, dumps(success(describe(result))), headers, about=about)
    return Answer(204, b"", headers, about=about)
