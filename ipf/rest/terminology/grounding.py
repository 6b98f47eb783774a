"""Rules with regular expressions, which RE2 runs here, and rules on values, as rules that the store answers."""

from __future__ import annotations

from collections.abc import Sequence

from ipf.errors import Category, Problem
from ipf.fhir.model.regex import PatternError, pattern
from ipf.fhir.terminology.rules import parts, rewritten
from ipf.ports.fhir.terminology import (
    Above,
    Among,
    CodeSystems,
    EveryRule,
    Facts,
    HasProperty,
    HasValue,
    ImportedSystem,
    MatchesPattern,
    ParentOf,
    Rule,
)
from ipf.ports.threads import RunInThread

MOST_VALUES = 1_000_000
MOST_MATCHES = 100_000
MOST_LOOKUPS = 50
"""Rules on values of properties in one value set, each of which reads the values of a property and selects of them."""


async def grounded(rule: Rule, system: ImportedSystem, systems: CodeSystems, run_in_thread: RunInThread) -> Rule:
    """The rule with each pattern, and each rule on values, replaced by the values that are meant.

    Problem COSTLY when these are too many, VALUE for a pattern that cannot run.
    """
    rule = await with_values(rule, system, systems)
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


async def with_values(
    rule: Rule, system: ImportedSystem, systems: CodeSystems, concepts: Sequence[Facts] | None = None
) -> Rule:
    """The rule with each HasValue replaced by the values that its rule selects, of those that these concepts have.

    `concepts`: None for all of the system.  Problem COSTLY: they are too many.
    """
    found: dict[Rule, Rule] = {}
    if _lookups(rule) > MOST_LOOKUPS:
        text = f"the value set has more than {MOST_LOOKUPS} rules on values of properties of {system.url}"
        raise Problem(Category.COSTLY, text)
    for part in parts(rule):
        if isinstance(part, HasValue) and part not in found:
            if concepts is None:
                values = frozenset(await systems.values(system, part.name, MOST_VALUES))
            else:
                values = frozenset(value for one in concepts for name, value in one.properties if name == part.name)
            selected = EveryRule((Among(values), await with_values(part.rule, system, systems)))
            listed, _ = await systems.page(system, selected, (), 0, MOST_MATCHES + 1)
            if len(listed) > MOST_MATCHES:
                text = f"a rule on the property {part.name} of {system.url} selects more than {MOST_MATCHES} values"
                raise Problem(Category.COSTLY, text)
            found[part] = HasProperty(part.name, frozenset(one.code for one in listed))
    return rewritten(rule, lambda one: found.get(one, one)) if found else rule


def _lookups(rule: Rule) -> int:
    """How many rules on values it has, also within one another."""
    return sum(1 + _lookups(part.rule) for part in parts(rule) if isinstance(part, HasValue))


async def with_relatives(rule: Rule, system: ImportedSystem, systems: CodeSystems, concepts: Sequence[Facts]) -> Rule:
    """The rule that the facts of these concepts decide: with what is above another concept as its codes, and with the
    values of HasValue."""
    rule = await with_values(rule, system, systems, concepts)
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
