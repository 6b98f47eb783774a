"""CodeSystem/$find-matches: https://hl7.org/fhir/R4/codesystem-operation-find-matches.html

The concepts with these properties.  `exact=false` also finds those with some of them, and names the others.
A `subproperty` asks which attributes are in one relationship group; the store of concepts has no groups.
"""

from __future__ import annotations

from ipf.errors import Category, Problem
from ipf.fhir.model.json import dumps
from ipf.fhir.terminology import Terminology
from ipf.fhir.terminology.codesystem import CodeSystem
from ipf.fhir.terminology.rules import holds, is_implied, rule_of
from ipf.ports import Answer, Json, Request
from ipf.ports.fhir.terminology import EveryRule, Facts, ImportedSystem, Rule
from ipf.rest.http.arguments import Arguments, parameters_of
from ipf.rest.operations.validate import conformance_of
from ipf.rest.terminology.common import TX_RESOURCE, by_id, definitions, loaded, system_and_version, terminology_of
from ipf.rest.terminology.grounding import with_relatives
from ipf.rest.write.conformance import Conformance
from ipf.rest.write.repository import Repository

PARAMETERS = ("system", "version", "property", "exact", "compositional", TX_RESOURCE)
MOST_MATCHES = 100
_MOST_PROPERTIES = 20
Property = tuple[str, str]


async def find_matches(request: Request, repository: Repository) -> Answer:
    """CodeSystem/$find-matches: Parameters with a `match` for each concept, at most 100."""
    known = await definitions(request, repository, "CodeSystem")
    arguments = await Arguments.read(request, PARAMETERS, repository.run_in_thread)
    resource = await by_id(request, repository, "CodeSystem")
    url, version = system_and_version(arguments, resource, {})
    if arguments.boolean("compositional"):
        raise Problem(Category.NOT_SUPPORTED, "post-coordinated expressions are not supported", "compositional")
    properties = [_property(one) for one in arguments.parts("property")]
    if not 0 < len(properties) <= _MOST_PROPERTIES:
        raise Problem(Category.REQUIRED, f"1 to {_MOST_PROPERTIES} properties are required", "property")
    terminology = await terminology_of(known, arguments, repository)
    source = loaded(terminology, url, version)
    rules = [_rule(source, one) for one in properties]
    exact = arguments.boolean("exact")
    if isinstance(source, ImportedSystem):
        found = await _imported(source, rules, exact, conformance_of(repository), terminology)
    else:
        found = await repository.run_in_thread(lambda: _in_memory(source, rules))
    ranked = sorted(
        ((_unmatched(one, checks, properties), one) for one, checks in found), key=lambda pair: len(pair[0])
    )
    chosen = [(left, one) for left, one in ranked if (not left if exact else len(left) < len(properties))]
    return Answer(200, dumps(parameters_of(*(_match(url, one, left) for left, one in chosen[:MOST_MATCHES]))))


def _property(parts: dict[str, object]) -> Property:
    if "subproperty" in parts:
        text = "a subproperty asks for a relationship group, and attributes are stored without their groups"
        raise Problem(Category.NOT_SUPPORTED, text, "property.subproperty")
    other = next((name for name in parts if name not in ("code", "value")), None)
    if other is not None:
        text = f"a property has a code and a value; {other[:60]} is not supported"
        raise Problem(Category.NOT_SUPPORTED, text, "property")
    code, value = parts.get("code"), parts.get("value")
    if isinstance(value, dict):
        value = value.get("code")
    if not isinstance(code, str) or not isinstance(value, str | bool | int):
        raise Problem(Category.REQUIRED, "a property needs a code and a value", "property")
    return code, ("true" if value else "false") if isinstance(value, bool) else str(value)


def _rule(source: CodeSystem | ImportedSystem, wanted: Property) -> Rule:
    name, value = wanted
    known = name in source.properties if isinstance(source, ImportedSystem) else source.has_property(name)
    rule = rule_of(name, "=", value) if known or is_implied(name) else None
    if rule is None:
        raise Problem(Category.NOT_SUPPORTED, f"{source.url[:200]} has no property {name[:60]} to find by", "property")
    return rule


async def _imported(
    source: ImportedSystem, rules: list[Rule], exact: bool, conformance: Conformance, terminology: Terminology
) -> list[tuple[Facts, list[Rule]]]:
    """Candidates with facts: those with all properties, then with each of them."""
    systems = conformance.systems
    assert systems is not None, "it has this system"
    codes: dict[str, None] = {}
    for rule in (EveryRule(tuple(rules)), *([] if exact else rules)):
        listed, _ = await systems.page(source, rule, (), 0, MOST_MATCHES)
        codes.update(dict.fromkeys(one.code for one in listed))
    facts = await systems.facts(source, codes)
    checks = [await with_relatives(rule, source, systems, list(facts.values())) for rule in rules]
    return [(facts[code], checks) for code in codes if code in facts]


def _in_memory(source: CodeSystem, rules: list[Rule]) -> list[tuple[Facts, list[Rule]]]:
    checks = [source.grounded(rule) for rule in rules]
    return [(one.facts, checks) for one in source.concepts.values() if any(holds(rule, one.facts) for rule in checks)]


def _unmatched(facts: Facts, checks: list[Rule], properties: list[Property]) -> list[Property]:
    return [one for one, rule in zip(properties, checks, strict=True) if not holds(rule, facts)]


def _match(url: str, facts: Facts, left: list[Property]) -> Json:
    coding = {"system": url, "code": facts.code, "display": facts.display or facts.code}
    unmatched = (
        {"name": "unmatched", "part": [{"name": "code", "valueCode": name}, {"name": "value", "valueString": value}]}
        for name, value in left
    )
    return {"name": "match", "part": [{"name": "code", "valueCoding": coding}, *unmatched]}
