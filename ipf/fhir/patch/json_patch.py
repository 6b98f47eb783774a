"""JSON Patch: a list of operations in, a function on resources out.

The package jsonpatch applies the operations.  Here are limits, and errors without its texts, which quote the document:
Problem MALFORMED for an invalid patch, INVALID for one that does not fit the resource; both name the operation.  The
input document is never changed; the result is a new one.  Numbers keep their digits.

Sources: RFC 6902 (JSON Patch), RFC 6901 (JSON Pointer), https://hl7.org/fhir/R4/http.html#patch
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jsonpatch import JsonPatch, JsonPatchException, JsonPatchTestFailed
from jsonpointer import JsonPointer, JsonPointerException

from ipf.errors import Category, Problem
from ipf.fhir.model.json import dumps, loads

Patch = Callable[[Any], Any]

_MOST_OPERATIONS = 2000
_MOST_COPIED = 16 * 1024 * 1024  # bytes that the copy operations of one patch may add: they could double each time
_NEED = {"add": "value", "replace": "value", "test": "value", "move": "from", "copy": "from", "remove": "path"}


def json_patch(operations: Any) -> Patch:
    """The patch that a parsed JSON Patch document describes."""
    if not isinstance(operations, list) or len(operations) > _MOST_OPERATIONS:
        raise Problem(Category.MALFORMED, f"a JSON Patch is a list of at most {_MOST_OPERATIONS} operations")
    for number, operation in enumerate(operations):
        _check(operation, f"operation[{number}]")

    def apply(document: Any) -> Any:
        patched, copied = loads(dumps(document)), 0
        for number, operation in enumerate(operations):
            place = f"operation[{number}]"
            if operation["op"] == "copy":
                copied += _size(patched, operation["from"], place)
                if copied > _MOST_COPIED:
                    raise Problem(Category.TOO_LARGE, "the patch copies too much", place)
            patched = _applied(patched, operation, place)
        return patched

    return apply


def _check(operation: Any, place: str) -> None:
    name = operation.get("op") if isinstance(operation, dict) else None
    needed = _NEED.get(name) if isinstance(name, str) else None
    if needed is None:
        raise Problem(Category.MALFORMED, "op must be add, remove, replace, move, copy or test", place)
    if needed not in operation:
        raise Problem(Category.MALFORMED, f"{name} needs {needed}", place)
    _check_pointer(operation.get("path"), f"{place}.path")
    if needed == "from":
        _check_pointer(operation["from"], f"{place}.from")


def _check_pointer(text: Any, place: str) -> None:
    try:
        JsonPointer(text)
    except (JsonPointerException, TypeError) as wrong:
        raise Problem(Category.MALFORMED, "a JSON Pointer is expected, such as /name/0/family", place) from wrong


def _size(document: Any, pointer: str, place: str) -> int:
    try:
        return len(dumps(JsonPointer(pointer).resolve(document)))
    except (JsonPointerException, TypeError) as wrong:  # TypeError: what `/-` points to
        raise Problem(Category.INVALID, "copy: the path does not exist", place) from wrong


def _applied(document: Any, operation: dict[str, Any], place: str) -> Any:
    """The document, changed in place, by a copy of the operation: later ones cannot change its value."""
    try:
        return JsonPatch([loads(dumps(operation))]).apply(document, in_place=True)
    except JsonPatchTestFailed as differs:
        raise Problem(Category.INVALID, "test: the value differs", place) from differs
    except (JsonPatchException, JsonPointerException) as wrong:
        text = f"{operation['op']}: the path does not exist, or the value cannot be there"
        raise Problem(Category.INVALID, text, place) from wrong
    except RecursionError:
        raise Problem(Category.INVALID, "the values are nested too deeply", place) from None
