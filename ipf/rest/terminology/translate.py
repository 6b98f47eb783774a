"""ConceptMap/$translate: https://hl7.org/fhir/R4/conceptmap-operation-translate.html"""

from __future__ import annotations

from functools import lru_cache

from ipf.config.paths import folder
from ipf.errors import Category, Problem
from ipf.fhir.model.json import dumps, loads
from ipf.fhir.terminology import Terminology
from ipf.fhir.terminology.translate import Match, translate
from ipf.ports import Answer, Json, Request
from ipf.rest.http.arguments import Arguments, parameters_of
from ipf.rest.operations.validate import conformance_of
from ipf.rest.terminology.common import KINDS, TX_RESOURCE, by_id, codings_of, definitions, terminology_of
from ipf.rest.write.conformance import Conformance, Definitions
from ipf.rest.write.repository import Repository

PARAMETERS = (
    "url", "conceptMap", "conceptMapVersion", "code", "system", "version", "source", "target", "coding",
    "codeableConcept", "targetsystem", "reverse", "dependency", TX_RESOURCE,
)  # fmt: skip


async def translate_code(request: Request, repository: Repository) -> Answer:
    """ConceptMap/$translate: with one map (by id, url, or from the request), or with all loaded maps."""
    known = await definitions(request, repository, "ConceptMap")
    arguments = await Arguments.read(request, PARAMETERS, repository.run_in_thread)
    resource = await by_id(request, repository, "ConceptMap")
    conformance = conformance_of(repository)
    terminology = await terminology_of(known, arguments, repository)
    parts = conformance, known, terminology, arguments
    answer: Answer = await repository.run_in_thread(lambda: _translated(resource, *parts))
    return answer


def _translated(
    resource: Json | None,
    conformance: Conformance,
    known: Definitions,
    terminology: Terminology,
    arguments: Arguments,
) -> Answer:
    maps = _maps(resource, conformance, known, terminology, arguments)
    target, reverse = arguments.text("targetsystem"), arguments.boolean("reverse")
    dependencies = _dependencies(arguments)
    found = [
        match
        for one in codings_of(arguments)
        for match in translate(
            maps, one.get("system"), one["code"], target, reverse, dependencies,
            lambda canonical: _by_url(canonical, terminology), one.get("version") or arguments.text("version"),
        )
    ]  # fmt: skip
    matched = any(one.matched for one in found)
    message = None if matched else {"name": "message", "valueString": "no loaded map translates this code"}
    result = {"name": "result", "valueBoolean": matched}
    return Answer(200, dumps(parameters_of(result, message, *map(_match, dict.fromkeys(found)))))


def _dependencies(arguments: Arguments) -> dict[str, frozenset[str]] | None:
    """Property -> codes of each `dependency`; None without one: then no map's condition is looked at."""
    found: dict[str, frozenset[str]] = {}
    for one in arguments.parts("dependency"):
        element, concept = one.get("element"), one.get("concept")
        if not isinstance(element, str) or not isinstance(concept, dict):
            raise Problem(Category.REQUIRED, "a dependency needs an element and a concept", "dependency")
        codes = {str(each.get("code", "")) for each in concept.get("coding", ()) if isinstance(each, dict)}
        found[element] = frozenset(codes | {str(concept.get("text", ""))} - {""})
    return found or None


def _maps(
    resource: Json | None,
    conformance: Conformance,
    known: Definitions,
    terminology: Terminology,
    arguments: Arguments,
) -> list[Json]:
    source, target = arguments.text("source"), arguments.text("target")
    sent = arguments.structure("conceptMap", "ConceptMap") or resource
    if sent is not None:
        return [sent] if _may_connect(sent, source, target) else []
    url, version = arguments.text("url"), arguments.text("conceptMapVersion")
    if url is not None:
        found = _by_url(f"{url.partition('|')[0]}|{version}" if version else url, terminology)
        if found is None:
            raise Problem(Category.NOT_FOUND, f"the concept map {url[:200]} is not loaded")
        return [found] if _may_connect(found, source, target) else []
    stored = {name: one for (kind, name), one in known.stored.items() if kind == "ConceptMap" and "|" not in name}
    packaged = {one.url: one.resource() for one in conformance.packages.newest("ConceptMap")}
    own = {one["url"]: one for one in arguments.resources(TX_RESOURCE, KINDS) if one["resourceType"] == "ConceptMap"}
    every = {**builtin_maps(), **packaged, **stored, **own}.values()
    return [one for one in every if _connects(one, source, target)]


def _by_url(canonical: str, terminology: Terminology) -> Json | None:
    """A map by its canonical: of the request, the store, packages, or built in."""
    found = terminology.resource("ConceptMap", canonical)
    url, _, version = canonical.partition("|")
    builtin = builtin_maps().get(url)
    return found or (builtin if builtin is not None and version in ("", builtin.get("version", "")) else None)


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


def _may_connect(concept_map: Json, source: str | None, target: str | None) -> bool:
    """Whether the map that a request names is between these value sets, or does not state them."""
    ends = ((source, "source"), (target, "target"))
    stated = ((wanted, concept_map.get(f"{n}Uri") or concept_map.get(f"{n}Canonical")) for wanted, n in ends)
    return all(not wanted or not known or wanted == known for wanted, known in stated)


def _match(match: Match) -> Json:
    concept = {"system": match.system, "code": match.code, **({"display": match.display} if match.display else {})}
    parts: list[Json] = [{"name": "equivalence", "valueCode": match.equivalence}]
    if match.code:
        parts.append({"name": "concept", "valueCoding": {name: value for name, value in concept.items() if value}})
    for element, system, code, display in match.products:
        coding = {name: value for name, value in (("system", system), ("code", code), ("display", display)) if value}
        element_part = {"name": "element", "valueUri": element}
        parts.append({"name": "product", "part": [element_part, {"name": "concept", "valueCoding": coding}]})
    if match.source:
        parts.append({"name": "source", "valueUri": match.source})
    return {"name": "match", "part": parts}
