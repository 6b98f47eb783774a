"""Which messages a destination gets, and what is changed in them.

Without changes the bytes are those that were received.  A change sets a whole field of every segment of a name; the
value may be another field of the message (`{PV1-3}`), or computed by FHIRPath from the message as it was received.  The
text keeps the delimiters and the character set of the message.
"""

from __future__ import annotations

import re
from collections import Counter

from ipf.errors import Category, Problem
from ipf.hl7.charset import decode
from ipf.hl7.header import scan_header
from ipf.hl7.segments import split_segments
from ipf.pipeline.forward.content import Content
from ipf.ports.messages.forwards import Candidate, Destination

FIELD = re.compile(r"([A-Z][A-Z0-9]{2})-([1-9]\d?)")
_REFERENCE = re.compile(r"\{([A-Z][A-Z0-9]{2})-([1-9]\d?)\}")


def matches(destination: Destination, message: Candidate) -> bool:
    """Whether a destination gets a message.  Problem: its condition cannot be evaluated on this message."""
    if message.tenant != destination.tenant:
        return False
    if destination.listeners and message.listener not in destination.listeners:
        return False
    if destination.senders and message.source_system not in destination.senders:
        return False
    if destination.types and not any(_fits(message.message_type, one) for one in destination.types):
        return False
    if destination.facilities and _facility(message.raw) not in destination.facilities:
        return False
    return not destination.where or Content(message.raw, message.charset).holds(destination.where)


def _fits(name: str, pattern: str) -> bool:
    """Whether it is the name, or begins as one that ends in `*`."""
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def _facility(head: bytes) -> str:
    try:
        return scan_header(head).sending_facility
    except Problem:
        return ""


def changed(destination: Destination, raw: bytes, charset: str) -> bytes:
    """The message as it is sent.

    Problem VALUE: a value cannot be written in the character set of the message, or an expression, that of `where` too,
    cannot be evaluated.
    """
    content = Content(raw, charset) if destination.where or destination.computed else None
    if content is not None and destination.where:
        content.holds(destination.where)
    if not destination.changes and not destination.computed and not destination.remove:
        return raw
    header = scan_header(raw)
    codec = decode(raw, header.charset_names, charset or "utf-8").codec
    text = raw.decode(codec)
    separator = text[3:4]
    lines = [line for line in split_segments(text, separator) if not _is_removed(line[:3], destination.remove)]
    values = [(FIELD.fullmatch(field), _filled(value, lines, separator)) for field, value in destination.changes]
    for found, value in values:
        assert found is not None  # the reader of the file checks it
        name, number = found[1], int(found[2])
        lines = [_with(line, number, value, separator) if line[:3] == name else line for line in lines]
    if content is not None:
        lines = _computed(destination, content, lines, separator)
    try:
        return "".join(f"{line}\r" for line in lines).encode(codec)
    except UnicodeEncodeError as error:
        raise Problem(Category.VALUE, f"a changed field cannot be written in {codec}") from error


def _computed(destination: Destination, content: Content, lines: list[str], separator: str) -> list[str]:
    for field, expression in destination.computed:
        name, number = field[:3], int(field[4:])
        counts: Counter[str] = Counter()
        for index, line in enumerate(lines):
            if line[:3] == name:
                value = content.field(expression, name, counts[name])
                lines[index] = _with(line, number, value, separator)
                counts[name] += 1
    return lines


def _is_removed(name: str, patterns: tuple[str, ...]) -> bool:
    return name != "MSH" and any(_fits(name, one) for one in patterns)


def _filled(value: str, lines: list[str], separator: str) -> str:
    """The value with references replaced by the first segment of that name."""

    def field(found: re.Match[str]) -> str:
        line = next((one for one in lines if one[:3] == found[1]), "")
        parts = _parts(line, separator)
        number = int(found[2])
        return parts[number] if number < len(parts) else ""

    return _REFERENCE.sub(field, value)


def _with(line: str, number: int, value: str, separator: str) -> str:
    parts = _parts(line, separator)
    parts += [""] * (number + 1 - len(parts))
    parts[number] = value
    if line.startswith("MSH"):
        del parts[1]  # MSH-1 is the separator itself
    return separator.join(parts)


def _parts(line: str, separator: str) -> list[str]:
    """The fields by their numbers; MSH-1 is the separator."""
    parts = line.split(separator)
    return [parts[0], separator, *parts[1:]] if line.startswith("MSH") else parts
