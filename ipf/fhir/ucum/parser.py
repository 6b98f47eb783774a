"""The grammar of UCUM codes: text to syntax tree.

    main-term = "/" term | term
    term      = component { ("." | "/") component }
    component = (unit [exponent] | factor | "(" term ")") [annotation] | annotation
    unit      = atom | prefix metric-atom

A solidus before a component divides by that component alone.  An annotation after a factor or a bracket is accepted, as
UCUM's own list of common units has it (`/100{WBC}`).  A length of 200 characters, ten brackets within each other and
exponents up to 100 are the limits.
Source: https://ucum.org/ucum (sections 2 and 22, "Grammar of units and unit terms")
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from ipf.fhir.ucum.table import Atom, Prefix, table

LONGEST_CODE = 200
LARGEST_EXPONENT = 100
LARGEST_FACTOR = 10**18
DEEPEST = 10

_SYMBOL = re.compile(r"10[*^]|(?:\[[^\[\]{}\s]+\]|[!#-'*,:-<>-Z\\^-z|~])+")
_EXPONENT = re.compile(r"[+-]?[0-9]+")
_FACTOR = re.compile(r"[0-9]+")
_ANNOTATION = re.compile(r"\{[!-z|~]*\}")
_ALLOWED = re.compile(r"[!-~]*")


class UnitError(ValueError):
    """No UCUM code: `place` is the offset of the first wrong character, `rule` what is wrong with it.  `symbol` is the
    unit there that the table does not have, "" when the fault is another."""

    def __init__(self, code: str, place: int, rule: str, symbol: str = "") -> None:
        super().__init__(f"{code!r} is no UCUM unit: {rule}")
        self.code, self.place, self.rule, self.symbol = code, place, rule, symbol


@dataclass(frozen=True, slots=True)
class Symbol:
    """An atom with its prefix and exponent."""

    prefix: Prefix | None
    atom: Atom
    exponent: int


@dataclass(frozen=True, slots=True)
class Component:
    """One operand of a term.  `content` is None for an annotation alone, which stands for 1; a term is a bracket."""

    divides: bool
    content: Symbol | int | Term | None
    annotation: str


@dataclass(frozen=True, slots=True)
class Term:
    """Components multiplied, or divided by, from left to right."""

    components: tuple[Component, ...]


@lru_cache(maxsize=4096)
def parse(code: str) -> Term:
    """The syntax tree of a code.  UnitError when it is none."""
    if not code:
        raise UnitError(code, 0, "it is empty")
    if len(code) > LONGEST_CODE:
        raise UnitError(code[:20], LONGEST_CODE, f"it is longer than {LONGEST_CODE} characters")
    clean = _ALLOWED.match(code)
    if clean is not None and clean.end() != len(code):
        wrong = code[clean.end()]
        rule = "it contains white space" if wrong.isspace() else f"the character {wrong!r} is not allowed"
        raise UnitError(code, clean.end(), rule)
    reader = _Reader(code)
    found = reader.term(0)
    if reader.at != len(code):
        raise reader.fault(f"{code[reader.at :]!r} is not expected after {code[: reader.at]!r}")
    return found


def is_unit(code: str) -> bool:
    """Whether a text is a UCUM code."""
    try:
        parse(code)
    except UnitError:
        return False
    return True


@lru_cache(maxsize=2048)
def split(text: str) -> tuple[Prefix | None, Atom] | None:
    """The prefix and the atom of a unit; None when the table has none.  An atom precedes a prefix with another."""
    known = table()
    if text in known.atoms:
        return None, known.atoms[text]
    for length in (2, 1):
        prefix, atom = known.prefixes.get(text[:length]), known.atoms.get(text[length:])
        if prefix is not None and atom is not None and atom.metric:
            return prefix, atom
    return None


class _Reader:
    """Recursive descent over one code."""

    def __init__(self, code: str) -> None:
        self.code = code
        self.at = 0

    def fault(self, rule: str, symbol: str = "") -> UnitError:
        return UnitError(self.code, self.at, rule, symbol)

    def take(self, mark: str) -> bool:
        """Whether the next character is this one, which is then read."""
        found = self.code.startswith(mark, self.at)
        self.at += found
        return found

    def term(self, depth: int) -> Term:
        components = [self.component(depth, depth == 0 and self.take("/"))]
        while self.code[self.at : self.at + 1] in (".", "/"):
            divides = self.code[self.at] == "/"
            self.at += 1
            components.append(self.component(depth, divides))
        return Term(tuple(components))

    def component(self, depth: int, divides: bool) -> Component:
        content: Symbol | int | Term | None = None
        if self.take("("):
            content = self.bracket(depth)
        elif not self.code.startswith("{", self.at):
            content = self.symbol() or self.factor()
        return Component(divides, content, self.annotation())

    def bracket(self, depth: int) -> Term:
        if depth == DEEPEST:
            raise self.fault(f"more than {DEEPEST} brackets are within each other")
        content = self.term(depth + 1)
        if not self.take(")"):
            raise self.fault("a closing parenthesis is missing")
        return content

    def symbol(self) -> Symbol | None:
        """The unit at this place; None when something else is here."""
        match = _SYMBOL.match(self.code, self.at)
        if match is None:
            return None
        found = split(match[0])
        if found is None:
            raise self.fault(f"the unit {match[0]!r} is not known", match[0])
        self.at = match.end()
        digits = _EXPONENT.match(self.code, self.at)
        if digits is None:
            return Symbol(*found, 1)
        exponent = int(digits[0])
        if not 0 < abs(exponent) <= LARGEST_EXPONENT:
            raise self.fault(f"the exponent is zero or beyond {LARGEST_EXPONENT}")
        self.at = digits.end()
        return Symbol(*found, exponent)

    def factor(self) -> int:
        match = _FACTOR.match(self.code, self.at)
        if match is None:
            raise self.fault("a unit is missing at the end" if self.at == len(self.code) else "a unit is missing")
        number = int(match[0])
        if not 0 < number <= LARGEST_FACTOR:
            raise self.fault("the factor is zero or has more than 18 digits")
        self.at = match.end()
        return number

    def annotation(self) -> str:
        if not self.code.startswith("{", self.at):
            return ""
        match = _ANNOTATION.match(self.code, self.at)
        if match is None:
            raise self.fault("an annotation is not closed, or contains a brace")
        self.at = match.end()
        return match[0][1:-1]
