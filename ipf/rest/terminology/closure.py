"""POST [base]/$closure: https://hl7.org/fhir/R4/conceptmap-operation-closure.html

A client keeps a table of which of its codes are below which others.  It names its codes as they come up; each answer is
a ConceptMap with what is new: `code` is below `target`.  Tables belong to the caller: another one cannot read them.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import uuid4

from ipf.errors import Category, Problem
from ipf.fhir.model.json import dumps
from ipf.fhir.terminology import Terminology
from ipf.ports import Answer, Json, Request
from ipf.rest.http.arguments import Arguments
from ipf.rest.operations.validate import conformance_of
from ipf.rest.terminology.common import not_loaded
from ipf.rest.write.repository import Repository

PARAMETERS = ("name", "concept", "version")
MOST_CONCEPTS = 1000
MOST_IN_TABLE = 20_000
_LONGEST_NAME = 200
Coded = tuple[str, str]


async def closure(request: Request, repository: Repository) -> Answer:
    """Start a table (`name` alone), add codes to it (`concept`), or tell again what is new since a version."""
    arguments = await Arguments.read(request, PARAMETERS, repository.run_in_thread)
    name = arguments.required("name")
    if len(name) > _LONGEST_NAME:
        raise Problem(Category.VALUE, f"a name has at most {_LONGEST_NAME} characters", "name")
    concepts, since = arguments.structures("concept", "Coding"), arguments.number("version")
    if concepts and since is not None:
        raise Problem(Category.VALUE, "give either codes or a version", "version")
    if repository.closures is None:
        raise Problem(Category.NOT_SUPPORTED, "this server has no closure tables")
    table = f"{request.caller.issuer}\n{request.caller.subject or request.caller.client}\n{name}".replace("\x00", "")
    if not concepts and since is None:
        await repository.closures.start(request.tenant, table)
        return _answer(name, 0, [])
    known = (await conformance_of(repository).current_definitions_of(request.tenant)).terminology
    if concepts:
        since = await _add(request, repository, known, table, name, concepts)
    held = await repository.closures.concepts(request.tenant, table)
    if held is None:
        raise _unknown(name)
    await conformance_of(repository).recall(known, held)
    pairs = await repository.run_in_thread(lambda: _pairs(known, held, since or 0))
    return _answer(name, max(held.values(), default=0), pairs)


async def _add(
    request: Request, repository: Repository, known: Terminology, table: str, name: str, concepts: list[Json]
) -> int:
    """Add codes; the version before."""
    assert repository.closures is not None
    if len(concepts) > MOST_CONCEPTS:
        raise Problem(Category.COSTLY, f"a request may name {MOST_CONCEPTS} codes", "concept")
    codes = {(str(one.get("system", "")), str(one.get("code", ""))) for one in concepts}
    await conformance_of(repository).recall(known, codes)
    for system, code in sorted(codes):
        if known.source(system) is None:
            raise not_loaded(known, system)
        if known.has(system, code) is not True:
            raise Problem(Category.NOT_FOUND, f"{system[:200]} has no loaded code {code[:60]}", "concept")
    held = await repository.closures.concepts(request.tenant, table)
    if held is None:
        raise _unknown(name)
    if len(held) + len(codes) > MOST_IN_TABLE:
        raise Problem(Category.COSTLY, f"a closure table may have {MOST_IN_TABLE} codes", "concept")
    version = await repository.closures.add(request.tenant, table, codes)
    if version is None:
        raise _unknown(name)
    return max(held.values(), default=0)


def _unknown(name: str) -> Problem:
    text = f"there is no closure table {name[:_LONGEST_NAME]}; start it with a request that has its name alone"
    return Problem(Category.NOT_FOUND, text, "name")


def _pairs(terminology: Terminology, held: Mapping[Coded, int], since: int) -> list[tuple[str, str, str]]:
    """(system, code, code above it) of which one end is newer than a version."""
    found = []
    by_system: dict[str, dict[str, int]] = {}
    for (system, code), version in held.items():
        by_system.setdefault(system, {})[code] = version
    for system, codes in by_system.items():
        for code, version in codes.items():
            above = terminology.above(system, code)
            found += [(system, code, one) for one in above if one in codes and max(version, codes[one]) > since]
    return sorted(found)


def _answer(name: str, version: int, pairs: list[tuple[str, str, str]]) -> Answer:
    groups: dict[str, dict[str, list[Json]]] = {}
    for system, code, above in pairs:
        targets = groups.setdefault(system, {}).setdefault(code, [])
        targets.append({"code": above, "equivalence": "subsumes"})
    group = [
        {
            "source": system,
            "target": system,
            "element": [{"code": code, "target": targets} for code, targets in elements.items()],
        }
        for system, elements in groups.items()
    ]
    found: Json = {
        "resourceType": "ConceptMap",
        "id": str(uuid4()),
        "version": str(version),
        "name": name,
        "status": "active",
        "experimental": True,
        **({"group": group} if group else {}),
    }
    return Answer(200, dumps(found))
