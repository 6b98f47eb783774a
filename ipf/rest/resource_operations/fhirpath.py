"""POST [base]/$fhirpath: what a FHIRPath expression gives on a resource that the client sends.

R4 has no such operation; this one follows the API of servers for the FHIRPath Lab.  It reads no stored resource.
Profiles, value sets and code systems are those of the server, and the stored ones for a caller who may see them all.

Source: https://github.com/brianpos/fhirpath-lab/blob/master/server-api.md
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from ipf.errors import Category, Problem
from ipf.fhir.fhirpath import Expression, FhirNode, FhirPathError, Host, parse
from ipf.fhir.fhirpath.evaluation.context import MAX_STEPS
from ipf.fhir.model.definitions import definitions
from ipf.fhir.model.json import dumps
from ipf.fhir.structure.check import check_type
from ipf.fhir.terminology.codings import coded_in
from ipf.ports import Answer, Json, Request
from ipf.rest.http.arguments import parameters_of, value_of
from ipf.rest.http.exchange import resource_body, selection
from ipf.rest.resource_operations.fhirpath_results import Results
from ipf.rest.write.conformance import DEFINITIONS
from ipf.rest.write.permission import sees_all
from ipf.rest.write.repository import Repository

MOST_CONTEXTS = 1000
_NAMES = frozenset({"expression", "context", "resource", "variables", "validate", "terminologyserver"})
_REPEATED = "variables"
_OWN_VARIABLES = frozenset({"resource", "rootResource", "context"})


@dataclass(slots=True)
class _Asked:
    """What is to be evaluated.  `variables`: by name, with their types."""

    sent: Json
    expression: str = ""
    context: str | None = None
    resource: Json = field(default_factory=dict)
    variables: dict[str, list[FhirNode]] = field(default_factory=dict)


async def fhirpath(request: Request, repository: Repository) -> Answer:
    """Parameters with the items of the expression: once, or for each item of the expression `context`."""
    for name, _ in selection(request.query):
        raise Problem(Category.NOT_SUPPORTED, f"$fhirpath has no parameter {name[:60]} in the URL", name[:60])
    asked = await repository.parsed(request, lambda: _asked(request))
    host = await _host(asked.resource, request, repository)
    answer: Answer = await repository.run_in_thread(
        lambda: Answer(200, dumps(_evaluated(asked, host, repository.software_version)))
    )
    return answer


def _asked(request: Request) -> _Asked:
    """The parameters of the body.  Problem MALFORMED, NOT_SUPPORTED, REQUIRED or VALUE."""
    sent = resource_body(request, "Parameters")
    check_type(sent, "Parameters", "Parameters")
    asked = _Asked(sent)
    seen: set[str] = set()
    for one in sent.get("parameter", ()):
        name, _ = one.get("name"), value_of(one)
        if name not in _NAMES:
            raise Problem(
                Category.NOT_SUPPORTED, f"$fhirpath has no parameter {str(name)[:60]}", "Parameters.parameter"
            )
        if name in seen and name != _REPEATED:
            raise Problem(Category.VALUE, f"{name} may be given once", name)
        seen.add(name)
        if name in ("expression", "context"):
            setattr(asked, name, _text(one, name))
        elif name == "resource":
            asked.resource = one.get("resource") or {}
        elif name == "variables":
            _add_variables(asked.variables, one)
    for name, value in (("expression", asked.expression), ("resource", asked.resource)):
        if not value:
            raise Problem(Category.REQUIRED, f"the parameter {name} is required", name)
    return asked


def _text(parameter: Json, name: str) -> str:
    value = parameter.get("valueString")
    if not isinstance(value, str):
        raise Problem(Category.VALUE, f"{name} must be a valueString", name)
    return value


def _add_variables(variables: dict[str, list[FhirNode]], parameter: Json) -> None:
    for part in parameter.get("part", ()):
        name = part.get("name")
        if not isinstance(name, str) or name in _OWN_VARIABLES:
            raise Problem(Category.VALUE, "a variable needs a name that is not one of FHIRPath's own", "variables")
        variables.setdefault(name, []).extend(_typed(part))


def _typed(part: Json) -> Iterator[FhirNode]:
    """The value of a part with its type."""
    if "resource" in part:
        yield FhirNode(part["resource"], part["resource"]["resourceType"])
    for key, value in part.items():
        element = definitions().element("Parameters.parameter", key)
        if element is not None and element.path == "Parameters.parameter.value":
            yield FhirNode(value, element.types[0], part.get(f"_{key}"))


async def _host(resource: Json, request: Request, repository: Repository) -> Host:
    """The definitions that the caller may use."""
    conformance = repository.conformance
    if conformance is None:
        return Host()
    if all(sees_all(request.caller, kind) for kind in DEFINITIONS):
        known = await conformance.definitions_of(request.tenant)
    else:
        known = conformance.shared
    await conformance.recall(known.terminology, coded_in(resource))
    return known.validator.host_for(resource)


def _evaluated(asked: _Asked, host: Host, version: str) -> Json:
    results = Results()
    host = replace(host, trace=results.trace)
    resource = FhirNode(asked.resource, asked.resource["resourceType"])
    variables: dict[str, Any] = {**asked.variables, "resource": resource, "rootResource": resource}
    expression = _compiled(asked.expression, "expression")
    if asked.context is None:
        parts = [results.of(_run(expression, asked.resource, variables, host, "expression"))]
    else:
        context = _compiled(asked.context, "context")
        items = _run(context, asked.resource, variables, host, "context")
        if len(items) > MOST_CONTEXTS:
            raise Problem(Category.COSTLY, f"context has more than {MOST_CONTEXTS} items", "context")
        host = replace(host, steps=MAX_STEPS // max(len(items), 1))
        results.forget_traces()
        parts = [
            results.of(_run(expression, item, variables, host, "expression"), f"{asked.context}[{number}]")
            for number, item in enumerate(items)
        ]
    evaluator = {"name": "evaluator", "valueString": f"ipf {version} (R4)"}
    echo = [one for one in asked.sent["parameter"] if one["name"] not in ("validate", "terminologyserver")]
    return {"id": "fhirpath", **parameters_of({"name": "parameters", "part": [evaluator, *echo]}, *parts)}


def _compiled(text: str, place: str) -> Expression:
    try:
        return Expression(text, parse(text))
    except FhirPathError as refused:
        raise Problem(Category.VALUE, f"the {place} is not valid FHIRPath: {refused}"[:400], place) from refused


def _run(expression: Expression, focus: Any, variables: dict[str, Any], host: Host, place: str) -> list[Any]:
    try:
        return expression.evaluate(focus, variables, host=host, typed=True)
    except FhirPathError as refused:
        raise Problem(Category.INVALID, f"the {place} cannot be evaluated: {refused}"[:400], place) from refused
