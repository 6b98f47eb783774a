"""Regular expressions of the standard library run in time linear in their text, or stand on one of two short lists.

Python's `re` goes back and tries again, so `([A-Za-z]+)+0` takes exponential time.  Patterns from outside therefore run
on RE2 (`ipf/fhir/model/regex.py`), and our own have no unbounded repetition within another one, unless the list says
why there is only one way to read a text with it.
"""

from __future__ import annotations

import ast
import importlib
import re._constants as constants
import re._parser as parser
from collections.abc import Iterator
from typing import Any

from twisted.trial.unittest import TestCase

from tests.test_architecture import modules

FAMILY = "architecture"

FUNCTIONS = frozenset(("compile", "match", "search", "fullmatch", "sub", "subn", "split", "findall", "finditer"))
NESTED = {
    "ipf.cli.sending": "an operator's own files; each repetition begins with another character",
    "ipf.config.brokers": "an operator's own settings; each repetition begins with a point, or is short",
    "ipf.fhir.fhirpath.language.lexer": "each alternative begins with another character, and nothing follows it",
    "ipf.fhir.patch.xml_selector": "each repetition begins with a slash or bracket; at most 2,000 characters",
    "ipf.fhir.ucum.parser": "each alternative begins with another character; a unit has at most 200 characters",
    "ipf.fhir.validation.checks.primitives": "each number of an OID begins with a point",
    "ipf.mapping.compiler.conversions": "each number of an OID begins with a point",
    "ipf.mapping.language.lexer": "within quotation marks, each repetition begins with a backslash",
    "ipf.mapping.language.notes": "each key begins with a comma, each element with a point",
    "ipf.rest.write.links": "each alternative of a tag begins with another character",
    "ipf.store.postgres.migrate": "our own migrations; each repetition is a line",
}
"""Modules with a repetition within a repetition, and why a text can be read in one way only."""
MADE = {
    "ipf.console.masking.answers": "the admin paths of a table of the module itself",
    "ipf.wire.reference.table": "the paths of the table of operations",
    "ipf.fhir.fhirpath.language.lexer": "the three quotation marks",
    "ipf.fhir.model.erased_references": "a beginning of the module itself, or the base URL, escaped",
    "ipf.fhir.model.json": "three beginnings of a number",
    "ipf.fhir.releases.files": "names of files, which the readers of the release formats have as literals",
    "ipf.fhir.structure.primitives": "the patterns that R4 defines for its primitive types",
    "ipf.hl7.batches": "the field separator of a message, escaped: one character",
    "ipf.hl7.escape": "the escape character of a message, escaped: one character that is no letter or digit",
    "ipf.hl7.segments": "the field separator of a message, escaped: one character",
    "ipf.hl7.words": "a word that an operator searches, and delimiters of a message, escaped: no repetition of them",
    "ipf.pipeline.receive.checks": "the escape character of a message, escaped: one that is no letter or digit",
}
"""Modules that make patterns, and of what.  Text from outside is escaped, and never repeated."""


class PatternTests(TestCase):
    def test_our_patterns_are_linear(self) -> None:
        """Every pattern that a module gives to `re`; both lists are complete, and no longer than they must be."""
        nested, made = set(), set()
        for name, call in nodes("import re\n"):
            if _is_re(call):
                pattern = _pattern(name, call)
                if pattern is None:
                    made.add(name)
                elif is_nested(pattern, "VERBOSE" in ast.unparse(call)):
                    nested.add(name)
        self.assertEqual((nested, made), (set(NESTED), set(MADE)))

    def test_nothing_else_reaches_re(self) -> None:
        """Names of `re` are not imported one by one, and fnmatch, which never goes back over a `*`, runs on patterns of
        maps and settings alone."""
        found = {
            name
            for name, one in nodes("from re import", "from fnmatch import")
            if isinstance(one, ast.ImportFrom) and one.module in ("re", "fnmatch")
        }
        self.assertEqual(
            found,
            {
                "ipf.config.brokers",
                "ipf.mapping.compiler.groups",
                "ipf.subscriptions.addresses",
                "ipf.wire.mllp.client_names",
            },
        )

    def test_the_check_can_fail(self) -> None:
        for pattern, expected in (
            ("(a+)+", True),
            ("(?:a|b*)*c", True),
            ("(a+){2,}", True),
            ("(ab?)+", False),
            ("a+b*", False),
        ):
            self.assertEqual(is_nested(pattern), expected, pattern)


def nodes(*words: str) -> Iterator[tuple[str, ast.AST]]:
    """Every node of the modules with one of these words in their text, and the module's name."""
    for name, path, tree in modules():
        if any(word in path.read_text() for word in words):
            for node in ast.walk(tree):
                yield name, node


def _is_re(call: ast.AST) -> bool:
    return (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id == "re"
        and call.func.attr in FUNCTIONS
    )


def _pattern(name: str, call: Any) -> str | None:
    """The text of a pattern; None when it is made of more than the constants of its module."""
    expression = compile(ast.Expression(call.args[0]), name, "eval")
    try:
        value = eval(expression, vars(importlib.import_module(name)))
    except NameError:
        return None
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def is_nested(pattern: str, verbose: bool = False) -> bool:
    """Whether an unbounded repetition has another one in it."""
    return _nested(parser.parse(pattern, 64 if verbose else 0), inside=False)


def _nested(items: Any, inside: bool) -> bool:
    for operation, argument in items:
        parts: list[Any] = []
        within = inside
        if operation in (constants.MAX_REPEAT, constants.MIN_REPEAT):
            is_unbounded = argument[1] == constants.MAXREPEAT
            if is_unbounded and inside:
                return True
            parts, within = [argument[2]], inside or is_unbounded
        elif operation is constants.SUBPATTERN:
            parts = [argument[3]]
        elif operation is constants.BRANCH:
            parts = argument[1]
        elif operation in (constants.ASSERT, constants.ASSERT_NOT):
            parts = [argument[1]]
        if any(_nested(part, within) for part in parts):
            return True
    return False
