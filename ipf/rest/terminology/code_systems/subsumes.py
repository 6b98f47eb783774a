"""CodeSystem/$subsumes: https://hl7.org/fhir/R4/codesystem-operation-subsumes.html"""

from __future__ import annotations

from ipf.errors import Category, Problem
from ipf.fhir.model.json import dumps
from ipf.fhir.terminology import Terminology
from ipf.ports import Answer, Request
from ipf.rest.http.arguments import Arguments, parameters_of
from ipf.rest.operations.validate import conformance_of
from ipf.rest.terminology.common import (
    TX_RESOURCE,
    by_id,
    canonical,
    definitions,
    loaded,
    not_loaded,
    system_and_version,
    terminology_of,
)
from ipf.rest.write.repository import Repository

PARAMETERS = ("codeA", "codeB", "codingA", "codingB", "system", "version", TX_RESOURCE)


async def subsumes(request: Request, repository: Repository) -> Answer:
    """CodeSystem/$subsumes: `equivalent`, `subsumes` (A is above B), `subsumed-by`, or `not-subsumed`."""
    known = await definitions(request, repository, "CodeSystem")
    arguments = await Arguments.read(request, PARAMETERS, repository.run_in_thread)
    resource = await by_id(request, repository, "CodeSystem")
    a, b = (arguments.structure(name, "Coding") or {} for name in ("codingA", "codingB"))
    system, version = system_and_version(arguments, resource, a)
    if b.get("system", system) != system:
        raise Problem(Category.VALUE, "both codes must be of one code system", "codingB")
    terminology, wanted = await terminology_of(known, arguments, repository), canonical(system, version)
    loaded(terminology, system, version)
    codes = [str(one.get("code") or arguments.required(name)) for one, name in ((a, "codeA"), (b, "codeB"))]
    await conformance_of(repository).recall(terminology, [(wanted, code) for code in codes])
    outcome: str = await repository.run_in_thread(lambda: outcome_of(terminology, wanted, *codes))
    return Answer(200, dumps(parameters_of({"name": "outcome", "valueCode": outcome})))


def outcome_of(terminology: Terminology, system: str, a: str, b: str) -> str:
    """How two codes of a system (a canonical) relate.  Problem NOT_FOUND for a system or code that is not loaded."""
    if terminology.source(system) is None:
        url, _, version = system.partition("|")
        raise not_loaded(terminology, url, version)
    for code in (a, b):
        if terminology.has(system, code) is not True:
            raise Problem(Category.NOT_FOUND, f"{system[:200]} has no loaded code {code[:60]}")
    if a == b:
        return "equivalent"
    if terminology.subsumes(system, a, b):
        return "subsumes"
    return "subsumed-by" if terminology.subsumes(system, b, a) else "not-subsumed"
