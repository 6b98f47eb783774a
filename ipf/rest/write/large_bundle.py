"""Processing of Bundles with thousands of entries without blocking the process.

A long call into C (parsing a JSON text of many megabytes, freeing or garbage-collecting a million objects) blocks all
other threads until it returns.  Therefore a large Bundle is parsed and freed entry by entry, and garbage collection
waits until it is done.  Where a value ends is found by its brackets, one token after the other, without parsing it.

Source: https://docs.python.org/3/library/sys.html#sys.setswitchinterval
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, MutableMapping, MutableSequence
from json.decoder import scanstring  # type: ignore[attr-defined]  # not in typeshed
from typing import Any

from ipf.errors import Problem
from ipf.fhir.model.json import loads
from ipf.ports import Json

STREAMED_BYTES = 500_000
"""Minimum size of a JSON text to parse entry by entry; parsing that much takes about three milliseconds."""

_WHITESPACE = re.compile(r"[ \t\n\r]*")
_SCALAR = re.compile(r'[^\s\[\]{},:"]+')
_MARK = re.compile(r'[\[\]{}"]')


class Entries:
    """The entries of a Bundle, as text; iteration parses one at a time."""

    def __init__(self, text: str, spans: list[tuple[int, int]]) -> None:
        self._text = text
        self._spans = spans

    def __len__(self) -> int:
        return len(self._spans)

    def __iter__(self) -> Iterator[Any]:
        """Problem MALFORMED or TOO_LARGE names the entry; line and column count within it."""
        for number, (start, end) in enumerate(self._spans):
            try:
                yield loads(self._text[start:end])
            except Problem as problem:
                raise problem.inside(f"Bundle.entry[{number}]") from problem


def split_entries(body: bytes) -> tuple[Json, Entries] | None:
    """A JSON Bundle without its entries, and the entries.

    None when there is no list of entries or the JSON is invalid: parsing the whole text then gives the error.
    """
    try:
        text = body.decode()
        found = _entries(text)
        if found is None:
            return None
        start, end, spans = found
        outer = loads(f"{text[:start]}[]{text[end:]}")
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError, IndexError, Problem):
        return None
    return (outer, Entries(text, spans)) if isinstance(outer, dict) else None


def _entries(text: str) -> tuple[int, int, list[tuple[int, int]]] | None:
    """Start and end of the value of `entry`, and of each item in it."""
    position = _skip_whitespace(text, 0)
    if text[position] != "{":
        return None
    while text[position] != "}":
        position = _skip_whitespace(text, position + 1)
        first, position = position, _end_of_value(text, position)
        name = json.loads(text[first:position])
        position = _skip_whitespace(text, position)
        if text[position] != ":":
            return None
        position = _skip_whitespace(text, position + 1)
        if name == "entry":
            return _values(text, position)
        position = _skip_whitespace(text, _end_of_value(text, position))
        if text[position] not in ",}":
            return None
    return None


def _values(text: str, start: int) -> tuple[int, int, list[tuple[int, int]]] | None:
    """The list at `start`; None for another value or an empty list."""
    if text[start] != "[":
        return None
    spans = []
    position = start
    while text[position] != "]":
        first = _skip_whitespace(text, position + 1)
        position = _end_of_value(text, first)
        spans.append((first, position))
        position = _skip_whitespace(text, position)
        if text[position] not in ",]":
            return None
    return start, position + 1, spans


def _end_of_value(text: str, position: int) -> int:
    """The end of the value at `position`.  IndexError when there is none; what is inside is not checked."""
    if text[position] == '"':
        return int(scanstring(text, position + 1)[1])
    if text[position] not in "[{":
        match = _SCALAR.match(text, position)
        if match is None:
            raise IndexError(position)
        return match.end()
    depth = 0
    while (match := _MARK.search(text, position)) is not None:
        position = match.end()
        mark = match[0]
        if mark == '"':
            position = int(scanstring(text, position)[1])
        else:
            depth += 1 if mark in "[{" else -1
            if not depth:
                return position
    raise IndexError(position)


def _skip_whitespace(text: str, position: int) -> int:
    found = _WHITESPACE.match(text, position)
    return position if found is None else found.end()


def clear_gradually(*containers: MutableSequence[Any] | MutableMapping[Any, Any]) -> None:
    """Empty containers item by item, so that other threads run in between."""
    for container in containers:
        if isinstance(container, MutableMapping):
            while container:
                container.popitem()
        else:
            while container:
                container.pop()
