"""`$graphql` on the system and on one resource.

The query is read, checked and run in a thread; its reads and searches are requests of the caller, with the same rights
and limits.  An invalid or too costly query is an OperationOutcome; what a valid one cannot read is null, with an error
that has the OperationOutcome as an extension.

Source: https://hl7.org/fhir/R4/graphql.html, https://hl7.org/fhir/R4/resource-operation-graphql.html
"""

from __future__ import annotations

from ipf.fhir.model.json import dumps
from ipf.ports import Answer, Json, Request
from ipf.rest.graphql.document import prepared, sent
from ipf.rest.graphql.execute import Execution
from ipf.rest.graphql.loaded import Loaded, Perform
from ipf.rest.graphql.plan import Plans
from ipf.rest.write.repository import Repository


async def graphql(request: Request, repository: Repository, perform: Perform) -> Answer:
    """The response as GraphQL has it, `{"data", "errors"}`.  `perform`: a read or search of the caller.

    Problem VALUE, NOT_SUPPORTED or COSTLY; of one resource, the Problem of its read.
    """
    instance = (request.path[0], request.path[1]) if len(request.path) == 3 else None
    query = await repository.run_in_thread(lambda: prepared(sent(request), instance))
    loaded, plans, count = Loaded(request), Plans(query), repository.max_page_size
    seconds: float | None = None
    while True:
        execution = Execution(query, loaded, plans, count, seconds)
        data: Json = await repository.run_in_thread(execution.run)
        seconds = execution.seconds_left
        if not await loaded.fetch(perform, repository.run_in_thread):
            break
    errors = execution.errors
    if instance is not None:
        if data[instance[0]] is None and execution.problems:
            raise execution.problems[0]
        data = data[instance[0]]
        errors = [{**one, "path": one["path"][1:]} for one in errors]
    body = await repository.run_in_thread(lambda: dumps({"data": data, **({"errors": errors} if errors else {})}))
    return Answer(200, body, content_type="application/json", about=loaded.about)
