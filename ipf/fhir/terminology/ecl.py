"""Expression constraints of SNOMED CT: a text in the brief syntax in, a rule out.

    << 404684003 |Clinical finding| : 363698007 = << 39057004, 116676008 = *

An imported edition has the hierarchy, simple refsets, and attributes without their groups.  So concept ids, `*`,
`<` `<<` `<!` `<<!` `>` `>>` `>!` `>>!` `^`, AND, OR, MINUS, brackets, and refinements `attribute = value` and `!=`
can be answered.  What needs more is refused with its place: several attributes in one group, cardinalities, reversed
and dotted attributes, values that are numbers or texts, filters `{{ }}`, operators on what is no list of concepts.

Source: http://snomed.org/ecl, https://hl7.org/fhir/R4/snomedct.html
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NoReturn

from ipf.ports.fhir.terminology import (
    Above,
    Among,
    AnyRule,
    Below,
    ChildOf,
    EveryRule,
    HasProperty,
    HasValue,
    IsActive,
    NoRule,
    ParentOf,
    Rule,
)

LONGEST = 10_000  # characters
MOST_TOKENS = 1_000
DEEPEST = 30  # brackets within brackets
_IS_A = "116680003"
_TOKEN = re.compile(
    r"\s*(?:(?P<id>\d{6,18})(?:\s*\|[^|]*\|)?|(?P<word>[A-Za-z]+)|(?P<sign><<!|<<|<!|<|>>!|>>|>!|>|!=|\{\{|.))",
    re.DOTALL,
)
_UNSUPPORTED = {
    "{{": "filters are not supported",
    "[": "cardinalities are not supported",
    "#": "numbers as values are not supported: only attributes whose values are concepts are loaded",
    '"': "texts as values are not supported: only attributes whose values are concepts are loaded",
    ".": "dotted attributes are not supported",
}


class EclError(ValueError):
    """A text that is no expression constraint, or one that cannot be answered: the place, and what is there."""


def ecl_rule(text: str) -> Rule:
    """The rule of an expression constraint on SNOMED CT.  EclError."""
    if len(text) > LONGEST:
        raise EclError(f"an expression constraint has at most {LONGEST} characters")
    return _Parser(text).whole()


class _Parser:
    """Reads one token ahead.  `_kind` is `id`, `word`, `sign`, or empty at the end."""

    def __init__(self, text: str) -> None:
        self._tokens = list(_TOKEN.finditer(text.rstrip()))
        self._end = len(text)
        self._next = 0
        self._depth = 0
        if len(self._tokens) > MOST_TOKENS:
            raise EclError(f"an expression constraint has at most {MOST_TOKENS} parts")

    def whole(self) -> Rule:
        """The whole text."""
        rule = self._expression()
        if self._token:
            self._expected("AND, OR, MINUS or the end")
        return rule

    # -- tokens

    @property
    def _kind(self) -> str:
        return self._tokens[self._next].lastgroup or "" if self._next < len(self._tokens) else ""

    @property
    def _token(self) -> str:
        return self._tokens[self._next][self._kind] if self._kind else ""

    def _take(self) -> str:
        token = self._token
        self._next += 1
        return token

    def _skip(self, token: str) -> bool:
        """Take this sign or word, in any case, if it is next."""
        is_next = self._token.upper() == token
        self._next += is_next
        return is_next

    def _need(self, token: str) -> None:
        if not self._skip(token):
            self._expected(token)

    def _expected(self, what: str) -> NoReturn:
        self._fail(_UNSUPPORTED.get(self._token) or f"expected {what}, found {self._token or 'the end'}")

    def _fail(self, reason: str) -> NoReturn:
        at = self._tokens[self._next].start(self._kind) if self._kind else self._end
        raise EclError(f"character {at + 1}: {reason}")

    # -- expressions

    def _expression(self) -> Rule:
        """A constraint with a refinement, or constraints with one operator between them."""
        first = self._constraint()
        if self._skip(":"):
            return EveryRule((first, self._refinement()))
        if self._skip("MINUS"):
            return EveryRule((first, NoRule(self._constraint())))
        return self._joined(first, self._constraint)

    def _within(self, read: Callable[[], Rule]) -> Rule:
        """What is in the brackets that have just begun."""
        self._depth += 1
        if self._depth > DEEPEST:
            self._fail(f"brackets are more than {DEEPEST} deep")
        rule = read()
        self._need(")")
        self._depth -= 1
        return rule

    def _joined(self, first: Rule, read: Callable[[], Rule]) -> Rule:
        """`first`, and further ones, joined by AND or by OR."""
        for words, join in ((("AND", ","), EveryRule), (("OR",), AnyRule)):
            rules = [first]
            while any(self._skip(one) for one in words):
                rules.append(read())
            if len(rules) > 1:
                if self._token.upper() in ("AND", ",", "OR", "MINUS"):
                    self._fail("different operators need brackets")
                return join(tuple(rules))
        return first

    def _constraint(self) -> Rule:
        operator = self._take() if self._token in _OPERATORS else ""
        place = self._next
        rule = self._focus()
        if not operator:
            return rule
        found = _related(operator, rule)
        if found is None:
            self._next = place
            self._fail(f"{operator} is supported on concepts and on lists of concepts")
        return found

    def _focus(self) -> Rule:
        if self._skip("^"):
            if self._kind != "id":
                self._expected("the id of a reference set")
            return HasProperty("refset", frozenset((self._take(),)))
        if self._skip("("):
            return self._within(self._expression)
        if self._skip("*"):
            return IsActive()
        if self._kind != "id":
            self._expected("a concept id, *, ^ or (")
        return Among(frozenset((self._take(),)))

    # -- refinements

    def _refinement(self) -> Rule:
        return self._joined(self._group(), self._group)

    def _group(self) -> Rule:
        """One attribute, also in a group of its own; or a refinement in brackets."""
        if self._skip("("):
            return self._within(self._refinement)
        if not self._skip("{"):
            return self._attribute()
        rule = self._attribute()
        if self._token.upper() in (",", "AND", "OR"):
            self._fail("several attributes in one group are not supported: attributes are loaded without their groups")
        self._need("}")
        return rule

    def _attribute(self) -> Rule:
        if self._kind != "id":
            if self._token.upper() == "R":
                self._fail("reversed attributes are not supported")
            self._expected("the concept id of an attribute")
        if self._token == _IS_A:
            self._fail("use < and << instead of the attribute 'is a'")
        name = self._take()
        is_other = self._skip("!=")
        if not is_other:
            self._need("=")
        value = self._constraint()
        if is_other:
            value = NoRule(value)
        if isinstance(value, IsActive):
            return HasProperty(name)
        return HasProperty(name, value.codes) if isinstance(value, Among) else HasValue(name, value)


def _below(code: str) -> Rule:
    return EveryRule((Below(code), NoRule(Among(frozenset((code,))))))


def _above(code: str) -> Rule:
    return EveryRule((Above(code), NoRule(Among(frozenset((code,))))))


def _or_self(relation: Callable[[str], Rule]) -> Callable[[str], Rule]:
    return lambda code: AnyRule((relation(code), Among(frozenset((code,)))))


_OPERATORS: dict[str, Callable[[str], Rule]] = {
    "<<": Below, "<": _below, "<!": ChildOf, "<<!": _or_self(ChildOf),
    ">>": Above, ">": _above, ">!": ParentOf, ">>!": _or_self(ParentOf),
}  # fmt: skip


def _related(operator: str, rule: Rule) -> Rule | None:
    """The concepts in this relation to those of a rule; None when the rule does not list them."""
    match rule:
        case Among(codes):
            found = [_OPERATORS[operator](code) for code in sorted(codes)]
            return found[0] if len(found) == 1 else AnyRule(tuple(found))
        case Below() if operator == "<<":
            return rule
        case IsActive() if operator == "<<":
            return rule
        case AnyRule(rules):
            parts = [_related(operator, one) for one in rules]
            return None if None in parts else AnyRule(tuple(one for one in parts if one is not None))
    return None
