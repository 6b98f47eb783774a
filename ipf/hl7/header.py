"""The MSH of a message, read from its bytes: enough to store and acknowledge the message.

`scan_header` fails only without an MSH; `read_header` also requires the parts that identify a message.
:attr:`Header.fields` are as sent, for the acknowledgement; all other values are unescaped.

Source: HL7 v2.9 section 2.14.9 (MSH); interface specification "Ingested message"; decisions section 4.
"""

from __future__ import annotations

from functools import lru_cache

from ipf.errors import Category, Problem
from ipf.hl7.charset import codec_of, decode, sniff
from ipf.hl7.escape import Separators, separators_of, unescape

_NULL = '""'
_ACKNOWLEDGEMENTS = frozenset(("ACK", "MCF", "NAK"))
_LONGEST_MSH = 64 * 1024
_LONGEST_PATTERN = 1024


class Header:
    """MSH of one message.  `fields[n]` is MSH-n as sent for n >= 2; `fields[1]` is the field separator.

    Unescaped, empty when absent or null: `source_system` (MSH-3.1, else MSH-3.2), `source_id` (MSH-10), `message_code`,
    `trigger` and `structure` (MSH-9.1 to 9.3), `message_type` (`ADT_A01`).  `codec`: Python codec of the message.
    `pattern`: the header with MSH-7 and MSH-10 empty, which is shared by messages that differ only in these; None: not
    cached.  It must not be changed.
    """

    __slots__ = (
        "codec",
        "fields",
        "message_code",
        "message_type",
        "pattern",
        "separators",
        "source_id",
        "source_system",
        "structure",
        "trigger",
    )

    def __init__(self, fields: list[str], separators: Separators, codec: str) -> None:
        self.fields = fields
        self.separators = separators
        self.codec = codec
        self.pattern: Header | None = None
        parts = self.field(9).split(separators.component)
        self.message_code = _value(parts[0])
        self.trigger = _value(parts[1]) if len(parts) > 1 else ""
        self.structure = _value(parts[2]) if len(parts) > 2 else ""
        self.message_type = f"{self.message_code}_{self.trigger}" if self.trigger else self.message_code
        self.source_system = self.first(3) or self._component(3, 2)
        self.source_id = self.first(10)

    def in_original_mode(self) -> Header:
        """A copy without MSH-15 and MSH-16: every outcome is acknowledged."""
        return Header(
            [*self.fields[:15], *("" for _ in self.fields[15:17]), *self.fields[17:]], self.separators, self.codec
        )

    def filled(self, time: str, control_id: str) -> Header:
        """The pattern with MSH-7 and MSH-10 of a message, as sent."""
        made = _new_header(Header)
        made.fields = fields = self.fields.copy()
        fields[7] = time
        fields[10] = control_id
        made.separators = self.separators
        made.codec = self.codec
        made.pattern = self
        made.message_code = self.message_code
        made.trigger = self.trigger
        made.structure = self.structure
        made.message_type = self.message_type
        made.source_system = self.source_system
        made.source_id = control_id if control_id.isalnum() else made.first(10)
        return made

    def field(self, number: int) -> str:
        """MSH-`number` as sent, escapes and repetitions included; empty when absent."""
        return self.fields[number] if number < len(self.fields) else ""

    def first(self, number: int) -> str:
        """First component of the first repetition of MSH-`number`, unescaped; empty when absent or null."""
        separators = self.separators
        text = self.field(number).partition(separators.repetition)[0].partition(separators.component)[0]
        if separators.escape and separators.escape in text:
            text = unescape(text, separators, self.codec)
        return _value(text)

    def _component(self, number: int, component: int) -> str:
        """A component of the first repetition of MSH-`number`, unescaped."""
        separators = self.separators
        parts = self.field(number).partition(separators.repetition)[0].split(separators.component)
        return _value(unescape(parts[component - 1], separators, self.codec)) if len(parts) >= component else ""

    @property
    def sending_application(self) -> str:
        """MSH-3 as sent."""
        return self.field(3)

    @property
    def sending_facility(self) -> str:
        """MSH-4 as sent."""
        return self.field(4)

    @property
    def receiving_application(self) -> str:
        """MSH-5 as sent."""
        return self.field(5)

    @property
    def receiving_facility(self) -> str:
        """MSH-6 as sent."""
        return self.field(6)

    @property
    def control_id(self) -> str:
        """MSH-10 as sent, for MSA-2."""
        return self.field(10)

    @property
    def processing_id(self) -> str:
        """MSH-11 as sent."""
        return self.field(11)

    @property
    def version(self) -> str:
        """MSH-12.1."""
        return self.first(12)

    @property
    def accept_ack(self) -> str:
        """MSH-15: when the sender wants an accept acknowledgement."""
        return self.first(15).upper()

    @property
    def application_ack(self) -> str:
        """MSH-16: when the sender wants an application acknowledgement."""
        return self.first(16).upper()

    @property
    def charset_names(self) -> tuple[str, ...]:
        """MSH-18, all repetitions; empty when not stated."""
        stated = self.field(18)
        return tuple(stated.split(self.separators.repetition)) if stated and stated != _NULL else ()

    @property
    def is_acknowledgement(self) -> bool:
        """Whether the message is an acknowledgement, which must not be acknowledged."""
        return self.message_code in _ACKNOWLEDGEMENTS


_new_header = Header.__new__


def scan_header(raw: bytes) -> Header:
    """The MSH of `raw`.  Problem MALFORMED without an MSH and its separators.

    Headers of a sender usually differ only in time and control id, so the rest is cached (`_pattern`).
    """
    if raw[:3] != b"MSH":
        raw = as_bytes_of_msh(raw)
    end = raw.find(b"\r", 0, _LONGEST_MSH)
    line = raw[: end if end >= 0 else _LONGEST_MSH]
    if end < 0 or b"\n" in line:
        line = line.partition(b"\n")[0]
    if 3 < len(line) <= _LONGEST_PATTERN and line.isascii():
        separator = line[3:4]
        parts = line.split(separator, 10)
        if len(parts) > 9:
            time, control_id = parts[6], parts[9]
            parts[6] = parts[9] = b""
            return _pattern(separator.join(parts)).filled(time.decode("ascii"), control_id.decode("ascii"))
    return _read(line)


@lru_cache(maxsize=256)
def _pattern(line: bytes) -> Header:
    return _read(line)


def _read(line: bytes) -> Header:
    text, codec = (line.decode("ascii"), "") if line.isascii() else _decoded(line)
    separator = text[3:4]
    fields = text.split(separator) if separator else [text]
    separators = _separators(separator, fields[1] if len(fields) > 1 else "")
    if not codec:
        codec = _codec(fields[17], separators) if len(fields) > 17 else "utf-8"
    fields.insert(1, separator)
    return Header(fields, separators, codec)


def read_header(raw: bytes) -> Header:
    """As `scan_header`; Problem REQUIRED names the first of MSH-9, MSH-10 and MSH-3 that is missing."""
    header = scan_header(raw)
    problem = missing_part(header)
    if problem is not None:
        raise problem
    return header


def missing_part(header: Header) -> Problem | None:
    """The missing part of the identity of a message, if any."""
    if not header.message_code:
        return Problem(Category.REQUIRED, "the message type is missing", "MSH-9.1")
    if not header.trigger:
        return Problem(Category.REQUIRED, "the trigger event is missing", "MSH-9.2")
    if not header.source_id:
        return Problem(Category.REQUIRED, "the message control id is missing", "MSH-10")
    if not header.source_system:
        return Problem(Category.REQUIRED, "the sending application is missing", "MSH-3.1")
    return None


def as_bytes_of_msh(raw: bytes) -> bytes:
    """`raw` from its MSH, as ASCII-compatible bytes: skips white space and byte order marks, and decodes UTF-16.

    Problem MALFORMED when there is no MSH.
    """
    wide = sniff(raw)
    if wide is not None:
        raw = raw.decode(wide, "replace").encode("utf-8")
    stripped = raw.lstrip(b" \t\r\n\x00")
    if stripped[:3] == b"MSH":
        return stripped
    if stripped[:3] in (b"FHS", b"BHS"):
        raise Problem(Category.NOT_SUPPORTED, "batches and files are not accepted; send one message a frame", "MSH")
    raise Problem(Category.MALFORMED, "this is no HL7 v2 message: it does not begin with MSH", "MSH")


def _decoded(line: bytes) -> tuple[str, str]:
    """An MSH with characters outside ASCII, as text, and its codec by MSH-18."""
    fields = line.split(line[3:4])
    stated = fields[17].partition(line[5:6] or b"~")[0] if len(fields) > 17 else b""
    decoded = decode(line, [stated.decode("ascii", "replace")] if stated and stated != b'""' else [])
    return decoded.text, decoded.codec


def _codec(stated: str, separators: Separators) -> str:
    return (codec_of(stated.partition(separators.repetition)[0]) if stated else None) or "utf-8"


@lru_cache(maxsize=64)
def _separators(separator: str, encoding: str) -> Separators:
    """Valid separators: distinct, at least field and component separator, the first no letter, digit or blank."""
    characters = separator + encoding[:5]
    if not separator or not encoding or len(set(characters)) < len(characters) or not _punctuation(characters):
        raise Problem(Category.MALFORMED, "the separators in MSH-1 and MSH-2 cannot be read", "MSH-1")
    return separators_of(separator, encoding)


def _punctuation(characters: str) -> bool:
    return not any(one.isalnum() or one.isspace() for one in characters)


def _value(text: str) -> str:
    text = text.strip()
    return "" if text == _NULL else text
