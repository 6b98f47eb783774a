"""Rules with regular expressions, which RE2 runs here, as rules that the store answers."""

from __future__ import annotations

from ipf.errors import Category, Problem
from ipf.fhir.model.regex import PatternError, pattern
from ipf.fhir.terminology.rules import parts, rewritten
from ipf.ports.terminology import (
    Above,
    Among,
    CodeSystems,
    Facts,
    HasProperty,
    ImportedSystem,
    MatchesPattern,
    ParentOf,
    Rule,
)
from ipf.ports.threads import RunInThread

MOST_VALUES = 1_000_000
MOST_MATCHES = 100_000


async def grounded(rule: Rule, system: ImportedSystem, systems: CodeSystems, run_in_thread: RunInThread) -> Rule:
    """The rule with each pattern replaced by the values that it matches.

    Problem COSTLY for one that matches too many, VALUE for one that cannot run.
    """
    found: dict[Rule, Rule] = {}
    for part in parts(rule):
        if isinstance(part, MatchesPattern) and part not in found:
            found[part] = await _matching(part, system, systems, run_in_thread)
    return rewritten(rule, lambda one: found.get(one, one)) if found else rule


async def _matching(
    part: MatchesPattern, system: ImportedSystem, systems: CodeSystems, run_in_thread: RunInThread
) -> Rule:
    if part.name == "display":
        text = f"{system.url}: regular expressions on displays are not supported for imported code systems"
        raise Problem(Category.NOT_SUPPORTED, text)
    values = await systems.values(system, part.name, MOST_VALUES)

    def matched() -> frozenset[str]:
        compiled = pattern(part.pattern)
        compiled.check_length(sum(map(len, values)))
        return frozenset(value for value in values if compiled.is_all_of(value))

    try:
        found: frozenset[str] = await run_in_thread(matched)
    except PatternError as error:
        raise Problem(Category.VALUE, f"filter on {part.name} of {system.url}: {error}") from error
    if len(found) > MOST_MATCHES:
        text = f"a regular expression on {part.name} of {system.url} matches more than {MOST_MATCHES} values"
        raise Problem(Category.COSTLY, text)
    return Among(found) if part.name == "code" else HasProperty(part.name, found)


async def with_relatives(rule: Rule, system: ImportedSystem, systems: CodeSystems) -> Rule:
    """The rule with what is above a concept as its codes: the facts of another concept do not tell that."""
    ends = {part.code for part in parts(rule) if isinstance(part, Above | ParentOf)}
    if not ends:
        return rule
    facts = await systems.facts(system, ends)

    def change(part: Rule) -> Rule:
        if isinstance(part, Above | ParentOf):
            known = facts.get(part.code, Facts(part.code))
            return Among(known.ancestors if isinstance(part, Above) else known.parents)
        return part

    return rewritten(rule, change)
