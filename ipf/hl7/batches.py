"""Batches of messages (FHS, BHS, BTS, FTS): taken apart before anything of them is stored, and acknowledged as one.

The headers are optional: several MSH are several messages.

What arrives: the bytes of a frame, a request or a file.  What leaves: its messages.  A batch without its trailer, or
whose trailer counts other than what was sent, is cut off: a Problem, and nothing of it is taken.

The acknowledgement of a batch is a batch of acknowledgements; BHS-12 and FHS-12 name what is acknowledged.

Source: HL7 v2.9 section 2.10.3 (batch protocol), 2.14.2 and 2.14.3 (BHS, BTS), 2.14.6 and 2.14.7 (FHS, FTS).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from ipf.errors import Category, Problem
from ipf.hl7.charset import is_wide, sniff

_HEADERS = (b"FHS", b"BHS")
_TRAILERS = {b"BTS": b"BHS", b"FTS": b"FHS"}
_NAMES = (b"MSH", *_HEADERS, *_TRAILERS)
_BOM = b"\xef\xbb\xbf"
_FRAMING = b"\x0b\x1c"


@dataclass(slots=True)
class Batch:
    """One BHS with its messages.  `header`: None for messages outside a batch."""

    header: bytes | None
    messages: list[bytes] = field(default_factory=list)


@dataclass(slots=True)
class Content:
    """What a file or a frame holds.  `header`: its FHS."""

    header: bytes | None = None
    batches: list[Batch] = field(default_factory=list)

    @property
    def messages(self) -> list[bytes]:
        """All messages, in their order."""
        return [message for batch in self.batches for message in batch.messages]


def is_batch(raw: bytes) -> bool:
    """Whether this is no message but several of them, a batch, or a file of batches."""
    if is_wide(raw):
        raw = raw.decode(sniff(raw) or "utf-16", "replace").encode()
    return raw.removeprefix(_BOM)[:3] in _HEADERS or any(_follows(raw, name) for name in _NAMES)


def _follows(raw: bytes, name: bytes) -> bool:
    """Whether a segment of this name begins after the first line."""
    at = raw.find(name, 4)
    while at >= 0:
        begins = raw[at - 1] in b"\r\n" or (raw[at - 1] in _FRAMING and raw[at - 2] in b"\r\n")
        if begins and raw[at + 3 : at + 4] in (raw[3:4], b"\r", b"\n", b""):
            return True
        at = raw.find(name, at + 3)
    return False


def content_of(raw: bytes) -> Content:
    """Everything in it: one message, several, or batches.

    Problem MALFORMED names the line and the rule; NOT_SUPPORTED: several messages in UTF-16.
    """
    if is_wide(raw):
        raise Problem(Category.NOT_SUPPORTED, "batches in UTF-16 are not accepted; send one message a frame", "MSH")
    reading = _Reading()
    for number, segment in _segments(raw):
        reading.take(number, segment)
    return reading.done()


def _segments(raw: bytes) -> Iterator[tuple[int, bytes]]:
    """The segments with their numbers, without MLLP framing and blank lines."""
    text = raw.removeprefix(_BOM).lstrip(_FRAMING)
    for number, line in enumerate(_line_end(text[3:4]).split(text), 1):
        segment = line.strip(b"\n").strip(_FRAMING)
        if segment.strip():
            yield number, segment


@lru_cache(maxsize=64)
def _line_end(separator: bytes) -> re.Pattern[bytes]:
    """The ends of segments, as in `segments.py`."""
    after = rb"(?:" + re.escape(separator) + rb"|[\r\n]|\Z)"
    return re.compile(rb"\r|\n(?=[\x0b\x1c]?(?:(?:MSH|[BF][HT]S)[^\w\s]|[A-Z][A-Z0-9]{2}" + after + rb"))")


class _Reading:
    """What has been read, and which headers are open."""

    def __init__(self) -> None:
        self.content = Content()
        self.open: list[bytes] = []
        self.ended = False
        self.message: list[bytes] = []

    def take(self, number: int, segment: bytes) -> None:
        """One segment.  Problem MALFORMED."""
        name = b"" if segment[3:4].isalnum() else segment[:3]
        if self.ended:
            raise _wrong(number, "stands after FTS, the end of the file")
        if name in _HEADERS:
            self._header(number, name, segment)
        elif name in _TRAILERS:
            self._trailer(number, name, segment)
        elif name == b"MSH":
            self._end_message()
            self.message = [segment]
        elif self.message:
            self.message.append(segment)
        else:
            raise _wrong(number, "stands outside of a message")

    def done(self) -> Content:
        """Everything, at its end.  Problem MALFORMED."""
        self._end_message()
        if self.open:
            name = self.open[-1].decode()
            raise Problem(Category.MALFORMED, f"{name} has no {'BTS' if name == 'BHS' else 'FTS'}: it is cut off", name)
        if not self.content.messages:
            raise Problem(Category.MALFORMED, "there is no message in it")
        return self.content

    def _header(self, number: int, name: bytes, segment: bytes) -> None:
        self._end_message()
        if name == b"FHS":
            if self.content.header or self.content.batches:
                raise _wrong(number, "FHS must be the first segment")
            self.content.header = segment
        else:
            if name in self.open:
                raise _wrong(number, "BHS stands within a batch, before its BTS")
            self.content.batches.append(Batch(segment))
        self.open.append(name)

    def _trailer(self, number: int, name: bytes, segment: bytes) -> None:
        self._end_message()
        if self.open[-1:] != [_TRAILERS[name]]:
            raise _wrong(number, f"{name.decode()} without its {_TRAILERS[name].decode()}")
        self.open.pop()
        self.ended = name == b"FTS"
        batches = self.content.batches
        found = len(batches[-1].messages) if name == b"BTS" else sum(1 for one in batches if one.header)
        said = segment.split(segment[3:4])[1].strip() if len(segment) > 4 else b""
        is_counted = name == b"BTS" or found > 0  # of a file without BHS, some count messages, some nothing
        if said and is_counted and said.lstrip(b"0") != (b"%d" % found).lstrip(b"0"):
            what = "messages" if name == b"BTS" else "batches"
            raise _wrong(
                number, f"{name.decode()}-1 says {said[:20].decode('ascii', 'replace')} {what}, there are {found}"
            )

    def _end_message(self) -> None:
        if not self.message:
            return
        if not self.content.batches or (self.content.batches[-1].header and b"BHS" not in self.open):
            self.content.batches.append(Batch(None))
        self.content.batches[-1].messages.append(b"\r".join(self.message) + b"\r")
        self.message = []


def _wrong(number: int, text: str) -> Problem:
    return Problem(Category.MALFORMED, text, f"line {number}")


def acknowledgement(content: Content, answers: Sequence[bytes | None], time: str, control_id: str) -> bytes:
    """The acknowledgements of all messages, in the batches of their messages; None: none is due.

    `time`: HL7 DTM of now; `control_id`: of the batch.
    """
    made, remaining = [], iter(answers)
    if content.header is not None:
        made.append(_answering(content.header, time, control_id))
    for batch in content.batches:
        due = [answer for _, answer in zip(batch.messages, remaining, strict=False) if answer is not None]
        if batch.header is not None:
            made.append(_answering(batch.header, time, control_id))
        made += due
        if batch.header is not None:
            made.append(b"BTS%s%d\r" % (batch.header[3:4], len(due)))
    if content.header is not None:
        made.append(b"FTS%s%d\r" % (content.header[3:4], sum(1 for one in content.batches if one.header)))
    return b"".join(made)


def _answering(header: bytes, time: str, control_id: str) -> bytes:
    """BHS or FHS with the applications swapped; the control id of the other one in field 12."""
    separator = header[3:4]
    given = [*header.split(separator), *[b""] * 12]
    fields = [
        given[0],
        given[1],
        *given[4:6],
        *given[2:4],
        time.encode(),
        b"",
        b"",
        b"",
        control_id.encode(),
        given[10],
    ]
    return separator.join(fields) + b"\r"
