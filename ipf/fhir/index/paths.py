"""The expression of a search parameter in, the places in JSON that it means out.

All but three of R4's expressions are simple: paths, unions, `as` and `ofType`, and four kinds of filter.  What they
mean is known before any resource is seen: `Observation.value as Quantity` is the member `valueQuantity` and its values
are Quantities.  So each is resolved once, against the definitions, to places: steps to walk (a member's name, or a
guard that a value must pass) and the type of what is found there.  An expression that is not simple raises NotSimple,
and is left to the general FHIRPath engine.

Source: https://hl7.org/fhir/R4/searchparameter.html#expression
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from ipf.fhir.fhirpath import ast
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


Guard = RefersTo | MemberIs | HasExtension
Step = str | Guard


@dataclass(frozen=True, slots=True)
class Place:
    """Where values are: the steps from the resource, and the type (or type path) of what they lead to."""

    type_path: str
    steps: tuple[Step, ...] = ()


Destinations = tuple[Place, ...]


def places(expression: ast.Node, resource_type: str) -> Destinations:
    """All places that `expression` means in a resource of this type, without repeats; alternatives about other types
    are left out."""
    return tuple(dict.fromkeys(_expanded(_resolve(expression, resource_type))))


def values_at(value: Any, steps: tuple[Step, ...]) -> Iterator[Any]:
    """The values that `steps` lead to from `value`; lists are gone through."""
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


def _resolve(node: ast.Node, resource_type: str) -> list[Place]:
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


def _root(name: str, resource_type: str) -> list[Place]:
    """The first word of a path: the resource's own type (or one it is made from), another type, or an element."""
    if name[:1].isupper():
        return [Place(resource_type)] if definitions().is_a(resource_type, name) else []
    return _member(Place(resource_type), name)


def _members(focus: list[Place], name: str) -> list[Place]:
    """The element of each place that has it: of a choice (`Extension.value`) most types may not."""
    having = [one for one in focus if definitions().element(one.type_path, name) is not None]
    return [found for one in having or focus for found in _member(one, name)]


def _member(place: Place, name: str) -> list[Place]:
    element = definitions().element(place.type_path, name)
    if element is None:
        raise NotSimple(f"{place.type_path} has no element {name}")
    return [Place(one, (*_inside(place), element.json_name(one))) for one in element.types]


def _inside(place: Place) -> tuple[Step, ...]:
    """The steps to what has elements: of a primitive (`criteria`) its shadow (`_criteria`), with its extensions."""
    if place.type_path[:1].islower() and place.steps and isinstance(place.steps[-1], str):
        return (*place.steps[:-1], f"_{place.steps[-1]}")
    return place.steps


def _function(focus: list[Place], name: str, args: tuple[ast.Node, ...]) -> list[Place]:
    match name, args:
        case (("as" | "ofType"), (ast.Member(_, type_name),)):
            return _of_type(focus, type_name)
        case "where", (criterion,):
            guard = _guard(criterion)
            return [replace(one, steps=(*one.steps, guard)) for one in focus]
        case "extension", (ast.Literal(str() as url),):
            return [Place("Extension", (*_inside(one), "extension", MemberIs("url", url))) for one in focus]
    raise NotSimple(f"{name}()")


def _guard(criterion: ast.Node) -> Guard:
    match criterion:
        case ast.TypeTest("is", ast.Function(None, "resolve", ()), type_name):
            return RefersTo(type_name.removeprefix("FHIR."))
        case ast.Binary("=", ast.Member(None, name), ast.Literal(str() as text)):
            return MemberIs(name, text)
        case ast.Function(None, "hasExtension", (ast.Literal(str() as url),)):
            return HasExtension(url)
    raise NotSimple("where()")


def _of_type(focus: list[Place], type_name: str) -> list[Place]:
    wanted = type_name.removeprefix("FHIR.")
    return [one for one in focus if definitions().is_a(one.type_path, wanted)]


def _expanded(found: list[Place]) -> list[Place]:
    """Extensions stand for their values."""
    expanded: list[Place] = []
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
