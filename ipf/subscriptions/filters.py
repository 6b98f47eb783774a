"""Filters of a topic subscription, compiled to one search per resource type of the topic.

Forms: `parameter=value`, `parameter:modifier=value`, `Type.parameter=value`, `Type.parameter:modifier=value`, and
`Type?parameter=value`; several filters may be joined by `&`.  All must match.  A filter with a type applies to changes
of that type, a filter without one to every type for which the topic declares the parameter.  When there are filters, a
type without a filter does not fire.

Source: http://hl7.org/fhir/uv/subscriptions-backport, `backport-filter-criteria`
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import unquote_plus

from ipf.errors import Category, Problem
from ipf.fhir.model.definitions import definitions
from ipf.fhir.search.language.query import parse_criteria
from ipf.fhir.topics.topic import alone
from ipf.ports.queries.search import Query
from ipf.ports.queries.topics import Filter, Topic

PLACE = "Subscription.criteria.extension"
_FORM = re.compile(r"(?:(?P<type>[A-Z][A-Za-z]+)[.?])?(?P<name>[A-Za-z_][A-Za-z0-9_-]*)(?::(?P<modifier>[A-Za-z-]+))?")
_COMPARATOR = re.compile(r"(eq|ne|gt|lt|ge|le|sa|eb|ap)(?=[0-9-])")
_COMPARABLE = frozenset({"number", "date", "quantity"})


def queries_of(topic: Topic, filters: Sequence[str]) -> dict[str, Query]:
    """By resource type, the search that a change must match.  Problem BUSINESS_RULE for a filter that cannot apply."""
    parts: dict[str, list[str]] = {}
    for text in filters:
        prefix = ""
        for one in text.split("&"):
            if "?" in one.partition("=")[0]:
                prefix = one.partition("?")[0] + "?"  # `Type?a=1&b=2`: the type applies to all
            elif prefix:
                one = prefix + one
            for name, search in _read(topic, one):
                parts.setdefault(name, []).append(search)
    names = parts if filters else topic.resource_types
    try:
        return {name: alone(parse_criteria(f"{name}?{'&'.join(parts.get(name, ()))}")) for name in names}
    except Problem as refused:
        raise Problem(Category.BUSINESS_RULE, refused.text, PLACE) from refused


def _read(topic: Topic, text: str) -> list[tuple[str, str]]:
    """(type, search) for each type that a filter applies to."""
    named, mark, value = text.partition("=")
    form = _FORM.fullmatch(named.strip())
    if not mark or form is None:
        raise _refused(f"the filter {text[:80]!r} does not have the form parameter=value")
    name, kind, modifier = form["name"], form["type"], form["modifier"]
    if kind is not None and kind not in topic.resource_types:
        raise _refused(f"the filter {text[:80]!r} names {kind}, which is not a resource type of the topic {topic.url}")
    search = f"{name}:{modifier}={value}" if modifier else f"{name}={value}"
    found = [
        (one, search)
        for one in topic.resource_types
        if kind in (None, one) and (rule := _rule(topic, one, name)) is not None and _allows(rule, one, modifier, value)
    ]
    if not found:
        raise _refused(f"the topic {topic.url} does not allow the filter {text[:80]!r}{_allowed(topic)}")
    return found


def _rule(topic: Topic, resource_type: str, name: str) -> Filter | None:
    fitting = [one for one in topic.filters if one.parameter == name and one.resource_type in ("", resource_type)]
    return fitting[0] if fitting else None


def _allows(rule: Filter, resource_type: str, modifier: str | None, value: str) -> bool:
    if modifier is not None and rule.modifiers is not None and modifier not in rule.modifiers:
        return False
    return rule.comparators is None or _comparators(resource_type, rule.parameter, value) <= rule.comparators


def _comparators(resource_type: str, parameter: str, value: str) -> set[str]:
    """The comparators of all alternatives of a value; none for a parameter that has no order."""
    definition = definitions().search_parameters(resource_type).get(parameter)
    if definition is None or definition.type not in _COMPARABLE:
        return set()
    return {found[0] for one in unquote_plus(value).split(",") if (found := _COMPARATOR.match(one)) is not None}


def _allowed(topic: Topic) -> str:
    names = ", ".join(dict.fromkeys(one.parameter for one in topic.filters))
    return f"; it allows {names}" if names else "; it allows none"


def _refused(text: str) -> Problem:
    return Problem(Category.BUSINESS_RULE, text, PLACE)
