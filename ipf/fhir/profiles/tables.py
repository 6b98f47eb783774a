"""Reads the tables of facts under `fhir/`: structures, code systems, value sets; one line a definition.

A table is a text file.  Its first line is an object that says where the facts come from; each other line is a JSON
array `[url, facts]`.  A table is read on first use and kept as bytes; each line is parsed on request.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson

from ipf.config.paths import folder

CORE = "http://hl7.org/fhir/StructureDefinition/"
STRUCTURES = "structuredefinitions.jsonl"
CODE_SYSTEMS = "codesystems.jsonl"
VALUE_SETS = "valuesets.jsonl"
GUIDES = ("r4", "us-core", "backport", "balp", "topics")


class Table:
    """One file: facts by url.  ValueError when the file is not a table."""

    def __init__(self, path: Path) -> None:
        self._text = path.read_bytes()
        head, _, _ = self._text.partition(b"\n")
        self.head: dict[str, Any] = orjson.loads(head)
        self._offsets: dict[str, tuple[int, int]] = {}
        start = len(head) + 1
        while start < len(self._text):
            end = self._text.find(b"\n", start)
            end = len(self._text) if end < 0 else end
            if self._text[start : start + 2] != b'["':
                raise ValueError(f"{path.name}: a line that is not a row at byte {start}")
            self._offsets[self._text[start + 2 : self._text.index(b'"', start + 2)].decode()] = (start, end)
            start = end + 1

    def __contains__(self, url: str) -> bool:
        return url in self._offsets

    def __iter__(self) -> Iterator[str]:
        return iter(self._offsets)

    def get(self, url: str) -> dict[str, Any] | None:
        """The facts of one definition, parsed anew at each call."""
        place = self._offsets.get(url)
        if place is None:
            return None
        facts: dict[str, Any] = orjson.loads(self._text[place[0] : place[1]])[1]
        return facts


@lru_cache(maxsize=3)
def tables(name: str) -> Sequence[tuple[str, Table]]:
    """The tables of one kind, of R4 and of each shipped guide: (`r4`, its table), ..."""
    source = folder("fhir")
    return tuple((guide, Table(path)) for guide in GUIDES if (path := source / guide / name).is_file())
