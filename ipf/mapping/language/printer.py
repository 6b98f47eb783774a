"""A StructureMap as text of the mapping language.

Printing is canonical: the printed text parses to an equal map, and prints to the same text again.  Source:
https://hl7.org/fhir/R5/mapping-language.html.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ipf.mapping.language.grammar import RELATIONSHIPS
from ipf.mapping.language.lexer import quote
from ipf.mapping.language.model import (
    AUTO_VARIABLE,
    Code,
    ConceptTable,
    Dependent,
    Group,
    Parameter,
    Rule,
    Source,
    StructureMap,
    Target,
    derived_rule_name,
)

_MODES = {"types": " <<types>>", "type-and-types": " <<type+>>"}
_SYMBOLS = {code: symbol for symbol, code in RELATIONSHIPS.items()}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DATE = {"date": "@{}", "dateTime": "@{}", "time": "@T{}"}


def print_map(content: StructureMap) -> str:
    """The text, ending with a line break."""
    return "\n".join(_lines(content)) + "\n"


def _lines(content: StructureMap) -> Iterator[str]:
    header = [("url", content.url), ("name", content.name), ("title", content.title), ("status", content.status)]
    for key, value in [*header, ("description", content.description), *content.metadata]:
        if value:
            yield f"/// {key} = {quote(value)}"
    for table in content.concept_tables:
        yield ""
        yield from _concept_table(table)
    if content.structures:
        yield ""
    for structure in content.structures:
        alias = f" alias {_name(structure.alias)}" if structure.alias else ""
        yield from _comment(structure.documentation, "")
        yield f"uses {quote(structure.url)}{alias} as {structure.mode}"
    if content.imports:
        yield ""
    yield from (f"imports {quote(one)}" for one in content.imports)
    if content.constants:
        yield ""
    yield from (f"let {_name(one.name)} = {one.expression};" for one in content.constants)
    for group in content.groups:
        yield ""
        yield from _group(group)


def _concept_table(table: ConceptTable) -> Iterator[str]:
    yield f"conceptmap {quote('#' + table.id if table.id else table.url)} {{"
    yield from (f"  prefix {_name(prefix)} = {quote(system)}" for prefix, system in table.prefixes)
    yield from (f"  unmapped for {_name(prefix)} = {_word(mode)}" for prefix, mode in table.unmapped)
    for row in table.rows:
        target = f" {_code(row.target)}" if row.target else ""
        yield f"  {_code(row.source)} {_SYMBOLS[row.equivalence]}{target}"
    yield "}"


def _code(code: Code) -> str:
    return f"{_name(code.prefix)}:{_word(code.code)}"


def _word(text: str) -> str:
    return text if _NAME.fullmatch(text) else quote(text)


def _name(name: str) -> str:
    """An identifier, or several joined by dots; in backticks where the grammar needs them."""
    return ".".join(part if _NAME.fullmatch(part) else quote(part, "`") for part in name.split("."))


def _comment(text: str, indent: str) -> Iterator[str]:
    if text:
        yield from (f"{indent}// {line}".rstrip() for line in text.split("\n"))


def _group(group: Group) -> Iterator[str]:
    yield from _comment(group.documentation, "")
    inputs = ", ".join(f"{one.mode} {_name(one.name)}{_typed(one.type)}" for one in group.inputs)
    extends = f" extends {_name(group.extends)}" if group.extends else ""
    yield f"group {_name(group.name)}({inputs}){extends}{_MODES.get(group.type_mode, '')} {{"
    for rule in group.rules:
        yield from _rule(rule, "  ")
    yield "}"


def _typed(name: str) -> str:
    return f" : {_name(name)}" if name else ""


def _rule(rule: Rule, indent: str) -> Iterator[str]:
    yield from _comment(rule.documentation, indent)
    text = indent + ", ".join(_source(one) for one in rule.sources)
    if _is_short(rule):
        text = indent + _source(rule.sources[0], AUTO_VARIABLE) + f" -> {_path(rule.targets[0])}"
    elif rule.targets:
        text += " -> " + ", ".join(_target(one) for one in rule.targets)
    if rule.dependents:
        text += " then " + ", ".join(_dependent(one) for one in rule.dependents)
    name = f" {quote(rule.name)}" if rule.name != derived_rule_name(rule.sources) else ""
    if not rule.rules:
        yield f"{text}{name};"
        return
    yield f"{text}{'' if rule.dependents else ' then'} {{"
    for one in rule.rules:
        yield from _rule(one, indent + "  ")
    yield f"{indent}}}{name};"


def _is_short(rule: Rule) -> bool:
    """`src.a -> tgt.b`"""
    return (
        rule.is_simple
        and rule.sources[0].variable == AUTO_VARIABLE == rule.targets[0].variable
        and not rule.targets[0].list_modes
    )


def _source(source: Source, hidden: str = "") -> str:
    text = _name(source.context) + (f".{_name(source.element)}" if source.element else "") + _typed(source.type)
    if source.minimum is not None:
        text += f" {source.minimum}..{source.maximum}"
    if source.default is not None:
        text += f" default {_parameter(source.default)}"
    elif source.default_expression:
        text += f" default ({source.default_expression})"
    if source.list_mode:
        text += f" {source.list_mode}"
    if source.variable and source.variable != hidden:
        text += f" as {_name(source.variable)}"
    for word, expression in (("where", source.condition), ("check", source.check), ("log", source.log_message)):
        if expression:
            text += f" {word} ({expression})"
    return text


def _path(target: Target) -> str:
    return _name(target.context) + (f".{_name(target.element)}" if target.element else "")


def _target(target: Target) -> str:
    call = _transform(target)
    text = f"{_path(target)} = {call}" if target.context and call else call or _path(target)
    if target.variable:
        text += f" as {_name(target.variable)}"
    for mode in target.list_modes:
        text += f" {mode}" + (f" {_word(target.list_rule_id)}" if mode == "share" else "")
    return text


def _transform(target: Target) -> str:
    parameters = target.parameters
    if not target.transform:
        return ""
    if target.transform == "copy" and len(parameters) == 1 and target.context:
        return _parameter(parameters[0])
    if target.transform == "evaluate" and parameters:
        if len(parameters) == 1 and target.context:
            return f"({parameters[0].value})"
        focus = "".join(f"{_parameter(one)}, " for one in parameters[:-1])
        return f"evaluate({focus}{_expression(parameters[-1])})"
    return f"{target.transform}({', '.join(_parameter(one) for one in parameters)})"


def _expression(parameter: Parameter) -> str:
    return quote(str(parameter.value), "'") if parameter.kind == "string" else _parameter(parameter)


def _parameter(parameter: Parameter) -> str:
    value = parameter.value
    if parameter.kind == "id":
        return _name(str(value))
    if parameter.kind == "boolean":
        return "true" if value else "false"
    if parameter.kind == "string":
        return quote(str(value), "'")
    return _DATE.get(parameter.kind, "{}").format(value)


def _dependent(dependent: Dependent) -> str:
    return f"{_name(dependent.name)}({', '.join(_parameter(one) for one in dependent.parameters)})"
