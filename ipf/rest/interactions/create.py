"""POST [base]/[type]: https://hl7.org/fhir/R4/http.html#create, #ccreate (If-None-Exist)"""

from __future__ import annotations

from ipf.ports import Answer, Request
from ipf.ports.threads import LARGE_BODY
from ipf.rest.http.exchange import condition, parameters, refuse_parameters
from ipf.rest.interactions.provenance import provenance_of
from ipf.rest.interactions.write_response import with_sent_secrets, write_response
from ipf.rest.write.incoming import read_incoming
from ipf.rest.write.repository import Repository
from ipf.rest.write.unit import Entry, Method, unit_for


async def create(request: Request, repository: Repository) -> Answer:
    """201 with a server-assigned id; with If-None-Exist: 200 without a write for one match, 412 for several.

    Parameters in the URL are refused: who sends a search there means a conditional create.
    """
    (resource_type,) = request.path
    refuse_parameters(request.query, "header If-None-Exist")
    sent, resource = await read_incoming(request, resource_type, repository)
    search = request.headers.get("if-none-exist")
    query = None
    if search is not None:
        query = condition(resource_type, parameters(search.rpartition("?")[2]), request.base_url)
    entry = Entry(Method.CREATE, resource_type, resource=resource, condition=query)
    result = await repository.commit_one(
        unit_for(request, entry, *await provenance_of(request, repository)), is_large=len(request.body) >= LARGE_BODY
    )
    answer = write_response(result.entries[0], request, await repository.warnings_of(result.entries[0], request.caller))
    return with_sent_secrets(answer, sent, repository)
