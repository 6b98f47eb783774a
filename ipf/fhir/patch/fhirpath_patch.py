"""FHIRPath Patch: a Parameters resource in, a function on resources out.

Operations are carried out one after another on a copy; the resource itself is never changed.  `delete` of what is not
there does nothing; every other operation needs its element, and exactly one.  What becomes empty is removed, since FHIR
has no empty elements.  Problem MALFORMED for Parameters that are no patch, INVALID for a patch that does not fit.

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

    def text(self, name: str) -> str:
        """A part that is a text."""
        said = _said(self.parts[name])
        if not isinstance(said, str):
            raise Problem(Category.MALFORMED, f"{name} must be a text", self.place)
        return said

    def number(self, name: str) -> int:
        """A part that is a number."""
        said = _said(self.parts[name])
        if type(said) is not int or said < 0:
            raise Problem(Category.MALFORMED, f"{name} must be a whole number from 0", self.place)
        return said

    def refuse(self, text: str) -> Problem:
        """The operation does not fit the resource."""
        return Problem(Category.INVALID, f"{self.type}: {text}", self.place)


def fhirpath_patch(parameters: Json) -> Patch:
    """The patch that a Parameters resource (of sound structure) describes."""
    items = parameters.get("parameter", [])
    if len(items) > _MOST_OPERATIONS:
        raise Problem(Category.TOO_LARGE, f"a patch has at most {_MOST_OPERATIONS} operations")
    read = [_operation(item, f"Parameters.parameter[{number}]") for number, item in enumerate(items)]

    def apply(resource: Json) -> Json:
        patched: Json = loads(dumps(resource))
        for operation in read:
            _PERFORM[operation.type](patched, operation)
        return patched

    return apply


def _operation(item: Json, place: str) -> _Operation:
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
    return _Operation(kind, parts, place)


def _said(part: Json) -> Any:
    """The value[x] of a part."""
    return next((value for name, value in part.items() if name.startswith("value")), None)


# -- values


@dataclass(slots=True)
class _Value:
    """A value to be put in: JSON, what belongs beside a primitive, and the name of its type when the patch says it."""

    value: Any
    shadow: Any = None
    type: str | None = None


def _value(part: Json, element: Element, operation: _Operation) -> _Value:
    """The value of a part for an element: value[x], a resource, or parts for a structure without a name."""
    if "resource" in part:
        return _Value(part["resource"], None, "Resource")
    if "part" in part:
        return _Value(_structure(part["part"], element.types[0], operation), None, element.types[0])
    names = [name.removeprefix("_") for name in part if name.removeprefix("_").startswith("value")]
    if not names:
        raise Problem(Category.MALFORMED, "the value is missing", operation.place)
    shadow = part.get("_" + names[0])
    return _Value(part.get(names[0]), shadow, names[0].removeprefix("value"))


def _structure(parts: list[Json], path: str, operation: _Operation) -> Json:
    holder: Json = {}
    for part in parts:
        name = str(part.get("name"))
        element = definitions().element(path, name)
        if element is None:
            raise operation.refuse(f"{path} has no element {name[:60]}")
        _put(holder, element, _value(part, element, operation), None, operation)
    return holder


def _json_name(element: Element, value: _Value, operation: _Operation) -> str:
    if not element.choice:
        return element.name
    for kind in element.types:
        if value.type is not None and kind.lower() == value.type.lower():
            return element.json_name(kind)
    raise operation.refuse(f"{element.path} cannot have a value of type {value.type}")


def _put(holder: Json, element: Element, value: _Value, at: int | None, operation: _Operation) -> None:
    """Set a single element, or put one into a list before `at` (None: at its end)."""
    name = _json_name(element, value, operation)
    if not element.many:
        if value.value is not None:
            holder[name] = value.value
        if value.shadow is not None:
            holder["_" + name] = value.shadow
        return
    count = _length(holder, name)
    for key, item in ((name, value.value), ("_" + name, value.shadow)):
        if key not in holder and item is None:
            continue
        items = holder.setdefault(key, [])
        items += [None] * (count - len(items))
        items.insert(count if at is None else at, item)


def _length(holder: Json, name: str) -> int:
    return max(len(holder.get(name) or ()), len(holder.get("_" + name) or ()))


# -- operations


def _one(resource: Json, operation: _Operation) -> Location:
    found = locate(resource, operation.text("path"), operation.place)
    if len(found) != 1:
        said = "nothing is at the path" if not found else "several elements are at the path"
        raise operation.refuse(said)
    return found[0]


def _add(resource: Json, operation: _Operation) -> None:
    target, name = _one(resource, operation), operation.text("name")
    element = child_element(target, name)
    if element is None:
        raise operation.refuse(f"{target.type} has no element {name[:60]}")
    holder = _shadow_of(target) if target.is_primitive else target.value
    value = _value(operation.parts["value"], element, operation)
    there = any(element.json_name(kind) in holder for kind in element.types)
    if there and not element.many:
        raise operation.refuse(f"{name[:60]} is there already")
    _put(holder, element, value, None, operation)


def _shadow_of(target: Location) -> Json:
    """What stands beside a primitive, made when it is not there."""
    name = "_" + target.name
    if target.number is None:
        made: Json = target.holder.setdefault(name, {})
        return made
    items = target.holder.setdefault(name, [])
    items += [None] * (_length(target.holder, target.name) - len(items))
    if items[target.number] is None:
        items[target.number] = {}
    found: Json = items[target.number]
    return found


def _insert(resource: Json, operation: _Operation) -> None:
    target, at = _list_at(resource, operation), operation.number("index")
    if target.element is None or at > _length(target.holder, target.name):
        raise operation.refuse("there is no such place in the list")
    _put(target.holder, target.element, _value(operation.parts["value"], target.element, operation), at, operation)


def _list_at(resource: Json, operation: _Operation) -> Location:
    """The first element of the list that the path points at."""
    found = locate(resource, operation.text("path"), operation.place)
    if not found:
        raise operation.refuse("nothing is at the path")
    first = found[0]
    if first.number is None or any(one.holder is not first.holder or one.name != first.name for one in found):
        raise operation.refuse("the path must point at one list")
    return first


def _delete(resource: Json, operation: _Operation) -> None:
    found = locate(resource, operation.text("path"), operation.place)
    if len(found) > 1:
        raise operation.refuse("several elements are at the path")
    if found:
        _remove(found[0], operation)


def _remove(target: Location, operation: _Operation) -> None:
    """Take an element away, and what holds it when nothing else is in it."""
    if target.above is None:
        raise operation.refuse("the whole resource cannot be removed")
    for key in (target.name, "_" + target.name):
        items = target.holder.get(key)
        if target.number is None:
            target.holder.pop(key, None)
        elif items is not None and target.number < len(items):
            del items[target.number]
            if not any(item is not None for item in items):
                del target.holder[key]
    above = target.above
    if not target.holder and above.above is not None:
        if above.is_primitive and above.value is not None:
            _drop_shadow(above)
        else:
            _remove(above, operation)


def _drop_shadow(target: Location) -> None:
    name = "_" + target.name
    if target.number is None:
        del target.holder[name]
        return
    items = target.holder[name]
    items[target.number] = None
    if not any(item is not None for item in items):
        del target.holder[name]


def _replace(resource: Json, operation: _Operation) -> None:
    target = _one(resource, operation)
    if target.element is None:
        raise operation.refuse("the whole resource cannot be replaced")
    value = _value(operation.parts["value"], target.element, operation)
    if target.number is None:
        target.holder.pop(target.name, None)
        target.holder.pop("_" + target.name, None)
        _put(target.holder, target.element, value, None, operation)
        return
    for key, item in ((target.name, value.value), ("_" + target.name, value.shadow)):
        if key in target.holder or item is not None:
            items = target.holder.setdefault(key, [])
            items += [None] * (target.number + 1 - len(items))
            items[target.number] = item
            if not any(one is not None for one in items):
                del target.holder[key]


def _move(resource: Json, operation: _Operation) -> None:
    target = _list_at(resource, operation)
    source, destination = operation.number("source"), operation.number("destination")
    count = _length(target.holder, target.name)
    if source >= count or destination >= count:
        raise operation.refuse("there is no such place in the list")
    for key in (target.name, "_" + target.name):
        items = target.holder.get(key)
        if items is not None:
            items += [None] * (count - len(items))
            items.insert(destination, items.pop(source))


_PERFORM: dict[str, Callable[[Json, _Operation], None]] = {
    "add": _add, "insert": _insert, "delete": _delete, "replace": _replace, "move": _move,
}  # fmt: skip
