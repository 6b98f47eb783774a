"""FHIRPath in maps: `where`, `check`, `log`, `evaluate`, defaults and constants.

What arrives: the text of an expression and the names in scope.  What leaves: a closure of the frame and the item in
focus.  A bare name of a variable means the variable, as in the reference implementations; the syntax tree is rewritten
at compile time.  Frequent conditions on HL7 v2 nodes are compiled to closures (`native`); the rest runs in
`ipf.fhir.fhirpath`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from ipf.errors import Category, Problem
from ipf.fhir.fhirpath import Expression as Compiled
from ipf.fhir.fhirpath import FhirPathError, Host, parse
from ipf.fhir.fhirpath.errors import BudgetError
from ipf.fhir.fhirpath.language import ast
from ipf.mapping.compiler.conversions import as_text
from ipf.mapping.compiler.emit import FRAME, Writer
from ipf.mapping.compiler.expressions import native, native_text
from ipf.mapping.compiler.expressions.native_source import condition_source, text_source
from ipf.mapping.compiler.expressions.types import Typed, fhir_name, typed_reader
from ipf.mapping.compiler.kinds import Kind
from ipf.mapping.compiler.scope import Origin, Scope, Variable
from ipf.mapping.runtime.budget import out_of_steps, place_of
from ipf.mapping.runtime.run import Frame
from ipf.mapping.runtime.trace import RulePosition

Evaluate = Callable[[Frame, Any], list[Any]]
Test = Callable[[Frame, Any], bool | None]
Text = Callable[[Frame, Any], str | None]
First = Callable[[Frame, Any], Any]

NO_HOST = Host()


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression in its scope.  `item`: kind of the item in focus.  `host`: value sets, profiles and references.

    `origin`: slot and element of the object in which the item in focus is found.  `at`: the rule, for errors.
    """

    node: ast.Node
    scope: Scope
    item: Kind
    fail: Callable[[str], Exception]
    host: Host = NO_HOST
    origin: Origin = (0, "")
    at: RulePosition | None = None

    @classmethod
    def read(
        cls,
        text: str,
        scope: Scope,
        item: Kind,
        focus_name: str,
        fail: Callable[[str], Exception],
        host: Host = NO_HOST,
        origin: Origin = (0, ""),
        at: RulePosition | None = None,
    ) -> Expression:
        """Parse it.  `focus_name`: the variable that names the item in focus.  `fail` makes the error for a mistake."""
        try:
            node = parse(text)
        except FhirPathError as error:
            raise fail(error.text) from error
        return cls(_name_variables(node, scope.names, focus_name), scope, item, fail, host, origin, at)

    def test(self) -> Test:
        """The expression as a condition; empty counts as false."""
        fast = native.condition(self.node, self.scope.names, self.item)
        if fast is not None:
            return fast
        evaluate = self.evaluate()

        def test(frame: Frame, item: Any) -> bool | None:
            found = evaluate(frame, item)
            return (len(found) == 1 and found[0] is not False and found[0] is not None) or len(found) > 1

        return test

    def test_source(self, writer: Writer, item: str) -> str:
        """The condition as source text; `item` is the expression for the item in focus."""
        written = condition_source(writer, self.node, self.scope.names, self.item, item)
        return written if written is not None else f"{writer.constant(self.test())}({FRAME}, {item})"

    def text(self) -> Text:
        """The expression as text: its first result, None when it is empty."""
        fast = native_text.text(self.node, self.scope.names, self.item)
        if fast is not None:
            return fast
        first = self.first()
        return lambda frame, item: as_text(first(frame, item))

    def text_source(self, writer: Writer, item: str) -> str:
        """The text as source text."""
        written = text_source(writer, self.node, self.scope.names, self.item, item)
        return written if written is not None else f"{writer.constant(self.text())}({FRAME}, {item})"

    def first(self) -> First:
        """The first result as a JSON value (or an HL7 v2 node), None when it is empty."""
        evaluate = self.evaluate()

        def first(frame: Frame, item: Any) -> Any:
            found = evaluate(frame, item)
            return found[0] if found else None

        return first

    def evaluate(self) -> Evaluate:
        """All results, by the general engine."""
        try:
            compiled = Compiled("", self.node, fhir_name(self.item) or None)
        except FhirPathError as error:
            raise self.fail(error.text) from error
        host, of_focus = self.host, typed_reader(self.item, self.origin)
        used = [
            (name, variable.slot, typed_reader(variable.kind, variable.origin))
            for name, variable in self.scope.names.items()
            if _uses(self.node, name)
        ]
        if _calls(self.node, "resolve"):
            return self._bounded(_with_references(compiled, host, used))

        def evaluate(frame: Frame, item: Any) -> list[Any]:
            variables = {name: read(frame, frame[slot]) for name, slot, read in used}
            focus, run = of_focus(frame, item), frame[0] if frame else None
            return [_json(one) for one in compiled.evaluate(focus, variables, host=host, budget=run)]

        return self._bounded(evaluate)

    def _bounded(self, evaluate: Evaluate) -> Evaluate:
        """The same; steps beyond the budget of the run are its Problem, with the rule."""
        at = self.at

        def bounded(frame: Frame, item: Any) -> list[Any]:
            try:
                return evaluate(frame, item)
            except BudgetError as error:
                if not frame:
                    raise
                if frame[0].steps_left <= 0:
                    raise out_of_steps(frame[0].limit, at) from error
                raise Problem(Category.COSTLY, error.text, None if at is None else place_of(at)) from error

        return bounded

    @property
    def is_text(self) -> bool:
        """Whether `native` compiles it to text."""
        return native_text.text(self.node, self.scope.names, self.item) is not None


def _with_references(compiled: Compiled, host: Host, used: list[tuple[str, int, Typed]]) -> Evaluate:
    """`evaluate` for an expression with `resolve()`: references in the source of the run, then those of the host."""

    def evaluate(frame: Frame, item: Any) -> list[Any]:
        variables = {name: read(frame, frame[slot]) for name, slot, read in used}
        items = (item, *(frame[slot] for _, slot, _ in used))

        def resolve(reference: str) -> Any:
            found = frame[0].in_source.resolve(reference, items) if frame else None
            return host.resolve(reference) if found is None and host.resolve is not None else found

        # without a root resource `resolve()` asks the host, and does not go through all entries each time
        own = {**variables, "rootResource": [], "resource": []}
        host_of_run, run = replace(host, resolve=resolve), frame[0] if frame else None
        return [_json(one) for one in compiled.evaluate(item, own, host=host_of_run, budget=run)]

    return evaluate


def _json(value: Any) -> Any:
    """A result as JSON: dates and quantities of FHIRPath become text."""
    if value is None or isinstance(value, (str, bool, int, float, dict, list)) or hasattr(value, "children"):
        return value
    return value if hasattr(value, "as_tuple") else str(value)


def _name_variables(node: ast.Node, names: Mapping[str, Variable], focus_name: str) -> ast.Node:
    """The tree with `%name` for each bare name of a variable, and `%context` for the item in focus."""
    if isinstance(node, ast.Member) and node.focus is None:
        if node.name == focus_name:
            return ast.Variable(FOCUS)
        return ast.Variable(node.name) if node.name in names else node
    if isinstance(node, ast.Variable) and node.name == focus_name and focus_name:
        return ast.Variable(FOCUS)
    changed: dict[str, Any] = {}
    for one in fields(node):
        value = getattr(node, one.name)
        if isinstance(value, ast.Node):
            changed[one.name] = _name_variables(value, names, focus_name)
        elif isinstance(value, tuple):
            changed[one.name] = tuple(_name_variables(part, names, focus_name) for part in value)
    return replace(node, **changed) if changed else node


FOCUS = native.FOCUS
"""`%context`: the item in focus, also inside the brackets of a function, where `$this` is something else."""


def _calls(node: ast.Node, name: str) -> bool:
    """Whether an expression calls a function."""
    if isinstance(node, ast.Function) and node.name == name:
        return True
    return any(_calls(child, name) for child in native.parts(node))


def _uses(node: ast.Node, name: str) -> bool:
    if isinstance(node, ast.Variable):
        return node.name == name
    return any(_uses(child, name) for child in native.parts(node))


__all__ = ["Evaluate", "Expression", "Test"]
