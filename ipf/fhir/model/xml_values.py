"""Long attribute values of an XML text, such as a document in Base64, taken out before the XML parser reads it.

The parser (in C) reads an attribute as a whole, and nothing else runs meanwhile: 58 MB take two seconds.  Here a
value without special characters is replaced by a mark, and the reader puts it back where it meets the mark.
"""

from __future__ import annotations

from collections.abc import Mapping

_WINDOW = 64 * 1024
_MARK = "\ue000"  # a character for private use; a text that may have one is left as it is
_FIRST_BYTE = _MARK.encode()[:1]
_PLAIN = bytes(one for one in range(0x20, 0x7F) if one not in b'<>&"')
"""Characters that mean themselves in an attribute value, and end nothing (`-->`) elsewhere."""


def without_long_values(text: bytes) -> tuple[bytes, Mapping[str, str]]:
    """The text with a mark for each quoted value of at least 128 kB without special characters, and the values."""
    if len(text) < 2 * _WINDOW or _FIRST_BYTE in text:
        return text, {}
    parts: list[bytes] = []
    values: dict[str, str] = {}
    end = start = 0
    while start + _WINDOW <= len(text):
        if text.find(b'"', start, start + _WINDOW) >= 0:
            start += _WINDOW
            continue
        first, last = text.rfind(b'"', end, start) + 1, text.find(b'"', start + _WINDOW)
        if last < 0:
            break
        if first and text[first - 2 : first - 1] == b"=" and _is_plain(text, first, last):
            mark = f"{_MARK}{len(values)}{_MARK}"
            parts += [text[end:first], mark.encode()]
            values[mark], end = text[first:last].decode("ascii"), last
        start = last + 1
    return b"".join([*parts, text[end:]]) if parts else text, values


def with_long_values(text: str, values: Mapping[str, str]) -> str:
    """A text with the values in the place of their marks."""
    if text in values:
        return values[text]
    if values and _MARK in text:
        for mark, value in values.items():
            text = text.replace(mark, value)
    return text


def _is_plain(text: bytes, first: int, last: int) -> bool:
    return not any(text[one : min(one + _WINDOW, last)].translate(None, _PLAIN) for one in range(first, last, _WINDOW))
