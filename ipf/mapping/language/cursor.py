"""A position in the tokens of a map, and the lookahead of the grammar.

All errors are raised by `expected`, and state file, line, column and the expected token.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import NoReturn

from ipf.fhir.fhirpath.errors import FhirPathError
from ipf.fhir.fhirpath.language.parser import parse_prefix
from ipf.mapping.language.lexer import FmlError, Token, tokens
from ipf.mapping.language.model import Parameter, Place

LITERALS = frozenset(("string", "number", "date"))


class Cursor:
    """Reads the tokens of one text; `until`: the first of these is the last token."""

    def __init__(self, text: str, file: str, until: Callable[[Token], bool] | None = None) -> None:
        self.text = text
        self.file = file
        self._tokens = tokens(text, file, until)
        self._index = 0

    @property
    def token(self) -> Token:
        """The next token."""
        return self._tokens[self._index]

    @property
    def place(self) -> Place:
        """Position of the next token."""
        return self.token.place

    def ahead(self, distance: int) -> Token:
        """A later token; the last one at the end."""
        return self._tokens[min(self._index + distance, len(self._tokens) - 1)]

    def take(self) -> Token:
        """Consume one token."""
        token = self.token
        if token.kind != "end":
            self._index += 1
        return token

    def at(self, *texts: str) -> bool:
        """Whether the next token is one of these symbols or words."""
        return self.token.text in texts and self.token.kind in ("symbol", "name")

    def skip(self, text: str) -> bool:
        """Consume the token if it is this one."""
        if self.at(text):
            self._index += 1
            return True
        return False

    def need(self, text: str) -> Token:
        """Consume this token, or fail."""
        if not self.at(text):
            self.expected(f"'{text}'")
        return self.take()

    def expected(self, what: str) -> NoReturn:
        """Fail at the next token."""
        found = self.token.text if self.token.kind == "end" else repr(self.text[self.token.start : self.token.end][:40])
        raise FmlError(f"expected {what}, found {found}", self.file, self.token.place)

    def name(self, what: str) -> str:
        """Consume an identifier, plain or in backticks."""
        if self.token.kind not in ("name", "quoted"):
            self.expected(what)
        return self.take().text

    def word_or_string(self, what: str) -> str:
        """Consume an identifier or a string."""
        if self.token.kind not in ("name", "quoted", "string"):
            self.expected(what)
        return self.take().text

    def string(self, what: str) -> str:
        """Consume a string."""
        if self.token.kind not in ("string", "markdown"):
            self.expected(what)
        return self.take().text

    def dotted(self, what: str) -> list[str]:
        """Consume `a.b.c`."""
        names = [self.name(what)]
        while self.skip("."):
            names.append(self.name("an element name after '.'"))
        return names

    def at_literal(self) -> bool:
        """Whether a literal follows."""
        if self.at("-"):
            return self.ahead(1).kind == "number"
        return self.token.kind in LITERALS or self.at("true", "false")

    def literal(self) -> Parameter:
        """Consume a string, number, boolean or date."""
        sign = "-" if self.skip("-") else ""
        token = self.take()
        if token.kind == "string":
            return Parameter("string", token.text)
        if token.kind == "number":
            number = sign + token.text
            return Parameter("decimal", Decimal(number)) if "." in number else Parameter("integer", int(number))
        if token.kind == "date":
            return _date(token.text[1:])
        return Parameter("boolean", token.text == "true")

    def bracketed(self) -> str:
        """Consume `(expression)`; nothing after the bracket belongs to it, even if FHIRPath could continue (`as`)."""
        self.need("(")
        text = self.expression()
        self.need(")")
        return text

    def expression(self) -> str:
        """Consume a FHIRPath expression; returns its text without outer brackets."""
        start = self.token
        try:
            _, end = parse_prefix(self.text, start.start)
        except FhirPathError as error:
            place = Place(error.line, error.column)
            raise FmlError(f"in a FHIRPath expression: {error.text}", self.file, place) from error
        first = self._index
        while self.token.kind != "end" and self.token.start < end:
            self._index += 1
        return _without_brackets(self.text, self._tokens[first : self._index])


def _date(text: str) -> Parameter:
    if text.startswith("T"):
        return Parameter("time", text[1:])
    return Parameter("dateTime" if "T" in text else "date", text.removesuffix("T"))


def _without_brackets(text: str, covered: list[Token]) -> str:
    """Source text of an expression: `(a = b)` becomes `a = b`, `(a) or (b)` stays."""
    while len(covered) > 2 and covered[0].text == "(" and _closing(covered) == len(covered) - 1:
        covered = covered[1:-1]
    return text[covered[0].start : covered[-1].end]


def _closing(covered: list[Token]) -> int:
    """Index of the bracket that closes the first token."""
    depth = 0
    for index, token in enumerate(covered):
        if token.kind == "symbol" and token.text in "()":
            depth += 1 if token.text == "(" else -1
            if depth == 0:
                return index
    return -1
