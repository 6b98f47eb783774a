"""Terminology operations: ValueSet/$expand and $validate-code, CodeSystem/$lookup and $validate-code,
ConceptMap/$translate; and terminology for searches (`:in`, `:below`).

Only loaded code systems are supported.  A question about another one (such as SNOMED CT or LOINC) is refused.

Sources: https://hl7.org/fhir/R4/valueset-operations.html, https://hl7.org/fhir/R4/codesystem-operations.html,
https://hl7.org/fhir/R4/conceptmap-operations.html
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC
from functools import lru_cache, partial
from typing import Any
from uuid import uuid4

from ipf.config.paths import folder
from ipf.errors import Category, Problem
from ipf.fhir.model.json import dumps, loads
from ipf.fhir.terminology import Terminology
from ipf.fhir.terminology.translate import Match, translate
from ipf.fhir.terminology.valueset import Membership, expansion_of, facts_of
from ipf.ports import Answer, Json, Request
from ipf.ports.threads import RunInThread, run_by_size, run_inline
from ipf.rest.http.arguments import Arguments, parameters_of
from ipf.rest.operations.validate import conformance_of
from ipf.rest.write.conformance import Conformance, Definitions
from ipf.rest.write.permission import if_readable
from ipf.rest.write.repository import Repository

MOST_CODES = 10_000
_OF_EXPAND = ("url", "valueSet", "valueSetVersion", "filter", "offset", "count", "_format")
_OF_VALIDATE_CODE = (
    "url", "valueSet", "code", "system", "display", "coding", "codeableConcept", "version", "codeSystem",
    "systemVersion", "valueSetVersion", "displayLanguage", "abstract", "date",
)  # fmt: skip
_OF_LOOKUP = ("code", "system", "version", "coding", "date", "displayLanguage", "property")
_OF_TRANSLATE = (
    "url", "conceptMap", "conceptMapVersion", "code", "system", "version", "source", "target", "coding",
    "codeableConcept", "targetsystem", "reverse",
)  # fmt: skip
Operation = Callable[[Request, Repository], Awaitable[Answer]]


class TenantTerminology:
    """`ports.Terminology` for searches, by tenant."""

    def __init__(self, conformance: Conformance, run_in_thread: RunInThread = run_inline) -> None:
        self._conformance = conformance
        self._run_in_thread = run_in_thread

    async def expand(self, tenant: str, url: str) -> frozenset[tuple[str, str]]:
        """(system, code) of all members.  Problem for a value set that is not completely loaded."""
        terminology = (await self._conformance.definitions_of(tenant)).terminology

        def expanded() -> frozenset[tuple[str, str]]:
            members = enumerable(terminology.members(url), url)
            return frozenset((system, code) for system, code, _ in members.members())

        found: frozenset[tuple[str, str]] = await self._run_in_thread(expanded)
        return found

    async def related(self, tenant: str, system: str, code: str, relation: str) -> frozenset[str]:
        """The code and those above or below it.  Problem NOT_SUPPORTED when the code system is not loaded."""
        terminology = (await self._conformance.definitions_of(tenant)).terminology

        def relatives() -> frozenset[str]:
            known = terminology.system(system)
            if known is None:
                raise Problem(Category.NOT_SUPPORTED, f"the code system {system[:200]} is not loaded")
            return frozenset((code, *(known.above(code) if relation == "above" else known.below(code))))

        found: frozenset[str] = await self._run_in_thread(relatives)
        return found


def enumerable(members: Membership | None, url: str) -> Membership:
    """A membership that can be enumerated; Problem with the reason when it cannot."""
    if members is None:
        raise Problem(Category.NOT_FOUND, f"the value set {url[:200]} is not loaded")
    open_ends = sorted({*members.unknown, *(set(members.tests) - set(members.codes))})
    if members.errors:
        raise unusable(members, url)
    if open_ends:
        named = ", ".join(one or "another value set" for one in open_ends)
        raise Problem(
            Category.NOT_SUPPORTED, f"the value set {url[:200]} cannot be expanded; not loaded: {named[:300]}"
        )
    return members


def unusable(members: Membership, url: str) -> Problem:
    """What is wrong with a value set: its place and the rule."""
    text = f"the value set {url[:200] or 'of the request'} cannot be listed: {'; '.join(sorted(members.errors))[:600]}"
    return Problem(Category.VALUE, text)


# --------------------------------------------------------------------------------------------------------- ValueSet


async def expand(request: Request, repository: Repository) -> Answer:
    """ValueSet/$expand, ValueSet/[id]/$expand: the ValueSet with its expansion."""
    definitions = await _definitions(request, repository, "ValueSet")
    arguments = await Arguments.read(request, _OF_EXPAND, repository.run_in_thread)
    resource = await _by_id(request, repository, "ValueSet")
    now = repository.clock().astimezone(UTC).isoformat(timespec="seconds")
    conformance = conformance_of(repository)
    answer: Answer = await repository.run_in_thread(
        lambda: _expanded(*_value_set(resource, conformance, definitions, arguments), arguments, now)
    )
    return answer


def _expanded(value_set: Json, members: Membership | None, arguments: Arguments, now: str) -> Answer:
    """The ValueSet with the page of its codes."""
    url = str(value_set.get("url", ""))
    found = [one for one in enumerable(members, url).members() if _passes(one, arguments.text("filter"))]
    start, count = arguments.number("offset") or 0, arguments.number("count")
    if count is None and len(found) > MOST_CODES:
        raise Problem(Category.COSTLY, f"the value set has {len(found)} codes: use count and offset")
    page = found[start:] if count is None else found[start : start + count]
    expansion: Json = {
        "identifier": f"urn:uuid:{uuid4()}",
        "timestamp": now,
        "total": len(found),
        **({"offset": start} if start or count is not None else {}),
        "contains": [_contained(*one) for one in page],
    }
    return Answer(200, dumps({**value_set, "expansion": expansion}))


def _passes(member: tuple[str, str, str], text: str | None) -> bool:
    return text is None or text.casefold() in f"{member[1]} {member[2]}".casefold()


def _contained(system: str, code: str, display: str) -> Json:
    return {"system": system, "code": code, **({"display": display} if display else {})}


def _value_set(
    resource: Json | None, conformance: Conformance, definitions: Definitions, arguments: Arguments
) -> tuple[Json, Membership | None]:
    """The value set from the request, by id (`resource`), or by url, and its members."""
    known = definitions.terminology
    resource = arguments.structure("valueSet", "ValueSet") or resource
    if resource is not None:
        return resource, expansion_of(facts_of(resource), known.system, known.members)
    url = arguments.required("url")
    version = arguments.text("valueSetVersion")
    members = known.members(f"{url}|{version}" if version else url)
    found = definitions.stored.get(("ValueSet", url)) or conformance.catalog.by_url("ValueSet", url)
    return found or {"resourceType": "ValueSet", "url": url, "status": "unknown"}, members


async def validate_code(request: Request, repository: Repository) -> Answer:
    """ValueSet/$validate-code and CodeSystem/$validate-code."""
    definitions = await _definitions(request, repository, "ValueSet", "CodeSystem")
    arguments = await Arguments.read(request, _OF_VALIDATE_CODE, repository.run_in_thread)
    resource = await _by_id(request, repository, request.path[0])
    conformance, terminology = conformance_of(repository), definitions.terminology

    def validated() -> Answer:
        if request.path[0] == "CodeSystem":
            return _in_system(resource, terminology, arguments)
        return _in_set(*_value_set(resource, conformance, definitions, arguments), terminology, arguments)

    answer: Answer = await repository.run_in_thread(validated)
    return answer


def _in_system(resource: Json | None, terminology: Terminology, arguments: Arguments) -> Answer:
    system = str(resource.get("url", "")) if resource else arguments.text("url")
    codings = _codings(arguments, system)
    memberships = [terminology.has(one.get("system") or "", one["code"]) for one in codings]
    return _result(terminology, codings, memberships, arguments.text("display"), str(system))


def _in_set(value_set: Json, members: Membership | None, terminology: Terminology, arguments: Arguments) -> Answer:
    url = str(value_set.get("url", "the value set"))
    if members is None:
        raise Problem(Category.NOT_FOUND, f"the value set {url[:200]} is not loaded")
    codings = _codings(arguments, None)
    memberships = [members.contains(one.get("system"), one["code"]) for one in codings]
    if None in memberships and True not in memberships and members.errors:
        raise unusable(members, url)
    return _result(terminology, codings, memberships, arguments.text("display"), url)


def _codings(arguments: Arguments, system: str | None) -> list[Json]:
    concept, coding = arguments.structure("codeableConcept", "CodeableConcept"), arguments.structure("coding", "Coding")
    if concept is not None:
        found = [one for one in concept.get("coding", ()) if isinstance(one, dict)]
    else:
        system_given = arguments.text("system") or system
        coding_given: Json = (
            {"code": arguments.required("code"), **({"system": system_given} if system_given else {})}
            if coding is None
            else {}
        )
        found = [coding if coding is not None else coding_given]
    if not found or any(not isinstance(one.get("code"), str) for one in found):
        raise Problem(Category.REQUIRED, "a code is required", "code")
    return found


def _result(
    terminology: Terminology, codings: list[Json], memberships: list[bool | None], display: str | None, where: str
) -> Answer:
    """Parameters with the result; 422 when the code system is not loaded."""
    listed_codes = ", ".join(f"{one.get('system', '')}|{one['code']}" for one in codings)[:300]
    if True not in memberships and None in memberships:
        raise Problem(Category.INVALID, f"{listed_codes} cannot be validated against {where[:200]}: it is not loaded")
    result, message = True in memberships, None if True in memberships else f"{listed_codes} is not in {where[:200]}"
    right = codings[memberships.index(True)] if result else codings[0]
    proper = terminology.display(right.get("system") or "", right["code"])
    wanted = display or right.get("display")
    if result and proper and wanted and wanted.casefold() != proper.casefold():
        result, message = False, f"the display of {listed_codes} is '{proper}'"
    return Answer(
        200,
        dumps(
            parameters_of(
                {"name": "result", "valueBoolean": result},
                {"name": "message", "valueString": message} if message else None,
                {"name": "display", "valueString": proper} if proper else None,
            )
        ),
    )


# ------------------------------------------------------------------------------------------------------- CodeSystem


async def lookup(request: Request, repository: Repository) -> Answer:
    """CodeSystem/$lookup: the properties of a code."""
    definitions = await _definitions(request, repository, "CodeSystem")
    arguments = await Arguments.read(request, _OF_LOOKUP, repository.run_in_thread)
    resource = await _by_id(request, repository, "CodeSystem")
    answer: Answer = await repository.run_in_thread(lambda: _looked_up(resource, definitions.terminology, arguments))
    return answer


def _looked_up(resource: Json | None, terminology: Terminology, arguments: Arguments) -> Answer:
    """The properties of a concept, its parents and its children."""
    coding = arguments.structure("coding", "Coding") or {}
    url = coding.get("system") or (resource or {}).get("url") or arguments.required("system")
    code = coding.get("code") or arguments.required("code")
    system = terminology.system(str(url))
    if system is None:
        raise Problem(Category.NOT_FOUND, f"the code system {str(url)[:200]} is not loaded")
    concept = system.find(str(code))
    if concept is None:
        raise Problem(Category.NOT_FOUND, f"{str(url)[:200]} has no loaded code {str(code)[:60]}")
    children = [one.code for one in system.concepts.values() if concept.code in one.parents]
    related = [("parent", one) for one in concept.parents] + [("child", one) for one in children]
    answer = parameters_of(
        {"name": "name", "valueString": system.name or str(url)},
        {"name": "version", "valueString": system.version} if system.version else None,
        {"name": "display", "valueString": concept.display},
        {"name": "definition", "valueString": concept.definition} if concept.definition else None,
        *({"name": "designation", "part": _parts(one)} for one in concept.designations),
        *({"name": "property", "part": _property(name, "valueCode", one)} for name, one in related),
    )
    return Answer(200, dumps(answer))


def _parts(designation: Json) -> list[Json]:
    kinds = {"language": "valueCode", "use": "valueCoding", "value": "valueString"}
    return [{"name": name, kind: designation[name]} for name, kind in kinds.items() if name in designation]


def _property(name: str, kind: str, value: Any) -> list[Json]:
    return [{"name": "code", "valueCode": name}, {"name": "value", kind: value}]


# ------------------------------------------------------------------------------------------------------- ConceptMap


async def translate_code(request: Request, repository: Repository) -> Answer:
    """ConceptMap/$translate: with one map (by id, url, or from the request), or with all loaded maps."""
    definitions = await _definitions(request, repository, "ConceptMap")
    arguments = await Arguments.read(request, _OF_TRANSLATE, repository.run_in_thread)
    resource = await _by_id(request, repository, "ConceptMap")
    conformance = conformance_of(repository)
    answer: Answer = await repository.run_in_thread(
        lambda: _translated(_maps(resource, conformance, definitions, arguments), arguments)
    )
    return answer


def _translated(maps: list[Json], arguments: Arguments) -> Answer:
    codings = _codings(arguments, None)
    target, reverse = arguments.text("targetsystem"), arguments.boolean("reverse")
    found = [match for one in codings for match in translate(maps, one.get("system"), one["code"], target, reverse)]
    matched = any(one.matched for one in found)
    message = None if matched else {"name": "message", "valueString": "no loaded map translates this code"}
    result = {"name": "result", "valueBoolean": matched}
    return Answer(200, dumps(parameters_of(result, message, *map(_match, found))))


def _maps(
    resource: Json | None, conformance: Conformance, definitions: Definitions, arguments: Arguments
) -> list[Json]:
    sent = arguments.structure("conceptMap", "ConceptMap") or resource
    if sent is not None:
        return [sent]
    packages = conformance.packages
    url = arguments.text("url")
    if url is not None:
        entry = packages.find(url, "ConceptMap")
        found = definitions.stored.get(("ConceptMap", url)) or (
            entry.resource() if entry is not None else builtin_maps().get(url)
        )
        if found is None:
            raise Problem(Category.NOT_FOUND, f"the concept map {url[:200]} is not loaded")
        return [found]
    stored = {name: one for (kind, name), one in definitions.stored.items() if kind == "ConceptMap"}
    packaged = {one.url: one.resource() for one in packages.newest("ConceptMap")}
    every = {**builtin_maps(), **packaged, **stored}.values()
    return [one for one in every if _connects(one, arguments.text("source"), arguments.text("target"))]


@lru_cache(maxsize=1)
def builtin_maps() -> dict[str, Json]:
    """The built-in ConceptMaps, by url."""
    found = (loads(path.read_bytes()) for path in sorted((folder("maps") / "codesystems").glob("*.json")))
    return {one["url"]: one for one in found if one.get("resourceType") == "ConceptMap"}


def _connects(concept_map: Json, source: str | None, target: str | None) -> bool:
    """Whether a map connects these value sets; None matches any."""
    ends = ((source, "source"), (target, "target"))
    return all(
        not wanted or wanted in (concept_map.get(f"{n}Uri"), concept_map.get(f"{n}Canonical")) for wanted, n in ends
    )


def _match(match: Match) -> Json:
    concept = {"system": match.system, "code": match.code, **({"display": match.display} if match.display else {})}
    parts: list[Json] = [{"name": "equivalence", "valueCode": match.equivalence}]
    if match.code:
        parts.append({"name": "concept", "valueCoding": {name: value for name, value in concept.items() if value}})
    if match.source:
        parts.append({"name": "source", "valueUri": match.source})
    return {"name": "match", "part": parts}


async def _definitions(request: Request, repository: Repository, *kinds: str) -> Definitions:
    if request.path[0] not in kinds:
        operation = request.path[-1]
        raise Problem(
            Category.NOT_FOUND, f"{operation} is defined for {' and '.join(kinds)}, not for {request.path[0]}"
        )
    return await conformance_of(repository).definitions_of(request.tenant)


async def _by_id(request: Request, repository: Repository, kind: str) -> Json | None:
    """The resource of an instance-level call; None for a type-level call."""
    if len(request.path) != 3:
        return None
    version = await repository.store.read(request.tenant, kind, request.path[1])
    if version is None:
        version = conformance_of(repository).read(kind, request.path[1])
    version = if_readable(version, request.caller)
    if version is None or version.deleted:
        raise Problem(Category.NOT_FOUND, f"{kind}/{request.path[1]} does not exist")
    found: Json = await run_by_size(len(version.body), repository.run_in_thread, partial(loads, version.body))
    return found
