"""The rules of a group: `sources -> targets then ... "name";`.  The other half of the grammar is in `grammar`."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from ipf.mapping.language.cursor import Cursor
from ipf.mapping.language.lexer import FmlError
from ipf.mapping.language.model import AUTO_VARIABLE, Dependent, Parameter, Rule, Source, Target, derived_rule_name

MAX_NESTING = 60
SOURCE_LIST_MODES = ("first", "last", "not_first", "not_last", "only_one")
TARGET_LIST_MODES = ("first", "last", "share", "collate", "single", "only_one")
_TEXT_TRANSFORMS = ("append", "cast", "copy", "dateOp", "escape", "evaluate", "translate", "truncate")
_OBJECT_TRANSFORMS = ("c", "cc", "cp", "create", "id", "pointer", "qty", "reference", "uuid")
TRANSFORMS = frozenset(_TEXT_TRANSFORMS + _OBJECT_TRANSFORMS)
_SAME_LINE = re.compile(r"[ \t]*//[ \t]*([^\n]*)")


def read_rules(cursor: Cursor, depth: int = 0) -> tuple[Rule, ...]:
    """`{ rule* }`"""
    if depth > MAX_NESTING:
        raise FmlError(f"rules nest deeper than {MAX_NESTING}", cursor.file, cursor.place)
    cursor.need("{")
    rules: list[Rule] = []
    trailing = False
    while not cursor.skip("}"):
        comment = "" if trailing and rules else cursor.token.comment
        if trailing and rules:
            comment = _without_first_line(cursor.token.comment)
        rule, remark = _rule(cursor, depth)
        documentation = "\n".join(part for part in (comment, remark) if part)
        rules.append(replace(rule, documentation=documentation))
        trailing = bool(remark)
    return tuple(rules)


def _without_first_line(comment: str) -> str:
    return comment.partition("\n")[2]


def _rule(cursor: Cursor, depth: int) -> tuple[Rule, str]:
    """One rule, and the comment after it on its last line."""
    place = cursor.place
    sources = [_source(cursor)]
    while cursor.skip(","):
        sources.append(_source(cursor))
    targets: list[Target] = []
    if cursor.skip("->"):
        targets.append(_target(cursor))
        while cursor.skip(","):
            targets.append(_target(cursor))
    dependents, rules = _then(cursor, depth)
    name = cursor.take().text if cursor.token.kind == "string" else ""
    end = cursor.token.end
    if not cursor.skip(";"):
        if not (rules and cursor.ahead(-1).text == "}"):
            cursor.expected("';'" if name else "'->', 'then', a quoted rule name or ';'")
        end = cursor.ahead(-1).end
    remark = _SAME_LINE.match(cursor.text, end)
    made = Rule(
        name or derived_rule_name(tuple(sources)),
        tuple(sources),
        tuple(targets),
        rules,
        dependents,
        place=place,
    )
    return _simplified(made), remark[1].strip() if remark else ""


def _simplified(rule: Rule) -> Rule:
    """`src.a -> tgt.b` as the reference implementations read it: both sides get the automatic variable."""
    if len(rule.sources) != 1 or len(rule.targets) != 1 or rule.rules or rule.dependents:
        return rule
    source, target = rule.sources[0], rule.targets[0]
    plain = source.element and not source.variable and target.element and not target.variable and not target.transform
    if plain:
        return replace(
            rule,
            sources=(replace(source, variable=AUTO_VARIABLE),),
            targets=(replace(target, variable=AUTO_VARIABLE, transform="create"),),
        )
    return rule


def _source(cursor: Cursor) -> Source:
    place = cursor.place
    path = cursor.dotted("a source such as 'src.element'")
    values: dict[str, Any] = {"context": path[0], "element": ".".join(path[1:]), "place": place}
    if cursor.skip(":"):
        values["type"] = ".".join(cursor.dotted("a type"))
    if cursor.token.kind == "number":
        values["minimum"], values["maximum"] = _cardinality(cursor)
    if cursor.skip("default"):
        _default(cursor, values)
    if cursor.at(*SOURCE_LIST_MODES):
        values["list_mode"] = cursor.take().text
    if cursor.skip("as"):
        values["variable"] = cursor.name("the name of a variable")
    for word, key in (("where", "condition"), ("check", "check"), ("log", "log_message")):
        if cursor.skip(word):
            values[key] = cursor.expression()
    return Source(**values)


def _cardinality(cursor: Cursor) -> tuple[int, str]:
    minimum = cursor.take().text
    cursor.need("..")
    if not (cursor.at("*") or cursor.token.kind == "number"):
        cursor.expected("a number or '*'")
    return int(minimum), cursor.take().text


def _default(cursor: Cursor, values: dict[str, Any]) -> None:
    if cursor.at("("):
        values["default_expression"] = cursor.bracketed()
    elif cursor.at_literal():
        values["default"] = cursor.literal()
    else:
        cursor.expected("a literal, or '(' and a FHIRPath expression")


def _target(cursor: Cursor) -> Target:
    place = cursor.place
    values: dict[str, Any] = {"place": place}
    if cursor.token.kind == "name" and cursor.ahead(1).text == "(" and cursor.ahead(1).kind == "symbol":
        values["transform"], values["parameters"] = _call(cursor)
    else:
        path = cursor.dotted("a target such as 'tgt.element'")
        if len(path) > 2:
            raise FmlError("a target has one element: write 'tgt.a as x, x.b = ...'", cursor.file, place)
        values["context"], values["element"] = path[0], "".join(path[1:])
        if cursor.skip("="):
            values["transform"], values["parameters"] = _transform(cursor)
    if cursor.skip("as"):
        values["variable"] = cursor.name("the name of a variable")
    modes: list[str] = []
    while cursor.at(*TARGET_LIST_MODES):
        mode = cursor.take().text
        modes.append(mode)
        if mode == "share":
            values["list_rule_id"] = cursor.word_or_string("the name that the sharing rules have in common")
    return Target(**values, list_modes=tuple(modes))


def _transform(cursor: Cursor) -> tuple[str, tuple[Parameter, ...]]:
    """The right side of `=` in a target."""
    if cursor.at("("):
        return "evaluate", (Parameter("string", cursor.bracketed()),)
    if cursor.at_literal():
        return "copy", (cursor.literal(),)
    if cursor.token.kind == "name" and cursor.ahead(1).text == "(" and cursor.ahead(1).kind == "symbol":
        return _call(cursor)
    name = ".".join(cursor.dotted("a value, a variable, a transform or '(' and a FHIRPath expression"))
    if "." in name:
        return "evaluate", (Parameter("string", name),)
    return "copy", (Parameter("id", name),)


def _call(cursor: Cursor) -> tuple[str, tuple[Parameter, ...]]:
    """`name(parameters)`, where name is a transform."""
    if cursor.token.text not in TRANSFORMS:
        cursor.expected("a transform (" + ", ".join(sorted(TRANSFORMS)) + ")")
    name = cursor.take().text
    return name, _parameters(cursor, evaluates=name == "evaluate")


def _parameters(cursor: Cursor, *, evaluates: bool = False) -> tuple[Parameter, ...]:
    cursor.need("(")
    parameters: list[Parameter] = []
    while not cursor.skip(")"):
        if parameters:
            cursor.need(",")
        parameters.append(_parameter(cursor, expression=evaluates and bool(parameters)))
    return tuple(parameters)


def _parameter(cursor: Cursor, *, expression: bool) -> Parameter:
    if cursor.at_literal() and not (expression and cursor.ahead(1).text not in (")", ",")):
        return cursor.literal()
    if expression:
        return Parameter("string", cursor.expression())
    cursor.skip("%")
    return Parameter("id", cursor.name("a variable or a literal"))


def _then(cursor: Cursor, depth: int) -> tuple[tuple[Dependent, ...], tuple[Rule, ...]]:
    """`then Group(a, b), Other(c) { rules }`"""
    if not cursor.skip("then"):
        return (), ()
    dependents: list[Dependent] = []
    if not cursor.at("{"):
        dependents.append(_dependent(cursor))
        while cursor.skip(","):
            dependents.append(_dependent(cursor))
    rules = read_rules(cursor, depth + 1) if cursor.at("{") else ()
    return tuple(dependents), rules


def _dependent(cursor: Cursor) -> Dependent:
    place = cursor.place
    name = cursor.name("the name of a group, or '{'")
    return Dependent(name, _parameters(cursor), place)
