"""ValueSet/$validate-code and CodeSystem/$validate-code.

Sources: https://hl7.org/fhir/R4/valueset-operation-validate-code.html,
https://hl7.org/fhir/R4/codesystem-operation-validate-code.html
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from ipf.errors import Category, Problem
from ipf.fhir.model.json import dumps
from ipf.fhir.terminology import Terminology
from ipf.fhir.terminology.valueset import Membership
from ipf.fhir.validation.proposals import code_meant, code_of_system_meant
from ipf.ports import Answer, Json, Request
from ipf.ports.fhir.terminology import Facts, ImportedSystem, Rule
from ipf.rest.http.arguments import Arguments, parameters_of
from ipf.rest.operations.validate import conformance_of
from ipf.rest.terminology.common import (
    TX_RESOURCE,
    by_id,
    canonical,
    codings_of,
    definitions,
    loaded,
    recall,
    terminology_of,
    version_of,
)
from ipf.rest.terminology.designations import designations_of, display_in
from ipf.rest.terminology.grounding import with_relatives
from ipf.rest.terminology.value_sets.binding import CONTEXT, bound_value_set
from ipf.rest.terminology.value_sets.chosen import unusable, value_set_of
from ipf.rest.terminology.value_sets.versions import Versions
from ipf.rest.write.conformance import Conformance
from ipf.rest.write.repository import Repository

_BOTH = ("url", "code", "system", "display", "coding", "codeableConcept", "displayLanguage", "abstract", "date",
         TX_RESOURCE)  # fmt: skip
PARAMETERS = {
    "ValueSet": (*_BOTH, "valueSet", "valueSetVersion", "systemVersion", *CONTEXT),
    "CodeSystem": (*_BOTH, "codeSystem", "version"),
}


@dataclass(frozen=True, slots=True)
class _Case:
    """The codes of a request, and whether each is in `where`; None: it cannot be told.

    `propose`: the code of `where` that was meant by a system and a code, if one is near.
    """

    codings: list[Json]
    found: list[bool | None]
    where: str
    propose: Callable[[str, str], str | None]

    @property
    def named(self) -> str:
        """The codes, for a message."""
        return ", ".join(f"{one.get('system', '')}|{one['code']}" for one in self.codings)[:300]

    def refusal(self) -> str:
        """Why the result is false, with the code that was meant.  Problem INVALID: it cannot be told."""
        if None in self.found:
            raise Problem(
                Category.INVALID, f"{self.named} cannot be validated against {self.where[:200]}: it is not loaded"
            )
        text = f"{self.named} is not in {self.where[:200]}"
        if len(self.codings) > 1:
            return text
        meant = self.propose(self.codings[0].get("system") or "", self.codings[0]["code"])
        return f"{text}; did you mean {meant!r}?" if meant else text


async def validate_code(request: Request, repository: Repository) -> Answer:
    """ValueSet/$validate-code and CodeSystem/$validate-code: Parameters with the result."""
    known = await definitions(request, repository, "ValueSet", "CodeSystem")
    arguments = await Arguments.read(request, PARAMETERS[request.path[0]], repository.run_in_thread)
    arguments.today("date", repository.clock())
    resource = await by_id(request, repository, request.path[0])
    conformance = conformance_of(repository)
    if request.path[0] == "CodeSystem":
        sent = _sent(arguments, resource)
        terminology = await terminology_of(known, arguments, repository, sent)
        case = await _in_system(next(iter(sent), resource), conformance, terminology, arguments)
    else:
        versions = _versions(arguments)
        terminology = versions.applied(await terminology_of(known, arguments, repository))
        bound = await bound_value_set(request, known, arguments, repository)
        case = await _in_set(resource, bound, conformance, terminology, versions, arguments, repository)
    message = None if True in case.found else await repository.run_in_thread(case.refusal)
    return await _result(case, message, conformance, terminology, arguments)


def _sent(arguments: Arguments, resource: Json | None) -> list[Json]:
    """The code system of the request.  Problem VALUE when the request names another one as well."""
    sent = arguments.structure("codeSystem", "CodeSystem")
    if sent is None:
        return []
    if resource is not None or (arguments.text("url") or sent.get("url")) != sent.get("url"):
        raise Problem(Category.VALUE, "give the code system or its url, not two code systems", "codeSystem")
    return [sent]


async def _in_system(
    resource: Json | None, conformance: Conformance, terminology: Terminology, arguments: Arguments
) -> _Case:
    url, _, of_url = (str(resource.get("url", "")) if resource else arguments.text("url") or "").partition("|")
    version = arguments.text("version") or of_url or version_of(resource)
    codings = codings_of(arguments, url)
    await recall(conformance, terminology, codings, version)
    for one in codings:
        _check_version(terminology, one.get("system") or "", one.get("version") or version)
    found = [
        (not url or one.get("system") == url)
        and terminology.has(canonical(one.get("system") or "", one.get("version") or version), one["code"])
        for one in codings
    ]
    return _Case(codings, found, url, partial(code_of_system_meant, terminology))


def _check_version(terminology: Terminology, system: str, version: str | None) -> None:
    """Problem INVALID when a version is asked for that is not there."""
    if version and terminology.source(system) is not None:
        try:
            loaded(terminology, system, version)
        except Problem as missing:
            raise Problem(Category.INVALID, missing.text, "version") from missing


async def _in_set(
    resource: Json | None,
    bound: str | None,
    conformance: Conformance,
    terminology: Terminology,
    versions: Versions,
    arguments: Arguments,
    repository: Repository,
) -> _Case:
    value_set, members = await repository.run_in_thread(
        lambda: value_set_of(resource, conformance, terminology, arguments, bound)
    )
    url = str(value_set.get("url", "the value set"))
    if members is None:
        raise Problem(Category.NOT_FOUND, f"the value set {url[:200]} is not loaded")
    versions.check(members, terminology)
    codings = codings_of(arguments)
    await _recall_members(conformance, terminology, members, codings)
    members = await _grounded(conformance, terminology, members, codings)
    found = await repository.run_in_thread(
        lambda: [members.contains(one.get("system"), one["code"]) for one in codings]
    )
    if None in found and True not in found and members.errors:
        raise unusable(members, url)
    return _Case(codings, found, url, lambda system, code: code_meant(members, system or None, code))


def _versions(arguments: Arguments) -> Versions:
    """The version of its system that the code must be of: `systemVersion`.  Problem REQUIRED without a system."""
    wanted = arguments.text("systemVersion")
    if wanted is None:
        return Versions({}, {}, {})
    coding = arguments.structure("coding", "Coding") or {}
    system = arguments.text("system") or coding.get("system")
    if not system:
        raise Problem(Category.REQUIRED, "systemVersion goes with system", "system")
    return Versions({}, {}, {str(system): wanted}, "systemVersion")


async def _recall_members(
    conformance: Conformance, terminology: Terminology, members: Membership, codings: list[Json]
) -> None:
    """Look up the codes in the imported systems of a value set, and in those of the codes."""
    pairs = [
        (canonical(system.url, system.version), one["code"])
        for system in members.rules
        for one in codings
        if one.get("system") in (None, system.url)
    ]
    pairs += [(one["system"], one["code"]) for one in codings if one.get("system")]
    await conformance.recall(terminology, pairs)


async def _grounded(
    conformance: Conformance, terminology: Terminology, members: Membership, codings: list[Json]
) -> Membership:
    """The members with rules that the facts of these codes decide."""
    if conformance.systems is None:
        return members
    rules: dict[ImportedSystem, Rule] = {}
    for system, rule in members.rules.items():
        found = (terminology.facts_of(system, one["code"]) for one in codings)
        concepts = [one for one in found if isinstance(one, Facts)]
        rules[system] = await with_relatives(rule, system, conformance.systems, concepts)
    return replace(members, rules=rules)


async def _result(
    case: _Case, message: str | None, conformance: Conformance, terminology: Terminology, arguments: Arguments
) -> Answer:
    """Parameters with the result.  `message`: why it is false."""
    result = True in case.found
    right = case.codings[case.found.index(True)] if result else case.codings[0]
    system, code = right.get("system") or "", right["code"]
    proper = terminology.display(canonical(system, right.get("version")), code)
    wanted, language = arguments.text("display") or right.get("display"), arguments.text("displayLanguage")
    if result and not arguments.boolean("abstract", True) and _is_abstract(terminology, system, code):
        result, message = False, f"{case.named} is abstract: it only groups others"
    if proper and (language or (wanted and wanted.casefold() != proper.casefold())):
        found = await designations_of(terminology, conformance.systems, [(system, code)])
        designations = found.get((system, code), [])
        right_ones = {proper.casefold(), *(str(one.get("value", "")).casefold() for one in designations)}
        proper = display_in(language, designations) or proper
        if result and wanted and wanted.casefold() not in right_ones:
            result, message = False, f"the display of {case.named} is '{proper}'"
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


def _is_abstract(terminology: Terminology, system: str, code: str) -> bool:
    imported = terminology.imported(system)
    if isinstance(imported, ImportedSystem):
        facts = terminology.facts_of(imported, code)
        return isinstance(facts, Facts) and facts.is_abstract
    known = terminology.system(system)
    concept = known.find(code) if known is not None else None
    return concept is not None and not concept.selectable
