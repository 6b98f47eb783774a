"""The tables of functions.  Function modules register their functions; the compiler looks them up by name.

A *plain* function gets its focus and its arguments evaluated.  A *shaped* function gets the syntax trees of its focus
and arguments, to evaluate an argument once per item (`where`) or to read it as a type (`ofType`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from ipf.fhir.fhirpath.evaluation.code import Code
from ipf.fhir.fhirpath.items.model import Model
from ipf.fhir.fhirpath.items.nodes import Items
from ipf.fhir.fhirpath.language import ast

Reads = Literal["nodes", "values", "texts", "items"]


class Compiling(Protocol):
    """The interface of the compiler for shaped functions."""

    model: Model
    strict: bool

    def compile(self, node: ast.Node, kind: str | None) -> Code:
        """A subtree as code."""

    def per_item(self, node: ast.Node, kind: str | None) -> Code:
        """A subtree as code that runs on one item at a time."""


Arguments = tuple[ast.Node, ...]
Shape = Callable[[Compiling, ast.Node | None, Arguments, str | None], Code]


@dataclass(frozen=True, slots=True)
class Plain:
    """`call(context, focus, *arguments)`, each a list.

    `reads`: `nodes`, items with their types; `values`, their values; `texts`, their values, with dates as texts;
    `items`, the focus as it is, since only the number or place of its items counts.  `keeps`: the result is items of
    the focus.
    """

    call: Callable[..., Items]
    least: int
    most: int
    reads: Reads
    keeps: bool


@dataclass(frozen=True, slots=True)
class Shaped:
    """`build(compiler, focus, arguments, type of $this)`."""

    build: Shape
    least: int
    most: int


FUNCTIONS: dict[str, Plain | Shaped] = {}


def plain_function(
    name: str, least: int = 0, most: int | None = None, *, reads: Reads = "values", keeps: bool = False
) -> Callable[[Any], Any]:
    """Register a plain function with its number of arguments."""

    def register(call: Any) -> Any:
        FUNCTIONS[name] = Plain(call, least, least if most is None else most, reads, keeps)
        return call

    return register


def shaped_function(name: str, least: int = 0, most: int | None = None) -> Callable[[Shape], Shape]:
    """Register a shaped function with its number of arguments."""

    def register(build: Shape) -> Shape:
        FUNCTIONS[name] = Shaped(build, least, least if most is None else most)
        return build

    return register
