"""JSON Patch: a list of operations in, a function on resources out.

The input document is never changed; the result is a new one.  Numbers keep their digits; `test` compares numbers by
value, and a number never equals a boolean or a string.  Problem MALFORMED for an invalid patch, INVALID for one that
does not fit the resource; both name the operation.

Sources: RFC 6902 (JSON Patch), RFC 6901 (JSON Pointer), https://hl7.org/fhir/R4/http.html#patch
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from ipf.errors import Category, Problem
from ipf.fhir.model.json import dumps, loads

Patch = Callable[[Any], Any]

_MOST_OPERATIONS = 2000
_MOST_COPIED = 16 * 1024 * 1024  # bytes that the copy operations of one patch may add: they could double each time
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")
_TILDE = re.compile(r"~(?![01])")
_NEED = {"add": "value", "replace": "value", "test": "value", "move": "from", "copy": "from", "remove": "path"}


def json_patch(operations: Any) -> Patch:
    """The patch that a parsed JSON Patch document describes."""
    if not isinstance(operations, list) or len(operations) > _MOST_OPERATIONS:
        raise Problem(Category.MALFORMED, f"a JSON Patch is a list of at most {_MOST_OPERATIONS} operations")
    read = [_operation(item, f"operation[{number}]") for number, item in enumerate(operations)]

    def apply(document: Any) -> Any:
        state = _State(loads(dumps(document)))
        for operation in read:
            _PERFORM[operation.name](state, operation)
        return state.document

    return apply


@dataclass(frozen=True, slots=True)
class _Operation:
    """One operation, read; `place` names it in messages."""

    name: str
    path: tuple[str, ...]
    source: tuple[str, ...]
    value: Any
    place: str

    def refuse(self, text: str) -> Problem:
        """The Problem INVALID of an operation that does not fit the document."""
        return Problem(Category.INVALID, f"{self.name}: {text}", self.place)


@dataclass(slots=True)
class _State:
    """The document under change."""

    document: Any
    copied: int = 0


def _operation(item: Any, place: str) -> _Operation:
    if not isinstance(item, dict):
        raise Problem(Category.MALFORMED, "an operation is a JSON object", place)
    name = item.get("op")
    needed = _NEED.get(name) if isinstance(name, str) else None
    if not isinstance(name, str) or needed is None:
        raise Problem(Category.MALFORMED, "op must be add, remove, replace, move, copy or test", place)
    if needed not in item:
        raise Problem(Category.MALFORMED, f"{name} needs {needed}", place)
    source = _pointer(item["from"], f"{place}.from") if needed == "from" else ()
    return _Operation(name, _pointer(item.get("path"), f"{place}.path"), source, item.get("value"), place)


def _pointer(text: Any, place: str) -> tuple[str, ...]:
    if not isinstance(text, str) or (text and not text.startswith("/")) or _TILDE.search(text):
        raise Problem(Category.MALFORMED, "a JSON Pointer is expected, such as /name/0/family", place)
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:])


def _get(state: _State, path: tuple[str, ...], operation: _Operation) -> Any:
    value = state.document
    for part in path:
        value = _child(value, part, operation)
    return value


def _child(value: Any, part: str, operation: _Operation) -> Any:
    if isinstance(value, list):
        return value[_index(value, part, operation, len(value) - 1)]
    if isinstance(value, dict) and part in value:
        return value[part]
    raise operation.refuse("the path does not exist")


def _index(value: list[Any], part: str, operation: _Operation, last: int) -> int:
    if not _INDEX.fullmatch(part) or int(part) > last:
        raise operation.refuse("the list has no such index")
    return int(part)


def _put(state: _State, operation: _Operation, value: Any) -> None:
    """RFC 6902 section 4.1: insert into a list, set a member of an object, or replace the document."""
    if not operation.path:
        state.document = value
        return
    parent, last = _get(state, operation.path[:-1], operation), operation.path[-1]
    if isinstance(parent, list):
        parent.insert(len(parent) if last == "-" else _index(parent, last, operation, len(parent)), value)
    elif isinstance(parent, dict):
        parent[last] = value
    else:
        raise operation.refuse("the parent of the path is neither a list nor an object")


def _take(state: _State, path: tuple[str, ...], operation: _Operation) -> Any:
    """Remove and return the value at `path`."""
    if not path:
        raise operation.refuse("the whole resource cannot be removed")
    parent = _get(state, path[:-1], operation)
    _child(parent, path[-1], operation)
    return parent.pop(int(path[-1]) if isinstance(parent, list) else path[-1])


def _add(state: _State, operation: _Operation) -> None:
    _put(state, operation, _fresh(operation.value))


def _remove(state: _State, operation: _Operation) -> None:
    _take(state, operation.path, operation)


def _replace(state: _State, operation: _Operation) -> None:
    if not operation.path:
        state.document = _fresh(operation.value)
        return
    parent, last = _get(state, operation.path[:-1], operation), operation.path[-1]
    _child(parent, last, operation)
    parent[int(last) if isinstance(parent, list) else last] = _fresh(operation.value)


def _move(state: _State, operation: _Operation) -> None:
    if operation.path[: len(operation.source)] == operation.source and operation.path != operation.source:
        raise operation.refuse("a value cannot be moved into itself")
    _put(state, operation, _take(state, operation.source, operation))


def _copy(state: _State, operation: _Operation) -> None:
    text = dumps(_get(state, operation.source, operation))
    state.copied += len(text)
    if state.copied > _MOST_COPIED:
        raise Problem(Category.TOO_LARGE, "the patch copies too much", operation.place)
    _put(state, operation, loads(text))


def _test(state: _State, operation: _Operation) -> None:
    if not same(_get(state, operation.path, operation), operation.value):
        raise operation.refuse("the value differs")


def _fresh(value: Any) -> Any:
    """A copy of a value of the patch, so that a later operation cannot change the patch."""
    return loads(dumps(value)) if isinstance(value, (dict, list)) else value


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal by RFC 6902 section 4.6."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[name]) for name, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, (int, Decimal)) and isinstance(other, (int, Decimal)):
        return one == other
    return type(one) is type(other) and bool(one == other)


_PERFORM: dict[str, Callable[[_State, _Operation], None]] = {
    "add": _add, "remove": _remove, "replace": _replace, "move": _move, "copy": _copy, "test": _test,
}  # fmt: skip
