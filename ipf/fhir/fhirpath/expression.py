"""A FHIRPath expression, compiled once and evaluated often.

What arrives: an expression's text, then data: FHIR JSON (dict), a list of items, or a node of an HL7 v2 message.  What
leaves: a list of JSON values and values of `values.py`.  Failures are FhirPathError.  Evaluation has no side effect,
never changes its input, and is bounded in steps and depth.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from ipf.fhir.fhirpath.check import check
from ipf.fhir.fhirpath.compiler import Compiler
from ipf.fhir.fhirpath.errors import FhirPathError
from ipf.fhir.fhirpath.evaluation.code import Code
from ipf.fhir.fhirpath.evaluation.context import Budget, Context, Host
from ipf.fhir.fhirpath.items import operators
from ipf.fhir.fhirpath.items.model import Model, model
from ipf.fhir.fhirpath.items.nodes import FhirNode, Items, resource_type, unwrap, wrap, wrap_all, wrapped
from ipf.fhir.fhirpath.language import ast
from ipf.fhir.fhirpath.language.parser import parse

_NO_VARIABLES: Mapping[str, Any] = {}
_NO_HOST = Host()
_NO_CONTEXT = Context()
_NO_CONTEXT.limit = _NO_CONTEXT.steps = sys.maxsize  # pure code is linear in its data


class Expression:
    """A compiled expression.  Safe to share: an evaluation keeps its state to itself."""

    __slots__ = ("_checked", "_code", "_model", "base_type", "node", "strict", "text")

    def __init__(
        self, text: str, node: ast.Node, base_type: str | None = None, strict: bool = False, types: Model | None = None
    ) -> None:
        self.text = text
        self.node = node
        self.base_type = base_type
        self.strict = strict
        self._model = types or model()
        self._code: dict[str | None, Code] = {}
        self._checked: set[str] = set()
        self._compiled(base_type if base_type is not None and self._model.is_known(base_type) else None)
        if strict and base_type is not None:
            self._check(base_type)

    def evaluate(
        self,
        focus: Any,
        variables: Mapping[str, Any] = _NO_VARIABLES,
        *,
        resolve: Callable[[str], Any] | None = None,
        host: Host = _NO_HOST,
        typed: bool = False,
        budget: Budget | None = None,
    ) -> list[Any]:
        """The result on `focus`: JSON values of the focus, unchanged, and computed values.

        focus: a resource, an element (its type is `base_type`), a list of items, or an HL7 v2 node.  variables: `%name`
        -> value or list.  `resolve` is short for a Host with only that.  `typed`: elements of the data are each a
        FhirNode, with its type.  `budget`: steps that several evaluations share.  FhirPathError when it
        cannot be evaluated; BudgetError beyond the steps.
        """
        kind = focus.get("resourceType", self.base_type) if type(focus) is dict else None
        code = self._code.get(kind) if type(kind) is str else None
        items = [focus]
        if code is None:
            items, kind = self._focus(focus)
            code = self._code.get(kind) or self._compiled(kind)
        if self.strict and items:
            self._check(kind or (items[0].type if type(items[0]) is FhirNode else None))
        if resolve is not None:
            host = replace(host, resolve=resolve)
        context = _NO_CONTEXT
        if budget is not None or not code.pure:
            context = Context()
            context.items = items
            context.kind = kind
            context.model = self._model
            context.variables = variables
            context.host = host
            context.steps = context.limit = host.steps if budget is None else min(host.steps, budget.steps_left)
            context.index = context.moment = context.entries = None
            context.total = items
        try:
            if code.test is not None:
                answer = code.test(context, items)
                return [] if answer is None else [answer]
            found = code.run(context, items)
        except RecursionError:
            raise FhirPathError("the data or the expression is nested too deeply") from None
        finally:
            if budget is not None:
                budget.steps_left -= 1 + context.limit - context.steps
        if typed:
            return wrapped(found, code.kind)
        for item in found:
            if type(item) is FhirNode:
                return unwrap(found)
        return found

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

    def _focus(self, focus: Any) -> tuple[Items, str | None]:
        """The items of the focus, and their type when the definitions have it."""
        if type(focus) is dict:
            kind = resource_type(focus) or self.base_type
            if kind is not None and (kind in self._code or self._model.is_known(kind)):
                return [focus], kind
        elif type(focus) is FhirNode:
            return ([focus], focus.type) if self._is_primitive_node(focus) else ([focus], None)
        return self._wrap(focus), None

    def _is_primitive_node(self, node: FhirNode) -> bool:
        return node.type is not None and type(node.value) is not dict and self._model.is_primitive(node.type)

    def _compiled(self, kind: str | None) -> Code:
        code = self._code[kind] = Compiler(self._model, self.strict).compile(self.node, kind)
        return code

    def _wrap(self, focus: Any) -> Items:
        if isinstance(focus, (list, tuple)):
            there = (each for each in focus if each is not None)
            return [each if type(each) is FhirNode else wrap(each, self.base_type) for each in there]
        return wrap_all(focus, self.base_type)

    def _check(self, kind: str | None) -> None:
        if kind is not None and kind not in self._checked:
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
