"""Filters of value sets as rules, and rules put to one concept.

Source: https://hl7.org/fhir/R4/valueset-filter-operator.html
"""

from __future__ import annotations

from collections.abc import Callable

from ipf.fhir.model.regex import pattern
from ipf.ports.fhir.terminology import (
    Above,
    Among,
    AnyRule,
    Below,
    ChildOf,
    EveryRule,
    Facts,
    HasProperty,
    HasValue,
    IsActive,
    MatchesPattern,
    NoRule,
    ParentOf,
    Rule,
)

_CODE = ("concept", "code")
_RELATIONS = ("parent", "child")
_IMPLIED = frozenset(("concept", "code", "display", "parent", "child", "inactive"))
"""Properties that every code system has."""


def is_implied(name: str) -> bool:
    """Whether every code system has this property."""
    return name in _IMPLIED


def rule_of(name: str, operator: str, value: str) -> Rule | None:
    """The rule of a filter; None when the operator does not go with the property."""
    match operator:
        case "is-a" if name in _CODE:
            return Below(value)
        case "descendent-of" if name in _CODE:
            return EveryRule((Below(value), NoRule(Among(frozenset((value,))))))
        case "is-not-a" if name in _CODE:
            return NoRule(Below(value))
        case "generalizes" if name in _CODE:
            return Above(value)
        case "regex" if name not in _RELATIONS:
            return MatchesPattern("code" if name in _CODE else name, value)
        case "=":
            return _equal(name, frozenset((value,)))
        case "in" | "not-in":
            found = _equal(name, frozenset(one.strip() for one in value.split(",")))
            return found if found is None or operator == "in" else NoRule(found)
        case "exists" if name not in _IMPLIED and value in ("true", "false"):
            return HasProperty(name) if value == "true" else NoRule(HasProperty(name))
    return None


def _equal(name: str, values: frozenset[str]) -> Rule | None:
    """The rule that a property has one of these values."""
    if name in _CODE:
        return Among(values)
    if name == "parent":
        return AnyRule(tuple(ChildOf(one) for one in sorted(values)))
    if name == "child":
        return AnyRule(tuple(ParentOf(one) for one in sorted(values)))
    if name == "inactive":
        chosen: dict[str, Rule] = {"true": NoRule(IsActive()), "false": IsActive()}
        return AnyRule(tuple(chosen[one] for one in sorted(values))) if values <= chosen.keys() else None
    return None if name == "display" else HasProperty(name, values)


def rewritten(rule: Rule, change: Callable[[Rule], Rule]) -> Rule:
    """The rule with each of its parts that is not put together from others replaced by `change` of it."""
    match rule:
        case EveryRule(rules):
            return EveryRule(tuple(rewritten(one, change) for one in rules))
        case AnyRule(rules):
            return AnyRule(tuple(rewritten(one, change) for one in rules))
        case NoRule(one):
            return NoRule(rewritten(one, change))
    return change(rule)


def parts(rule: Rule) -> list[Rule]:
    """The parts of a rule that are not put together from others."""
    match rule:
        case EveryRule(rules) | AnyRule(rules):
            return [part for one in rules for part in parts(one)]
        case NoRule(one):
            return parts(one)
    return [rule]


def holds(rule: Rule, facts: Facts) -> bool | None:
    """Whether a rule selects a concept; None when its own facts do not tell (Above, ParentOf, HasValue).

    PatternError for a pattern that cannot run.
    """
    match rule:
        case EveryRule(rules):
            return _every([holds(one, facts) for one in rules])
        case AnyRule(rules):
            found = _every([_negated(holds(one, facts)) for one in rules])
            return _negated(found)
        case NoRule(one):
            return _negated(holds(one, facts))
        case Among(codes):
            return facts.code in codes
        case Below(code):
            return code in facts.ancestors
        case ChildOf(code):
            return code in facts.parents
        case IsActive():
            return facts.is_active
        case HasProperty(name, values):
            return any(one == name and (values is None or value in values) for one, value in facts.properties)
        case MatchesPattern(name, text):
            return any(pattern(text).is_all_of(value) for value in _values(facts, name))
        case Above() | ParentOf() | HasValue():
            return None


def _values(facts: Facts, name: str) -> list[str]:
    if name == "code":
        return [facts.code]
    return [facts.display] if name == "display" else [value for one, value in facts.properties if one == name]


def _every(found: list[bool | None]) -> bool | None:
    return False if False in found else None if None in found else True


def _negated(found: bool | None) -> bool | None:
    return None if found is None else not found
