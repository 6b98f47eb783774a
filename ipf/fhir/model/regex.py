"""Regular expressions from clients, run by RE2 in time linear in the text.

All patterns of definitions, searches, expressions and topics run here.  RE2 has the syntax of PCRE without look-ahead,
look-behind and back references.  The dot matches line ends too; `$` matches only
the end of the text; `\\d`, `\\w` and `\\s` are ASCII.

Source: https://github.com/google/re2/wiki/Syntax; http://hl7.org/fhirpath/N1/#matchesregex-string--boolean
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import re2

LONGEST_PATTERN = 1000  # characters
_LARGEST_PROGRAM = 4000  # instructions of RE2, which takes memory and time in proportion
_MEMORY = 512 * 1024  # bytes for one pattern; RE2 runs slower, but in linear time, when it needs more
_ANYWHERE, _WHOLE, _NO_SPAN = re2._Anchor.UNANCHORED, re2._Anchor.ANCHOR_BOTH, re2._NULL_SPAN
_MOST_STEPS = 500_000_000  # instructions times bytes; a step takes five nanoseconds at most


class PatternError(ValueError):
    """A pattern that RE2 does not accept, or that takes too long on this text; the text says why."""


class Pattern:
    """One compiled pattern.  The methods raise PatternError when the text is too long for it."""

    def __init__(self, text: str) -> None:
        if len(text) > LONGEST_PATTERN:
            raise PatternError(f"the regular expression has more than {LONGEST_PATTERN} characters")
        try:
            self._compiled = re2.compile(text, _options())
        except re2.error as error:
            raise PatternError(_reason(error)) from None
        except UnicodeEncodeError:
            raise PatternError("the regular expression is not Unicode text") from None
        self.size: int = self._compiled.programsize
        if self.size > _LARGEST_PROGRAM:
            raise PatternError("the regular expression is too large")
        self.groups: frozenset[int | str] = frozenset([*range(self._compiled.groups + 1), *self._compiled.groupindex])

    def is_in(self, text: str) -> bool:
        """Whether the pattern matches any part of the text."""
        return self._matches(_ANYWHERE, text)

    def is_all_of(self, text: str) -> bool:
        """Whether the pattern matches the whole text."""
        return self._matches(_WHOLE, text)

    def _matches(self, anchor: Any, text: str) -> bool:
        """What `search` and `fullmatch` do, without an object for the match: a quarter of the time on a short text."""
        self.check_length(len(text))
        raw = _utf8(text)
        return bool(self._compiled._regexp.Match(anchor, raw, 0, len(raw))[0] != _NO_SPAN)

    def replace(self, text: str, new: Callable[[re2._Match], str]) -> str:
        """The text with each match replaced by the result of `new`."""
        scanned = 0

        def replacement(match: re2._Match) -> str:
            nonlocal scanned
            scanned += len(text) - match.start()  # the search for the next match may go on to the end of the text
            self.check_length(scanned)
            return new(match)

        self.check_length(len(text))
        replaced: str = self._compiled.sub(replacement, _utf8(text).decode())
        return replaced

    def check_length(self, characters: int) -> None:
        """Raise PatternError when the text is too long for the size of the pattern."""
        if characters * self.size > _MOST_STEPS:
            raise PatternError("the text is too long for this regular expression")


@lru_cache(maxsize=128)
def pattern(text: str) -> Pattern:
    """The compiled pattern; PatternError when it is not one."""
    return Pattern(text)


def _options() -> re2.Options:
    options = re2.Options()
    options.max_mem = _MEMORY
    options.log_errors = False
    options.dot_nl = True
    return options


def _reason(error: re2.error) -> str:
    said = error.args[0]
    said = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
    hint = ""
    if "perl operator" in said or "escape sequence" in said:
        hint = "; look-ahead, look-behind and back references are not supported"
    return f"the regular expression is not valid: {said[:200]}{hint}"


def _utf8(text: str) -> bytes:
    """The text as RE2 reads it; half of a surrogate pair, which UTF-8 cannot encode, becomes a question mark."""
    return text.encode(errors="replace")
