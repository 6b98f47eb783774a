r"""Words of a message, for full-text search.

What arrives: the bytes of a message, and its codec.  What leaves: a set of words: every run of characters between
delimiters and white space, in lower case, without diacritics and without punctuation at its ends (`12-345`,
`kari.hansen@example.org`, `R07.4`); and the parts of runs with punctuation (`kari`, `hansen`).  A word has at most 64
characters; longer runs (such as embedded documents) are omitted, and so is text after the first half million
characters.

A word with a prefix of 0x01 and a letter is a field: `t` tenant, `s` source system, `m` message type, `p` patient
identifier (PID-3 and MRG-1; `value`, and `authority|value`).

The JSON of a polled source has words too, between its brackets and quotes; its patient identifiers are those of a
Patient, and the id of the Patient that it is about.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

LONGEST = 64
FIELD = "\x01"
TENANT, SYSTEM, TYPE, PATIENT = FIELD + "t", FIELD + "s", FIELD + "m", FIELD + "p"

_READ = 500_000
_MOST = 4_000
_USUAL = "|^~\\&"
_OF_JSON = '{}[]",'
_ENDS = "-._:;,'\"()[]{}<>!?*/+#=@$%`"
_PART = re.compile(r"[^\W_]+")
_IDENTIFIERS = {"PID": 3, "MRG": 1}
_LINE_END = re.compile("[\r\n]")
_LONGEST_SEGMENT = 20_000
_MARKS = re.compile("[\u0300-\u036f]")


def words_of(raw: bytes, codec: str) -> set[str]:
    """The words of a message, from at most 4,000 runs."""
    return {word for run in runs_of(read(raw, codec)) for word in words_of_run(run)}


def runs_of(text: str) -> Iterable[str]:
    """The distinct runs between delimiters and white space of a message, folded; at most 4,000."""
    marks = _delimiters(text)
    if text.isascii():
        found = set(text.lower().translate(_blanks(marks)).split())
    else:
        found = set(_runs(marks).findall(folded(text)))
    return found if len(found) <= _MOST else sorted(found)[:_MOST]


def words_of_run(run: str) -> Iterable[str]:
    """The words of a run: the run without punctuation at its ends, and its parts."""
    if run.isalnum():
        return (run,) if len(run) <= LONGEST else ()
    if len(run) > 2 * LONGEST:
        return ()
    word = run.strip(_ENDS)
    parts = set() if word.isalnum() else set(_PART.findall(word))
    if word and len(word) <= LONGEST:
        parts.add(word)
    return parts


def patients_of(raw: bytes, codec: str) -> set[str]:
    """Patient identifiers of a message, folded: `value`, and `authority|value` where an authority is named."""
    return patients_in(read(raw, codec))


def patients_in(text: str) -> set[str]:
    """The same for the text of a message."""
    if text.startswith("{"):
        return _patients_in_json(text)
    marks = _delimiters(text)
    found: set[str] = set()
    for line, number in _identifying(text, marks[0]):
        fields = line.split(marks[0], number + 1)
        for repetition in fields[number].split(marks[2]) if len(fields) > number else ():
            parts = repetition.split(marks[1])
            value, authority = parts[0].strip(), parts[3].split(marks[4])[0].strip() if len(parts) > 3 else ""
            if value and value != '""' and len(value) <= LONGEST:
                found.add(folded(value))
                if authority:
                    found.add(folded(f"{authority[:LONGEST]}|{value}"))
    return found


def _patients_in_json(text: str) -> set[str]:
    """Identifiers and id of a Patient, or the id of the Patient that a resource is about."""
    try:
        content: Any = json.loads(text)
    except ValueError:
        return set()
    found: set[str] = set()
    if content.get("resourceType") == "Patient":
        found.add(str(content.get("id", "")))
        for one in content.get("identifier") or ():
            value = one.get("value") if isinstance(one, dict) else None
            if isinstance(value, str) and len(value) <= LONGEST:
                found |= {value, f"{str(one.get('system', ''))[:LONGEST]}|{value}"}
    for name in ("subject", "patient", "beneficiary"):
        about = content.get(name)
        reference = about.get("reference") if isinstance(about, dict) else None
        if isinstance(reference, str) and "Patient/" in reference:
            found.add(reference.rpartition("Patient/")[2].partition("/")[0])
    return {folded(one) for one in found if one}


def _identifying(text: str, separator: str) -> Iterable[tuple[str, int]]:
    """Segments with patient identifiers, and the number of the field."""
    for name, number in _IDENTIFIERS.items():
        at = text.find(name + separator)
        while at >= 0:
            if at == 0 or text[at - 1] in "\r\n":
                yield _LINE_END.split(text[at : at + _LONGEST_SEGMENT], maxsplit=1)[0], number
            at = text.find(name + separator, at + 1)


def query_words(text: str) -> list[str]:
    """The words of a query; `*` at the end of a word makes it a prefix."""
    words: list[str] = []
    for run in _runs(_USUAL).findall(folded(text)):
        begins = run.endswith("*")
        word = run.strip(_ENDS)
        if word and len(word) <= LONGEST:
            words.append(word + "*" if begins else word)
    return list(dict.fromkeys(words))


def contains_words(raw: bytes, codec: str, words: Iterable[str]) -> bool:
    """Whether a message contains all words of a query; stops at the first miss."""
    text = read(raw, codec)
    delimiters, plain = _delimiters(text), folded(text)
    return all(_contains(plain, word, delimiters) for word in words)


def _contains(plain: str, word: str, delimiters: str) -> bool:
    stem = word.rstrip("*")
    at = plain.find(stem)
    if at < 0:
        return False
    return _finder(word, delimiters).search(plain, at if stem.isalnum() else 0) is not None


def folded(text: str) -> str:
    """Lower case, without diacritics."""
    if text.isascii():
        return text.lower()
    return _MARKS.sub("", unicodedata.normalize("NFKD", text.casefold()))


def read(raw: bytes, codec: str) -> str:
    """The beginning of a message as text; invalid bytes become U+FFFD."""
    part = raw[:_READ]
    try:
        return part.decode(codec or "utf-8", "replace")
    except (LookupError, ValueError):
        return part.decode("utf-8", "replace")


def _delimiters(text: str) -> str:
    """The delimiters of the message: the five of HL7 v2, or those of JSON."""
    if text.startswith("{"):
        return _OF_JSON
    given = text[3:8]
    usable = text[:3] == "MSH" and len(given) == 5 and not any(mark.isalnum() or mark.isspace() for mark in given)
    return given if usable else _USUAL


@lru_cache(maxsize=256)
def _finder(word: str, delimiters: str) -> re.Pattern[str]:
    """A pattern for one word: a whole run without punctuation at its ends, or a part of a run."""
    stem, begins = re.escape(word.rstrip("*")), word.endswith("*")
    if word.rstrip("*").isalnum():
        return re.compile(f"(?<![^\\W_]){stem}" + ("" if begins else "(?![^\\W_])"))
    border, ends = f"[{re.escape(delimiters)}\\s\x00-\x1f]", f"[{re.escape(_ENDS)}]*"
    return re.compile(f"(?:^|{border}){ends}{stem}" + ("" if begins else f"{ends}(?=$|{border})"))


@lru_cache(maxsize=64)
def _blanks(delimiters: str) -> dict[int, str]:
    """Translation of delimiters and control characters to blanks."""
    return {ord(mark): " " for mark in delimiters} | dict.fromkeys(range(32), " ")


@lru_cache(maxsize=64)
def _runs(delimiters: str) -> re.Pattern[str]:
    return re.compile(f"[^{re.escape(delimiters)}\\s\x00-\x1f]+")
