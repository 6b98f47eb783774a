"""The tables of functions.  Function modules register their functions; the compiler looks them up by name.

A *plain* function gets its focus and its arguments evaluated.  A *shaped* function gets the syntax trees of its
arguments and builds a closure, to evaluate an argument once per item (`where`) or to read it as a type (`ofType`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from ipf.fhir.fhirpath import ast
from ipf.fhir.fhirpath.context import Context
from ipf.fhir.fhirpath.model import Model
from ipf.fhir.fhirpath.nodes import Items

Run = Callable[[Context], Items]


class Compiling(Protocol):
    """The interface of the compiler for shaped functions."""

    model: Model
    strict: bool

    def compile(self, node: ast.Node) -> Run:
        """A subtree as a closure."""


Shape = Callable[[Compiling, Run, tuple[ast.Node, ...]], Run]


@dataclass(frozen=True, slots=True)
class Plain:
    """`call(context, focus, *arguments)`, each a list."""

    call: Callable[..., Items]
    least: int
    most: int


@dataclass(frozen=True, slots=True)
class Shaped:
    """`build(compiler, source, arguments)`."""

    build: Shape
    least: int
    most: int


FUNCTIONS: dict[str, Plain | Shaped] = {}


def plain_function(name: str, least: int = 0, most: int | None = None) -> Callable[[Any], Any]:
    """Register a plain function with its number of arguments."""

    def register(call: Any) -> Any:
        FUNCTIONS[name] = Plain(call, least, least if most is None else most)
        return call

    return register


def shaped_function(name: str, least: int = 0, most: int | None = None) -> Callable[[Shape], Shape]:
    """Register a shaped function with its number of arguments."""

    def register(build: Shape) -> Shape:
        FUNCTIONS[name] = Shaped(build, least, least if most is None else most)
        return build

    return register
