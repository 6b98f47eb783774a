"""A FHIRPath expression, compiled once and evaluated often.

What arrives: an expression's text, then data: FHIR JSON (dict), a list of items, or a node of an HL7 v2 message.  What
leaves: a list of JSON values and values of `values.py`.  Failures are FhirPathError.  Evaluation has no side effect,
never changes its input, and is bounded in steps and depth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from ipf.fhir.fhirpath import ast, operators
from ipf.fhir.fhirpath.check import check
from ipf.fhir.fhirpath.compiler import Compiler
from ipf.fhir.fhirpath.context import Context, Host
from ipf.fhir.fhirpath.errors import FhirPathError
from ipf.fhir.fhirpath.fast import specialise
from ipf.fhir.fhirpath.fast_steps import Fast
from ipf.fhir.fhirpath.model import Model, model
from ipf.fhir.fhirpath.nodes import FhirNode, Items, unwrap, wrap, wrap_all
from ipf.fhir.fhirpath.parser import parse

_NO_VARIABLES: Mapping[str, Any] = {}
_NO_HOST = Host()
_NOT_THAT_SHAPE = (AttributeError, TypeError, KeyError, IndexError, RecursionError)


class Expression:
    """A compiled expression.  Safe to share: an evaluation keeps its state to itself."""

    __slots__ = ("_checked", "_fast", "_model", "_run", "base_type", "node", "strict", "text")

    def __init__(
        self, text: str, node: ast.Node, base_type: str | None = None, strict: bool = False, types: Model | None = None
    ) -> None:
        self.text = text
        self.node = node
        self.base_type = base_type
        self.strict = strict
        self._model = types or model()
        self._run = Compiler(self._model, strict).compile(node)
        self._fast: dict[str, Fast | None] = {}
        self._checked: set[str] = set()
        if strict and base_type is not None:
            self._check(base_type)

    def evaluate(
        self,
        focus: Any,
        variables: Mapping[str, Any] = _NO_VARIABLES,
        *,
        resolve: Callable[[str], Any] | None = None,
        host: Host = _NO_HOST,
    ) -> list[Any]:
        """The result on `focus`: JSON values of the focus, unchanged, and computed values.

        focus: a resource, an element (its type is `base_type`), a list of items, or an HL7 v2 node.  variables: `%name`
        -> value or list.  `resolve` is short for a Host with only that.  FhirPathError when it cannot be evaluated.
        """
        if type(focus) is dict:
            kind = focus.get("resourceType") or self.base_type
            fast = self._specialise(kind) if type(kind) is str else None
            if fast is not None:
                try:
                    return fast(focus)
                except _NOT_THAT_SHAPE:
                    pass  # the data does not have the form of its type: the general engine handles it
        return unwrap(self.items(focus, variables, resolve=resolve, host=host))

    def items(
        self,
        focus: Any,
        variables: Mapping[str, Any] = _NO_VARIABLES,
        *,
        resolve: Callable[[str], Any] | None = None,
        host: Host = _NO_HOST,
    ) -> Items:
        """The result with types: FhirNode for elements of the data."""
        if resolve is not None:
            host = replace(host, resolve=resolve)
        items = [focus] if type(focus) is FhirNode else self._wrap(focus)
        if self.strict and items and type(items[0]) is FhirNode and items[0].type is not None:
            self._check(items[0].type)
        try:
            return self._run(Context(items, variables, self._model, host))
        except RecursionError:
            raise FhirPathError("the data or the expression is nested too deeply") from None

    def test(
        self,
        focus: Any,
        variables: Mapping[str, Any] = _NO_VARIABLES,
        *,
        resolve: Callable[[str], Any] | None = None,
        host: Host = _NO_HOST,
    ) -> bool:
        """Whether the result is true; a single value that is not a boolean counts as true, an empty result as false.

        Several values are an error, or true with `Host.several_are_true`.
        """
        found = self.evaluate(focus, variables, resolve=resolve, host=host)
        return (len(found) > 1 and host.several_are_true) or operators.truth(found) is True

    def _wrap(self, focus: Any) -> Items:
        if isinstance(focus, (list, tuple)):
            there = (each for each in focus if each is not None)
            return [each if type(each) is FhirNode else wrap(each, self.base_type) for each in there]
        return wrap_all(focus, self.base_type)

    def _specialise(self, kind: str) -> Fast | None:
        """The fast form for this type of focus, compiled on first use; None when there is none."""
        if kind in self._fast:
            return self._fast[kind]
        if self.strict or not self._model.is_known(kind):
            return None
        fast = self._fast[kind] = specialise(self.node, kind, self._model)
        return fast

    def _check(self, kind: str) -> None:
        if kind not in self._checked:
            check(self.node, kind, self._model)
            self._checked.add(kind)


@lru_cache(maxsize=4096)
def compile(text: str, *, base_type: str | None = None, strict: bool = False) -> Expression:
    """The compiled expression of a text; the same object for the same text.

    base_type: FHIR type of the focus where the data does not say it (an element, or a bare value).  strict: names that
    the types do not have, JSON's names of choices, and order taken from unordered collections are errors (`semantic`),
    as the specification's strict mode has it.  FhirPathError when it is no FHIRPath.
    """
    return Expression(text, parse(text), base_type, strict)
