"""FHIRPath Patch: a Parameters resource in, a function on resources out.

Operations run in order on a copy; the resource itself is never changed.  `delete` of a missing element does nothing;
every other operation needs exactly one element.  Elements that become empty are removed, since FHIR has no empty
elements.  Problem MALFORMED for Parameters that are not a patch, INVALID for a patch that does not fit the resource.

Source: https://hl7.org/fhir/R4/fhirpatch.html
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ipf.errors import Category, Problem
from ipf.fhir.model.definitions import Element, definitions
from ipf.fhir.model.json import dumps, loads
from ipf.fhir.patch.json_patch import Patch
from ipf.fhir.patch.locate import Location, child_element, locate
from ipf.ports import Json

_MOST_OPERATIONS = 2000
MOST_STEPS = 2_000_000
"""Of the paths of all operations, in equal shares: elements that they pass, and steps of their criteria."""
_NEED = {
    "add": ("path", "name", "value"),
    "insert": ("path", "index", "value"),
    "delete": ("path",),
    "replace": ("path", "value"),
    "move": ("path", "source", "destination"),
}


@dataclass(frozen=True, slots=True)
class _Operation:
    """One operation: its parts by name; `place` names it in messages."""

    type: str
    parts: dict[str, Json]
    place: str
    steps: int

    def find(self, resource: Json) -> list[Location]:
        """The elements that its path finds."""
        return locate(resource, self.text("path"), self.place, self.steps)

    def text(self, name: str) -> str:
        """The value of a string part.  Problem MALFORMED when it is not a string."""
        said = _said(self.parts[name])
        if not isinstance(said, str):
            raise Problem(Category.MALFORMED, f"{name} must be a text", self.place)
        return said

    def number(self, name: str) -> int:
        """The value of an integer part.  Problem MALFORMED when it is not an integer from 0."""
        said = _said(self.parts[name])
        if type(said) is not int or said < 0:
            raise Problem(Category.MALFORMED, f"{name} must be a whole number from 0", self.place)
        return said

    def refuse(self, text: str) -> Problem:
        """The Problem INVALID of an operation that does not fit the resource."""
        return Problem(Category.INVALID, f"{self.type}: {text}", self.place)


def fhirpath_patch(parameters: Json) -> Patch:
    """The patch that a Parameters resource (of sound structure) describes."""
    items = parameters.get("parameter", [])
    if len(items) > _MOST_OPERATIONS:
        raise Problem(Category.TOO_LARGE, f"a patch has at most {_MOST_OPERATIONS} operations")
    steps = MOST_STEPS // max(len(items), 1)
    read = [_operation(item, f"Parameters.parameter[{number}]", steps) for number, item in enumerate(items)]

    def apply(resource: Json) -> Json:
        patched: Json = loads(dumps(resource))
        for operation in read:
            _PERFORM[operation.type](patched, operation)
        return patched

    return apply


def _operation(item: Json, place: str, steps: int) -> _Operation:
    if item.get("name") != "operation":
        raise Problem(Category.MALFORMED, "a patch consists of parameters named operation", place)
    parts: dict[str, Json] = {}
    for part in item.get("part", ()):
        if part.get("name") in parts:
            raise Problem(Category.MALFORMED, f"{part['name']} appears twice", place)
        parts[str(part.get("name"))] = part
    kind = _said(parts.get("type", {}))
    needed = _NEED.get(kind) if isinstance(kind, str) else None
    if not isinstance(kind, str) or needed is None:
        raise Problem(Category.MALFORMED, "type must be add, insert, delete, replace or move", place)
    missing = [name for name in needed if name not in parts]
    if missing:
        raise Problem(Category.MALFORMED, f"{kind} needs {', '.join(missing)}", place)
    return _Operation(kind, parts, place, steps)


def _said(part: Json) -> Any:
    """The value[x] of a part."""
    return next((value for name, value in part.items() if name.startswith("value")), None)


# -- values


@dataclass(slots=True)
class _Value:
    """A new value: JSON, the sibling property `_name` of a primitive, and its type when the patch names it."""

    value: Any
    sibling: Any = None
    type: str | None = None


def _value(part: Json, element: Element, operation: _Operation) -> _Value:
    """The value of a part for an element: value[x], a resource, or nested parts for a backbone element."""
    if "resource" in part:
        return _Value(part["resource"], None, "Resource")
    if "part" in part:
        return _Value(_structure(part["part"], element.types[0], operation), None, element.types[0])
    names = [name.removeprefix("_") for name in part if name.removeprefix("_").startswith("value")]
    if not names:
        raise Problem(Category.MALFORMED, "the value is missing", operation.place)
    sibling = part.get("_" + names[0])
    return _Value(part.get(names[0]), sibling, names[0].removeprefix("value"))


def _structure(parts: list[Json], path: str, operation: _Operation) -> Json:
    container: Json = {}
    for part in parts:
        name = str(part.get("name"))
        element = definitions().element(path, name)
        if element is None:
            raise operation.refuse(f"{path} has no element {name[:60]}")
        _put(container, element, _value(part, element, operation), None, operation)
    return container


def _json_name(element: Element, value: _Value, operation: _Operation) -> str:
    if not element.choice:
        return element.name
    for kind in element.types:
        if value.type is not None and kind.lower() == value.type.lower():
            return element.json_name(kind)
    raise operation.refuse(f"{element.path} cannot have a value of type {value.type}")


def _put(container: Json, element: Element, value: _Value, at: int | None, operation: _Operation) -> None:
    """Set a single element, or insert one into a list before `at` (None: at the end)."""
    name = _json_name(element, value, operation)
    if not element.many:
        if value.value is not None:
            container[name] = value.value
        if value.sibling is not None:
            container["_" + name] = value.sibling
        return
    count = _length(container, name)
    for key, item in ((name, value.value), ("_" + name, value.sibling)):
        if key not in container and item is None:
            continue
        items = container.setdefault(key, [])
        items += [None] * (count - len(items))
        items.insert(count if at is None else at, item)


def _length(container: Json, name: str) -> int:
    return max(len(container.get(name) or ()), len(container.get("_" + name) or ()))


# -- operations


def _one(resource: Json, operation: _Operation) -> Location:
    found = operation.find(resource)
    if len(found) != 1:
        said = "the path finds no element" if not found else "the path finds several elements"
        raise operation.refuse(said)
    return found[0]


def _add(resource: Json, operation: _Operation) -> None:
    target, name = _one(resource, operation), operation.text("name")
    element = child_element(target, name)
    if element is None:
        raise operation.refuse(f"{target.type} has no element {name[:60]}")
    container = _sibling_of(target) if target.is_primitive else target.value
    value = _value(operation.parts["value"], element, operation)
    there = any(element.json_name(kind) in container for kind in element.types)
    if there and not element.many:
        raise operation.refuse(f"{name[:60]} exists already")
    _put(container, element, value, None, operation)


def _sibling_of(target: Location) -> Json:
    """The sibling property `_name` of a primitive, created if absent."""
    name = "_" + target.name
    if target.number is None:
        made: Json = target.container.setdefault(name, {})
        return made
    items = target.container.setdefault(name, [])
    items += [None] * (_length(target.container, target.name) - len(items))
    if items[target.number] is None:
        items[target.number] = {}
    found: Json = items[target.number]
    return found


def _insert(resource: Json, operation: _Operation) -> None:
    target, at = _list_at(resource, operation), operation.number("index")
    if target.element is None or at > _length(target.container, target.name):
        raise operation.refuse("the list has no such index")
    _put(target.container, target.element, _value(operation.parts["value"], target.element, operation), at, operation)


def _list_at(resource: Json, operation: _Operation) -> Location:
    """The first element of the list that the path finds."""
    found = operation.find(resource)
    if not found:
        raise operation.refuse("the path finds no element")
    first = found[0]
    if first.number is None or any(one.container is not first.container or one.name != first.name for one in found):
        raise operation.refuse("the path must find elements of one list")
    return first


def _delete(resource: Json, operation: _Operation) -> None:
    found = operation.find(resource)
    if len(found) > 1:
        raise operation.refuse("the path finds several elements")
    if found:
        _remove(found[0], operation)


def _remove(target: Location, operation: _Operation) -> None:
    """Remove an element, and its parent when that becomes empty."""
    if target.parent is None:
        raise operation.refuse("the whole resource cannot be removed")
    for key in (target.name, "_" + target.name):
        items = target.container.get(key)
        if target.number is None:
            target.container.pop(key, None)
        elif items is not None and target.number < len(items):
            del items[target.number]
            if not any(item is not None for item in items):
                del target.container[key]
    parent = target.parent
    if not target.container and parent.parent is not None:
        if parent.is_primitive and parent.value is not None:
            _drop_sibling(parent)
        else:
            _remove(parent, operation)


def _drop_sibling(target: Location) -> None:
    name = "_" + target.name
    if target.number is None:
        del target.container[name]
        return
    items = target.container[name]
    items[target.number] = None
    if not any(item is not None for item in items):
        del target.container[name]


def _replace(resource: Json, operation: _Operation) -> None:
    target = _one(resource, operation)
    if target.element is None:
        raise operation.refuse("the whole resource cannot be replaced")
    value = _value(operation.parts["value"], target.element, operation)
    if target.number is None:
        target.container.pop(target.name, None)
        target.container.pop("_" + target.name, None)
        _put(target.container, target.element, value, None, operation)
        return
    for key, item in ((target.name, value.value), ("_" + target.name, value.sibling)):
        if key in target.container or item is not None:
            items = target.container.setdefault(key, [])
            items += [None] * (target.number + 1 - len(items))
            items[target.number] = item
            if not any(one is not None for one in items):
                del target.container[key]


def _move(resource: Json, operation: _Operation) -> None:
    target = _list_at(resource, operation)
    source, destination = operation.number("source"), operation.number("destination")
    count = _length(target.container, target.name)
    if source >= count or destination >= count:
        raise operation.refuse("the list has no such index")
    for key in (target.name, "_" + target.name):
        items = target.container.get(key)
        if items is not None:
            items += [None] * (count - len(items))
            items.insert(destination, items.pop(source))


_PERFORM: dict[str, Callable[[Json, _Operation], None]] = {
    "add": _add, "insert": _insert, "delete": _delete, "replace": _replace, "move": _move,
}  # fmt: skip
