"""Quirks: deviations of a vendor from the standard, applied on receipt or before mapping.

Every quirk is a row of KNOWN with its strategies; the first is the default.  Quirks of receipt change how a message is
read; quirks of mapping change the message that the maps get.  Stored, shown and replayed are always the original bytes.

Free text (OBX-5 except attachments, NTE-3), separators (MSH-1, MSH-2), type and control id (MSH-9, MSH-10) are never
changed, but for broken lines, which are joined to their text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b

from ipf.errors import Category, Problem
from ipf.hl7.escape import NULL, Separators
from ipf.hl7.header import Header
from ipf.hl7.message import Message
from ipf.ports import Claimed
from ipf.vendor_profiles.broken_lines import joined


@dataclass(frozen=True, slots=True)
class Quirk:
    """`strategies`: their names, the default first."""

    name: str
    strategies: tuple[str, ...]
    meaning: str


KNOWN: dict[str, Quirk] = {
    one.name: one
    for one in (
        Quirk("missing-control-id", ("reject", "content-hash"), "a message without MSH-10"),
        Quirk(
            "default-charset",
            ("listener", "utf-8", "windows-1252", "iso-8859-1", "iso-8859-2", "iso-8859-15"),
            "characters of a message without MSH-18 that is no UTF-8",
        ),
        Quirk("broken-lines", ("refuse", "join"), "lines that are no segments: texts that were broken in lines"),
        Quirk("null-values", ("delete", "ignore"), 'meaning of "": delete the value, or no value'),
        Quirk("padded-values", ("keep", "trim"), "blanks at the ends of values"),
        Quirk("repetitions", ("keep", "distinct"), "equal repetitions of a field"),
        Quirk("timestamps", ("hl7", "iso-8601", "day-first", "month-first"), "format of times"),
        Quirk(
            "assigning-authority",
            ("as-sent", "sending-facility", "sending-application"),
            "authority of a patient or visit number without one",
        ),
        Quirk("msh3-format", ("standard", "facility-shortcode-then-pipe"), "facility and application in MSH-3"),
        Quirk("empty-pid-strategy", ("synthesize-from-mrn", "reject"), "a message without PID-3"),
        Quirk(
            "attachment-encoding",
            ("base64-standard", "base64-with-rtf-prefix-trim"),
            "RTF in front of the base64 data of OBX-5",
        ),
    )
}

CONTROL_ID_PREFIX = "sha-"

Edit = Callable[[str, "FieldPosition"], str]


@dataclass(frozen=True, slots=True)
class FieldPosition:
    """A field of a message, with the separators and the header of the message."""

    segment: str
    field: int
    separators: Separators
    header: Header


def control_id(quirks: Mapping[str, str], frame: bytes) -> str:
    """The control id for a message without one; empty = refuse it, as without a profile.

    The same bytes give the same id, so a repeated message is recognized.
    """
    if quirks.get("missing-control-id") != "content-hash":
        return ""
    return CONTROL_ID_PREFIX + blake2b(frame, digest_size=16).hexdigest()


def fallback_charset(quirks: Mapping[str, str]) -> str | None:
    """Codec for bytes that are invalid in the codec of MSH-18; None = that of the listener."""
    strategy = quirks.get("default-charset", "listener")
    return None if strategy == "listener" else strategy


def normalized(message: Claimed, quirks: Mapping[str, str]) -> Claimed:
    """The message for the maps; the same object without quirks of mapping.  Problem VALUE: one without the number of a
    patient, which `empty-pid-strategy` rejects.
    """
    if quirks.get("broken-lines") == "join":
        message = _with_joined_lines(message)
    edits, needs_patient = edits_for(quirks), quirks.get("empty-pid-strategy") == "reject"
    if not edits and not needs_patient:
        return message
    parsed = Message.parse(message.raw, message.charset or None)
    if needs_patient and not any(one.children("PID_3") for one in parsed.segments("PID")):
        raise Problem(Category.VALUE, "has no PID-3, and the profile rejects such messages (empty-pid-strategy)")
    if not edits:
        return message
    lines = [_edited(one.raw, one.name, parsed, edits) for one in parsed.all_segments]
    codec = parsed.encoding.codec
    return replace(message, raw="\r".join((*lines, "")).encode(codec, "replace"), charset=codec)


def _with_joined_lines(message: Claimed) -> Claimed:
    """The message with its broken texts joined; the same object when there are none."""
    parsed = Message.parse(message.raw, message.charset or None)
    lines = [one.raw for one in parsed.all_segments]
    found = joined(lines, parsed.header.separators)
    if len(found) == len(lines):
        return message
    codec = parsed.encoding.codec
    return replace(message, raw="\r".join((*found, "")).encode(codec, "replace"), charset=codec)


def edits_for(quirks: Mapping[str, str]) -> tuple[Edit, ...]:
    """The edits of each field, in order: values are trimmed before they are compared or parsed."""
    edits: list[Edit] = []
    if quirks.get("padded-values") == "trim":
        edits.append(_trimmed)
    if quirks.get("null-values") == "ignore":
        edits.append(_without_nulls)
    if quirks.get("repetitions") == "distinct":
        edits.append(_distinct)
    if quirks.get("timestamps") in _TIMES:
        edits.append(_times(*_TIMES[quirks["timestamps"]]))
    if quirks.get("assigning-authority") in _AUTHORITIES:
        edits.append(_authority(_AUTHORITIES[quirks["assigning-authority"]]))
    if quirks.get("msh3-format") == "facility-shortcode-then-pipe":
        edits.append(_application)
    if quirks.get("attachment-encoding") == "base64-with-rtf-prefix-trim":
        edits.append(_attachment)
    return tuple(edits)


_UNTOUCHED = frozenset((("OBX", 5), ("NTE", 3), ("MSH", 9), ("MSH", 10)))
_NUMBERS = frozenset((("PID", 2), ("PID", 3), ("PID", 4), ("PID", 18), ("MRG", 1), ("MRG", 4), ("PV1", 19)))
_FACILITY = ("MSH", 4)
_ESCAPED_PIPE = "\\F\\"
_RTF = re.compile(r"\{.*\}\s*", re.DOTALL)
_AUTHORITIES = {"sending-facility": 4, "sending-application": 3}


def _edited(line: str, segment: str, message: Message, edits: tuple[Edit, ...]) -> str:
    separators = message.header.separators
    fields = line.split(separators.field)
    is_header = segment == "MSH"
    for place in range(2 if is_header else 1, len(fields)):
        number = place + 1 if is_header else place
        if fields[place] or (segment, number) == _FACILITY:
            at = FieldPosition(segment, number, separators, message.header)
            for edit in edits:
                if edit is _attachment or (segment, number) not in _UNTOUCHED:
                    fields[place] = edit(fields[place], at)
    return separators.field.join(fields)


def _each(text: str, at: FieldPosition, change: Callable[[str], str]) -> str:
    """A field with each subcomponent changed."""
    separators = (at.separators.repetition, at.separators.component, at.separators.subcomponent)
    return _split(text, [one for one in separators if one], change)


def _split(text: str, separators: list[str], change: Callable[[str], str]) -> str:
    if not separators:
        return change(text)
    return separators[0].join(_split(one, separators[1:], change) for one in text.split(separators[0]))


def _trimmed(text: str, at: FieldPosition) -> str:
    return _each(text, at, str.strip) if " " in text or "\t" in text else text


def _without_nulls(text: str, at: FieldPosition) -> str:
    return _each(text, at, lambda part: "" if part == NULL else part) if NULL in text else text


def _distinct(text: str, at: FieldPosition) -> str:
    separator = at.separators.repetition
    if not separator or separator not in text:
        return text
    return separator.join(dict.fromkeys(text.split(separator)))


# Group names are parts of the time; a pattern must match the whole value.
_CLOCK = r"(?:[T ](?P<hour>[01]\d|2[0-3]):(?P<minute>[0-5]\d)(?::(?P<second>[0-5]\d)(?P<fraction>\.\d{1,4})?)?)?"
_YEAR, _MONTH, _DAY = r"(?P<year>[12]\d{3})", r"(?P<month>0?[1-9]|1[0-2])", r"(?P<day>0?[1-9]|[12]\d|3[01])"
_ISO = re.compile(rf"{_YEAR}-{_MONTH}-{_DAY}{_CLOCK}(?P<zone>Z|[+-]\d\d:?\d\d)?")
_DAY_FIRST = re.compile(rf"{_DAY}[./-]{_MONTH}[./-]{_YEAR}{_CLOCK}(?P<zone>)")
_MONTH_FIRST = re.compile(rf"{_MONTH}[./-]{_DAY}[./-]{_YEAR}{_CLOCK}(?P<zone>)")
_TIMES = {"iso-8601": (_ISO,), "day-first": (_DAY_FIRST, _ISO), "month-first": (_MONTH_FIRST, _ISO)}


def _times(*patterns: re.Pattern[str]) -> Edit:
    def part(text: str) -> str:
        for pattern in patterns:
            found = pattern.fullmatch(text)
            if found is not None:
                return _hl7_time(found)
        return text

    return lambda text, at: _each(text, at, part) if any(one in text for one in "-./") else text


def _hl7_time(found: re.Match[str]) -> str:
    zone = (found["zone"] or "").replace(":", "").replace("Z", "+0000")
    clock = f"{found['hour']}{found['minute']}{found['second'] or ''}{found['fraction'] or ''}" if found["hour"] else ""
    day = f"{found['year']}{int(found['month']):02}{int(found['day']):02}"
    return day + clock + (zone if clock else "")


def _authority(number: int) -> Edit:
    """Set CX-4 of identifiers without an authority: MSH-3 or MSH-4, as an HD inside a component."""

    def edit(text: str, at: FieldPosition) -> str:
        if (at.segment, at.field) not in _NUMBERS:
            return text
        marks = at.separators
        sender = at.header.field(number).partition(marks.repetition)[0]
        if not sender or sender == NULL:
            return text
        inner = sender.replace(marks.component, marks.subcomponent) if marks.subcomponent else sender
        made = [_owned(one, inner, marks) for one in text.split(marks.repetition)]
        return marks.repetition.join(made)

    return edit


def _owned(number: str, authority: str, marks: Separators) -> str:
    parts = number.split(marks.component)
    if not parts[0] or parts[0] == NULL or (len(parts) > 3 and parts[3]):
        return number
    parts += [""] * (4 - len(parts))
    parts[3] = authority
    return marks.component.join(parts)


def _application(text: str, at: FieldPosition) -> str:
    """`SHORT\\F\\APP` in MSH-3 is the application APP of the facility SHORT, which is MSH-4 where that is empty."""
    if at.segment != "MSH" or at.field not in (3, 4):
        return text
    code, pipe, application = at.header.field(3).partition(_ESCAPED_PIPE)
    if not pipe:
        return text
    return application if at.field == 3 else text or code


def _attachment(text: str, at: FieldPosition) -> str:
    """Remove RTF in front of the data (ED.5) of an attachment in base64 (ED.4)."""
    if (at.segment, at.field) != ("OBX", 5):
        return text
    parts = text.split(at.separators.component)
    if len(parts) < 5 or parts[3].lower() != "base64":
        return text
    parts[4] = _RTF.sub("", parts[4], count=1)
    return at.separators.component.join(parts)
