"""The route table of the FHIR server, and the function that handles a request.

HTTP requests and entries of a Bundle use the same table.

Source: https://hl7.org/fhir/R4/http.html
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter

from ipf.errors import Category, Problem
from ipf.fhir.model.definitions import definitions
from ipf.fhir.model.redaction import redact_body
from ipf.fhir.structure.primitives import is_id
from ipf.ports import Answer, Handler, Identify, Request
from ipf.rest.documents.docref import docref
from ipf.rest.documents.document import document
from ipf.rest.http.binary import binary_content
from ipf.rest.http.break_glass import with_break_glass
from ipf.rest.http.exchange import Observe, with_posted_parameters
from ipf.rest.http.formats import Format, wanted_format
from ipf.rest.http.outcome import refuse
from ipf.rest.http.presentation import DEFAULT_PRESENTATION, Presentation, render, select_elements, split_presentation
from ipf.rest.imports.bulk_import import bulk_import
from ipf.rest.interactions.create import create
from ipf.rest.interactions.delete import conditional_delete, delete
from ipf.rest.interactions.histories.instance import history_instance
from ipf.rest.interactions.histories.many import history_system, history_type
from ipf.rest.interactions.metadata import metadata, smart_configuration
from ipf.rest.interactions.patch import conditional_patch, patch
from ipf.rest.interactions.provenance import refuse_provenance
from ipf.rest.interactions.read import read
from ipf.rest.interactions.searches.contained import search
from ipf.rest.interactions.searches.search import search_compartment, search_system
from ipf.rest.interactions.transaction import transaction
from ipf.rest.interactions.update import conditional_update, update
from ipf.rest.interactions.vread import vread
from ipf.rest.jobs.jobs import start_job, wants_async
from ipf.rest.jobs.status import job_cancel, job_file, job_status
from ipf.rest.operations.everything import everything
from ipf.rest.operations.export import export, export_cancel, export_file, export_status
from ipf.rest.operations.expunge import expunge
from ipf.rest.operations.merge_requests import merge, unmerge
from ipf.rest.operations.reindex import reindex_jobs, request_reindex
from ipf.rest.operations.subscription_dry_run import dry_run
from ipf.rest.operations.subscription_operations import binding_token, events, resend, status
from ipf.rest.operations.validate import validate
from ipf.rest.reads import ReplicaReads
from ipf.rest.resource_operations.diff import diff_instance, diff_system
from ipf.rest.resource_operations.fhirpath import fhirpath
from ipf.rest.resource_operations.lastn import lastn
from ipf.rest.resource_operations.match import match
from ipf.rest.resource_operations.meta import meta_add, meta_delete, meta_instance, meta_system, meta_type
from ipf.rest.terminology.capabilities import terminology_statement
from ipf.rest.terminology.closure import closure
from ipf.rest.terminology.code_systems.find_matches import find_matches
from ipf.rest.terminology.code_systems.lookup import lookup
from ipf.rest.terminology.code_systems.subsumes import subsumes
from ipf.rest.terminology.translate import translate_code
from ipf.rest.terminology.value_sets.expand import expand
from ipf.rest.terminology.value_sets.validate_code import validate_code
from ipf.rest.write.permission import check_authenticated, check_route, only_reads
from ipf.rest.write.repository import Repository
from ipf.security.access import refresh_access
from ipf.security.audit.draft import NewDraft
from ipf.security.audit.rules import TYPE, check_immutable

Pairs = tuple[tuple[str, str], ...]
Interaction = Callable[[Request, Repository], Awaitable[Answer]]


async def transaction_or_batch(request: Request, repository: Repository) -> Answer:
    """A transaction or batch; this router performs its reads."""
    return await transaction(request, repository, perform_entry)


async def graphql_query(request: Request, repository: Repository) -> Answer:
    """A GraphQL query; this router performs its reads and searches."""
    from ipf.rest.graphql.operation import graphql  # rarely needed: graphql-core takes 30 ms to import

    return await graphql(request, repository, lambda one: perform(one, repository))


async def capability_statement(request: Request, repository: Repository) -> Answer:
    """The CapabilityStatement of the routes below."""
    routes = [
        (shape, method)
        for shape in ROUTES
        for method, interaction in ROUTES[shape].items()
        if interaction is not expunge or repository.expunge is not None
    ]
    return await metadata(request, repository, routes, terminology_statement)


ROUTES: dict[str, dict[str, Interaction]] = {
    "": {"GET": search_system, "POST": transaction_or_batch},
    "_search": {"GET": search_system, "POST": search_system},
    "$reindex": {"GET": reindex_jobs, "POST": request_reindex},
    "$graphql": {"GET": graphql_query, "POST": graphql_query},
    "$fhirpath": {"POST": fhirpath},
    "metadata": {"GET": capability_statement},
    ".well-known/smart-configuration": {"GET": smart_configuration},
    "_history": {"GET": history_system},
    "$meta": {"GET": meta_system},
    "[type]/$meta": {"GET": meta_type},
    "[type]/[id]/$meta": {"GET": meta_instance},
    "[type]/[id]/$meta-add": {"POST": meta_add},
    "[type]/[id]/$meta-delete": {"POST": meta_delete},
    "$diff": {"GET": diff_system},
    "[type]/[id]/$diff": {"GET": diff_instance},
    "$expunge": {"POST": expunge},
    "[type]/$expunge": {"POST": expunge},
    "[type]/[id]/$expunge": {"POST": expunge},
    "[type]/[id]/_history/[vid]/$expunge": {"POST": expunge},
    "$export": {"GET": export, "POST": export},
    "$export-status/[id]": {"GET": export_status, "DELETE": export_cancel},
    "$export-file/[id]/[id]": {"GET": export_file},
    "$import": {"POST": bulk_import},
    "$job-status/[id]": {"GET": job_status, "DELETE": job_cancel},
    "$job-file/[id]/[id]": {"GET": job_file},
    "[type]": {
        "GET": search,
        "POST": create,
        "PUT": conditional_update,
        "PATCH": conditional_patch,
        "DELETE": conditional_delete,
    },
    "[type]/_search": {"GET": search, "POST": search},
    "[type]/[id]": {"GET": read, "PUT": update, "PATCH": patch, "DELETE": delete},
    "[type]/_history": {"GET": history_type},
    "[type]/$export": {"GET": export, "POST": export},
    "[type]/[id]/$export": {"GET": export, "POST": export},
    "[type]/[id]/_history": {"GET": history_instance},
    "[type]/[id]/[type]": {"GET": search_compartment},
    "[type]/[id]/[type]/_search": {"GET": search_compartment, "POST": search_compartment},
    "[type]/[id]/$everything": {"GET": everything, "POST": everything},
    "[type]/[id]/$graphql": {"GET": graphql_query, "POST": graphql_query},
    "[type]/[id]/_history/[vid]": {"GET": vread},
    "[type]/$match": {"POST": match},
    "[type]/$merge": {"POST": merge},
    "[type]/[id]/$unmerge": {"POST": unmerge},
    "[type]/$document": {"GET": document, "POST": document},
    "[type]/[id]/$document": {"GET": document, "POST": document},
    "[type]/$docref": {"GET": docref, "POST": docref},
    "[type]/$lastn": {"GET": lastn, "POST": lastn},
    "[type]/$status": {"GET": status, "POST": status},
    "[type]/[id]/$status": {"GET": status, "POST": status},
    "[type]/[id]/$events": {"GET": events, "POST": events},
    "[type]/[id]/$resend": {"POST": resend},
    "[type]/$get-ws-binding-token": {"GET": binding_token, "POST": binding_token},
    "[type]/[id]/$get-ws-binding-token": {"GET": binding_token, "POST": binding_token},
    "[type]/$dry-run": {"POST": dry_run},
    "[type]/[id]/$dry-run": {"POST": dry_run},
    "[type]/$validate": {"POST": validate},
    "[type]/$expand": {"GET": expand, "POST": expand},
    "[type]/[id]/$expand": {"GET": expand, "POST": expand},
    "[type]/$validate-code": {"GET": validate_code, "POST": validate_code},
    "[type]/[id]/$validate-code": {"GET": validate_code, "POST": validate_code},
    "[type]/$lookup": {"GET": lookup, "POST": lookup},
    "[type]/[id]/$lookup": {"GET": lookup, "POST": lookup},
    "[type]/$subsumes": {"GET": subsumes, "POST": subsumes},
    "[type]/[id]/$subsumes": {"GET": subsumes, "POST": subsumes},
    "[type]/$find-matches": {"GET": find_matches, "POST": find_matches},
    "[type]/[id]/$find-matches": {"GET": find_matches, "POST": find_matches},
    "$closure": {"POST": closure},
    "[type]/$translate": {"GET": translate_code, "POST": translate_code},
    "[type]/[id]/$translate": {"GET": translate_code, "POST": translate_code},
    "[type]/[id]/$validate": {"GET": validate, "POST": validate},
}


_TOLERANT: frozenset[Interaction] = frozenset({
    read, vread, history_instance, history_type, history_system, everything,
    search, search_system, search_compartment, docref, lastn,
})  # fmt: skip
_ASYNC: frozenset[Interaction] = frozenset({
    search, search_system, search_compartment, transaction_or_batch,
})  # fmt: skip
_WITH_PROVENANCE: frozenset[Interaction] = frozenset({
    create, update, conditional_update, patch, conditional_patch, transaction_or_batch,
})  # fmt: skip
REQUEST = "request"
"""The kind of jobs that perform a request as it was sent."""
_WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_MAX_REPOSITORIES = 1000  # cached repositories
_LARGE_RESPONSE = 50_000  # bytes; larger responses are rendered (as XML, indented, with selected elements) in a thread


def handler(
    repository: Repository,
    identify: Identify | None = None,
    observe: Observe | None = None,
    draft: NewDraft | None = None,
    reads: ReplicaReads | None = None,
) -> Handler:
    """The FHIR server as a handler: the response has the requested format, and every Problem is rendered.

    `identify`: None = authentication is off.  `draft`: of the audit records that are written with what they record.
    `reads`: sends reads to a standby; None = there is none.
    """
    repositories: dict[str, Repository] = {}

    def repository_of(tenant: str) -> Repository:
        """The repository of a tenant, cached."""
        found = repositories.get(tenant)
        if found is None:
            if len(repositories) >= _MAX_REPOSITORIES:
                repositories.clear()
            found = repositories[tenant] = replace(repository, tenant=tenant)
        return found

    async def handle(request: Request) -> Answer:
        form, presentation, began = Format.JSON, DEFAULT_PRESENTATION, perf_counter()
        sent: Answer
        try:
            request = with_posted_parameters(request)
            form, asked = wanted_format(request), request.query
            request, presentation = split_presentation(request)
            if identify is not None:
                request = await identify(request)
            request = with_break_glass(request)
            if draft is not None and request.method in _WRITES:
                request.draft = draft(request, began)
            answer = redacted(await _performed(request, asked, repository_of(request.tenant), reads))
            if len(answer.body) >= _LARGE_RESPONSE and (presentation is not DEFAULT_PRESENTATION or form is Format.XML):
                answer, sent = await repository.run_in_thread(partial(_presented, answer, presentation, form))
            else:
                answer, sent = _presented(answer, presentation, form)
        except Problem as problem:
            answer = _refuse(problem, request)
            sent = render(answer, presentation, form)
        except Exception:
            if observe is not None:
                observe(request, Answer(500), began)
            raise
        if observe is not None:
            observe(request, answer, began)
        return sent

    return handle


async def _accepted(request: Request, asked: Pairs, repository: Repository) -> Answer | None:
    """202 for a search or a Bundle whose client does not want to wait; None: it is performed now.

    `asked`: the parameters with those of presentation.  What lifts labels and Consents is never stored.
    """
    if repository.jobs is None or request.caller.break_glass:
        return None
    check_authenticated(request)
    await refresh_access()
    shape = _shape(request.path)
    check_route(shape, request)
    if ROUTES.get(shape, {}).get(request.method) not in _ASYNC:
        return None
    return await start_job(replace(request, query=asked), repository, REQUEST)


async def _performed(request: Request, asked: Pairs, repository: Repository, reads: ReplicaReads | None) -> Answer:
    """`perform`, later or on the side of the database that is right for the request."""
    accepted = await _accepted(request, asked, repository) if wants_async(request) else None
    if accepted is not None:
        return accepted
    if reads is None:
        return await perform(request, repository)
    return await reads.perform(request, repository, perform, tolerates_staleness(request))


def _presented(answer: Answer, presentation: Presentation, form: Format) -> tuple[Answer, Answer]:
    """The response with the requested elements, and the same in the requested format."""
    answer = select_elements(answer, presentation) if answer.body else answer
    return answer, binary_content(answer) if form is Format.RAW else render(answer, presentation, form)


def redacted(answer: Answer) -> Answer:
    """The response with the secrets of Subscriptions redacted."""
    body = redact_body(answer.body)
    return answer if body is answer.body else replace(answer, body=body)


async def perform(request: Request, repository: Repository) -> Answer:
    """Perform one request; the response is JSON.  Raises Problem."""
    check_authenticated(request)
    await refresh_access()
    shape = _shape(request.path)
    check_route(shape, request)
    if request.path:
        check_immutable(request.path[0], request.method)
    methods = ROUTES.get(shape)
    if methods is None:
        raise Problem(Category.NOT_FOUND, "this URL does not exist")
    interaction = methods.get("GET" if request.method == "HEAD" else request.method)
    if interaction is None:
        if request.method == "OPTIONS":
            return Answer(204, b"", [("Allow", _allowed(methods))])
        raise Problem(Category.METHOD, f"{request.method[:20]} is not supported for this URL")
    if interaction not in _WITH_PROVENANCE and request.method in _WRITES and not _only_reads(request.path[-1:]):
        refuse_provenance(request, f"this {request.method}")
    conformance = repository.conformance
    if conformance is None or request.method not in _WRITES:
        return await interaction(request, repository)
    await conformance.prepare(request)
    answer = await interaction(request, repository)
    conformance.note_write(request)
    return answer


async def perform_entry(request: Request, repository: Repository) -> Answer:
    """`perform` for an entry of a Bundle: with its requested elements, in the format of the Bundle."""
    request, presentation = split_presentation(with_posted_parameters(request))
    return select_elements(await perform(request, repository), presentation)


def _only_reads(last: Sequence[str]) -> bool:
    """Whether a POST with this last part of its path is a search, or an operation that changes nothing."""
    return "_search" in last or any(one.startswith("$") and only_reads(one) for one in last)


def tolerates_staleness(request: Request) -> bool:
    """Whether the request only reads resources.  The audit trail is none of them: it is read as it is."""
    if request.path[:1] == (TYPE,):
        return False
    try:
        methods = ROUTES.get(_shape(request.path), {})
    except Problem:
        return False
    return methods.get("GET" if request.method == "HEAD" else request.method) in _TOLERANT


def _shape(path: tuple[str, ...]) -> str:
    """The route of a path.  Problem NOT_FOUND for an unknown type or an invalid id."""
    if not path or path == ("",) or path[0] in ("metadata", ".well-known"):
        return "/".join(path)
    if path[0].startswith(("_", "$")):
        return "/".join((path[0], *("[id]" for _ in path[1:])))
    if path[0] not in definitions().resource_types:
        raise Problem(Category.NOT_FOUND, f"{path[0][:60]} is not a resource type of R4")
    if len(path) == 1:
        return "[type]"
    if path[1].startswith(("_", "$")):
        return "/".join(("[type]", *path[1:]))
    if not is_id(path[1]):
        raise Problem(Category.NOT_FOUND, "this is not a valid resource id")
    rest = (path[2], "[vid]", *path[4:]) if len(path) in (4, 5) and path[3] != "_search" else path[2:]
    if rest and (rest[0] in definitions().resource_types or rest[0] == "*"):
        rest = ("[type]", *rest[1:])  # a compartment
    return "/".join(("[type]", "[id]", *rest))


def _refuse(problem: Problem, request: Request) -> Answer:
    answer = refuse(problem)
    if problem.category is not Category.METHOD:
        return answer
    return replace(answer, headers=[*answer.headers, ("Allow", _allowed(ROUTES.get(_shape(request.path), {})))])


def _allowed(methods: Mapping[str, Interaction]) -> str:
    names = [name for method in methods for name in ((method, "HEAD") if method == "GET" else (method,))]
    return ", ".join([*names, "OPTIONS"])
