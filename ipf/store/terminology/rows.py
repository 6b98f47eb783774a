"""The rows of a new code system in the text format of COPY.

Source: https://www.postgresql.org/docs/current/sql-copy.html
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice

from ipf.errors import Category, Problem
from ipf.fhir.index.words import words
from ipf.ports.fhir.terminology_import import NewConcept, NewSystem
from ipf.store.terminology.closure import Cycle, ancestors

_BATCH = 2000  # rows of one read
_SPECIAL = re.compile(r"[\\\t\n\r]")
_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
_FORBIDDEN = re.compile("[\x00\x1e\x1f\ud800-\udfff]")
_MOST_MISSING = 20
_MOST_TEXTS = 1000  # of one concept, of which words are indexed


class Prepared:
    """The rows of each table.  `ids`: code -> number, shortest displays first."""

    def __init__(self, system: NewSystem, ids: dict[str, int], parents: dict[int, list[int]]) -> None:
        self._system = system
        self._ids = ids
        self._parents = parents

    def concepts(self, number: int) -> Iterator[str]:
        """Rows of code_system_concepts."""
        for code, id_ in self._ids.items():
            one = self._system.concepts[code]
            definition = _text(one.definition) if one.definition else "\\N"
            flags = f"{'t' if one.is_active else 'f'}\t{'t' if one.is_abstract else 'f'}"
            found = f"{number}\t{id_}\t{_text(code)}\t{_text(one.display or code)}\t{flags}\t{definition}"
            yield f"{found}\t{_words(one)}\n"

    def designations(self, number: int) -> Iterator[str]:
        """Rows of code_system_designations."""
        for code, id_ in self._ids.items():
            for place, one in enumerate(self._system.concepts[code].designations, 1):
                use = "\t".join(map(_text, one.use))
                yield f"{number}\t{id_}\t{_text(one.language)}\t{use}\t{_text(one.value)}\t{place}\n"

    def properties(self, number: int) -> Iterator[str]:
        """Rows of code_system_properties."""
        for code, id_ in self._ids.items():
            for place, (name, value) in enumerate(self._system.concepts[code].properties, 1):
                yield f"{number}\t{id_}\t{_text(name)}\t{_text(value)}\t{place}\n"

    def parents(self, number: int) -> Iterator[str]:
        """Rows of code_system_parents."""
        for child, above in self._parents.items():
            for parent in above:
                yield f"{number}\t{child}\t{parent}\n"

    def ancestors(self, number: int) -> Iterator[str]:
        """Rows of code_system_ancestors, those of a concept as one text.  Problem MALFORMED for a cycle."""
        begin = f"{number}\t"
        try:
            for concept, above in ancestors(self._parents, len(self._ids)):
                end = f"\t{concept}\n"
                yield begin + (end + begin).join(map(str, above)) + end
        except Cycle as cycle:
            code = next(code for code, id_ in self._ids.items() if id_ == cycle.concept)
            text = f"{self._system.url}: {cycle}: {code} is an ancestor of itself"
            raise Problem(Category.MALFORMED, text) from cycle

    def languages(self) -> set[str]:
        """The languages of the designations."""
        return {
            one.language for concept in self._system.concepts.values() for one in concept.designations if one.language
        }


def prepared(system: NewSystem) -> Prepared:
    """The rows of a system.  Problem MALFORMED when it has no concepts, or a parent that it has not."""
    if not system.concepts:
        raise Problem(Category.MALFORMED, f"{system.url}: there is no concept")
    in_order = sorted(system.concepts.values(), key=lambda one: (len(one.display or one.code), one.code))
    ids = {one.code: number for number, one in enumerate(in_order, 1)}
    missing = [f"{one.code} has the parent {parent}" for one in in_order for parent in one.parents if parent not in ids]
    if missing:
        text = f"{system.url}: {len(missing)} parents are not in it: {'; '.join(missing[:_MOST_MISSING])}"
        raise Problem(Category.MALFORMED, text)
    parents = {ids[one.code]: sorted({ids[each] for each in one.parents}) for one in in_order if one.parents}
    return Prepared(system, ids, parents)


class CopySource:
    """A file to read for COPY, made of an iterator of rows.  `done` is called at times; `rows` counts texts."""

    def __init__(self, texts: Iterator[str], done: Callable[[int], None]) -> None:
        self._texts = texts
        self._done = done
        self.rows = 0
        self.failure: Problem | None = None  # psycopg2 tells that reading failed, but not why

    def read(self, size: int) -> bytes:
        """The next rows; more bytes than `size` may come."""
        try:
            batch = list(islice(self._texts, _BATCH))
        except Problem as failure:
            self.failure = failure
            raise
        self.rows += len(batch)
        if self.rows % (_BATCH * 10) == 0 and batch:
            self._done(self.rows)
        return "".join(batch).encode()


def _text(text: str) -> str:
    if _FORBIDDEN.search(text):
        text = _FORBIDDEN.sub(" ", text)
    return _SPECIAL.sub(lambda found: _ESCAPES[found[0]], text) if _SPECIAL.search(text) else text


def _words(one: NewConcept) -> str:
    """The words of a concept as a tsvector."""
    texts = dict.fromkeys((one.code, one.display, *(each.value for each in one.designations)))
    return " ".join(dict.fromkeys(word for text in islice(texts, _MOST_TEXTS) for word in words(text)))
