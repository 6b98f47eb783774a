"""Terminology over what is loaded: ValueSet/$expand and $validate-code, CodeSystem/$lookup and $validate-code,
ConceptMap/$translate; and what searches ask (`:in`, `:below`).

What cannot be known here (SNOMED CT, LOINC and the like, when they are not loaded) is refused or said, never guessed.

Sources: https://hl7.org/fhir/R4/valueset-operations.html, https://hl7.org/fhir/R4/codesystem-operations.html,
https://hl7.org/fhir/R4/conceptmap-operations.html
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC
from functools import lru_cache
from typing import Any
from uuid import uuid4

from ipf.config.paths import folder
from ipf.errors import Category, Problem
from ipf.fhir.model.json import dumps, loads
from ipf.fhir.terminology import Terminology
from ipf.fhir.terminology.translate import Match, translate
from ipf.fhir.terminology.valueset import Membership, facts_of, work_out
from ipf.ports import Answer, Json, Request
from ipf.rest.http.arguments import Arguments, parameters_of
from ipf.rest.operations.validate import conformance_of
from ipf.rest.write.conformance import Conformance, Definitions
from ipf.rest.write.permission import if_readable
from ipf.rest.write.repository import Repository

MOST_CODES = 10_000
Operation = Callable[[Request, Repository], Awaitable[Answer]]


class TenantTerminology:
    """What searches ask of a terminology, answered with what each tenant's server knows."""

    def __init__(self, conformance: Conformance) -> None:
        self._conformance = conformance

    async def expand(self, tenant: str, url: str) -> frozenset[tuple[str, str]]:
        """(system, code) of all members.  Problem for a value set that is not (wholly) known."""
        known = await self._conformance.definitions_of(tenant)
        members = listed(known.terminology.members(url), url)
        return frozenset((system, code) for system, code, _ in members.members())

    async def related(self, tenant: str, system: str, code: str, relation: str) -> frozenset[str]:
        """The code and those above or below it.  Problem NOT_FOUND when the system is not loaded."""
        known = (await self._conformance.definitions_of(tenant)).terminology.system(system)
        if known is None:
            raise Problem(Category.NOT_SUPPORTED, f"the code system {system[:200]} is not loaded")
        return frozenset((code, *(known.above(code) if relation == "above" else known.below(code))))


def listed(members: Membership | None, url: str) -> Membership:
    """A membership that can be listed; else the Problem that says why not."""
    if members is None:
        raise Problem(Category.NOT_FOUND, f"the value set {url[:200]} is not loaded")
    open_ends = sorted({*members.unknown, *(set(members.tests) - set(members.codes))})
    if members.errors:
        text = f"the value set {url[:200]} cannot be listed: {'; '.join(sorted(members.errors))[:600]}"
        raise Problem(Category.VALUE, text)
    if open_ends:
        named = ", ".join(one or "another value set" for one in open_ends)
        raise Problem(Category.NOT_SUPPORTED, f"the value set {url[:200]} cannot be listed: not loaded: {named[:300]}")
    return members


# --------------------------------------------------------------------------------------------------------- ValueSet


async def expand(request: Request, repository: Repository) -> Answer:
    """ValueSet/$expand, ValueSet/[id]/$expand: the ValueSet with its expansion."""
    known = await _known(request, repository, "ValueSet")
    asked = Arguments.of(request, ("url", "valueSet", "valueSetVersion", "filter", "offset", "count", "_format"))
    value_set, members = await _value_set(request, repository, known, asked)
    url = str(value_set.get("url", ""))
    found = [one for one in listed(members, url).members() if _passes(one, asked.text("filter"))]
    start, count = asked.number("offset") or 0, asked.number("count")
    if count is None and len(found) > MOST_CODES:
        raise Problem(Category.COSTLY, f"the value set has {len(found)} codes: ask for a part by count and offset")
    page = found[start:] if count is None else found[start : start + count]
    expansion: Json = {
        "identifier": f"urn:uuid:{uuid4()}",
        "timestamp": repository.clock().astimezone(UTC).isoformat(timespec="seconds"),
        "total": len(found),
        **({"offset": start} if start or count is not None else {}),
        "contains": [_contained(*one) for one in page],
    }
    return Answer(200, dumps({**value_set, "expansion": expansion}))


def _passes(member: tuple[str, str, str], text: str | None) -> bool:
    return text is None or text.casefold() in f"{member[1]} {member[2]}".casefold()


def _contained(system: str, code: str, display: str) -> Json:
    return {"system": system, "code": code, **({"display": display} if display else {})}


async def _value_set(
    request: Request, repository: Repository, known: Definitions, asked: Arguments
) -> tuple[Json, Membership | None]:
    """The value set by id, by url, or as it was sent, and what is in it."""
    sent = asked.structure("valueSet")
    if sent is not None:
        return sent, work_out(facts_of(sent), known.terminology.system, known.terminology.members)
    resource = await _by_id(request, repository, "ValueSet")
    if resource is not None:
        facts = facts_of(resource)
        return resource, work_out(facts, known.terminology.system, known.terminology.members)
    url = asked.required("url")
    version = asked.text("valueSetVersion")
    members = known.terminology.members(f"{url}|{version}" if version else url)
    found = known.stored.get(("ValueSet", url)) or conformance_of(repository).catalog.by_url("ValueSet", url)
    return found or {"resourceType": "ValueSet", "url": url, "status": "unknown"}, members


async def validate_code(request: Request, repository: Repository) -> Answer:
    """ValueSet/$validate-code and CodeSystem/$validate-code."""
    known = await _known(request, repository, "ValueSet", "CodeSystem")
    names = ("url", "valueSet", "code", "system", "display", "coding", "codeableConcept", "version", "codeSystem")
    asked = Arguments.of(request, (*names, "systemVersion", "valueSetVersion", "displayLanguage", "abstract", "date"))
    if request.path[0] == "CodeSystem":
        resource = await _by_id(request, repository, "CodeSystem")
        system = str(resource.get("url", "")) if resource else asked.text("url")
        codings = _codings(asked, system)
        answers = [known.terminology.has(one.get("system") or "", one["code"]) for one in codings]
        return _verdict(known.terminology, codings, answers, asked.text("display"), str(system))
    value_set, members = await _value_set(request, repository, known, asked)
    url = str(value_set.get("url", "the value set"))
    if members is None:
        raise Problem(Category.NOT_FOUND, f"the value set {url[:200]} is not loaded")
    codings = _codings(asked, None)
    answers = [members.contains(one.get("system"), one["code"]) for one in codings]
    return _verdict(known.terminology, codings, answers, asked.text("display"), url)


def _codings(asked: Arguments, system: str | None) -> list[Json]:
    concept, coding = asked.structure("codeableConcept"), asked.structure("coding")
    if concept is not None:
        found = [one for one in concept.get("coding", ()) if isinstance(one, dict)]
    else:
        said = asked.text("system") or system
        alone: Json = {"code": asked.required("code"), **({"system": said} if said else {})} if coding is None else {}
        found = [coding if coding is not None else alone]
    if not found or any(not isinstance(one.get("code"), str) for one in found):
        raise Problem(Category.REQUIRED, "a code is required", "code")
    return found


def _verdict(
    terminology: Terminology, codings: list[Json], answers: list[bool | None], display: str | None, where: str
) -> Answer:
    """Parameters with the result; 422 when it cannot be known."""
    if_readable = ", ".join(f"{one.get('system', '')}|{one['code']}" for one in codings)[:300]
    if True not in answers and None in answers:
        raise Problem(
            Category.INVALID, f"whether {if_readable} is in {where[:200]} cannot be known here: it is not loaded"
        )
    result, message = True in answers, None if True in answers else f"{if_readable} is not in {where[:200]}"
    right = codings[answers.index(True)] if result else codings[0]
    proper = terminology.display(right.get("system") or "", right["code"])
    wanted = display or right.get("display")
    if result and proper and wanted and wanted.casefold() != proper.casefold():
        result, message = False, f"the display of {if_readable} is '{proper}'"
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
    """CodeSystem/$lookup: what is known of a code."""
    known = await _known(request, repository, "CodeSystem")
    asked = Arguments.of(request, ("code", "system", "version", "coding", "date", "displayLanguage", "property"))
    coding = asked.structure("coding") or {}
    resource = await _by_id(request, repository, "CodeSystem")
    url = coding.get("system") or (resource or {}).get("url") or asked.required("system")
    code = coding.get("code") or asked.required("code")
    system = known.terminology.system(str(url))
    if system is None:
        raise Problem(Category.NOT_FOUND, f"the code system {str(url)[:200]} is not loaded")
    concept = system.find(str(code))
    if concept is None:
        raise Problem(Category.NOT_FOUND, f"{str(url)[:200]} has no code {str(code)[:60]} that is loaded")
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
    """ConceptMap/$translate: by one map (id, url, or sent), or by all that are loaded."""
    known = await _known(request, repository, "ConceptMap")
    names = ("url", "conceptMap", "conceptMapVersion", "code", "system", "version", "source", "target")
    asked = Arguments.of(request, (*names, "coding", "codeableConcept", "targetsystem", "reverse"))
    maps = await _maps(request, repository, known, asked)
    codings = _codings(asked, None)
    target, reverse = asked.text("targetsystem"), asked.switch("reverse")
    found = [match for one in codings for match in translate(maps, one.get("system"), one["code"], target, reverse)]
    matched = any(one.matched for one in found)
    message = None if matched else {"name": "message", "valueString": "no map that is loaded translates this code"}
    result = {"name": "result", "valueBoolean": matched}
    return Answer(200, dumps(parameters_of(result, message, *map(_match, found))))


async def _maps(request: Request, repository: Repository, known: Definitions, asked: Arguments) -> list[Json]:
    sent = asked.structure("conceptMap") or await _by_id(request, repository, "ConceptMap")
    if sent is not None:
        return [sent]
    packages = conformance_of(repository).packages
    url = asked.text("url")
    if url is not None:
        entry = packages.find(url, "ConceptMap")
        found = known.stored.get(("ConceptMap", url)) or (
            entry.resource() if entry is not None else own_maps().get(url)
        )
        if found is None:
            raise Problem(Category.NOT_FOUND, f"the concept map {url[:200]} is not loaded")
        return [found]
    stored = {name: one for (kind, name), one in known.stored.items() if kind == "ConceptMap"}
    brought = {one.url: one.resource() for one in packages.newest("ConceptMap")}
    every = {**own_maps(), **brought, **stored}.values()
    return [one for one in every if _is_between(one, asked.text("source"), asked.text("target"))]


@lru_cache(maxsize=1)
def own_maps() -> dict[str, Json]:
    """The tables that our maps use, by url."""
    found = (loads(path.read_bytes()) for path in sorted((folder("maps") / "codesystems").glob("*.json")))
    return {one["url"]: one for one in found if one.get("resourceType") == "ConceptMap"}


def _is_between(concept_map: Json, source: str | None, target: str | None) -> bool:
    """Whether a map goes from and to these value sets, where they are said."""
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


async def _known(request: Request, repository: Repository, *kinds: str) -> Definitions:
    if request.path[0] not in kinds:
        operation = request.path[-1]
        raise Problem(Category.NOT_FOUND, f"{operation} is there for {' and '.join(kinds)}, not for {request.path[0]}")
    return await conformance_of(repository).definitions_of(request.tenant)


async def _by_id(request: Request, repository: Repository, kind: str) -> Json | None:
    """The resource whose instance the operation was called on; None when it was called on the type."""
    if len(request.path) != 3:
        return None
    version = await repository.store.read(request.tenant, kind, request.path[1])
    if version is None:
        version = conformance_of(repository).read(kind, request.path[1])
    version = if_readable(version, request.caller)
    if version is None or version.deleted:
        raise Problem(Category.NOT_FOUND, f"{kind}/{request.path[1]} is not there")
    found: Json = loads(version.body)
    return found
