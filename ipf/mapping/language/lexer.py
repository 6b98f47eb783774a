"""Tokens of a map, with positions and comments.

One regular expression matches every token; the only error is an invalid character or string.  Time is linear in the
text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from sys import intern
from typing import NamedTuple

from ipf.errors import Category, Problem
from ipf.mapping.language.model import Place

_TOKEN = re.compile(
    r"""
      (?P<space>[ \t\r\n\ufeff]+)
    | (?P<meta>///(?=[ \t]*[A-Za-z_][A-Za-z0-9_.-]*[ \t]*=))
    | (?P<comment>//[^\n]*)
    | (?P<block>/\*.*?\*/)
    | (?P<markdown>\"\"\".*?\"\"\")
    | (?P<string>\"[^\"\\]*(?:\\.[^\"\\]*)*\"|'[^'\\]*(?:\\.[^'\\]*)*')
    | (?P<quoted>`[^`\\]*(?:\\.[^`\\]*)*`)
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<number>[0-9]+(?:\.[0-9]+)?)
    | (?P<date>@[0-9T][0-9T:.+Z-]*)
    | (?P<symbol>->|<<|>>|\.\.|==|!=|<=|>=|!~|<-|>-|--|[-+*/%&|=~<>(){}\[\],;:.$\#])
    """,
    re.VERBOSE | re.DOTALL,
)
MAX_TEXT = 2_000_000  # characters of a map
MAX_DIGITS = 100  # of a number
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "f": "\f"}


class Token(NamedTuple):
    """One token.

    `text`: its value (strings without quotes and escapes).  `start` and `end`: offsets in the text of the map.
    `comment`: the comments before it.
    """

    kind: str
    text: str
    start: int
    end: int
    place: Place
    comment: str = ""


class FmlError(Problem):
    """A mistake in a map: file, line, column, and the expected token.  Category MAPPING."""

    def __init__(self, text: str, file: str, place: Place) -> None:
        super().__init__(Category.MAPPING, text, f"{file or 'map'}:{place.line}:{place.column}")
        self.line = place.line
        self.column = place.column


def unescape(text: str) -> str:
    """Content of a string literal with its escapes resolved.  An unknown escape keeps its backslash,
    so that regular expressions may be written either way (`\\d` and `\\\\d`)."""
    if "\\" not in text:
        return text
    found = _ESCAPE.sub(_unescape_one, text)
    # two escapes may be one character
    return found if found.isascii() else found.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _unescape_one(match: re.Match[str]) -> str:
    code = match[1]
    if len(code) == 5:
        return chr(int(code[1:], 16))
    if code in "\"'`\\/":
        return code
    return _ESCAPES.get(code, "\\" + code)


def quote(text: str, mark: str = '"') -> str:
    """The reverse of `unescape`, with its quotation marks."""
    escaped = text.replace("\\", "\\\\").replace(mark, "\\" + mark)
    for letter, character in _ESCAPES.items():
        escaped = escaped.replace(character, "\\" + letter)
    return mark + escaped + mark


def tokens(text: str, file: str, until: Callable[[Token], bool] | None = None) -> list[Token]:
    """All tokens, then one of kind `end`; `until`: stop after the first of these."""
    if until is None:
        return list(_tokens(text, file))
    found: list[Token] = []
    for token in _tokens(text, file):
        found.append(token)
        if until(token):
            break
    return found


def _tokens(text: str, file: str) -> Iterator[Token]:
    if len(text) > MAX_TEXT:
        raise FmlError(f"a map has more than {MAX_TEXT} characters", file, Place(1, 1))
    position, line, line_start = 0, 1, 0
    comments: list[str] = []
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is not None and match.lastgroup == "symbol" and text.startswith("/*", position):
            # Or each of 100,000 beginnings of a comment would be looked for an end to the end of the map.
            raise FmlError("a comment is not terminated", file, Place(line, position - line_start + 1))
        if match is None:
            raise FmlError(f"unexpected {text[position]!r}", file, Place(line, position - line_start + 1))
        kind, content, end = match.lastgroup or "", match[0], match.end()
        if kind == "number" and len(content) > MAX_DIGITS:
            text = f"a number has more than {MAX_DIGITS} characters"
            raise FmlError(text, file, Place(line, position - line_start + 1))
        if kind == "comment":
            comments.append(content[2:].strip())
        elif kind == "block":
            comments.append(content[2:-2].strip())
        elif kind != "space":
            comment = "\n".join(comments) if comments else ""
            comments = []
            meaning = _meaning(kind, content) if kind in _WITH_MARKS else intern(content)  # few distinct words
            if not _is_unicode(meaning):
                raise FmlError(
                    "a text is not valid Unicode: half of a surrogate pair",
                    file,
                    Place(line, position - line_start + 1),
                )
            yield Token(kind, meaning, position, end, Place(line, position - line_start + 1), comment)
        if kind in _OVER_LINES and "\n" in content:
            line += content.count("\n")
            line_start = position + content.rindex("\n") + 1
        position = end
    place = Place(line, position - line_start + 1)
    yield Token("end", "end of the map", position, position, place, "\n".join(comments))


_WITH_MARKS = frozenset(("string", "quoted", "markdown"))
_OVER_LINES = frozenset(("space", "block", "string", "quoted", "markdown"))


def _is_unicode(text: str) -> bool:
    """Whether a text can be written in UTF-8."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def _meaning(kind: str, content: str) -> str:
    if kind in ("string", "quoted"):
        return unescape(content[1:-1])
    if kind == "markdown":
        return content[3:-3].strip("\n")
    return content
