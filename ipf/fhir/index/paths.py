"""The elements that the expression of a search parameter selects, resolved before any resource arrives.

All but three of R4's expressions are simple: paths, unions, `as` and `ofType`, and four kinds of filter.  The
definitions say what they mean in JSON: `Observation.value as Quantity` is the member `valueQuantity`, and its values
are Quantities.  An expression becomes element paths: steps (the name of a member, or a condition on the value) and the
FHIR type at the end.  NotSimple is raised for any other expression; it runs in the FHIRPath engine.

Source: https://hl7.org/fhir/R4/searchparameter.html#expression
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from ipf.fhir.fhirpath.language import ast
from ipf.fhir.model.definitions import definitions
from ipf.fhir.model.reference import referenced_type


class NotSimple(Exception):
    """The expression needs the general engine; the text says which part of it."""


@dataclass(frozen=True, slots=True)
class RefersTo:
    """A Reference passes when it points at this resource type: `where(resolve() is Patient)`."""

    resource_type: str

    def __call__(self, value: Any) -> bool:
        return type(value) is dict and referenced_type(value) == self.resource_type


@dataclass(frozen=True, slots=True)
class MemberIs:
    """A value passes when its member is this text: `where(system='phone')`, and the url of an extension."""

    name: str
    text: str

    def __call__(self, value: Any) -> bool:
        return type(value) is dict and value.get(self.name) == self.text


@dataclass(frozen=True, slots=True)
class HasExtension:
    """A value passes when it has an extension of this url: `where(hasExtension('...'))`."""

    url: str

    def __call__(self, value: Any) -> bool:
        if type(value) is not dict:
            return False
        return any(type(one) is dict and one.get("url") == self.url for one in value.get("extension") or ())


Condition = RefersTo | MemberIs | HasExtension
Step = str | Condition


@dataclass(frozen=True, slots=True)
class ElementPath:
    """Elements of a resource: the steps to them, and their FHIR type (or type path)."""

    type_path: str
    steps: tuple[Step, ...] = ()


ElementPaths = tuple[ElementPath, ...]


def element_paths(expression: ast.Node, resource_type: str) -> ElementPaths:
    """All paths that `expression` means in a resource of this type, without repeats; alternatives about other types
    are left out."""
    return tuple(dict.fromkeys(_expanded(_resolve(expression, resource_type))))


def values_at(value: Any, steps: tuple[Step, ...]) -> Iterator[Any]:
    """The values that `steps` lead to from `value`; lists are flattened."""
    if type(value) is list:
        for one in value:
            yield from values_at(one, steps)
    elif not steps:
        yield value
    elif isinstance(steps[0], str):
        if type(value) is dict and steps[0] in value:
            yield from values_at(value[steps[0]], steps[1:])
    elif steps[0](value):
        yield from values_at(value, steps[1:])


def _resolve(node: ast.Node, resource_type: str) -> list[ElementPath]:
    match node:
        case ast.Binary("|", left, right):
            return _resolve(left, resource_type) + _resolve(right, resource_type)
        case ast.TypeTest("as", operand, type_name):
            return _of_type(_resolve(operand, resource_type), type_name)
        case ast.Member(None, name):
            return _root(name, resource_type)
        case ast.Member(focus, name) if focus is not None:
            return _members(_resolve(focus, resource_type), name)
        case ast.Function(focus, name, args) if focus is not None:
            return _function(_resolve(focus, resource_type), name, args)
    raise NotSimple(type(node).__name__)


def _root(name: str, resource_type: str) -> list[ElementPath]:
    """The first word of a path: the resource's own type (or one it is made from), another type, or an element."""
    if name[:1].isupper():
        return [ElementPath(resource_type)] if definitions().is_a(resource_type, name) else []
    return _member(ElementPath(resource_type), name)


def _members(focus: list[ElementPath], name: str) -> list[ElementPath]:
    """The element of each path that has it: of a choice (`Extension.value`) most types may not."""
    having = [one for one in focus if definitions().element(one.type_path, name) is not None]
    return [found for one in having or focus for found in _member(one, name)]


def _member(path: ElementPath, name: str) -> list[ElementPath]:
    element = definitions().element(path.type_path, name)
    if element is None:
        raise NotSimple(f"{path.type_path} has no element {name}")
    return [ElementPath(one, (*_inside(path), element.json_name(one))) for one in element.types]


def _inside(path: ElementPath) -> tuple[Step, ...]:
    """The steps to what has elements: of a primitive (`criteria`) its shadow (`_criteria`), with its extensions."""
    if path.type_path[:1].islower() and path.steps and isinstance(path.steps[-1], str):
        return (*path.steps[:-1], f"_{path.steps[-1]}")
    return path.steps


def _function(focus: list[ElementPath], name: str, args: tuple[ast.Node, ...]) -> list[ElementPath]:
    match name, args:
        case (("as" | "ofType"), (ast.Member(_, type_name),)):
            return _of_type(focus, type_name)
        case "where", (criterion,):
            condition = _condition(criterion)
            return [replace(one, steps=(*one.steps, condition)) for one in focus]
        case "extension", (ast.Literal(str() as url),):
            return [ElementPath("Extension", (*_inside(one), "extension", MemberIs("url", url))) for one in focus]
    raise NotSimple(f"{name}()")


def _condition(criterion: ast.Node) -> Condition:
    match criterion:
        case ast.TypeTest("is", ast.Function(None, "resolve", ()), type_name):
            return RefersTo(type_name.removeprefix("FHIR."))
        case ast.Binary("=", ast.Member(None, name), ast.Literal(str() as text)):
            return MemberIs(name, text)
        case ast.Function(None, "hasExtension", (ast.Literal(str() as url),)):
            return HasExtension(url)
    raise NotSimple("where()")


def _of_type(focus: list[ElementPath], type_name: str) -> list[ElementPath]:
    wanted = type_name.removeprefix("FHIR.")
    return [one for one in focus if definitions().is_a(one.type_path, wanted)]


def _expanded(found: list[ElementPath]) -> list[ElementPath]:
    """Replaces extensions by their values."""
    expanded: list[ElementPath] = []
    for one in found:
        expanded.extend(_member(one, "value") if one.type_path == "Extension" else [one])
    return expanded


def presence(expression: ast.Node, resource_type: str) -> tuple[str, ...] | None:
    """Members of the resource of which one must be there and not be false, when that is what `expression` says.

    `Patient.deceased.exists() and Patient.deceased != false` is the one expression of this form; its value is always
    true or false, also when nothing is there.
    """
    match expression:
        case ast.Binary("and", ast.Function(focus, "exists", ()), ast.Binary("!=", left, ast.Literal(False))) if (
            focus is not None and focus == left
        ):
            steps = [one.steps for one in _resolve(focus, resource_type)]
            return tuple(str(path[0]) for path in steps) if all(len(path) == 1 for path in steps) else None
    return None
