"""Sample messages of a sender: what is in them that a profile has to deal with.

What arrives: files with one or more HL7 v2 messages, with any line ends, framed or not.  What leaves: a `Survey`:
senders, versions, types, Z segments, formats of times, character sets, and the values of coded fields.  Problem
REQUIRED when there is no message.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ipf.errors import Category, Problem
from ipf.hl7.charset import decode
from ipf.hl7.header import Header, scan_header
from ipf.hl7.message import Message, Segment
from ipf.mapping.compiler.v2 import types_of

MOST_FILES, LARGEST_FILE = 2000, 10 * 1024 * 1024
MOST_VALUES = 20

_START = re.compile(rb"(?:\A|(?<=[\r\n\x0b]))(?=MSH[^A-Za-z0-9\s])")
_CODED = frozenset(("ID", "IS", "CE", "CNE", "CWE"))
_TIMED = frozenset(("TS", "DT", "DTM"))
_TIMES = {
    "iso-8601": re.compile(r"\d{4}-\d{2}-\d{2}(?:[T ].*)?"),
    "day-first": re.compile(
        r"(?:(?:1[3-9]|2\d|3[01])[./-](?:0?[1-9]|1[0-2])[./-]|\d{1,2}\.(?:0?[1-9]|1[0-2])\.)\d{4}(?: .*)?"
    ),
    "month-first": re.compile(r"(?:0?[1-9]|1[0-2])[./-](?:1[3-9]|2\d|3[01])[./-]\d{4}(?: .*)?"),
    "day or month first": re.compile(r"(?:0?[1-9]|1[0-2])[/-](?:0?[1-9]|1[0-2])[/-]\d{4}(?: .*)?"),
    "hl7": re.compile(r"\d{4}(?:\d{2}){0,5}(?:\.\d+)?(?:[+-]\d{4})?"),
}


@dataclass(frozen=True, slots=True)
class Sample:
    """One message, with the name of its file."""

    file: str
    raw: bytes
    header: Header


@dataclass(slots=True)
class Survey:
    """What the samples have.  Counters count messages, or values; `codes`: values by coded field (`PV1-2`)."""

    samples: list[Sample]
    skipped: list[str]
    senders: Counter[tuple[str, str]] = field(default_factory=Counter)
    versions: Counter[str] = field(default_factory=Counter)
    types: Counter[str] = field(default_factory=Counter)
    charsets: Counter[tuple[str, str]] = field(default_factory=Counter)
    times: Counter[str] = field(default_factory=Counter)
    z_segments: dict[str, set[int]] = field(default_factory=dict)
    z_types: dict[str, set[str]] = field(default_factory=dict)
    codes: dict[str, Counter[str]] = field(default_factory=dict)
    without_control_id: int = 0
    padded: int = 0

    def z_segments_of(self, message_type: str) -> dict[str, list[int]]:
        """The filled fields of each Z segment of a message type."""
        return {name: sorted(self.z_segments[name]) for name in sorted(self.z_types.get(message_type, ()))}


def survey(folder: Path) -> Survey:
    """Look at every file of a folder, and of the folders in it."""
    samples: list[Sample] = []
    skipped: list[str] = []
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    for path in files[:MOST_FILES]:
        name = path.relative_to(folder).as_posix()
        content = path.read_bytes() if path.stat().st_size <= LARGEST_FILE else b""
        found = list(_samples(name, content))
        samples += found
        if not found:
            skipped.append(name)
    skipped += [path.relative_to(folder).as_posix() for path in files[MOST_FILES:]]
    if not samples:
        raise Problem(Category.REQUIRED, f"there is no HL7 v2 message in the files of {folder}")
    made = Survey(samples, skipped)
    for sample in samples:
        _look(made, sample)
    return made


def _samples(name: str, content: bytes) -> Iterator[Sample]:
    for piece in _START.split(content):
        raw = piece.strip(b"\x0b\x1c\r\n\t ")
        if raw[:3] == b"MSH":
            raw = b"\r".join(line for line in re.split(rb"[\r\n\x1c\x0b]+", raw) if line[:3] not in _ENVELOPE) + b"\r"
            try:
                header = scan_header(raw)
            except Problem:
                continue
            if header.message_type:
                yield Sample(name, raw, header)


_ENVELOPE = (b"FHS", b"BHS", b"BTS", b"FTS", b"")


def _look(made: Survey, sample: Sample) -> None:
    header = sample.header
    made.senders[header.first(3), header.first(4)] += 1
    made.types[header.message_type] += 1
    made.versions[header.first(12)] += 1
    made.charsets[header.field(18), decode(sample.raw, header.charset_names).codec] += 1
    made.without_control_id += not header.source_id
    message = Message.parse(sample.raw)
    for segment in message.all_segments:
        if segment.name.startswith("Z"):
            filled = {number for number in range(1, len(segment.fields)) if segment.fields[number]}
            made.z_segments.setdefault(segment.name, set()).update(filled)
            made.z_types.setdefault(header.message_type, set()).add(segment.name)
        elif segment.name != "MSH":
            _look_at_fields(made, segment)


def _look_at_fields(made: Survey, segment: Segment) -> None:
    for number in range(1, len(segment.fields)):
        types = types_of(f"{segment.name}_{number}")
        for one in segment.children(f"{segment.name}_{number}") if types else ():
            parts = one.children("1")
            text = (parts[0].text if parts else one.text) or ""
            made.padded += text != text.strip()
            if not _CODED.isdisjoint(types) and text.strip():
                made.codes.setdefault(f"{segment.name}-{number}", Counter())[text.strip()] += 1
            if not _TIMED.isdisjoint(types) and text.strip():
                made.times[_format(text.strip())] += 1


def _format(text: str) -> str:
    return next((name for name, pattern in _TIMES.items() if pattern.fullmatch(text)), "other")


def listed(counts: Mapping[str, int] | Iterable[tuple[str, int]]) -> str:
    """Values with their counts, the most frequent first: `I (3), O`."""
    rows = list(counts.items() if isinstance(counts, Mapping) else counts)
    rows.sort(key=lambda row: (-row[1], row[0]))
    texts = [f"{name or '(none)'} ({count})" if count > 1 else name or "(none)" for name, count in rows[:MOST_VALUES]]
    return ", ".join([*texts, "..."] if len(rows) > MOST_VALUES else texts)
