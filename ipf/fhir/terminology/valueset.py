"""The members of a value set, as far as its code systems are loaded.

A value set is expanded once into a `Membership`: codes by system, tests of open systems, rules on imported systems,
which are not listed here, and the systems that are not loaded.  So the result of `contains` is True, False or None.

Source: https://hl7.org/fhir/R4/valueset.html#compositions
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ipf.errors import Category, Problem
from ipf.fhir.budget import Budget
from ipf.fhir.model.regex import PatternError, pattern
from ipf.fhir.terminology.codesystem import CodeSystem
from ipf.fhir.terminology.composition import facts_of as facts_of  # re-exported
from ipf.fhir.terminology.ecl import EclError, ecl_rule
from ipf.fhir.terminology.implicit import SNOMED
from ipf.fhir.terminology.open_systems import open_test
from ipf.fhir.terminology.rules import holds, is_implied, parts, rule_of
from ipf.ports.fhir.terminology import (
    Among,
    AnyRule,
    EveryRule,
    Facts,
    ImportedSystem,
    IsActive,
    MatchesPattern,
    NoRule,
    Rule,
)

Json = dict[str, Any]
MOST_STEPS = 1_000_000
"""Codes that are listed, copied, compared or tested for one value set, with those that it includes: about a second."""
MOST_TESTS = MOST_STEPS  # of codes by filters in one value set
MOST_PARTS = 10_000
"""Tests and rules that decide on one code of a value set, with those that it includes: they multiply."""
Systems = Callable[[str], CodeSystem | ImportedSystem | None]  # by canonical
FactsOf = Callable[[ImportedSystem, str], Facts | bool | None]
"""Facts of a concept; False: the system has no such code; None: nobody has asked for it yet."""
Sets = Callable[[str], "Membership | None"]
Test = Callable[[str], bool]


@dataclass(slots=True)
class Membership:
    """The members of a value set.

    `codes`: system -> code -> display ("" when not known).  `tests`: system -> test.  `unknown`: systems of which some
    codes may belong to it; "" when even the system is not known.  `errors`: filters that could not be applied, and why.
    `rules`: of imported systems; `facts_of` looks up their concepts.  `is_costly`: the reason in `errors` is a budget.
    `parts`: tests and rules that one code may need.
    """

    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    tests: dict[str, Callable[[str], bool]] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)
    errors: set[str] = field(default_factory=set)
    rules: dict[ImportedSystem, Rule] = field(default_factory=dict)
    facts_of: FactsOf | None = None
    is_costly: bool = False
    parts: int = 0

    def contains(self, system: str | None, code: str) -> bool | None:
        """Whether the code is a member; without a system, of any system.  None: it cannot be decided."""
        if system is None:
            return self._has_code(code)
        if code in self.codes.get(system, ()):
            return True
        test = self.tests.get(system)
        if test is not None and test(code):
            return True
        found = [self._selects(one, rule, code) for one, rule in self.rules.items() if one.url == system]
        if True in found:
            return True
        return None if None in found or system in self.unknown or "" in self.unknown else False

    def _has_code(self, code: str) -> bool | None:
        if any(code in codes for codes in self.codes.values()) or any(test(code) for test in self.tests.values()):
            return True
        found = [self._selects(one, rule, code) for one, rule in self.rules.items()]
        return True if True in found else None if None in found or self.unknown else False

    def _selects(self, system: ImportedSystem, rule: Rule, code: str) -> bool | None:
        """Whether a rule selects a code of an imported system; None without its facts."""
        facts = self.facts_of(system, code) if self.facts_of is not None else None
        if facts is None or isinstance(facts, bool):
            return facts
        return holds(rule, facts)

    def systems(self) -> set[str]:
        """All systems with members."""
        return {*self.codes, *self.tests, *self.unknown, *(one.url for one in self.rules)}

    def members(self) -> Iterator[tuple[str, str, str]]:
        """(system, code, display) of all members that can be listed."""
        for system, codes in self.codes.items():
            for code, display in codes.items():
                yield system, code, display


def budget() -> Budget:
    """The steps of one expansion."""
    return Budget(MOST_STEPS, "its expansion")


def costly(reason: str) -> Membership:
    """The membership of a value set that cannot be expanded within its budget."""
    return Membership(unknown={""}, errors={reason}, is_costly=True)


def expansion_of(
    facts: Json, systems: Systems, sets: Sets, facts_of: FactsOf | None = None, left: Budget | None = None
) -> Membership:
    """The membership of a value set's facts (`include` and `exclude`, or `members` of an expansion).

    `left`: the budget of the value set that includes this one.  Problem COSTLY when it has one and that is used up.
    """
    if left is not None:
        return _expanded_within(facts, systems, sets, facts_of, left)
    try:
        return _expanded_within(facts, systems, sets, facts_of, budget())
    except Problem as problem:
        return costly(problem.text)


def _expanded_within(facts: Json, systems: Systems, sets: Sets, facts_of: FactsOf | None, left: Budget) -> Membership:
    found, less = Membership(facts_of=facts_of), Membership(facts_of=facts_of)
    if "costly" in facts:
        return costly(facts["costly"])
    for system, code, display in facts.get("members", ()):
        left.spend()
        found.codes.setdefault(system, {})[code] = display
    if _tests(facts, systems) > MOST_TESTS:
        return costly(f"its filters would test more than {MOST_TESTS} codes")
    for include in facts.get("include", ()):
        _add_members(found, _included(include, systems, sets, left), left)
    for exclude in facts.get("exclude", ()):
        _add_members(less, _included(exclude, systems, sets, left), left)
    if facts.get("exclude"):
        _remove_members(found, less, left)
    return found


def _tests(facts: Json, systems: Systems) -> int:
    """How many codes the filters of a value set test."""
    parts = [one for word in ("include", "exclude") for one in facts.get(word, ()) if one.get("filters")]
    known = {one["system"]: systems(one["system"]) for one in parts if "system" in one}
    sizes = {url: len(system.concepts) if isinstance(system, CodeSystem) else 0 for url, system in known.items()}
    return sum(sizes.get(one.get("system", ""), 0) * len(one["filters"]) for one in parts)


def _included(include: Json, systems: Systems, sets: Sets, left: Budget) -> Membership:
    """The members of one include: those of its system that are also in each of its value sets."""
    left.spend()
    found = _from_system(include, systems, left) if "system" in include else None
    for url in include.get("sets", ()):
        other = sets(url)
        found = _intersection(found, other if other is not None else Membership(unknown={""}), left)
    return found if found is not None else Membership()


def _from_system(include: Json, systems: Systems, left: Budget) -> Membership:
    url, version = include["system"], include.get("version")
    if "broken" in include:
        return Membership(unknown={url}, errors={include["broken"]})
    system = systems(f"{url}|{version}" if version else url)
    if "codes" in include:
        left.spend(2 * len(include["codes"]))  # each is looked up
        return _enumerated(include, system)
    if isinstance(system, ImportedSystem):
        found = _selected(system, include.get("filters", ()), left)
        found.rules = {one: _active(rule) if "active" in include else rule for one, rule in found.rules.items()}
        return found
    filters = include.get("filters", ())
    if system is None or not (system.complete or system.concepts):
        test = open_test(url, filters)
        return Membership(unknown={url}) if test is None else Membership(tests={url: test}, parts=1)
    left.spend(len(system.concepts) * max(1, sum(2 if operator == "regex" else 1 for _, operator, _ in filters)))
    try:
        tests = [_filter(system, *one) for one in filters]
        if None in tests:
            return Membership(unknown={url})
        chosen = _chosen(system, [one for one in tests if one is not None], "active" in include)
    except PatternError as error:
        return Membership(unknown={url}, errors={f"filter on codes of {url}: {error}"})
    found = Membership({url: chosen})
    if not system.complete:
        found.unknown.add(url)
    if system.any_case:
        folded = {code.casefold() for code in found.codes[url]}
        found.tests[url] = lambda code: code.casefold() in folded
    return found


def _chosen(system: CodeSystem, rules: list[Rule], active: bool) -> dict[str, str]:
    """Code -> display of the concepts for which all rules hold.  `active`: without those kept for old data."""
    if not rules and not active:
        return system.displays()
    whole = rules[0] if len(rules) == 1 else EveryRule(tuple(rules))
    able = (one for one in system.concepts.values() if not active or one.is_active)
    return {one.code: one.display for one in able if not rules or holds(whole, one.facts)}


def _enumerated(include: Json, system: CodeSystem | ImportedSystem | None) -> Membership:
    """The members of an include that lists its codes."""
    listed = dict(_listed(include["codes"], system))
    if "active" in include:
        if isinstance(system, ImportedSystem):
            return Membership(rules={system: _active(Among(frozenset(listed)))}, parts=2)
        known = {code: system.find(code) for code in listed} if system is not None else {}
        listed = {code: text for code, text in listed.items() if (one := known.get(code)) is None or one.is_active}
    return Membership({include["system"]: listed})


def _active(rule: Rule) -> Rule:
    return EveryRule((rule, IsActive()))


def _selected(system: ImportedSystem, filters: list[Any], left: Budget) -> Membership:
    """The rule of the filters on an imported system."""
    try:
        rules = [_rule_on(system, *one) for one in filters]
    except EclError as error:
        return Membership(unknown={system.url}, errors={f"filter constraint of {system.url}: {error}"})
    wrong = [one for one, rule in zip(filters, rules, strict=True) if rule is None]
    if wrong:
        named = "; ".join(" ".join(one) for one in wrong)
        return Membership(unknown={system.url}, errors={f"{system.url} does not support the filter {named}"[:500]})
    try:
        for one in rules:
            _check_patterns(one)
    except PatternError as error:
        return Membership(unknown={system.url}, errors={f"filter on codes of {system.url}: {error}"})
    known = tuple(one for one in rules if one is not None)
    left.spend(size := sum(1 + len(parts(one)) for one in known))
    return Membership(rules={system: EveryRule(known)}, parts=size)


def _rule_on(system: ImportedSystem, name: str, operator: str, value: str) -> Rule | None:
    """The rule of one filter; None when the system does not support it.  EclError."""
    if system.url == SNOMED and (name, operator) == ("constraint", "="):
        return ecl_rule(value)
    return rule_of(name, operator, value) if is_implied(name) or name in system.properties else None


def _check_patterns(rule: Rule | None) -> None:
    for part in parts(rule) if rule is not None else ():
        if isinstance(part, MatchesPattern):
            pattern(part.pattern)


def _listed(rows: list[Any], system: CodeSystem | ImportedSystem | None) -> Iterator[tuple[str, str]]:
    for row in rows:
        code, display = (row, "") if isinstance(row, str) else row
        if not display and isinstance(system, CodeSystem) and (concept := system.find(code)) is not None:
            display = concept.display
        yield code, display


def _filter(system: CodeSystem, name: str, operator: str, value: str) -> Rule | None:
    """A filter as a rule on the facts of one concept; None when it is not supported."""
    rule = rule_of(name, operator, value)
    if rule is None or not (is_implied(name) or system.has_property(name)):
        return None
    for part in parts(rule):
        if isinstance(part, MatchesPattern):
            pattern(part.pattern).check_length(sum(map(len, system.concepts)))
    return system.grounded(rule)


def _size(members: Membership) -> int:
    """Steps to go through the members once."""
    return sum(map(len, members.codes.values())) + len(members.tests) + len(members.rules)


def _add_members(found: Membership, more: Membership, left: Budget) -> None:
    left.spend(_size(more))
    for system, codes in more.codes.items():
        found.codes.setdefault(system, {}).update(codes)
    for system, test in more.tests.items():
        earlier = found.tests.get(system)
        found.tests[system] = test if earlier is None else _AnyOf.these(earlier, test)
    for imported, rule in more.rules.items():
        other = found.rules.get(imported)
        found.rules[imported] = rule if other is None else _any_rule(other, rule)
    found.unknown |= more.unknown
    found.errors |= more.errors
    found.is_costly |= more.is_costly
    _grow(found, more.parts)


def _grow(members: Membership, parts: int) -> None:
    """Problem COSTLY when one code would need too many tests and rules."""
    members.parts += parts
    if members.parts > MOST_PARTS:
        raise Problem(Category.COSTLY, f"its expansion has more than {MOST_PARTS} tests and rules for one code")


@dataclass(frozen=True, slots=True)
class _AnyOf:
    """Alternatives side by side: thousands within one another would be too deep for the interpreter."""

    tests: tuple[Test, ...]

    def __call__(self, code: str) -> bool:
        return any(test(code) for test in self.tests)

    @classmethod
    def these(cls, first: Test, second: Test) -> _AnyOf:
        """Both, and the alternatives of the first."""
        return cls((*(first.tests if isinstance(first, _AnyOf) else (first,)), second))


@dataclass(frozen=True, slots=True)
class _AllOf:
    """A test with further ones: membership in `others`; of a code of `system`."""

    test: Test
    system: str
    others: tuple[Membership, ...]

    def __call__(self, code: str) -> bool:
        return self.test(code) and all(one.contains(self.system, code) is not False for one in self.others)

    @classmethod
    def these(cls, test: Test, system: str, other: Membership) -> _AllOf:
        """The test in which `other` contains the code as well."""
        if isinstance(test, _AllOf) and test.system == system:
            return cls(test.test, system, (*test.others, other))
        return cls(test, system, (other,))


def _any_rule(first: Rule, second: Rule) -> Rule:
    return AnyRule((*(first.rules if isinstance(first, AnyRule) else (first,)), second))


def _every_rule(first: Rule, second: Rule) -> Rule:
    return EveryRule((*(first.rules if isinstance(first, EveryRule) else (first,)), second))


def _rule(members: Membership, system: ImportedSystem) -> Rule:
    """What a membership has of an imported system, as one rule."""
    listed = Among(frozenset(members.codes.get(system.url, ())))
    return _any_rule(members.rules[system], listed) if system in members.rules else listed


def _remove_members(found: Membership, less: Membership, left: Budget) -> None:
    left.spend(_size(found) * (1 + less.parts))
    _grow(found, less.parts * (len(found.tests) + len(found.rules)))
    for imported in {*found.rules, *(one for one in less.rules if one.url in found.codes)}:
        found.rules[imported] = _every_rule(_rule(found, imported), NoRule(_rule(less, imported)))
        found.codes.pop(imported.url, None)
    for system, codes in found.codes.items():
        for code in [code for code in codes if less.contains(system, code)]:
            del codes[code]
    for system, test in list(found.tests.items()):
        found.tests[system] = _without(test, system, less)
    if "" in less.unknown:
        found.unknown.add("")
    found.unknown |= {system for system in less.unknown if system in found.codes}
    found.errors |= less.errors
    found.is_costly |= less.is_costly


def _without(test: Test, system: str, less: Membership) -> Test:
    return lambda code: test(code) and not less.contains(system, code)


def _intersection(found: Membership | None, other: Membership, left: Budget) -> Membership:
    """The members of both; the system is unknown when membership in one is undecided."""
    if found is None:
        left.spend(_size(other))
        return Membership(
            {system: dict(codes) for system, codes in other.codes.items()},
            dict(other.tests),
            set(other.unknown),
            set(other.errors),
            dict(other.rules),
            other.facts_of,
            other.is_costly,
            other.parts,
        )
    left.spend(_size(found) * (1 + other.parts))
    both = Membership(unknown=set(found.unknown), errors=found.errors | other.errors)
    both.is_costly, both.parts = found.is_costly or other.is_costly, found.parts
    _grow(both, other.parts * (1 + len(found.tests) + len(other.rules)))
    for imported in {*found.rules, *other.rules}:
        both.rules[imported] = _every_rule(_rule(found, imported), _rule(other, imported))
        found.codes.pop(imported.url, None)
    for system, code, display in found.members():
        answer = other.contains(system, code)
        if answer:
            both.codes.setdefault(system, {})[code] = display
        elif answer is None:
            both.unknown.add(system)
    for system, test in found.tests.items():
        both.tests[system] = _AllOf.these(test, system, other)
    return both
