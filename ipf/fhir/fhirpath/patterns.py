"""Regular expressions of expressions, without the blow-up that a backtracking engine allows.

Python's engine needs exponential time for patterns such as `(a+)+$`.  So a pattern is looked at first: where its
repetitions do not nest and the text is short enough for their number, Python's engine runs it; otherwise it is run as
an automaton (`automaton.py`), in time linear in the text.  What needs backtracking (back references, look-around,
replacement by groups) is refused in that second case.
Source: http://hl7.org/fhirpath/N1/#matchesregex-string--boolean (PCRE; the dot matches line ends).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from ipf.fhir.fhirpath import automaton
from ipf.fhir.fhirpath.errors import FhirPathError
from ipf.fhir.fhirpath.operators import MAX_TEXT

MAX_PATTERN = 1000
_MAX_STEPS = 1_000_000
_GROUP = re.compile(r"\$(?:(\d{1,2})|\{(\w+)\})", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Pattern:
    """`quantifiers`: repetitions of open length, one after another; `nested`: one stands inside another."""

    compiled: re.Pattern[str]
    quantifiers: int
    nested: bool

    def is_safe_for(self, text: str) -> bool:
        """Whether backtracking over this text is bounded by a polynomial that is small."""
        return not self.nested and (len(text) + 1) ** min(self.quantifiers, 20) <= _MAX_STEPS


@lru_cache(maxsize=512)
def _read(pattern: str) -> _Pattern:
    if len(pattern) > MAX_PATTERN:
        raise FhirPathError(f"a pattern of more than {MAX_PATTERN} characters")
    quantifiers, nested = automaton.repetitions(pattern)
    try:
        return _Pattern(re.compile(pattern, re.DOTALL), quantifiers, nested)
    except (re.error, OverflowError, RecursionError, ValueError):
        raise FhirPathError("a text that is no regular expression") from None


def search(pattern: str, text: str) -> bool:
    """Whether the pattern is found anywhere."""
    read = _read(pattern)
    if read.is_safe_for(text):
        return read.compiled.search(text) is not None
    return automaton.compiled(pattern).search(text)


def full_match(pattern: str, text: str) -> bool:
    """Whether the pattern is the whole text."""
    read = _read(pattern)
    if read.is_safe_for(text):
        return read.compiled.fullmatch(text) is not None
    return automaton.compiled(f"(?:{pattern})\\Z").full_match(text)


def replace(pattern: str, text: str, new: str) -> str:
    """Each place where the pattern is found, replaced; `$1` and `${name}` are its groups."""
    if not pattern:
        return text
    read = _read(pattern)
    if not read.is_safe_for(text) and (read.nested or read.quantifiers > 1):
        raise FhirPathError("replaceMatches() with a pattern whose repetitions could take too long on this text")
    template = _GROUP.sub(lambda match: f"\\g<{match[1] or match[2]}>", new.replace("\\", "\\\\"))
    if (len(text) + 1) * max(len(new), 1) > MAX_TEXT:
        raise FhirPathError(f"a text of more than {MAX_TEXT} characters")
    try:
        return read.compiled.sub(template, text)
    except (re.error, IndexError):
        raise FhirPathError("replaceMatches() names a group that the pattern does not have") from None
