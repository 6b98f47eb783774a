"""Compiled expressions: what each part of a syntax tree becomes.

A part is a function of the evaluation and of `$this`.  Where the definitions give the type of its items, they are the
JSON itself (`kind` is the type), and no object is made for an element.  Items of other parts carry their types:
`FhirNode`, or a value of FHIRPath.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from ipf.fhir.fhirpath.evaluation.context import Context
from ipf.fhir.fhirpath.items.nodes import SCALARS, FhirNode, Items, value_reader, wrapped
from ipf.fhir.fhirpath.items.operators import single
from ipf.fhir.fhirpath.language import ast

Run = Callable[[Context, Items], Items]
Test = Callable[[Context, Items], bool | None]
Value = Callable[[Context, Items], Any]


@dataclass(frozen=True, slots=True)
class Code:
    """`run(context, this)` gives the items.

    `kind`: the FHIR type of all items.  They are then JSON: objects of a structure, texts, numbers or booleans of a
    primitive; those that have extensions, or not the form of the type, are a FhirNode.  None: the items carry their
    types.  `test` gives the same result as a boolean, None when empty.  `constant`: the value of a literal.  `pure`:
    the functions do not use the context, so that none is made for an expression of which all parts are pure.
    """

    run: Run
    kind: str | None = None
    test: Test | None = None
    constant: Any = None
    pure: bool = False

    def nodes(self) -> Run:
        """The items with their types."""
        kind, run = self.kind, self.run
        if kind is None:
            return run
        return lambda context, this: wrapped(run(context, this), kind)

    def values(self) -> Run:
        """The items for an operator that needs their values, not their types."""
        run = self.run
        read = value_reader(self.kind)
        if read is None:
            return run

        def values(context: Context, this: Items) -> Items:
            found: Items = []
            for one in run(context, this):
                found.append(one if type(one) is FhirNode else read(one))
            return found

        return values

    def single(self, what: str) -> Value:
        """The one value for an operator, None when there is none; FhirPathError, which names `what`, for several."""
        run, constant = self.values(), self.constant
        if constant is not None:
            return lambda context, this: constant

        def value(context: Context, this: Items) -> Any:
            items = run(context, this)
            return items[0] if len(items) == 1 and type(items[0]) in SCALARS else single(items, what)

        return value

    def texts(self) -> Run:
        """The items for a function of texts, for which a date is its text."""
        return self.run if self.kind is not None and self.kind[0].islower() else self.nodes()

    def truth(self) -> Test:
        """The result as a boolean."""
        if self.test is not None:
            return self.test
        run = self.values()

        def test(context: Context, this: Items) -> bool | None:
            items = run(context, this)
            if len(items) == 1 and type(items[0]) is bool:
                return items[0]
            return context.truth(items)

        return test


class Compiles(Protocol):
    """The compiler."""

    def compile(self, node: ast.Node, kind: str | None) -> Code:
        """A tree as code; `kind` is the type of `$this`."""


def tested(test: Test, pure: bool = False) -> Code:
    """The code of a test."""

    def run(context: Context, this: Items) -> Items:
        answer = test(context, this)
        return [] if answer is None else [answer]

    return Code(run, None, test, pure=pure)


def joined(parts: list[Code]) -> tuple[list[Run], str | None]:
    """Functions whose items may stand in one collection, and their common type."""
    kinds = {part.kind for part in parts}
    if len(kinds) == 1:
        return [part.run for part in parts], parts[0].kind
    return [part.nodes() for part in parts], None


def itself(context: Context, this: Items) -> Items:
    """`$this`."""
    return this


def nothing(context: Context, this: Items) -> Items:
    """No item."""
    return []


def operand_of(compiler: Compiles, operand: ast.Node | None, kind: str | None) -> Code:
    """The code of the focus of a function; `$this` when there is none."""
    return Code(itself, kind, pure=True) if operand is None else compiler.compile(operand, kind)
