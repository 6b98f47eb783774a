r"""Escape sequences of HL7 v2 text: decoding and encoding.

==================  =============================================================================================
`\F\ \S\ \T\ \R\`   the message's own field, component, subcomponent and repetition separators
`\E\`               the escape character
`\P\`               the truncation character (v2.7 on)
`\Xhh..\`           bytes given in hexadecimal, in the character set of the message
`\.br\ \.sp\ ..`    formatting of FT fields: a line break (`\.sp3\` three); others are layout and omitted
`\H\ \N\`           highlighting on and off: omitted
`\Cxxyy\ \Mxxyyzz\` ISO 2022 set switching: the escape sequence itself is not text and is omitted
`\Zdd..\`           locally defined: kept unchanged, since its meaning is local
==================  =============================================================================================

An escape character without a known sequence is text; nothing is lost.

Source: HL7 v2.9 section 2.7 (use of escape sequences in text fields).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from ipf.hl7.charset import DEFAULT_FALLBACK

NULL = '""'
"""The HL7 null value ("delete this value")."""

_HEX = re.compile(r"X((?:[0-9A-Fa-f]{2})+)\Z")
_BREAK = re.compile(r"\.(?:br|sp|ce|sk)\s*\+?(\d{0,3})\Z", re.IGNORECASE)
_LAYOUT = re.compile(r"\.(?:fi|nf|in|ti)\s*[+-]?\d{0,3}\Z", re.IGNORECASE)
_CHARSET = re.compile(r"(?:C[0-9A-Fa-f]{4}|M[0-9A-Fa-f]{4}(?:[0-9A-Fa-f]{2})?)\Z")
_LONGEST = 512 * 1024


@dataclass(frozen=True, slots=True)
class Separators:
    """MSH-1 and MSH-2 of one message.  A missing character has its default."""

    field: str = "|"
    component: str = "^"
    repetition: str = "~"
    escape: str = "\\"
    subcomponent: str = "&"
    truncation: str = ""

    @property
    def encoding_characters(self) -> str:
        """MSH-2."""
        return self.component + self.repetition + self.escape + self.subcomponent + self.truncation


DEFAULT_SEPARATORS = Separators()


@lru_cache(maxsize=64)
def separators_of(field: str, encoding: str) -> Separators:
    """Separators from MSH-1 and MSH-2 as sent; characters missing at the end of MSH-2 (v2.1) have defaults."""
    given = encoding[:5]
    stated = dict(zip(("component", "repetition", "escape", "subcomponent", "truncation"), given, strict=False))
    return Separators(field, **stated)


def unescape(text: str, separators: Separators = DEFAULT_SEPARATORS, codec: str = "utf-8") -> str:
    """`text` with its escape sequences decoded."""
    mark = separators.escape
    if not mark or mark not in text:
        return text
    if f"{mark}{mark}X" in text:
        text = _hexadecimal_run(mark).sub(lambda run: f"{mark}X{run[0].replace(mark, '').replace('X', '')}{mark}", text)
    pieces = text.split(mark)
    out = [pieces[0]]
    index = 1
    while index < len(pieces):
        meant = _meaning(pieces[index], separators, codec) if index + 1 < len(pieces) else None
        if meant is None:  # no sequence: the character is text, and the next one may begin a sequence
            out.append(mark)
            out.append(pieces[index])
            index += 1
        else:
            out.append(meant)
            out.append(pieces[index + 1])
            index += 2
    return "".join(out)


@lru_cache(maxsize=64)
def _hexadecimal_run(mark: str) -> re.Pattern[str]:
    """Several `\\Xhh..\\` in a row: the bytes of one character may stand in several."""
    one = rf"{re.escape(mark)}X(?:[0-9A-Fa-f]{{2}})+{re.escape(mark)}"
    return re.compile(rf"{one}(?:{one})+")


class Encoding:
    """Separators and codec of one message, shared by all its nodes."""

    __slots__ = ("codec", "separators")

    def __init__(self, separators: Separators, codec: str) -> None:
        self.separators = separators
        self.codec = codec

    def value(self, raw: str) -> str | None:
        """Text of a primitive as sent."""
        if not raw or raw == NULL:
            return None
        mark = self.separators.escape
        return unescape(raw, self.separators, self.codec) if mark and mark in raw else raw


@lru_cache(maxsize=64)
def encoding_of(separators: Separators, codec: str) -> Encoding:
    """One object for messages with the same separators and codec."""
    return Encoding(separators, codec)


def escape(text: str, separators: Separators = DEFAULT_SEPARATORS) -> str:
    r"""`text` encoded for a field; line ends become `\.br\`."""
    mark = separators.escape
    if not mark:
        return text.translate(dict.fromkeys(map(ord, _special(separators) + "\r\n\x0b\x1c"), " "))
    return text.replace("\r\n", "\n").translate(_escapes(separators))


def _special(separators: Separators) -> str:
    return separators.field + separators.component + separators.subcomponent + separators.repetition


@lru_cache(maxsize=64)
def _escapes(separators: Separators) -> dict[int, str]:
    mark = separators.escape
    letters = {
        separators.field: "F",
        separators.component: "S",
        separators.subcomponent: "T",
        separators.repetition: "R",
        mark: "E",
        "\r": ".br",
        "\n": ".br",
        "\x0b": "X0B",
        "\x1c": "X1C",
    }
    return {ord(character): mark + letter + mark for character, letter in letters.items() if character}


def _meaning(code: str, separators: Separators, codec: str) -> str | None:
    """The meaning of the text between two escape characters; None when it is no escape sequence."""
    if len(code) == 1:
        return _single(code, separators)
    if not code or len(code) > _LONGEST:
        return None
    if code[0] == ".":
        line_break = _BREAK.match(code)
        if line_break:
            return "\n" * min(int(line_break[1] or 1), 99)
        return "" if _LAYOUT.match(code) else None
    if code[0] == "X":
        hexadecimal = _HEX.match(code)
        return _decoded(bytes.fromhex(hexadecimal[1]), codec) if hexadecimal else None
    if code[0] == "Z":
        return separators.escape + code + separators.escape
    return "" if _CHARSET.match(code) else None


def _decoded(given: bytes, codec: str) -> str:
    """Bytes that are none in the character set of the message fall back as its own would."""
    try:
        return given.decode(codec)
    except UnicodeError:
        return given.decode(DEFAULT_FALLBACK, "replace")


def _single(letter: str, separators: Separators) -> str | None:
    if letter == "F":
        return separators.field
    if letter == "S":
        return separators.component
    if letter == "T":
        return separators.subcomponent
    if letter == "R":
        return separators.repetition
    if letter == "E":
        return separators.escape
    if letter == "P" and separators.truncation:
        return separators.truncation
    return "" if letter in "HN" else None
