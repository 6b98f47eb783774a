"""Bundles of thousands of entries, worked on so that whatever else the process does never waits long for them.

A long call into C (one JSON text of many megabytes read at once, a million objects given back or searched for cycles at
once) lets no other thread run until it returns.  So a large Bundle is read entry by entry, what it was made of is given
back entry by entry, and the search for cycles waits until it is done.

Source: https://docs.python.org/3/library/sys.html#sys.setswitchinterval
"""

from __future__ import annotations

import gc
import json
import re
from collections.abc import Iterator, MutableMapping, MutableSequence
from contextlib import contextmanager
from typing import Any

from ipf.errors import Problem
from ipf.fhir.model.json import loads
from ipf.ports import Json

IN_PIECES = 500_000
"""Bytes of a JSON text from which on it is read in pieces; as many take three milliseconds at once."""

_BLANK = re.compile(r"[ \t\n\r]*")
_skip = json.JSONDecoder()  # tells where a value ends; what it reads is thrown away
_at_work = 0


class Entries:
    """The entries of a Bundle that is still text: each is read when it is its turn."""

    def __init__(self, text: str, spans: list[tuple[int, int]]) -> None:
        self._text = text
        self._spans = spans

    def __len__(self) -> int:
        return len(self._spans)

    def __iter__(self) -> Iterator[Any]:
        for start, end in self._spans:
            yield loads(self._text[start:end])


def in_pieces(body: bytes) -> tuple[Json, Entries] | None:
    """A JSON Bundle without its entries, and these.

    None when it has no list of entries, or is not what it should be: then it is to be read whole, which says why.
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
    """Where the list of the member `entry` begins and ends, and each of its values."""
    at = _after_blanks(text, 0)
    if text[at] != "{":
        return None
    while text[at] != "}":
        at = _after_blanks(text, at + 1)
        name, at = _skip.raw_decode(text, at)
        at = _after_blanks(text, at)
        if text[at] != ":":
            return None
        at = _after_blanks(text, at + 1)
        if name == "entry":
            return _values(text, at)
        at = _after_blanks(text, _skip.raw_decode(text, at)[1])
        if text[at] not in ",}":
            return None
    return None


def _values(text: str, start: int) -> tuple[int, int, list[tuple[int, int]]] | None:
    """The list that begins at `start`; None for anything else, and for an empty one."""
    if text[start] != "[":
        return None
    spans = []
    at = start
    while text[at] != "]":
        first = _after_blanks(text, at + 1)
        _, at = _skip.raw_decode(text, first)
        spans.append((first, at))
        at = _after_blanks(text, at)
        if text[at] not in ",]":
            return None
    return start, at + 1, spans


def _after_blanks(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return at if found is None else found.end()


def let_go(*things: MutableSequence[Any] | MutableMapping[Any, Any]) -> None:
    """Empty these one by one, so that other threads may go on in between."""
    for thing in things:
        if isinstance(thing, MutableMapping):
            while thing:
                thing.popitem()
        else:
            while thing:
                thing.pop()


@contextmanager
def uncollected() -> Iterator[None]:
    """While it lasts no cycles are searched for: what a large Bundle is made of has none, and is soon gone."""
    global _at_work
    _at_work += 1
    gc.disable()
    try:
        yield
    finally:
        _at_work -= 1
        if not _at_work:
            gc.enable()
