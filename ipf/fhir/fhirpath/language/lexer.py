"""The FHIRPath lexer: one token at a time, from any position.

Tokens are read on demand, so that an expression within another language (a `where` clause of a FHIR map) can be parsed
without a known end.  Each token is one regular expression match without backtracking.
Grammar: http://hl7.org/fhirpath/N1/grammar.html (lexer rules).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ipf.fhir.fhirpath.errors import FhirPathError

END = "end"
NUMBER = "number"
STRING = "string"
NAME = "name"
QUOTED_NAME = "quoted name"
DATE = "date"
DATETIME = "dateTime"
TIME = "time"
VARIABLE = "variable"
THIS = "this"
SYMBOL = "symbol"
MAX_DIGITS = 1000  # of a number

_SPACE = re.compile(r"(?:\s+|//[^\n\r]*|/\*(?:[^*]|\*(?!/))*\*/)*")
_CLOCK = r"\d{2}(?::\d{2}(?::\d{2}(?:\.\d+)?)?)?"
_TOKEN = re.compile(
    rf"""
      (?P<dateTime>@\d{{4}}(?:-\d{{2}}(?:-\d{{2}})?)?T(?:{_CLOCK}(?:Z|[+-]\d{{2}}:\d{{2}})?)?)
    | (?P<time>@T{_CLOCK})
    | (?P<date>@\d{{4}}(?:-\d{{2}}(?:-\d{{2}})?)?)
    | (?P<number>\d+(?:\.\d+)?)
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<variable>%[A-Za-z_][A-Za-z0-9_-]*)
    | (?P<this>\$(?:this|index|total)\b)
    | (?P<symbol>->|!=|!~|<=|>=|[.,()\[\]{{}}+\-*/&|<>=~])
    """,
    re.VERBOSE | re.ASCII,
)
_QUOTED = {quote: re.compile(rf"[^{quote}\\]*(?:\\.[^{quote}\\]*)*{quote}", re.DOTALL) for quote in "'`\""}
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPED = {"f": "\f", "n": "\n", "r": "\r", "t": "\t", "\\": "\\", "/": "/", "'": "'", '"': '"', "`": "`"}


@dataclass(frozen=True, slots=True)
class Token:
    """A token: its kind, its value (escapes resolved, without quotes and marks), where it starts and ends."""

    kind: str
    value: str
    start: int
    end: int


def skip_space(text: str, position: int) -> int:
    """The position after white space and comments."""
    match = _SPACE.match(text, position)
    return match.end() if match else position


def read_token(text: str, position: int) -> Token:
    """The token that starts at or after `position`; kind END at the end of the text."""
    start = skip_space(text, position)
    if start >= len(text):
        return Token(END, "", start, start)
    if text.startswith("/*", start):
        raise error_at(text, start, "a comment is not terminated")
    match = _TOKEN.match(text, start)
    if match is not None:
        kind = match.lastgroup or SYMBOL
        value = match.group()
        if kind == NUMBER and len(value) > MAX_DIGITS:
            raise error_at(text, start, f"a number has more than {MAX_DIGITS} characters")
        if kind in (DATE, DATETIME, TIME, VARIABLE, THIS):
            value = value[2:] if kind == TIME else value[1:]
        return Token(kind, value, start, match.end())
    return _read_quoted(text, start)


def error_at(text: str, position: int, message: str) -> FhirPathError:
    """A syntax error with line and column counted from 1."""
    line = text.count("\n", 0, position) + 1
    column = position - (text.rfind("\n", 0, position) + 1) + 1
    return FhirPathError(message, kind="syntax", line=line, column=column)


def _read_quoted(text: str, start: int) -> Token:
    mark = text[start]
    if mark == "%" and text[start + 1 : start + 2] in ("'", "`", '"'):
        inner = _read_quoted(text, start + 1)
        return Token(VARIABLE, inner.value, start, inner.end)
    pattern = _QUOTED.get(mark)
    if pattern is None:
        raise error_at(text, start, f"{mark!r} is not valid here")
    match = pattern.match(text, start + 1)
    if match is None:
        raise error_at(text, start, f"the text that starts with {mark} is not terminated")
    value = _unescape(text, start + 1, match.end() - 1)
    return Token(STRING if mark != "`" else QUOTED_NAME, value, start, match.end())


def _unescape(text: str, start: int, end: int) -> str:
    """The characters between two quotes.  A backslash before a character that needs none is dropped."""
    raw = text[start:end]
    found = _ESCAPE.sub(_escaped, raw) if "\\" in raw else raw
    if found.isascii():
        return found
    try:
        return found.encode("utf-16-le", "surrogatepass").decode("utf-16-le")  # two escapes may be one character
    except UnicodeDecodeError:
        raise error_at(text, start - 1, "a text is not valid Unicode: half of a surrogate pair") from None


def _escaped(match: re.Match[str]) -> str:
    return chr(int(match[1], 16)) if match[1] else _ESCAPED.get(match[2], match[2])
