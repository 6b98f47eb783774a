"""The FHIR Mapping Language: text in, :class:`ipf.mapping.language.model.StructureMap` out.

Reads the R4 form (`map "url" = "name"`) and the R5 form (`/// url = "..."`) by recursive descent, one function for each
production.  Nesting is bounded, time is linear in the text.  Every mistake is an `FmlError` with file, line, column and
the expected token.

Source: https://hl7.org/fhir/R4/mapping-language.html, https://hl7.org/fhir/R5/mapping-language.html,
https://hl7.org/fhir/R5/mapping.g4.
"""

from __future__ import annotations

from typing import Any

from ipf.mapping.language.cursor import Cursor
from ipf.mapping.language.grammar_rules import read_rules
from ipf.mapping.language.lexer import Token
from ipf.mapping.language.model import (
    Code,
    CodePair,
    ConceptTable,
    Constant,
    Group,
    Input,
    Parameter,
    Place,
    Structure,
    StructureMap,
)
from ipf.mapping.language.notes import deleted, ignored, initial

RELATIONSHIPS = {
    "-": "relatedto",
    "==": "equal",
    "=": "equivalent",
    "!=": "disjoint",
    "--": "unmatched",
    "<=": "wider",
    "<-": "subsumes",
    ">=": "narrower",
    ">-": "specializes",
    "~": "inexact",
}
"""Written relationship -> code of http://hl7.org/fhir/concept-map-equivalence (R4)."""

MODES = ("source", "queried", "target", "produced")
_DECLARATIONS = frozenset(("uses", "imports", "conceptmap", "let", "group"))
HEADERS = ("url", "name", "title", "status", "description")


def parse(text: str, file: str = "") -> StructureMap:
    """Read one map.  `file`: for error messages.  Raises FmlError."""
    cursor = Cursor(text, file)
    header = _header(cursor)
    structures: list[Structure] = []
    imports: list[str] = []
    import_places: list[Place] = []
    constants: list[Constant] = []
    tables: list[ConceptTable] = []
    groups: list[Group] = []
    while cursor.token.kind != "end":
        if cursor.at("uses"):
            structures.append(_uses(cursor))
        elif cursor.at("imports"):
            import_places.append(cursor.take().place)
            imports.append(cursor.string("the quoted url of a map"))
            cursor.skip(";")
        elif cursor.at("conceptmap"):
            tables.append(_concept_table(cursor))
        elif cursor.at("let"):
            constants.append(_constant(cursor))
        elif cursor.at("group"):
            groups.append(_group(cursor))
        else:
            cursor.expected("'uses', 'imports', 'conceptmap', 'let', 'group' or the end of the map")
    if not groups:
        cursor.expected("'group'")
    return StructureMap(
        **header,
        structures=tuple(structures),
        imports=tuple(imports),
        constants=tuple(constants),
        concept_tables=tuple(tables),
        groups=tuple(groups),
        file=file,
        ignored=ignored(text, file),
        initial=initial(text, file),
        deleted=deleted(text, file),
        import_places=tuple(import_places),
    )


def parse_header(text: str, file: str = "") -> StructureMap:
    """The header of a map, without structures and groups.  Raises FmlError."""
    return StructureMap(**_header(Cursor(text, file, _is_declaration)), file=file)


def _is_declaration(token: Token) -> bool:
    """Whether a token certainly ends the header."""
    return token.place.column == 1 and token.kind == "name" and token.text in _DECLARATIONS


def _header(cursor: Cursor) -> dict[str, Any]:
    """`/// key = value` lines and `map "url" = "name"`, in any order and number."""
    known: dict[str, str] = {}
    others: list[tuple[str, str]] = []
    while True:
        if cursor.token.kind == "meta":
            key, value = _metadata(cursor)
            if key in HEADERS:
                known[key] = value
            else:
                others.append((key, value))
        elif cursor.skip("map"):
            known["url"] = cursor.string("the quoted url of this map")
            cursor.need("=")
            known["name"] = cursor.word_or_string("the name of this map")
        else:
            break
    if not known.get("url"):
        cursor.expected('the url of this map: \'/// url = "..."\' or \'map "url" = "name"\'')
    known.setdefault("name", known["url"].rpartition("/")[2].rpartition(":")[2])
    return {**known, "metadata": tuple(others)}


def _metadata(cursor: Cursor) -> tuple[str, str]:
    line = cursor.take().place.line
    key = "".join(_words_until(cursor, "=", line))
    if not cursor.skip("="):
        cursor.expected("'='")
    first = cursor.token
    if first.place.line != line:
        return key, ""
    if first.kind in ("string", "markdown"):
        return key, cursor.take().text
    return key, _rest_of_line(cursor, line)


def _words_until(cursor: Cursor, stop: str, line: int) -> list[str]:
    words: list[str] = []
    while cursor.place.line == line and not cursor.at(stop) and cursor.token.kind != "end":
        words.append(cursor.take().text)
    return words


def _rest_of_line(cursor: Cursor, line: int) -> str:
    """A bare value: `true`, `draft`, `2024-05-01`."""
    start = end = cursor.token.start
    while cursor.place.line == line and cursor.token.kind not in ("end", "meta"):
        end = cursor.take().end
    return cursor.text[start:end]


def _uses(cursor: Cursor) -> Structure:
    documentation = cursor.need("uses").comment
    url = cursor.string("the quoted url of a structure")
    alias = cursor.name("an alias") if cursor.skip("alias") else ""
    cursor.need("as")
    if not cursor.at(*MODES):
        cursor.expected("'source', 'queried', 'target' or 'produced'")
    mode = cursor.take().text
    cursor.skip(";")
    return Structure(url, mode, alias, documentation)


def _constant(cursor: Cursor) -> Constant:
    place = cursor.need("let").place
    name = cursor.name("the name of a constant")
    cursor.need("=")
    constant = Constant(name, cursor.expression(), place)
    cursor.need(";")
    return constant


def _concept_table(cursor: Cursor) -> ConceptTable:
    cursor.need("conceptmap")
    url = cursor.string("the quoted name of a concept map")
    cursor.need("{")
    prefixes: list[tuple[str, str]] = []
    while cursor.skip("prefix"):
        prefix = cursor.name("a prefix")
        cursor.need("=")
        prefixes.append((prefix, cursor.string("the quoted url of a code system")))
        cursor.skip(";")
    unmapped: list[tuple[str, str]] = []
    while cursor.skip("unmapped"):
        cursor.need("for")
        prefix = cursor.name("a prefix")
        cursor.need("=")
        unmapped.append((prefix, cursor.word_or_string("'provided' or a code")))
        cursor.skip(";")
    rows: list[CodePair] = []
    while not cursor.skip("}"):
        rows.append(_code_pair(cursor, dict(prefixes)))
        cursor.skip(";")
    return ConceptTable(url, tuple(prefixes), tuple(unmapped), tuple(rows))


def _code_pair(cursor: Cursor, prefixes: dict[str, str]) -> CodePair:
    source = _code(cursor, prefixes)
    if not cursor.at(*RELATIONSHIPS):
        cursor.expected("a relationship such as '==' or '-'")
    equivalence = RELATIONSHIPS[cursor.take().text]
    if equivalence == "unmatched" and not (cursor.token.kind in ("name", "quoted") and cursor.ahead(1).text == ":"):
        return CodePair(source, equivalence, None)
    return CodePair(source, equivalence, _code(cursor, prefixes))


def _code(cursor: Cursor, prefixes: dict[str, str]) -> Code:
    if cursor.token.text not in prefixes:
        cursor.expected("one of the prefixes declared above, or '}'")
    prefix = cursor.name("a prefix")
    cursor.need(":")
    if cursor.token.kind not in ("name", "quoted", "string", "number"):
        cursor.expected("a code (in quotes unless it is one word)")
    return Code(prefix, _code_text(cursor))


def _code_text(cursor: Cursor) -> str:
    """A code; unquoted codes may be joined by '-' or '.', without a space in between (`not-done`)."""
    first = cursor.take()
    text, end = first.text, first.end
    if first.kind == "string":
        return text
    while cursor.token.start == end and (cursor.at("-", ".") or cursor.token.kind in ("name", "number")):
        token = cursor.take()
        text, end = text + token.text, token.end
    return text


def _group(cursor: Cursor) -> Group:
    documentation = cursor.token.comment
    place = cursor.need("group").place
    name = cursor.word_or_string("the name of a group")
    cursor.need("(")
    inputs = [_input(cursor)]
    while cursor.skip(","):
        inputs.append(_input(cursor))
    cursor.need(")")
    extends = cursor.word_or_string("the name of a group") if cursor.skip("extends") else ""
    mode = _type_mode(cursor)
    rules = read_rules(cursor)
    return Group(name, tuple(inputs), rules, extends, mode, documentation, place)


def _input(cursor: Cursor) -> Input:
    if not cursor.at("source", "target"):
        cursor.expected("'source' or 'target'")
    mode = cursor.take().text
    name = cursor.name("the name of a parameter")
    declared = ".".join(cursor.dotted("a type")) if cursor.skip(":") else ""
    return Input(name, mode, declared)


def _type_mode(cursor: Cursor) -> str:
    if not cursor.skip("<<"):
        return "none"
    if cursor.skip("types"):
        mode = "types"
    else:
        if not cursor.at("type"):
            cursor.expected("'types' or 'type+'")
        cursor.take()
        cursor.need("+")
        mode = "type-and-types"
    cursor.need(">>")
    return mode


__all__ = ["Parameter", "parse"]
