"""ValueSet/$expand: https://hl7.org/fhir/R4/valueset-operation-expand.html

Codes of systems in memory come first, then those of imported systems, each in the order of its system.  Of an imported
system only the page is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC
from uuid import uuid4

from ipf.errors import Category, Problem
from ipf.fhir.index.words import words
from ipf.fhir.model.json import dumps
from ipf.fhir.terminology import Terminology
from ipf.fhir.terminology.codesystem import CodeSystem
from ipf.fhir.terminology.composition import excludes_inactive
from ipf.fhir.terminology.valueset import Membership
from ipf.ports import Answer, Json, Request
from ipf.ports.fhir.terminology import ALL, EveryRule, Facts, ImportedSystem, IsActive, Listed, Rule
from ipf.rest.http.arguments import Arguments
from ipf.rest.operations.validate import conformance_of
from ipf.rest.terminology.common import TX_RESOURCE, by_id, canonical, definitions, terminology_of
from ipf.rest.terminology.designations import designations_of, display_in, is_chosen
from ipf.rest.terminology.grounding import grounded
from ipf.rest.terminology.value_sets.binding import CONTEXT, bound_value_set
from ipf.rest.terminology.value_sets.chosen import enumerable, value_set_of
from ipf.rest.terminology.value_sets.nesting import nested
from ipf.rest.terminology.value_sets.versions import chosen_versions
from ipf.rest.write.conformance import Conformance
from ipf.rest.write.repository import Repository

MOST_CODES = 10_000
PARAMETERS = (
    "url", "valueSet", "valueSetVersion", "filter", "offset", "count", "activeOnly", "excludeNested",
    "includeDesignations", "designation", "includeDefinition", "displayLanguage", "exclude-system", "system-version",
    "check-system-version", "force-system-version", "excludeNotForUI", "excludePostCoordinated", "date", "_format",
    TX_RESOURCE, *CONTEXT,
)  # fmt: skip
_NOT_STATED = frozenset({"url", "valueSet", "valueSetVersion", "_format", "date", TX_RESOURCE, *CONTEXT})


@dataclass(slots=True)
class _Page:
    """Concepts with their systems, and how many there are in all; None: too many to count them."""

    concepts: list[tuple[str, Listed]]
    total: int | None


async def expand(request: Request, repository: Repository) -> Answer:
    """ValueSet/$expand, ValueSet/[id]/$expand: the ValueSet with its expansion."""
    known = await definitions(request, repository, "ValueSet")
    arguments = await Arguments.read(request, PARAMETERS, repository.run_in_thread)
    arguments.today("date", repository.clock())
    resource = await by_id(request, repository, "ValueSet")
    conformance = conformance_of(repository)
    bound = await bound_value_set(request, known, arguments, repository)
    versions = chosen_versions(arguments)
    terminology = versions.applied(await terminology_of(known, arguments, repository))

    def found() -> tuple[Json, Membership]:
        value_set, members = value_set_of(resource, conformance, terminology, arguments, bound)
        usable = enumerable(members, str(value_set.get("url", "")))
        versions.check(usable, terminology)
        return value_set, usable

    value_set, members = await repository.run_in_thread(found)
    excluded = set(arguments.texts("exclude-system"))
    asked = _Expansion(conformance, terminology, members, excluded, arguments, repository)
    page = await (asked.without_inactive() if excludes_inactive(value_set) else asked).page()
    contains = await _contains(page, terminology, conformance, members, arguments)
    if not arguments.boolean("excludeNested", True) and not arguments.text("filter"):
        contains = nested(contains, terminology)
    now = repository.clock().astimezone(UTC).isoformat(timespec="seconds")
    expansion = _expansion(page, contains, now, arguments, members)
    if not arguments.boolean("includeDefinition", True):
        value_set = {name: value for name, value in value_set.items() if name not in ("compose", "text")}
    return Answer(200, dumps({**value_set, "expansion": expansion}))


class _Expansion:
    """The page of an expansion that a request asks for."""

    def __init__(
        self, conformance: Conformance, terminology: Terminology, members: Membership, excluded: set[str],
        arguments: Arguments, repository: Repository,
    ) -> None:  # fmt: skip
        self._conformance = conformance
        self._terminology = terminology
        self._members = members
        self._excluded = excluded
        self._text = arguments.text("filter")
        self._active = arguments.boolean("activeOnly")
        self._selectable = arguments.boolean("excludeNotForUI")
        self._offset, self._count = arguments.number("offset") or 0, arguments.number("count")
        self._repository = repository

    def without_inactive(self) -> _Expansion:
        """The same, for a value set that has no inactive codes, also not those of value sets that it includes."""
        self._active = True
        return self

    async def page(self) -> _Page:
        """The page.  Problem COSTLY without `count` when there are more codes than fit in an answer."""
        rules = [(one, rule) for one, rule in self._members.rules.items() if not self._is_excluded(one)]
        if self._count is None and not self._text:
            for system, rule in rules:
                if rule == ALL and system.concepts > MOST_CODES:
                    raise _too_many(f"{system.concepts}")
        here = await self._in_memory()
        limit = MOST_CODES + 1 if self._count is None else self._count
        if limit > MOST_CODES + 1:
            raise Problem(Category.COSTLY, f"a page has at most {MOST_CODES} codes", "count")
        found = here[self._offset : self._offset + limit]
        total: int | None = len(here)
        for system, rule in rules:
            skipped = max(self._offset - (total or 0), 0)
            listed, size = await self._selected(system, rule, skipped, max(limit - len(found), 0))
            found += [(system.url, one) for one in listed]
            total = None if total is None or size is None else total + size
            if total is None:
                break
        if self._count is None and (len(found) > MOST_CODES or len(here) > MOST_CODES):
            raise _too_many(f"more than {MOST_CODES}")
        return _Page(found, total)

    def _is_excluded(self, system: ImportedSystem) -> bool:
        return bool({system.url, canonical(system.url, system.version)} & self._excluded)

    async def _selected(
        self, system: ImportedSystem, rule: Rule, offset: int, limit: int
    ) -> tuple[Sequence[Listed], int | None]:
        systems = self._conformance.systems
        assert systems is not None, "it has this system"
        extra = tuple(one for one, wanted in ((IsActive(), self._active),) if wanted)
        whole = await grounded(
            EveryRule((rule, *extra)) if extra else rule, system, systems, self._repository.run_in_thread
        )
        asked = words(self._text) if self._text else []
        if self._text and not asked:
            return [], 0
        return await systems.page(system, whole, asked, offset, limit)

    async def _in_memory(self) -> list[tuple[str, Listed]]:
        """The members that are listed here, with what their systems have of them."""
        members = [one for one in self._members.members() if one[0] not in self._excluded]
        await self._conformance.recall(self._terminology, [(system, code) for system, code, _ in members[:MOST_CODES]])

        def listed() -> list[tuple[str, Listed]]:
            found = [(system, self._listed(system, code, display)) for system, code, display in members]
            return [one for one in found if self._passes(one[1])]

        result: list[tuple[str, Listed]] = await self._repository.run_in_thread(listed)
        return result

    def _listed(self, system: str, code: str, display: str) -> Listed:
        imported = self._terminology.imported(system)
        known = None if imported is not None else self._terminology.system(system)
        if isinstance(known, CodeSystem) and (concept := known.find(code)) is not None:
            return Listed(code, display or concept.display, concept.is_active, not concept.selectable)
        facts = self._terminology.facts_of(imported, code) if imported is not None else None
        if isinstance(facts, Facts):
            return Listed(code, display or facts.display, facts.is_active, facts.is_abstract)
        return Listed(code, display, True, False)

    def _passes(self, one: Listed) -> bool:
        if (self._active and not one.is_active) or (self._selectable and one.is_abstract):
            return False
        return self._text is None or self._text.casefold() in f"{one.code} {one.display}".casefold()


def _too_many(number: str) -> Problem:
    return Problem(Category.COSTLY, f"the value set has {number} codes: use count and offset, or filter")


async def _contains(
    page: _Page, terminology: Terminology, conformance: Conformance, members: Membership, arguments: Arguments
) -> list[Json]:
    """The entries of `expansion.contains`."""
    language, tokens = arguments.text("displayLanguage"), arguments.texts("designation")
    is_designated = arguments.boolean("includeDesignations") or bool(tokens)
    found = {}
    if is_designated or language:
        codes = [(system, one.code) for system, one in page.concepts]
        found = await designations_of(terminology, conformance.systems, codes, members.rules)
    rows = []
    for system, one in page.concepts:
        designations = found.get((system, one.code), [])
        display = display_in(language, designations) or one.display
        chosen = [each for each in designations if is_designated and is_chosen(each, tokens)]
        rows.append({
            **({"system": system} if system else {}),
            **({"abstract": True} if one.is_abstract else {}),
            **({} if one.is_active else {"inactive": True}),
            "code": one.code,
            **({"display": display} if display else {}),
            **({"designation": chosen} if chosen else {}),
        })  # fmt: skip
    return rows


def _expansion(page: _Page, contains: list[Json], now: str, arguments: Arguments, members: Membership) -> Json:
    start, count = arguments.number("offset") or 0, arguments.number("count")
    used = [f"{one.url}|{one.version}" for one in members.rules]
    parameters = [
        *({"name": name, **_value(value)} for name, value in arguments.given() if name not in _NOT_STATED),
        *({"name": "used-codesystem", "valueUri": one} for one in sorted(used)),
    ]
    return {
        "identifier": f"urn:uuid:{uuid4()}",
        "timestamp": now,
        **({"total": page.total} if page.total is not None else {}),
        **({"offset": start} if start or count is not None else {}),
        **({"parameter": parameters} if parameters else {}),
        **({"contains": contains} if contains else {}),
    }


def _value(value: object) -> Json:
    if value in ("true", "false") or isinstance(value, bool):
        return {"valueBoolean": value in (True, "true")}
    text = str(value)
    return {"valueInteger": int(text)} if text.isascii() and text.isdigit() else {"valueString": text}
