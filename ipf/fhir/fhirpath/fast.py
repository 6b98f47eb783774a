"""Closures on plain JSON for the most frequent expressions: paths, `where(x = 'y')`, `exists()`, `|`.

When the type of the data is known, a path is a chain of dictionary look-ups without typed nodes.  All other expressions
run in the general engine; `tests/fhir/fhirpath/test_fast.py` shows that both give the same result.  Data that does not
have the form of its type, and primitives with extensions that would count, raise AttributeError, TypeError, KeyError
or IndexError; the caller then runs the general engine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ipf.fhir.fhirpath import ast
from ipf.fhir.fhirpath.fast_steps import Fast, leaf, read, read_choice
from ipf.fhir.fhirpath.model import QUANTITY_TYPES, RESOURCE_ROOTS, Model, Step
from ipf.fhir.fhirpath.operators import json_key

Test = Callable[[Any], bool | None]
_TEXTS = frozenset(
    ("string", "code", "id", "markdown", "uri", "url", "canonical", "uuid", "oid", "base64Binary", "xhtml")
)


@dataclass(frozen=True, slots=True)
class Path:
    """A compiled path: its function (`run`), its type, whether it can give several items.

    `exact` is `run` for counts and comparisons: it raises on primitives that may have only extensions.
    """

    run: Fast
    type: str
    many: bool
    exact: Fast
    root: bool = False


class NeedsGeneralEngine(Exception):
    """The expression needs the general engine."""


def specialise(node: ast.Node, kind: str, model: Model) -> Fast | None:
    """A function of JSON of type `kind`; None when the expression needs the general engine."""
    specialiser = _Specialiser(model)
    for attempt in (specialiser.union, specialiser.final_choice, specialiser.answer):
        try:
            return attempt(node, kind)
        except NeedsGeneralEngine:
            continue
    return None


def _itself(json: Any) -> list[Any]:
    return [json]


def _nothing(json: Any) -> list[Any]:
    return []


def _root(kind: str) -> Path:
    return Path(_itself, kind, False, _itself, root=True)


class _Specialiser:
    """Compiles trees against the type of their focus."""

    def __init__(self, model: Model) -> None:
        self.model = model

    # ---------------------------------------------------------------------------------------- whole expressions

    def union(self, node: ast.Node, kind: str) -> Fast:
        """A path, or paths joined by `|`."""
        if not (isinstance(node, ast.Binary) and node.operator == "|"):
            return self.path(node, kind).run
        parts = [self.path(part, kind) for part in _alternatives(node)]
        kinds = {part.type for part in parts if part.run is not _nothing}
        if any(each not in _TEXTS and (self.model.is_primitive(each) or each in QUANTITY_TYPES) for each in kinds):
            raise NeedsGeneralEngine
        runs = [part.run for part in parts if part.run is not _nothing]
        return lambda json: _distinct([item for run in runs for item in run(json)])

    def final_choice(self, node: ast.Node, kind: str) -> Fast:
        """A path that ends in a choice, such as `Observation.value`."""
        if not isinstance(node, ast.Member):
            raise NeedsGeneralEngine
        source = self.path(node.focus, kind) if node.focus else _root(kind)
        step = self.model.step(source.type, node.name)
        if step is None or not step.choices:
            raise NeedsGeneralEngine
        return read_choice(source.run, step.choices)

    def answer(self, node: ast.Node, kind: str) -> Fast:
        """A test that gives its result as a collection."""
        test = self.test(node, kind)

        def run(json: Any) -> list[Any]:
            answer = test(json)
            return [] if answer is None else [answer]

        return run

    # ------------------------------------------------------------------------------------------------------ paths

    def path(self, node: ast.Node, kind: str) -> Path:
        """A path on JSON of type `kind`."""
        match node:
            case ast.This("this"):
                return _root(kind)
            case ast.Member(None, name):
                return self.first_name(name, kind)
            case ast.Member(focus, name) if focus is not None:
                return self.member(self.path(focus, kind), name)
            case ast.Function(focus, "ofType" | "as", (ast.Member(None, written),)) if focus is not None:
                return self.typed(focus, written, kind)
            case ast.TypeTest("as", operand, written):
                return self.typed(operand, written, kind)
            case ast.Function(focus, "where", (criterion,)) if focus is not None:
                return self.where(self.path(focus, kind), criterion)
            case ast.Function(focus, "first", ()) if focus is not None:
                return _slice(self.path(focus, kind), 0)
            case ast.Index(focus, ast.Literal(at)) if type(at) is int:
                return _slice(self.path(focus, kind), at)
        raise NeedsGeneralEngine

    def first_name(self, name: str, kind: str) -> Path:
        """The type itself, or one of its elements."""
        if not (name[:1].isupper() and self.model.is_known(name)):
            return self.member(_root(kind), name)
        return _root(kind) if self.model.is_a(kind, name) else Path(_nothing, name, False, _nothing)

    def member(self, source: Path, name: str) -> Path:
        """`source.name`, when it needs no typed node."""
        step = None if self.model.is_primitive(source.type) else self.model.step(source.type, name)
        if step is None or step.choices or step.type is None or step.type in RESOURCE_ROOTS:
            raise NeedsGeneralEngine
        return self.read(source, step, step.key, step.type)

    def typed(self, operand: ast.Node, written: str, kind: str) -> Path:
        """`value.ofType(Quantity)`: the JSON property of that type."""
        if not isinstance(operand, ast.Member):
            raise NeedsGeneralEngine
        source = self.path(operand.focus, kind) if operand.focus else _root(kind)
        step = self.model.step(source.type, operand.name)
        if step is None or not self.model.is_known(written):
            raise NeedsGeneralEngine
        exact = self.model.is_primitive(written)
        model, choices = self.model, step.choices.items()
        keys = [key for key, each in choices if each == written or (not exact and model.is_a(each, written))]
        if len(keys) != 1:
            raise NeedsGeneralEngine
        return self.read(source, step, keys[0], step.choices[keys[0]])

    def read(self, source: Path, step: Step, key: str, kind: str) -> Path:
        """One step further."""
        if source.run is _nothing:
            return Path(_nothing, kind, False, _nothing)
        many = source.many or step.many
        if self.model.is_primitive(kind):
            run = leaf(source.run, source.root, key, step.many, exact=False)
            return Path(run, kind, many, leaf(source.exact, source.root, key, step.many, exact=True))
        run = read(source.run, source.root, key, step.many)
        return Path(run, kind, many, run)

    def where(self, source: Path, criterion: ast.Node) -> Path:
        """`source.where(...)`."""
        if self.model.is_primitive(source.type):
            raise NeedsGeneralEngine
        test, items = self.test(criterion, source.type), source.run

        def run(json: Any) -> list[Any]:
            return [item for item in items(json) if test(item)]

        return Path(run, source.type, source.many, run)

    # ------------------------------------------------------------------------------------------------------ tests

    def test(self, node: ast.Node, kind: str) -> Test:
        """A boolean expression: True, False, or None for an empty result."""
        match node:
            case ast.Function(focus, "exists", args) if focus is not None and len(args) < 2:
                there = self.path(focus, kind)
                found = (self.where(there, args[0]) if args else there).exact
                return lambda json: bool(found(json))
            case ast.Function(focus, "empty", ()) if focus is not None:
                found = self.path(focus, kind).exact
                return lambda json: not found(json)
            case ast.Function(focus, "not", ()) if focus is not None:
                test = self.test(focus, kind)
                return lambda json: None if (answer := test(json)) is None else not answer
            case ast.Binary("=" | "!=" as operator, left, ast.Literal(str() as wanted)):
                return self.compared(self.path(left, kind), wanted, operator == "=")
            case ast.Binary("and", left, right):
                return _both(self.test(left, kind), self.test(right, kind))
            case ast.Binary("or", left, right):
                return _either(self.test(left, kind), self.test(right, kind))
        raise NeedsGeneralEngine

    def compared(self, source: Path, wanted: str, same: bool) -> Test:
        """`path = 'text'`."""
        if source.type not in _TEXTS:
            raise NeedsGeneralEngine
        values = source.exact

        def test(json: Any) -> bool | None:
            found = values(json)
            if len(found) == 1:
                return (found[0] == wanted) is same
            return not same if found else None

        return test


def _both(first: Test, second: Test) -> Test:
    def test(json: Any) -> bool | None:
        a = first(json)
        if a is False:
            return False
        b = second(json)
        return b if a or b is False else None

    return test


def _either(first: Test, second: Test) -> Test:
    def test(json: Any) -> bool | None:
        a = first(json)
        if a:
            return True
        b = second(json)
        return b if a is False or b else None

    return test


def _slice(source: Path, at: int) -> Path:
    items = source.exact

    def run(json: Any) -> list[Any]:
        return items(json)[at : at + 1]

    return Path(run, source.type, False, run)


def _alternatives(node: ast.Node) -> list[ast.Node]:
    parts: list[ast.Node] = []
    while isinstance(node, ast.Binary) and node.operator == "|":
        parts.append(node.right)
        node = node.left
    return [node, *reversed(parts)]


def _distinct(items: list[Any]) -> list[Any]:
    if len(items) < 2:
        return items
    seen: dict[Any, Any] = {}
    for item in items:
        seen.setdefault(json_key(item), item)
    return list(seen.values())
