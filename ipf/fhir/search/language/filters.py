"""`_filter`: an expression such as `name co "smi" and (birthdate ge 1990 or patient.gender eq female)` as one test.

`and` binds more strongly than `or`.  A path is a search parameter, or a chain of reference parameters; a filter in
brackets narrows what a reference refers to: `patient[gender eq female].birthdate ge 1990`.  Values are words, or texts
in double quotes as in JSON.  Every refusal says at which character.

Source: https://hl7.org/fhir/R4/search_filter.html
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import orjson

from ipf.errors import Category, Problem
from ipf.fhir.index.entries import normalise
from ipf.fhir.search.language.terms import TermReader, Unsupported
from ipf.fhir.search.predicate import needs_resource
from ipf.fhir.search.values.parameter import RequestedParameter, any_of, on_each_code
from ipf.fhir.search.values.parser import build, overlapping
from ipf.ports.queries.predicates import AllOf, Not, Test, TextContains, TextEnds, TextPrefix

NAME = "_filter"
_ORDERED = frozenset({"eq", "ne", "gt", "lt", "ge", "le", "ap", "sa", "eb"})
OPERATORS = _ORDERED | {"co", "sw", "ew", "pr", "po", "ss", "sb", "in", "ni", "re"}
_OF_TYPE: dict[str, frozenset[str]] = {
    "string": frozenset({"eq", "ne", "co", "sw", "ew"}),
    "token": frozenset({"eq", "ne", "in", "ni", "ss", "sb"}),
    "reference": frozenset({"eq", "ne", "re", "ss", "sb"}),
    "uri": frozenset({"eq", "ne", "co", "sw", "ew", "ss", "sb"}),
    "date": _ORDERED | {"po"},
    "number": _ORDERED,
    "quantity": _ORDERED,
    "composite": frozenset({"eq", "ne"}),
}
_SPECIAL = {"_id": frozenset({"eq", "ne"}), "_list": frozenset({"eq", "ne"}), "_lastUpdated": _ORDERED}
_MODIFIERS = {"in": "in", "ni": "in", "ss": "below", "sb": "above"}
_NEGATED = frozenset({"ne", "ni"})
_TOKEN = re.compile(r'\s*("(?:[^"\\]|\\.)*"|[()\[\]]|[^\s()\[\]"]+|")', re.DOTALL)
_SEPARATORS = re.compile(r"([\\,])")
_DEEPEST = 20
_MOST = 200  # comparisons and operators


def read_filter(reader: TermReader, resource_type: str, text: str) -> Test:
    """The test of `_filter`.  Problem VALUE or NOT_SUPPORTED names the operator or parameter and its place."""
    parser = _Parser(text)
    found = parser.expression(0)
    parser.end()
    return found(reader, resource_type)


Condition = Callable[[TermReader, str], Test]
"""Makes the test for resources of one type."""


class _Parser:
    """Reads an expression; what leaves makes its test."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [(found[1], found.start(1)) for found in _TOKEN.finditer(text)]
        self._at = 0
        if len(self._tokens) > _MOST * 3:
            raise Problem(Category.COSTLY, f"search parameter {NAME}: it is longer than {_MOST} comparisons", NAME)

    def expression(self, depth: int) -> Condition:
        """Alternatives of conjunctions."""
        if depth > _DEEPEST:
            raise self._refused("it is nested too deeply")
        found = [self._conjunction(depth)]
        while self._taken("or"):
            found.append(self._conjunction(depth))
        return found[0] if len(found) == 1 else _combined(found, lambda tests: any_of(tests))

    def end(self) -> None:
        """Problem when something is left."""
        if self._at < len(self._tokens):
            raise self._refused(f"{self._next[:40]} is not expected here")

    def _conjunction(self, depth: int) -> Condition:
        found = [self._one(depth)]
        while self._taken("and"):
            found.append(self._one(depth))
        return found[0] if len(found) == 1 else _combined(found, lambda tests: AllOf(tuple(tests)))

    def _one(self, depth: int) -> Condition:
        if self._taken("not"):
            if self._next != "(":
                raise self._refused("a parenthesis must follow not")
            inner = self._one(depth + 1)
            return lambda reader, resource_type: Not(inner(reader, resource_type))
        if self._taken("("):
            found = self.expression(depth + 1)
            self._expect(")")
            return found
        return self._comparison(depth)

    def _comparison(self, depth: int) -> Condition:
        path, place = self._word("a search parameter")
        if self._taken("["):
            narrowed = self.expression(depth + 1)
            self._expect("]")
            rest, rest_place = self._word("a point and a search parameter")
            if not rest.startswith(".") or "." in path:
                raise self._refused("write reference[filter].parameter", rest_place)
            self._at -= 1
            self._tokens[self._at] = (rest[1:], rest_place + 1)
            inner = self._comparison(depth + 1)
            return lambda reader, resource_type: reader.follow(
                resource_type, path, lambda one, target: AllOf((narrowed(one, target), inner(one, target)))
            )
        operator, operator_place = self._word("an operator")
        if operator not in OPERATORS:
            known = " ".join(sorted(OPERATORS))
            raise self._refused(f"{operator[:40]} is no operator; there are {known}", operator_place)
        value, _ = self._word("a value")
        return lambda reader, resource_type: self._compare(reader, resource_type, path, place, operator, value)

    def _compare(
        self, reader: TermReader, resource_type: str, path: str, place: int, operator: str, value: str
    ) -> Test:
        reader.spend(resource_type, value)
        head, dot, rest = path.partition(".")
        if dot:
            return reader.follow(
                resource_type, head, lambda one, target: self._compare(one, target, rest, place, operator, value)
            )
        try:
            requested = reader.requested(resource_type, path)
        except Unsupported as unknown:
            if reader.depth:
                raise  # another type that the reference may point at may have it
            raise self._refused(f"{path[:60]} {unknown.why}", place, Category.NOT_SUPPORTED) from unknown
        kind = requested.parameter.type
        able = _SPECIAL.get(path) or _OF_TYPE.get(kind, frozenset())
        if operator not in able and (operator != "pr" or path in _SPECIAL):
            text = f"{operator} does not go with {path[:60]}, which takes {' '.join(sorted(able))} and pr"
            raise self._refused(text, place)
        test = _test(reader, requested, path in _SPECIAL, operator, self._value(value, kind))
        if needs_resource(test):
            raise self._refused(f"{path[:60]} with {operator} is not supported", place, Category.NOT_SUPPORTED)
        return test

    def _value(self, token: str, kind: str) -> str:
        """A text as in JSON, or a word; what separates values in a search parameter stands for itself."""
        found = token
        if token.startswith('"'):
            try:
                found = str(orjson.loads(token))
            except orjson.JSONDecodeError as refused:
                raise self._refused(f"{token[:40]} is no text as in JSON") from refused
        found = _SEPARATORS.sub(r"\\\1", found)
        return found if kind == "composite" else found.replace("$", "\\$")

    # -- tokens

    @property
    def _next(self) -> str:
        return self._tokens[self._at][0] if self._at < len(self._tokens) else ""

    def _taken(self, token: str) -> bool:
        is_next = self._next == token
        self._at += is_next
        return is_next

    def _expect(self, token: str) -> None:
        if not self._taken(token):
            raise self._refused(f"{token} is missing")

    def _word(self, what: str) -> tuple[str, int]:
        token = self._next
        if not token or token in '()[]"':
            raise self._refused(f"{what} is missing")
        self._at += 1
        return self._tokens[self._at - 1]

    def _refused(self, why: str, place: int | None = None, category: Category = Category.VALUE) -> Problem:
        if place is None:
            place = self._tokens[self._at][1] if self._at < len(self._tokens) else len(self._text)
        return Problem(category, f"search parameter {NAME}, character {place + 1}: {why}", NAME)


def _combined(parts: Sequence[Condition], combine: Callable[[Sequence[Test]], Test]) -> Condition:
    return lambda reader, resource_type: combine([part(reader, resource_type) for part in parts])


def _test(reader: TermReader, requested: RequestedParameter, special: bool, operator: str, value: str) -> Test:
    """The test of one comparison, by the rules of the parameter's own search."""
    kind = requested.parameter.type
    if operator == "pr":
        if value not in ("true", "false"):
            raise requested.refuse("pr takes true or false")
        return build(replace(requested, modifier="missing"), "false" if value == "true" else "true")
    if special or kind in ("date", "number", "quantity"):
        if operator == "po":
            return overlapping(requested, value)
        is_ordered = kind != "token" and requested.parameter.code not in ("_id", "_list")
        text = f"{operator}{value}" if is_ordered else value
        found = reader.special(requested, text) if special else build(requested, text)
        return Not(found) if operator == "ne" and not is_ordered else found
    if (
        kind in ("string", "uri")
        and operator in ("eq", "ne", "co", "sw", "ew")
        and not (kind == "uri" and operator in ("eq", "ne"))
    ):
        found = _of_text(requested, kind, operator, value)
    else:
        found = build(replace(requested, modifier=_MODIFIERS.get(operator, "")), value)
    if operator not in _NEGATED:
        return found
    return AllOf((build(replace(requested, modifier="missing"), "false"), Not(found)))


def _of_text(requested: RequestedParameter, kind: str, operator: str, value: str) -> Test:
    text = re.sub(r"\\(.)", r"\1", value)
    text = normalise(text) if kind == "string" else text
    if not text:
        raise requested.refuse("it has no value")
    make: dict[str, Callable[[str], Test]] = {
        "co": lambda code: TextContains(code, text),
        "sw": lambda code: TextPrefix(code, text),
        "ew": lambda code: TextEnds(code, text),
    }
    return any_of(on_each_code(requested, make.get(operator, lambda code: TextPrefix(code, f"{text}\t"))))
