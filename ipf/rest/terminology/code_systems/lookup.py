"""CodeSystem/$lookup: https://hl7.org/fhir/R4/codesystem-operation-lookup.html"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ipf.errors import Category, Problem
from ipf.fhir import ucum
from ipf.fhir.model.json import dumps
from ipf.fhir.terminology import Terminology
from ipf.fhir.terminology.codesystem import CodeSystem
from ipf.fhir.terminology.open_systems import OPEN_SYSTEMS
from ipf.ports import Answer, Json, Request
from ipf.ports.fhir.terminology import Facts, ImportedSystem
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
from ipf.rest.terminology.designations import designations_of, display_in
from ipf.rest.write.conformance import Conformance
from ipf.rest.write.repository import Repository

PARAMETERS = ("code", "system", "version", "coding", "date", "displayLanguage", "property", TX_RESOURCE)
MOST_CHILDREN = 1000
_VALUES = {
    "code": "valueCode", "Coding": "valueCoding", "string": "valueString", "integer": "valueInteger",
    "boolean": "valueBoolean", "dateTime": "valueDateTime", "decimal": "valueDecimal",
}  # fmt: skip


@dataclass(slots=True)
class _Found:
    """One concept.  `properties`: name, `value[x]`, value."""

    name: str
    version: str
    display: str
    definition: str = ""
    properties: list[tuple[str, str, Any]] = field(default_factory=list)


async def lookup(request: Request, repository: Repository) -> Answer:
    """CodeSystem/$lookup: display, definition, designations and properties of a code."""
    known = await definitions(request, repository, "CodeSystem")
    arguments = await Arguments.read(request, PARAMETERS, repository.run_in_thread)
    arguments.today("date", repository.clock())
    resource = await by_id(request, repository, "CodeSystem")
    coding = arguments.structure("coding", "Coding") or {}
    url, version = system_and_version(arguments, resource, coding)
    code = str(coding.get("code") or arguments.required("code"))
    conformance, terminology = conformance_of(repository), await terminology_of(known, arguments, repository)
    found = await _found(conformance, terminology, url, version, code, repository)
    chosen = terminology.imported(canonical(url, version))
    designations = (
        await designations_of(terminology, conformance.systems, [(url, code)], [chosen] if chosen else ())
    ).get((url, code), [])
    for source in terminology.supplements(url):
        if (concept := source.find(code)) is not None:
            found.properties += _own_properties(source, concept.properties)
    display = display_in(arguments.text("displayLanguage"), designations) or found.display
    return Answer(200, dumps(_parameters(found, display, designations, arguments.texts("property"))))


async def _found(
    conformance: Conformance, terminology: Terminology, url: str, version: str | None, code: str, repository: Repository
) -> _Found:
    imported = terminology.imported(canonical(url, version))
    if imported is not None:
        return await _imported(conformance, terminology, imported, code)
    if terminology.source(url) is not None:
        source = loaded(terminology, url, version)
        assert isinstance(source, CodeSystem), "it is not imported"
        found: _Found = await repository.run_in_thread(lambda: _in_memory(source, code))
        return found
    if url == ucum.SYSTEM:
        return _unit(code)
    if url in OPEN_SYSTEMS:
        if not OPEN_SYSTEMS[url](code):
            raise _unknown(url, code)
        return _Found(url, "", code)
    raise not_loaded(terminology, url, version)


async def _imported(conformance: Conformance, terminology: Terminology, system: ImportedSystem, code: str) -> _Found:
    assert conformance.systems is not None, "it has this system"
    await conformance.recall(terminology, [(canonical(system.url, system.version), code)])
    facts = terminology.facts_of(system, code)
    if not isinstance(facts, Facts):
        raise _unknown(system.url, code)
    children = await conformance.systems.children(system, facts.code, MOST_CHILDREN)
    properties: list[tuple[str, str, Any]] = [("inactive", "valueBoolean", not facts.is_active)]
    properties += [("parent", "valueCode", one) for one in sorted(facts.parents)]
    properties += [("child", "valueCode", one) for one in children]
    for name, value in sorted(facts.properties):
        properties.append((name, *_typed(system.properties.get(name, "string"), value)))
    return _Found(system.name or system.url, system.version, facts.display, facts.definition, properties)


def _unit(code: str) -> _Found:
    """A unit of UCUM: its name, and what it is in base units.  Problem NOT_FOUND says which unit was meant."""
    if not ucum.is_unit(code):
        raise Problem(Category.NOT_FOUND, ucum.refusal(code))
    properties: list[tuple[str, str, Any]] = [("symbol", "valueString", ucum.symbol(code) or code)]
    canonical_form = ucum.canonical_form(code)
    if canonical_form is not None:
        properties.append(("canonical", "valueString", canonical_form))
    return _Found("UCUM", "", ucum.name(code) or code, properties=properties)


def _in_memory(system: CodeSystem, code: str) -> _Found:
    concept = system.find(code)
    if concept is None:
        raise _unknown(system.url, code)
    properties: list[tuple[str, str, Any]] = [("parent", "valueCode", one) for one in concept.parents]
    children = [one.code for one in system.concepts.values() if concept.code in one.parents]
    properties += [("child", "valueCode", one) for one in children]
    relations = ("parent", "child", "subsumedBy")
    own = {name: values for name, values in concept.properties.items() if name not in relations}
    properties += _own_properties(system, own)
    return _Found(system.name or system.url, system.version, concept.display, concept.definition, properties)


def _own_properties(system: CodeSystem, properties: dict[str, list[Any]]) -> Iterable[tuple[str, str, Any]]:
    for name, values in properties.items():
        kind = system.declared.get(name, "")
        for value in values:
            yield (name, *_typed(kind, value)) if isinstance(value, str) else (name, _kind_of(value), value)


def _typed(kind: str, value: str) -> tuple[str, Any]:
    """The `value[x]` of a property, and the value in its JSON type."""
    if kind == "boolean":
        return "valueBoolean", value == "true"
    if kind == "Coding":
        return "valueCoding", {"code": value}
    if kind == "integer" and value.lstrip("-").isdigit():
        return "valueInteger", int(value)
    return (_VALUES[kind] if kind in ("code", "dateTime") else "valueString"), value


def _kind_of(value: Any) -> str:
    if isinstance(value, bool):
        return "valueBoolean"
    if isinstance(value, dict):
        return "valueCoding"
    return "valueInteger" if isinstance(value, int) else "valueDecimal"


def _unknown(url: str, code: str) -> Problem:
    return Problem(Category.NOT_FOUND, f"{url[:200]} has no loaded code {code[:60]}")


def _parameters(found: _Found, display: str, designations: list[Json], asked: list[str]) -> Json:
    """The answer; `asked`: the names of the properties that it shall have, all without one."""

    def wants(name: str) -> bool:
        return not asked or name in asked or "*" in asked

    return parameters_of(
        {"name": "name", "valueString": found.name},
        {"name": "version", "valueString": found.version} if found.version else None,
        {"name": "display", "valueString": display},
        {"name": "definition", "valueString": found.definition} if found.definition and wants("definition") else None,
        *({"name": "designation", "part": _parts(one)} for one in designations if wants("designation")),
        *(
            {"name": "property", "part": [{"name": "code", "valueCode": name}, {"name": "value", kind: value}]}
            for name, kind, value in found.properties
            if wants(name)
        ),
    )


def _parts(designation: Json) -> list[Json]:
    kinds = {"language": "valueCode", "use": "valueCoding", "value": "valueString"}
    return [{"name": name, kind: designation[name]} for name, kind in kinds.items() if name in designation]
