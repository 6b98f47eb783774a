"""Names of segments, groups, fields and components in the rules of a group, checked against the tables of HL7 v2.

A name that no message can have is a mistake in the map: `src.PDI`, `pid.PID_99`, `pid.PV1_3`, `cx.CX_40`.  The FmlError
has the place of the source or target.  These stay allowed: Z segments; every segment of the standard in any message,
since maps serve messages of several structures; the fields of every version; components by the name of an older data
type.  A variable of a type that the map does not state is not checked, nor is a type without a table.

The check reads sources and FHIRPath.  Source: HL7 v2.1 to v2.8.2, by `fhir/v2/structures.json`, `datatypes.json`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from ipf.fhir.fhirpath import FhirPathError, parse
from ipf.fhir.fhirpath.language import ast
from ipf.hl7.message import number_of
from ipf.hl7.structure import all_group_names, all_segment_names, is_structure
from ipf.mapping.compiler.expressions.native import parts
from ipf.mapping.compiler.v2 import count_of_parts, types_of
from ipf.mapping.language.model import NOWHERE, Place, Rule, Source, Target

Fail = Callable[[str, Place], Exception]

_SAME_TYPE = frozenset(("where", "first", "last", "tail", "skip", "take", "single", "distinct", "trace"))
_ON_ITEMS = frozenset(("where", "select", "all", "exists", "repeat", "aggregate"))
"""Functions of FHIRPath whose arguments are evaluated on each item."""


def check_rules(rules: tuple[Rule, ...], types: dict[str, str], fail: Fail) -> None:
    """Check the names in these rules and those below.

    `types`: HL7 v2 type (message structure, segment, data type) of each variable in scope; empty = not known.
    """
    for rule in rules:
        inner = dict(types)
        for source in rule.sources:
            _check_source(source, inner, fail)
        for target in rule.targets:
            _check_target(target, inner, fail)
        check_rules(rule.rules, inner, fail)


class _Wrong(Exception):
    """A name that no message can have, in an expression outside of a map."""


def check_names(expression: str, focus: str, types: dict[str, str]) -> str:
    """What is wrong with the names in an expression on items of type `focus`; empty: nothing.

    `types`: HL7 v2 type of each variable.  The syntax is checked elsewhere.
    """
    try:
        _Names(types, focus, NOWHERE, lambda text, _: _Wrong(text)).check(expression)
    except _Wrong as wrong:
        return str(wrong)
    return ""


def _check_source(source: Source, types: dict[str, str], fail: Fail) -> None:
    """Check a source; its variable gets the type of its items."""
    found = types.get(source.context, "")
    for name in source.element.split(".") if source.element else ():
        found = _Names(types, "", source.place, fail).step(found, name)
    found = source.type or found
    if source.variable:
        types[source.variable] = found
    for text in (source.condition, source.check, source.log_message):
        _Names(types, found, source.place, fail).check(text)


def _check_target(target: Target, types: dict[str, str], fail: Fail) -> None:
    if target.transform == "evaluate" and target.parameters:
        focus, text = target.parameters[0], str(target.parameters[-1].value)
        found = types.get(str(focus.value), "") if len(target.parameters) > 1 and focus.kind == "id" else ""
        _Names(types, found, target.place, fail).check(text)
    if target.variable:
        types[target.variable] = ""


class _Names:
    """Names at one place of the map.  `focus`: type of the item in focus of an expression."""

    def __init__(self, types: dict[str, str], focus: str, place: Place, fail: Fail) -> None:
        self._types = types
        self._focus = focus
        self._place = place
        self._fail = fail

    def step(self, owner: str, name: str) -> str:
        """Type of the children `name` of an item of type `owner`."""
        if is_structure(owner):
            if name in all_group_names():
                return owner  # the segments of a group are those of its message
            if name in all_segment_names():
                return name
            if len(name) == 3 and name.startswith("Z"):
                return ""
            self._unknown(f"HL7 v2 has no segment or group '{name}'")
        count = count_of_parts(owner)
        if not count:
            return ""
        number, prefix = number_of(name), name.rstrip("0123456789")[:-1]
        if owner in all_segment_names():
            if not number or prefix not in ("", owner):
                self._unknown(f"'{name}' is no field of {owner}: write {owner}_1, {owner}_2 ...")
            if number > count:
                self._unknown(f"{owner} has {count} fields: there is no {name}")
        elif not number or number > max(count, count_of_parts(prefix)):
            self._unknown(f"{owner} has {count} components: there is no '{name}'")
        return next(iter(types_of(f"{owner}_{number}")), "")

    def _unknown(self, text: str) -> NoReturn:
        raise self._fail(text, self._place)

    def check(self, text: str) -> None:
        """Check an expression; a mistake of its syntax is reported elsewhere."""
        if text:
            try:
                self.type_of(parse(text), self._focus)
            except FhirPathError:
                return

    def type_of(self, node: ast.Node, focus: str) -> str:
        """Type of the items that a node gives, after a check of the names in it."""
        if isinstance(node, ast.Variable):
            return self._types.get(node.name, "")
        if isinstance(node, ast.This):
            return focus if node.name == "this" else ""
        if isinstance(node, ast.Member):
            if node.focus is not None:
                return self.step(self.type_of(node.focus, focus), node.name)
            found = self._types.get(node.name)
            return self.step(focus, node.name) if found is None else found
        if isinstance(node, ast.Function):
            return self._of_function(node, focus)
        found = ""
        for part in parts(node):
            kind = self.type_of(part, focus)
            found = found or kind
        return found if isinstance(node, ast.Index) else ""

    def _of_function(self, node: ast.Function, focus: str) -> str:
        owner = focus if node.focus is None else self.type_of(node.focus, focus)
        inner = [self.type_of(one, owner if node.name in _ON_ITEMS else focus) for one in node.args]
        if node.name == "select" and inner:
            return inner[0]
        return owner if node.name in _SAME_TYPE else ""
