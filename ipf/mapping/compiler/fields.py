"""The HL7 v2 fields that a rule takes its values from, by their names in the map (`PID_13` is PID-13).

An update by a message needs them: what comes from a field that the message leaves out keeps its stored value
(`rest.identity.omitted`).  They are known at compile time: the names of fields in maps begin with their segment.

Source: HL7 v2.9 section 2.5.3 (a field that is left out is not changed).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from ipf.mapping.compiler.scope import Scope, Variable
from ipf.mapping.compiler.v2 import is_data_type
from ipf.mapping.language.model import Dependent, Group, Rule, Source, StructureMap

INITIAL = "~"
"""Before the fields of a value that does not replace what other fields have said (`// initial Group.rule: why`)."""

_MOST = 12
"""A value that comes from more fields than these has no source worth telling."""
_FIELD = re.compile(r"\b[A-Z][A-Z0-9]{2}_\d{1,3}\b")

FindGroup = Callable[[Dependent], tuple[StructureMap, Group] | None]


def field_of(source: Source, context: Variable) -> str:
    """The field that the items of a source are, or are inside of; empty: they are segments, or their field is unknown.

    `context`: the variable that the source begins with.
    """
    if context.field:
        return context.field
    return next(_fields_in(source.element), "")


def fields_of_sources(rule: Rule, outer: Scope) -> tuple[str, ...]:
    """The fields that the sources of a rule are; `outer`: the scope around it."""
    known = ((one, outer.names.get(one.context)) for one in rule.sources)
    return tuple(dict.fromkeys(found for one, context in known if context and (found := field_of(one, context))))


def fields_named(rule: Rule, find_group: FindGroup) -> tuple[str, ...]:
    """Of a rule whose sources are segments: the fields that its conditions and nested rules, and the groups that it
    calls, name.  Empty: too many, or none.  Fields of MSH are there in each message, so they tell nothing.
    """
    found: dict[str, None] = {}
    for one in _named(rule, find_group, set()):
        if not one.startswith("MSH-"):
            found[one] = None
        if len(found) > _MOST:
            return ()
    return tuple(found)


def _named(rule: Rule, find_group: FindGroup, seen: set[str]) -> Iterator[str]:
    for source in rule.sources:
        for text in (source.element, source.condition, source.default_expression):
            yield from _fields_in(text)
    for target in rule.targets:
        for parameter in target.parameters:
            yield from _fields_in(str(parameter.value)) if target.transform == "evaluate" else ()
    for inner in rule.rules:
        yield from _named(inner, find_group, seen)
    for called in rule.dependents:
        found = find_group(called)
        if found is None or called.name in seen:
            continue
        seen.add(called.name)
        for inner in found[1].rules:
            yield from _named(inner, find_group, seen)


def _fields_in(text: str) -> Iterator[str]:
    """The names of fields in a path or an expression; names of components (`CX_1`, `XPN_2`) are none."""
    for match in _FIELD.finditer(text):
        if not is_data_type(match[0]):
            yield match[0].replace("_", "-")
