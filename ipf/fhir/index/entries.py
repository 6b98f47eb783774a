"""How values are written in the search index (`ipf/ports/queries/index.py` describes them).

Extraction (`extract.py`) and search (`ipf/fhir/search`) both call these functions, so a stored value and a searched
value are equal texts.

Source: https://hl7.org/fhir/R4/search.html
"""

from __future__ import annotations

import re
import unicodedata
from hashlib import blake2b
from itertools import islice

PART_LIMIT = 1200  # bytes; two parts and the keys fit in one b-tree row of PostgreSQL (2,704 bytes)
_DIGEST_LENGTH = 33
_COMPONENT_LIMIT = 800
_TEXT = ":text"
_WORD = ":word"
NAMES = frozenset({"name", "family", "given"})
"""String parameters whose values are found by each word.  US Core's tests want addresses by their beginnings alone."""
MOST_LATER_WORDS = 20  # of one value
_LATER_WORD = re.compile(r"(?<=[ \-\u2010-\u2015'\u2019/(])[^\W\d_]")

_CONTROL = re.compile("[\x00-\x1f\x7f]")


def clean(text: str) -> str:
    """`text` without control characters, cut to PART_LIMIT bytes; what is cut off is kept as a digest at the end."""
    if not text.isprintable():
        text = _CONTROL.sub(" ", text)
    if len(text) * 4 > PART_LIMIT and len(text.encode()) > PART_LIMIT:
        return cut(text, PART_LIMIT - _DIGEST_LENGTH) + "#" + blake2b(text.encode(), digest_size=16).hexdigest()
    return text


def cut(text: str, limit: int) -> str:
    """The longest beginning of `text` that takes at most `limit` bytes in UTF-8."""
    return text.encode()[:limit].decode(errors="ignore")


def normalise(text: str) -> str:
    """Lower case, accents folded, white space collapsed, cut to PART_LIMIT bytes: the form prefixes are sought in."""
    text = folded(text)
    text = " ".join((text if text.isprintable() else _CONTROL.sub(" ", text)).split())
    return cut(text, PART_LIMIT) if len(text) * 4 > PART_LIMIT else text


def folded(text: str) -> str:
    """Lower case, accents folded."""
    if not text.isascii():
        decomposed = unicodedata.normalize("NFKD", text.casefold())
        text = "".join(letter for letter in decomposed if not unicodedata.combining(letter))
    return text.lower()


def string_value(text: str) -> str:
    """The text value of a string: prefix search on its first part, `:exact` on the whole."""
    return normalise(text) + "\t" + clean(text)


def token_value(code: str, system: str) -> str:
    """The text value of a code, identifier or contact point."""
    return clean(code) + "\t" + clean(system)


def component_text(value: str, is_string: bool) -> str:
    """A text value as part of a composite: short enough that three of them fit in one row of the index."""
    if is_string:
        return cut(value.partition("\t")[0], _COMPONENT_LIMIT)
    if len(value) * 4 > _COMPONENT_LIMIT and len(value.encode()) > _COMPONENT_LIMIT:
        kept = cut(value, _COMPONENT_LIMIT - _DIGEST_LENGTH)
        return f"{kept}#{blake2b(value.encode(), digest_size=16).hexdigest()}"
    return value


def text_code(code: str) -> str:
    """The code under which the texts of CodeableConcepts are written, beside their codes under `code`."""
    return code + _TEXT


def is_text_code(code: str) -> bool:
    """Whether texts are written under this code."""
    return code.endswith(_TEXT)


def word_codes(code: str) -> tuple[str, ...]:
    """The code under which a string parameter's values are written from their later words on; empty for most."""
    return (code + _WORD,) if code in NAMES else ()


def later_words(value: str) -> list[str]:
    """The ends of the text value of a string that begin with a word, without the whole: "lopez" of "garcia lopez".

    A word begins with a letter, behind a blank or a mark in names (hyphen, apostrophe, slash, parenthesis).
    """
    text = value.partition("\t")[0]
    return [text[found.start() :] for found in islice(_LATER_WORD.finditer(text), MOST_LATER_WORDS)]


def words_value(text: str) -> str:
    """The text value of a text or display: each word has a blank before it, so `:text` looks for a blank and a word."""
    return " " + normalise(text)


def unit_value(system: str, code: str, unit: str) -> str:
    """The unit text of a quantity."""
    return f"{clean(system)}\t{clean(code)}\t{clean(unit)}\t"
