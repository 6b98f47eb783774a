"""Texts that name an erased person, and where they stand in other texts: criteria, searches, names of views.

`personal_texts` reads them from a resource: identifiers, names, addresses and telephone numbers.  `ErasedTexts` finds
them as whole words: without case, diacritics, punctuation and percent-encoding, so that `Patient?name=Zw%C3%B6lf` has
the name `Zwölf`.  A text of fewer than three letters and digits is not looked for: `1` stands in every other search.

Source: https://hl7.org/fhir/R4/datatypes.html
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any
from urllib.parse import unquote

from ipf.fhir.index.entries import folded
from ipf.ports import Json

ERASED = "erased"
_LEAST = 3  # letters and digits of a text
_MOST_WORDS = 12  # of a text; of a longer one the first ones
_RUN = re.compile(r"(?:%[0-9A-Fa-f]{2}|[^\W_])+")
_WORD = re.compile(r"[^\W_]+")
_PERSONS = frozenset(("Patient", "RelatedPerson", "Person"))
_OF_PERSON = {"name": ("family", "given", "text"), "address": ("line", "text"), "telecom": ("value",)}
_NO_TEXT = frozenset(("resourceType", "id", "url", "system", "status", "type", "code", "versionId", "lastUpdated"))


def personal_texts(resource: Json) -> Iterator[str]:
    """The numbers of a resource; of a person the names, lines of addresses, and telephone numbers too."""
    yield from _members(resource.get("identifier"), ("value",))
    if resource.get("resourceType") in _PERSONS:
        for element, members in _OF_PERSON.items():
            yield from _members(resource.get(element), members)


def free_texts(value: Any) -> Iterator[str]:
    """The texts of a resource in which a search or a description can stand: not its codes and canonical URLs."""
    if isinstance(value, dict):
        for name, item in value.items():
            if name not in _NO_TEXT:
                yield from free_texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from free_texts(item)
    elif isinstance(value, str):
        yield value


class ErasedTexts:
    """What names an erased person.  `texts`: of any length; those that are too short are not looked for."""

    def __init__(self, texts: Collection[str]) -> None:
        self._texts = frozenset(words for text in texts if len("".join(words := _words(text))) >= _LEAST)
        self._longest = max(map(len, self._texts), default=0)

    def found_in(self, text: str) -> bool:
        """Whether one of them stands in a text."""
        return any(self._found(_runs(text)))

    def removed_from(self, text: str) -> str:
        """The text with `erased` instead of them."""
        parts, end = [], 0
        for start, stop in sorted(set(self._found(_runs(text)))):
            if stop > end:
                parts += [text[end : max(start, end)], ERASED if start >= end else ""]
                end = stop
        return "".join([*parts, text[end:]])

    def removed(self, resource: Json) -> Json:
        """A copy of the resource with `erased` instead of them in its free texts."""
        cleaned: Json = self._cleaned(resource)
        return cleaned

    def _cleaned(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: item if name in _NO_TEXT else self._cleaned(item) for name, item in value.items()}
        if isinstance(value, list):
            return [self._cleaned(item) for item in value]
        return self.removed_from(value) if isinstance(value, str) else value

    def _found(self, runs: list[tuple[str, int, int]]) -> Iterator[tuple[int, int]]:
        """Where they stand: begin and end."""
        for first in range(len(runs)):
            words: tuple[str, ...] = ()
            for word, _, stop in runs[first : first + self._longest]:
                words += (word,)
                if words in self._texts:
                    yield runs[first][1], stop


def _members(elements: object, names: Collection[str]) -> Iterator[str]:
    """Texts of these members of an element, or of each of a list."""
    for element in elements if isinstance(elements, list) else [elements]:
        if not isinstance(element, dict):
            continue
        for name in names:
            values = element.get(name)
            for value in values if isinstance(values, list) else [values]:
                if isinstance(value, str):
                    yield value


def _words(text: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(folded(text)))[:_MOST_WORDS]


def _runs(text: str) -> list[tuple[str, int, int]]:
    """The words of a text, decoded, each with begin and end of the run of characters that it stands in."""
    return [
        (word, run.start(), run.end()) for run in _RUN.finditer(text) for word in _WORD.findall(folded(unquote(run[0])))
    ]
