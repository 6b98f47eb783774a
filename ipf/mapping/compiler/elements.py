"""Names of elements in the sources and FHIRPath of rules, checked against FHIR types and logical models.

An element that no type of its owner has is a mistake in the map: `src.gendre`, `where usee = 'home'`.  An owner of
unknown type is not checked: an untyped variable, a resource of any type, a choice of any type.  `v2_names` checks the
names of HL7 v2.

Source: http://hl7.org/fhirpath/N1/#type-safety-and-strict-evaluation
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ipf.fhir.fhirpath.errors import FhirPathError
from ipf.fhir.fhirpath.functions.type import type_of_syntax
from ipf.fhir.fhirpath.language import ast
from ipf.mapping.compiler.expressions.native import FOCUS, parts
from ipf.mapping.compiler.kinds import Kind, fhir
from ipf.mapping.compiler.models import ABSTRACT, Models
from ipf.mapping.compiler.scope import Variable

Kinds = frozenset[Kind]
"""The possible kinds of a value; empty = not known."""

_UNKNOWN: Kinds = frozenset()
_KEEPING = frozenset(
    (
        *("where", "first", "last", "tail", "skip", "take", "single", "distinct", "trace", "intersect", "exclude"),
        *("sort", "defineVariable", "slice", "checkModifiers"),
    )
)
_ON_ITEMS = frozenset(("where", "exists", "all", "select", "repeat", "repeatAll", "aggregate", "sort", "trace"))
_ON_FOCUS = _ON_ITEMS | {"iif"}
_OF_A_TYPE = frozenset(("is", "as", "ofType"))
_ANY_TYPE = 40
"""A choice of that many types is one of any type."""


def kinds_of(kind: Kind) -> Kinds:
    """The kind, if elements of it can be named."""
    return frozenset((kind,)) if kind.is_known and not kind.is_text and kind.name not in ABSTRACT else _UNKNOWN


@dataclass(frozen=True, slots=True)
class ElementNames:
    """Checks names at one place of a map.  `fail` makes the error."""

    models: Models
    fail: Callable[[str], Exception]

    def check_path(self, kind: Kind, path: str) -> None:
        """Check `a.b.c` from an item of `kind`."""
        found = kinds_of(kind)
        for name in path.split("."):
            found = self.step(found, name)

    def check_expression(self, node: ast.Node, item: Kind, names: Mapping[str, Variable]) -> None:
        """Check a tree in which variables have their names.  `item`: kind of the item in focus."""
        variables = {name: kinds_of(variable.kind) for name, variable in names.items()}
        variables[FOCUS] = kinds_of(item)
        _Inference(self, variables).kinds(node, variables[FOCUS])

    def step(self, owners: Kinds, name: str) -> Kinds:
        """Kinds of the element `name`, which at least one of the owners must have."""
        able = [one for one in owners if not self.models.lacks(one, name)]
        if owners and not able:
            text = " or ".join(sorted(one.name for one in owners))
            raise self.fail(f"{text} has no element '{name}'")
        found: set[Kind] = set()
        for one in able:
            kinds = self._kinds_of_element(one, name)
            if not kinds:
                return _UNKNOWN
            found |= kinds
        return frozenset(found)

    def _kinds_of_element(self, owner: Kind, name: str) -> Kinds:
        member = self.models.member(owner, name)
        if member is None:
            return frozenset((owner,)) if name == "value" and self.models.is_primitive(owner) else _UNKNOWN
        if len(member.kinds) > _ANY_TYPE or any(one.name in ABSTRACT for one in member.kinds):
            return _UNKNOWN
        return frozenset(member.kinds)


@dataclass(frozen=True, slots=True)
class _Inference:
    """The kinds of the results of a tree.  `variables`: the kinds of each variable."""

    names: ElementNames
    variables: Mapping[str, Kinds]

    def kinds(self, node: ast.Node, this: Kinds) -> Kinds:
        """Kinds of what a node gives, after a check of the names in it.  `this`: of the item in focus."""
        match node:
            case ast.Variable(name):
                return self.variables.get(name, _UNKNOWN)
            case ast.This(name):
                return this if name == "this" else _UNKNOWN
            case ast.Member(None, name):
                return self._first_name(name, this)
            case ast.Member(focus, name) if focus is not None:
                return self.names.step(self.kinds(focus, this), name)
            case ast.Function():
                return self._function(node, this)
            case ast.Index(focus, index):
                self.kinds(index, this)
                return self.kinds(focus, this)
            case ast.TypeTest(operator, operand, type_name):
                self.kinds(operand, this)
                return self._named(type_name) if operator == "as" else _UNKNOWN
            case ast.Binary("|", left, right):
                return _either(self.kinds(left, this), self.kinds(right, this))
        for part in parts(node):
            self.kinds(part, this)
        return _UNKNOWN

    def _first_name(self, name: str, this: Kinds) -> Kinds:
        """A type that the focus must have, or an element of it."""
        named = self._named(name) if name[:1].isupper() else _UNKNOWN
        return named or self.names.step(this, name)

    def _function(self, node: ast.Function, this: Kinds) -> Kinds:
        focus = this if node.focus is None else self.kinds(node.focus, this)
        if node.name in _OF_A_TYPE:
            return self._of_type(node) if node.name != "is" else _UNKNOWN
        inner = focus if node.name in _ON_FOCUS else this
        results = [self.kinds(one, inner) for one in node.args]
        if node.name in _KEEPING:
            return focus
        if node.name in ("union", "combine") and results:
            return _either(focus, results[0])
        if node.name == "select" and results:
            return results[0]
        return frozenset((fhir("Extension"),)) if node.name == "extension" else _UNKNOWN

    def _of_type(self, node: ast.Function) -> Kinds:
        try:
            return self._named(type_of_syntax(node.args[0])) if node.args else _UNKNOWN
        except FhirPathError:  # reported where the expression is compiled
            return _UNKNOWN

    def _named(self, type_name: str) -> Kinds:
        found = self.names.models.kind_of_name(type_name)
        return _UNKNOWN if found is None else kinds_of(found)


def _either(first: Kinds, second: Kinds) -> Kinds:
    return first | second if first and second else _UNKNOWN
