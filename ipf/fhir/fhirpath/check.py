"""The strict check of an expression against its types, without data.

Walks the tree once with the type of each step.  Steps of unknown type (resources in a Bundle, `resolve()`, variables)
are accepted.  Source: http://hl7.org/fhirpath/N1/#type-safety-and-strict-evaluation
"""

from __future__ import annotations

from dataclasses import dataclass

from ipf.fhir.fhirpath.errors import FhirPathError
from ipf.fhir.fhirpath.functions.type import read_type, type_of_syntax
from ipf.fhir.fhirpath.items.model import RESOURCE_ROOTS, Model
from ipf.fhir.fhirpath.language import ast

_KEEPS_TYPE = frozenset(
    (
        *("where", "first", "last", "tail", "skip", "take", "single", "distinct", "trace", "intersect", "exclude"),
        *("as", "ofType", "sort", "defineVariable", "slice", "checkModifiers"),
    )
)
_RESULTS = {"extension": "Extension", "elementDefinition": "ElementDefinition"}
_PER_ITEM = frozenset(["where", "exists", "all", "select", "repeat", "trace", "sort"])
_NEEDS_ORDER = frozenset(("first", "last", "tail", "skip", "take"))


@dataclass(frozen=True, slots=True)
class Known:
    """The static type of a collection: its possible types (empty = unknown), and whether it is ordered."""

    types: frozenset[str] = frozenset()
    ordered: bool = True


_NOTHING = Known()


def check(node: ast.Node, kind: str, model: Model) -> None:
    """Raise FhirPathError (`semantic`) when the expression is wrong on a focus of type `kind`."""
    _Checker(model).infer(node, Known(frozenset((kind,))))


class _Checker:
    """Infers types bottom up; `this` is the static type of `$this`."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def infer(self, node: ast.Node, this: Known) -> Known:
        """The static type of the result of a tree."""
        match node:
            case ast.This("this"):
                return this
            case ast.Member(None, name):
                return self.first_name(name, this)
            case ast.Member(focus, name) if focus is not None:
                return self.member(self.infer(focus, this), name)
            case ast.Function(focus, name, args):
                return self.function(this if focus is None else self.infer(focus, this), name, args, this)
            case ast.Index(focus, index):
                self.infer(index, this)
                return self.infer(focus, this)
            case ast.Unary(_, operand):
                self.infer(operand, this)
            case ast.TypeTest(operator, operand, type_name):
                known = self.infer(operand, this)
                return self.narrowed(known, type_name) if operator == "as" else _NOTHING
            case ast.Binary(operator, left, right):
                a, b = self.infer(left, this), self.infer(right, this)
                if operator == "|" and a.types and b.types:
                    return Known(a.types | b.types, False)
        return _NOTHING

    def first_name(self, name: str, this: Known) -> Known:
        """A type that the focus must have, or an element of it."""
        if not (name[:1].isupper() and self.model.is_known(name)):
            return self.member(this, name)
        if this.types and not any(self.model.is_a(each, name) or self.model.is_a(name, each) for each in this.types):
            raise FhirPathError(f"the context is not a {name}", kind="semantic")
        return Known(frozenset((name,)))

    def member(self, known: Known, name: str) -> Known:
        """An element that at least one of the types must have."""
        found: set[str] = set()
        open_end = not known.types
        for kind in known.types:
            if kind in RESOURCE_ROOTS or self.model.is_primitive(kind) or not self.model.is_known(kind):
                open_end = True
            elif not self.model.is_json_name(kind, name) and (step := self.model.step(kind, name)) is not None:
                found.update(step.choices.values() or ([step.type] if step.type else []))
                open_end = open_end or not (step.choices or step.type)
        if not found and not open_end:
            raise FhirPathError(f"{' or '.join(sorted(known.types))} has no element '{name}'", kind="semantic")
        return _NOTHING if open_end else Known(frozenset(found))

    def function(self, focus: Known, name: str, args: tuple[ast.Node, ...], this: Known) -> Known:
        """The static type of a function; unknown unless the function keeps, narrows or defines it."""
        if name in _NEEDS_ORDER and not focus.ordered:
            raise FhirPathError(f"{name}() of a collection that has no order", kind="semantic")
        if name in ("as", "ofType", "is"):
            known = self.narrowed(focus, type_of_syntax(args[0]))
            return _NOTHING if name == "is" else known
        answers = [self.infer(arg, focus if name in _PER_ITEM else this) for arg in args]
        if name in _KEEPS_TYPE:
            return focus
        if name in _RESULTS:
            return Known(frozenset((_RESULTS[name],)))
        if name == "select" and answers:
            return answers[0]
        return Known(frozenset(), ordered=name not in ("children", "descendants"))

    def narrowed(self, known: Known, written: str) -> Known:
        """The requested type."""
        _, name = read_type(self.model, written)
        return Known(frozenset((name,))) if self.model.is_known(name) else _NOTHING
