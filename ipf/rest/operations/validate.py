"""[base]/[type]/$validate, [base]/[type]/[id]/$validate: https://hl7.org/fhir/R4/resource-operation-validate.html

POST with the resource, or with Parameters `resource`, `mode`, `profile`; on an instance without a body, and with GET,
the stored resource.  The response is an OperationOutcome with status 200, also for an invalid resource; 4xx is for an
invalid request.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ipf.errors import Category, Problem
from ipf.fhir.model.json import dumps, loads
from ipf.fhir.terminology.codings import coded_in
from ipf.fhir.validation import Finding, outcome
from ipf.ports import Answer, Json, Request
from ipf.ports.threads import run_by_size
from ipf.rest.http.arguments import value_of
from ipf.rest.http.exchange import selection, sent_resource
from ipf.rest.write.conformance import Conformance
from ipf.rest.write.permission import if_readable
from ipf.rest.write.repository import Repository

_MODES = frozenset({"create", "update", "delete", "profile"})
_PARAMETERS = frozenset({"mode", "profile"})


async def validate(request: Request, repository: Repository) -> Answer:
    """Validate the resource in the request, or the stored one."""
    conformance = conformance_of(repository)
    resource_type, id = request.path[0], request.path[1] if len(request.path) == 3 else None
    resource, mode, profiles = await repository.parsed(request, lambda: _arguments(request, resource_type))
    if mode == "delete":
        return Answer(200, dumps(outcome(await _check_deletion(request, repository, resource_type, id))))
    checked = await _stored(request, repository, resource_type, id) if resource is None else resource
    known = await conformance.definitions_of(request.tenant)
    await conformance.recall(known.terminology, coded_in(checked))

    def validated() -> Answer:
        findings = known.validator.validate(checked, profiles)
        return Answer(200, dumps(outcome([*findings, *_by_mode(checked, resource_type, mode, id)])))

    answer: Answer = await repository.run_in_thread(validated)  # a value set may have to be expanded
    return answer


def conformance_of(repository: Repository) -> Conformance:
    """The conformance resources of the server.  Problem NOT_SUPPORTED when there are none."""
    if repository.conformance is None:
        raise Problem(Category.NOT_SUPPORTED, "this server has no definitions for validation")
    return repository.conformance


def _arguments(request: Request, resource_type: str) -> tuple[Json | None, str | None, list[str]]:
    """The resource, mode and profiles, from the body and the URL."""
    pairs = list(selection(request.query))
    resource: Json | None = None
    if request.method == "POST" and request.body:
        sent = sent_resource(request)
        if sent.get("resourceType") == "Parameters" and not _is_resource_to_validate(sent, resource_type):
            resource, parameter_pairs = _unpack(sent)
            pairs += parameter_pairs
        else:
            resource = sent
    unknown = next((name for name, _ in pairs if name not in _PARAMETERS), None)
    if unknown is not None:
        raise Problem(Category.NOT_SUPPORTED, f"$validate has no parameter {unknown[:60]}", unknown[:60])
    modes = {value for name, value in pairs if name == "mode"}
    if len(modes) > 1 or not modes <= _MODES:
        raise Problem(Category.VALUE, f"mode must be one of {', '.join(sorted(_MODES))}", "mode")
    return resource, next(iter(modes), None), [value for name, value in pairs if name == "profile"]


def _is_resource_to_validate(sent: Json, resource_type: str) -> bool:
    """Whether a Parameters resource is itself the resource to validate."""
    parameters = sent.get("parameter")
    parameter_pairs = (
        [one.get("name") for one in parameters if isinstance(one, dict)] if isinstance(parameters, list) else []
    )
    return resource_type == "Parameters" and not any(
        name in parameter_pairs for name in ("resource", "mode", "profile")
    )


def _unpack(sent: Json) -> tuple[Json | None, list[tuple[str, str]]]:
    resource: Json | None = None
    parameter_pairs: list[tuple[str, str]] = []
    parameters = sent.get("parameter")
    for one in parameters if isinstance(parameters, list) else ():
        if not isinstance(one, dict) or not isinstance(one.get("name"), str):
            raise Problem(Category.MALFORMED, "a parameter needs a name", "Parameters.parameter")
        value = value_of(one)
        if one["name"] == "resource":
            resource = value
            if not isinstance(resource, dict):
                raise Problem(Category.VALUE, "the parameter resource must contain a resource", "Parameters.parameter")
        else:
            parameter_pairs.append((one["name"], str(value)))
    return resource, parameter_pairs


async def _stored(request: Request, repository: Repository, resource_type: str, id: str | None) -> Json:
    if id is None:
        raise Problem(Category.REQUIRED, "send the resource, alone or as parameter `resource`")
    version = if_readable(await repository.store.read(request.tenant, resource_type, id), request.caller)
    if version is None or version.deleted:
        raise Problem(Category.NOT_FOUND, f"{resource_type}/{id} does not exist")
    found: Json = await run_by_size(len(version.body), repository.run_in_thread, partial(loads, version.body))
    return found


async def _check_deletion(
    request: Request, repository: Repository, resource_type: str, id: str | None
) -> list[Finding]:
    """Whether a deletion would be accepted: it always is for an existing resource."""
    if id is None:
        raise Problem(Category.REQUIRED, "mode delete requires an instance", "mode")
    await _stored(request, repository, resource_type, id)
    return []


def _by_mode(resource: Json, resource_type: str, mode: str | None, id: str | None) -> Sequence[Finding]:
    found: list[Finding] = []
    kind = resource.get("resourceType")
    if kind != resource_type:
        found.append(Finding("error", "invalid", f"the resource is a {kind}; the URL names {resource_type}", str(kind)))
    if mode == "update" and id is not None and resource.get("id") != id:
        found.append(Finding("error", "value", "the id of the resource must equal the id in the URL", f"{kind}.id"))
    return found
