"""Words of a resource for full-text searches: `_text` (the narrative) and `_content` (all texts, and the narrative).

A word is a run of letters and digits, in lower case and without accents.  Texts of different elements have a gap
between them, so no phrase reaches over two.

Source: https://hl7.org/fhir/R4/search.html#text
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from typing import Any

from ipf.fhir.index.entries import folded
from ipf.fhir.model.redaction import redact_resource
from ipf.ports.queries.index import TextEntry

TEXT, CONTENT = "_text", "_content"
MOST_WORDS = 10_000
"""Words of a resource that are searched."""
_WORD = re.compile(r"[^\W_]+")
_TAG = re.compile(r"<[^>]*>")
_NO_TEXT = frozenset({"resourceType", "id", "reference", "system", "url", "profile", "data", "fullUrl", "versionId"})
_MOST_POSITIONS = 255  # of one word, in a tsvector
_LONGEST = 200  # characters of a word


class _Index:
    """Whether words are indexed: `IPF_FHIR_FULL_TEXT`, set at the start of the process."""

    is_on = False


def index_words(is_on: bool) -> None:
    """Write entries of words from now on, or write none."""
    _Index.is_on = is_on


def words_are_indexed() -> bool:
    """Whether entries of words are written."""
    return _Index.is_on


def word_entries(resource: dict[str, Any]) -> frozenset[TextEntry]:
    """The entries of `_text` and `_content`, if they are written."""
    if not _Index.is_on:
        return frozenset()
    found = ((code, words_of(resource, code)) for code in (TEXT, CONTENT))
    return frozenset((code, _positions(one)) for code, one in found)


def _positions(found: list[str]) -> str:
    """Words with their positions, as PostgreSQL reads a tsvector; a gap counts as a word."""
    positions: dict[str, list[str]] = {}
    for number, word in enumerate(found, 1):
        if word:
            positions.setdefault(word, []).append(str(number))
    return " ".join(f"'{word}':{','.join(at[:_MOST_POSITIONS])}" for word, at in sorted(positions.items()))


def words(text: str) -> list[str]:
    """The words of one text, in order."""
    return [word[:_LONGEST] for word in _WORD.findall(folded(text))]


def words_of(resource: dict[str, Any], code: str) -> list[str]:
    """The words that `_text` or `_content` searches, in order; "" between those of different elements."""
    found: list[str] = []
    if resource.get("resourceType") == "Subscription":
        resource = redact_resource(resource)
    for text in _narrative(resource) if code == TEXT else _texts(resource):
        if len(found) >= MOST_WORDS:
            break
        more = words(text)
        if more:
            found += ["", *more]
    return found[: MOST_WORDS + 1]


def _narrative(resource: dict[str, Any]) -> Iterator[str]:
    narrative = resource.get("text")
    div = narrative.get("div") if isinstance(narrative, dict) else None
    if isinstance(div, str):
        yield unescape(_TAG.sub(" ", div))


def _texts(value: Any) -> Iterator[str]:
    """The texts of a value; identifiers of other things (references, URLs of code systems) and raw data are none."""
    if isinstance(value, dict):
        for name, one in value.items():
            if name == "div" and isinstance(one, str):
                yield unescape(_TAG.sub(" ", one))
            elif name not in _NO_TEXT:
                yield from _texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)
    elif isinstance(value, str):
        yield value
