"""Resolves the FHIRPath of a patch to locations: elements with their container, so that they can be changed.

Evaluation of FHIRPath gives values; a patch needs locations.  So this module walks the path step by step.  It supports
members, indexes, `where(...)`, `first()`, `last()`, `single()`, `ofType(...)` and `extension(...)`.  The FHIRPath
engine evaluates the criterion of `where`.

Source: https://hl7.org/fhir/R4/fhirpatch.html
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ipf.errors import Category, Problem
from ipf.fhir.budget import Budget
from ipf.fhir.fhirpath import Expression, FhirNode, FhirPathError, parse
from ipf.fhir.fhirpath.evaluation.context import MAX_STEPS, Host
from ipf.fhir.fhirpath.language import ast
from ipf.fhir.model.definitions import Element, definitions
from ipf.ports import Json

_EVALUATION = 10  # steps of an evaluation, at least


@dataclass(frozen=True, slots=True)
class Location:
    """An element: its container (a JSON object), its name there, its index in a list, its type.

    `parent` is the location of the container; None for the root.
    """

    container: Json
    name: str
    number: int | None
    type: str
    parent: Location | None
    element: Element | None = None

    @property
    def value(self) -> Any:
        """The JSON value; None of a primitive that has only extensions."""
        if self.parent is None:
            return self.container
        found = self.container.get(self.name)
        return found if self.number is None else _item(found, self.number)

    @property
    def sibling(self) -> Any:
        """The sibling property `_name` of a primitive."""
        found = self.container.get("_" + self.name) if self.parent is not None else None
        return found if self.number is None else _item(found, self.number)

    @property
    def is_primitive(self) -> bool:
        """Whether the type is primitive, so that its children are in the sibling property."""
        return self.type in definitions().primitive_types


def _item(found: Any, number: int) -> Any:
    return found[number] if isinstance(found, list) and number < len(found) else None


def locate(resource: Json, path: str, place: str, steps: int = MAX_STEPS) -> list[Location]:
    """All elements that a path finds, in so many steps.

    Problem MALFORMED or NOT_SUPPORTED for a path that is not supported, COSTLY for one that takes more steps.
    """
    try:
        return list(_walk(parse(path), _root(resource), _Run(place, Budget(steps, "the path of the patch", place))))
    except FhirPathError as refused:
        raise Problem(Category.MALFORMED, f"the path is not valid FHIRPath: {refused}", place) from None


def _root(resource: Json) -> Location:
    return Location(resource, "", None, str(resource["resourceType"]), None)


@dataclass(frozen=True, slots=True)
class _Run:
    """The resolution of one path.  `place` names it in messages."""

    place: str
    left: Budget

    def share(self, count: int) -> int:
        """The steps of each of so many criteria: together they may take half of what is left."""
        each = max(self.left.steps_left // (2 * max(count, 1)), _EVALUATION)
        self.left.spend(each * count)
        return each


def _walk(node: ast.Node, root: Location, run: _Run) -> Iterator[Location]:
    if isinstance(node, ast.Member):
        if node.focus is None and definitions().is_a(root.type, node.name):
            yield root
            return
        for one in [root] if node.focus is None else _walk(node.focus, root, run):
            run.left.spend()
            for child in children(one, node.name):
                run.left.spend()
                yield child
    elif isinstance(node, ast.Index) and isinstance(node.index, ast.Literal) and type(node.index.value) is int:
        found = list(_walk(node.focus, root, run))
        yield from found[node.index.value : node.index.value + 1] if node.index.value >= 0 else ()
    elif isinstance(node, ast.This) and node.name == "this":
        yield root
    elif isinstance(node, ast.Function) and node.focus is not None:
        yield from _function(node, list(_walk(node.focus, root, run)), run)
    elif isinstance(node, ast.TypeTest) and node.operator == "as":
        yield from _of_type(list(_walk(node.operand, root, run)), node.type_name)
    else:
        raise Problem(
            Category.NOT_SUPPORTED, "a patch path may use members, indexes, where, first, last, ofType", run.place
        )


def _function(node: ast.Function, found: list[Location], run: _Run) -> Iterator[Location]:
    (argument,) = node.args if len(node.args) == 1 else (None,)
    if node.name == "where" and argument is not None:
        criterion, host = Expression("", argument), Host(steps=run.share(len(found)))
        yield from (one for one in found if criterion.test([FhirNode(one.value, one.type, one.sibling)], host=host))
    elif node.name in ("first", "single") and not node.args:
        yield from found[:1] if node.name == "first" or len(found) < 2 else found
    elif node.name == "last" and not node.args:
        yield from found[-1:]
    elif node.name == "extension" and isinstance(argument, ast.Literal):
        extensions = [child for one in found for child in children(one, "extension")]
        yield from (one for one in extensions if (one.value or {}).get("url") == argument.value)
    elif node.name in ("ofType", "as") and isinstance(argument, ast.Member):
        yield from _of_type(found, argument.name)
    else:
        text = f"a patch path may not use {node.name}()"
        raise Problem(Category.NOT_SUPPORTED, text, run.place)


def _of_type(found: list[Location], name: str) -> Iterator[Location]:
    wanted = name.rpartition(".")[2]
    return (one for one in found if definitions().is_a(one.type, wanted))


def children(parent: Location, name: str) -> Iterator[Location]:
    """The children of this name; for a choice, of any type."""
    value = parent.sibling if parent.is_primitive else parent.value
    element = child_element(parent, name)
    if element is None or not isinstance(value, dict):
        return
    for kind in element.types:
        json_name = element.json_name(kind)
        if json_name not in value and "_" + json_name not in value:
            continue
        if not element.many:
            yield Location(value, json_name, None, _type(kind, value.get(json_name)), parent, element)
            continue
        for number in range(max(len(value.get(json_name) or ()), len(value.get("_" + json_name) or ()))):
            item = _item(value.get(json_name), number)
            yield Location(value, json_name, number, _type(kind, item), parent, element)


def child_element(parent: Location, name: str) -> Element | None:
    """The definition of a child, by the name that paths use."""
    return definitions().element("Element" if parent.is_primitive else parent.type, name)


def _type(kind: str, value: Any) -> str:
    """The type of a value; that of a resource is its resourceType."""
    return str(value.get("resourceType", kind)) if kind == "Resource" and isinstance(value, dict) else kind
