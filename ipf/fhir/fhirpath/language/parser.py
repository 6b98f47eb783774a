"""The FHIRPath parser: precedence climbing over tokens that are read on demand.

Input: the text of an expression, or a text of another language that contains one.  Output: an `ast.Node`.  Invalid text
raises FhirPathError with line, column and the expected token.  Depth is bounded (`MAX_NESTING` brackets, `MAX_DEPTH`
levels of the tree), so no input exhausts the stack.
Grammar: http://hl7.org/fhirpath/N1/grammar.html
"""

from __future__ import annotations

from decimal import Decimal
from functools import lru_cache
from typing import Any

from ipf.fhir.fhirpath.errors import FhirPathError
from ipf.fhir.fhirpath.items import values
from ipf.fhir.fhirpath.language import ast
from ipf.fhir.fhirpath.language import lexer as lex

MAX_NESTING = 60
MAX_DEPTH = 200
MAX_TOKENS = 10_000  # of one expression: about 50 ms

_LEVELS: tuple[tuple[str, ...], ...] = (
    ("implies",),
    ("or", "xor"),
    ("and",),
    ("in", "contains"),
    ("=", "~", "!=", "!~"),
    ("<=", "<", ">", ">="),
    ("|",),
    ("is", "as"),
    ("+", "-", "&"),
    ("*", "/", "div", "mod"),
)
_PRECEDENCE = {operator: level for level, operators in enumerate(_LEVELS) for operator in operators}
_WORD_OPERATORS = {operator for operator in _PRECEDENCE if operator.isalpha()}
_NEVER_A_NAME = _WORD_OPERATORS - {"as", "is", "in", "contains"}


@lru_cache(maxsize=512)
def parse(text: str) -> ast.Node:
    """The tree of a whole text; FhirPathError (kind `syntax`) when it is not exactly one expression.

    Trees are cached: the map compiler parses a condition several times.
    """
    parser = _Parser(text, 0)
    node = parser.expression()
    if parser.token.kind != lex.END:
        raise parser.expected("the end of the expression or an operator")
    return node


def parse_prefix(text: str, start: int = 0) -> tuple[ast.Node, int]:
    """The longest expression that starts at `start`, and the position after its last token.

    For languages that embed FHIRPath: it stops before `->`, `,`, `;`, a closing bracket or a word that is no operator.
    """
    parser = _Parser(text, start)
    node = parser.expression()
    return node, parser.end


class _Parser:
    """One pass over one text; `token` is the next one, `end` the end of the last one taken."""

    def __init__(self, text: str, start: int) -> None:
        self.text = text
        self.end = start
        self.nesting = 0
        self.tokens = 0
        self.failure: FhirPathError | None = None
        self.token = lex.read_token(text, start)

    def take(self) -> lex.Token:
        """Consume the next token.  An invalid character after it is reported when the parser reaches it."""
        taken = self.token
        self.tokens += 1
        if self.tokens > MAX_TOKENS:
            raise lex.error_at(self.text, taken.start, f"more than {MAX_TOKENS} words and symbols")
        self.end = taken.end
        self.token = self._look(taken.end)
        return taken

    def _look(self, position: int) -> lex.Token:
        try:
            return lex.read_token(self.text, position)
        except FhirPathError as error:
            self.failure = error
            start = lex.skip_space(self.text, position)
            return lex.Token("unreadable", self.text[start], start, start)

    def expected(self, what: str) -> FhirPathError:
        """The syntax error at the current token."""
        if self.token.kind == "unreadable" and self.failure is not None:
            return self.failure
        found = "the end" if self.token.kind == lex.END else repr(self.text[self.token.start : self.token.end][:40])
        return lex.error_at(self.text, self.token.start, f"expected {what}, found {found}")

    def is_symbol(self, symbol: str) -> bool:
        """Whether the next token is this symbol."""
        return self.token.kind == lex.SYMBOL and self.token.value == symbol

    def need(self, symbol: str) -> None:
        """Consume this symbol or fail."""
        if not self.is_symbol(symbol):
            raise self.expected(f"'{symbol}'")
        self.take()

    def operator(self) -> str | None:
        """The binary operator at the current token, if any."""
        if self.token.kind in (lex.SYMBOL, lex.NAME) and self.token.value in _PRECEDENCE:
            return self.token.value
        return None

    def expression(self) -> ast.Node:
        """A full expression; counts the nesting."""
        self.nesting += 1
        if self.nesting > MAX_NESTING:
            raise lex.error_at(self.text, self.token.start, f"more than {MAX_NESTING} levels of nesting")
        node = self.binary(0)
        self.nesting -= 1
        if self.nesting == 0:
            self.bound_depth(node)
        return node

    def binary(self, lowest: int) -> ast.Node:
        """Operators of precedence `lowest` and above, left associative."""
        left = self.unary()
        while (operator := self.operator()) is not None and _PRECEDENCE[operator] >= lowest:
            self.take()
            if operator in ("is", "as"):
                left = ast.TypeTest(operator, left, self.type_name())
            else:
                left = ast.Binary(operator, left, self.binary(_PRECEDENCE[operator] + 1))
        return left

    def unary(self) -> ast.Node:
        """Signs before a path.  A sign binds weaker than `.`: `-1.abs()` is `-(1.abs())`."""
        signs: list[str] = []
        while self.is_symbol("+") or self.is_symbol("-"):
            signs.append(self.take().value)
            if len(signs) > MAX_NESTING:
                raise self.expected("fewer signs")
        node = self.path()
        for sign in reversed(signs):
            node = ast.Unary(sign, node)
        return node

    def path(self) -> ast.Node:
        """A term and its invocations."""
        node = self.term()
        while self.token.kind == lex.SYMBOL:
            if self.is_symbol("."):
                self.take()
                node = self.invocation(node)
            elif self.is_symbol("["):
                self.take()
                node = ast.Index(node, self.expression())
                self.need("]")
            else:
                break
        return node

    def term(self) -> ast.Node:
        """A literal, a variable, a bracket or the first name of a path."""
        token = self.token
        if token.kind == lex.SYMBOL:
            return self.bracket()
        if token.kind in (lex.NUMBER, lex.STRING, lex.DATE, lex.DATETIME, lex.TIME):
            return self.literal()
        if token.kind == lex.VARIABLE:
            return ast.Variable(self.take().value)
        if token.kind == lex.NAME and token.value in ("true", "false"):
            return ast.Literal(self.take().value == "true")
        return self.invocation(None)

    def bracket(self) -> ast.Node:
        """`( expression )` or `{}`."""
        if self.is_symbol("{"):
            self.take()
            self.need("}")
            return ast.Literal(None)
        if not self.is_symbol("("):
            raise self.expected("an expression")
        self.take()
        node = self.expression()
        self.need(")")
        return node

    def literal(self) -> ast.Node:
        """A constant of the text; a number may be followed by its unit."""
        token = self.take()
        if token.kind == lex.NUMBER:
            return ast.Literal(self.number(token))
        if token.kind == lex.STRING:
            return ast.Literal(token.value)
        return ast.Literal(self.moment(token))

    def number(self, token: lex.Token) -> Any:
        """An integer, a decimal, or a quantity when a unit follows."""
        if self.token.kind == lex.STRING:
            return values.Quantity(Decimal(token.value), self.take().value)
        if self.token.kind == lex.NAME and self.token.value in values.CALENDAR_UNITS:
            return values.Quantity(Decimal(token.value), values.CALENDAR_UNITS[self.take().value], calendar=True)
        if len(token.value) > 40:
            raise lex.error_at(self.text, token.start, "a number of more than 40 digits")
        return Decimal(token.value) if "." in token.value else int(token.value)

    def moment(self, token: lex.Token) -> values.Temporal:
        """A date, dateTime or time that exists in the calendar."""
        read = {lex.DATE: values.parse_date, lex.DATETIME: values.parse_datetime, lex.TIME: values.parse_time}
        value: values.Temporal | None = read[token.kind](token.value)
        if value is None:
            raise lex.error_at(self.text, token.start, f"{token.value} is not a valid {token.kind}")
        return value

    def invocation(self, focus: ast.Node | None) -> ast.Node:
        """`name`, `name(...)`, `$this`."""
        if self.token.kind == lex.THIS:
            return ast.This(self.take().value)
        if focus is not None and self.token.kind == lex.NAME:
            name = self.take().value  # after a dot a word is a name, also `div`
        else:
            name = self.name("a name" if focus is not None else "an expression")
        if not self.is_symbol("("):
            return ast.Member(focus, name)
        self.take()
        arguments: list[ast.Node] = []
        while not self.is_symbol(")"):
            if arguments:
                self.need(",")
            arguments.append(self.expression())
        self.take()
        return ast.Function(focus, name, tuple(arguments))

    def name(self, what: str) -> str:
        """An identifier, plain or between back ticks."""
        token = self.token
        if token.kind == lex.QUOTED_NAME or (token.kind == lex.NAME and token.value not in _NEVER_A_NAME):
            return self.take().value
        raise self.expected(what)

    def type_name(self) -> str:
        """`Patient` or `FHIR.Patient`."""
        parts = [self.name("a type")]
        while self.is_symbol("."):
            self.take()
            parts.append(self.name("a type"))
        return ".".join(parts)

    def bound_depth(self, root: ast.Node) -> None:
        """Refuse a tree deeper than MAX_DEPTH, such as 10,000 additions in a row (walked without recursion)."""
        level, depth = [root], 0
        while level:
            depth += 1
            if depth > MAX_DEPTH:
                raise lex.error_at(self.text, 0, f"more than {MAX_DEPTH} steps in a row")
            level = [child for node in level for child in children(node)]


def children(node: ast.Node) -> tuple[ast.Node, ...]:
    """The direct parts of a node."""
    match node:
        case ast.Member(focus=None) | ast.Literal() | ast.Variable() | ast.This():
            return ()
        case ast.Member(focus=ast_focus):
            return (ast_focus,) if ast_focus is not None else ()
        case ast.Function(focus=None, args=args):
            return args
        case ast.Function(focus=ast_focus, args=args):
            return (ast_focus, *args) if ast_focus is not None else args
        case ast.Index(focus=focus, index=index):
            return (focus, index)
        case ast.Unary(operand=operand) | ast.TypeTest(operand=operand):
            return (operand,)
        case ast.Binary(left=left, right=right):
            return (left, right)
