"""Conversion of source values to JSON values of FHIR primitive types.

A conversion takes text and returns the JSON value, or None for a text that the type does not allow.  So an invalid date
does not cost the rest of the message.  HL7 v2 timestamps keep their precision; missing seconds become zeros, and a
missing offset becomes the default offset.  Blanks around a time or a number are ignored.

`decimal` alone decides what a number is, `date_time` and `time` what a time can be: hours end at 23, minutes and
seconds at 59, offsets at 14:00 (https://hl7.org/fhir/R4/datatypes.html#dateTime).

Sources: https://hl7.org/fhir/R4/datatypes.html#primitive, HL7 v2.5.1 chapter 2A (DT, DTM, TM, NM, ID).
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

from ipf.fhir.fhirpath.items.nodes import FhirNode
from ipf.fhir.model.json import JsonDecimal
from ipf.mapping.runtime.mending import printable
from ipf.mapping.runtime.zone import MESSAGE_OFFSET, SENDER_ZONE, Offset

Convert = Callable[[str], Any]
_CLOCK = r"(?P<hour>[01]\d|2[0-3])(?:(?P<minute>[0-5]\d)(?:(?P<second>[0-5]\d)(?P<fraction>\.\d{1,9})?)?)?"
_OFFSET = r"(?P<offset>[+-](?:(?:0\d|1[0-3])[0-5]\d|1400))?"
_DATE = re.compile(r"(\d{4})(?:(\d\d)(?:(\d\d)(?:\d\d(?:\d\d(?:\d\d(?:\.\d{1,9})?)?)?)?)?)?(?:[+-]\d{4})?", re.ASCII)
_DTM = re.compile(rf"(?P<date>\d{{4}}(?:\d\d(?:\d\d)?)?)(?:(?<=\d{{8}}){_CLOCK})?{_OFFSET}", re.ASCII)
_TM = re.compile(_CLOCK + _OFFSET, re.ASCII)
_FHIR_DATE = re.compile(r"\d{4}(-\d\d(-\d\d)?)?", re.ASCII)
_FHIR_CLOCK = r"(?:[01]\d|2[0-3]):[0-5]\d"
_FHIR_SECOND = r"(:[0-5]\d(?:\.\d{1,9})?)?"
_FHIR_DATETIME = re.compile(
    rf"(\d{{4}}-\d\d-\d\d)T({_FHIR_CLOCK}){_FHIR_SECOND}(Z|[+-](?:(?:0\d|1[0-3]):[0-5]\d|14:00))?", re.ASCII
)
_FHIR_TIME = re.compile(rf"({_FHIR_CLOCK}){_FHIR_SECOND}", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d{1,18}", re.ASCII)
_LARGEST_INTEGER = 2**31 - 1
_NUMBER = re.compile(r"([+-]?)(\d*)(?:\.(\d*))?(?:[eE]([+-]?\d{1,2}))?", re.ASCII)
_MOST_CHARACTERS = 40
_ID = re.compile(r"[A-Za-z0-9.-]{1,64}")
_SPACES = re.compile(r"\s+")
_URN = re.compile(
    r"urn:oid:[0-2](\.(0|[1-9][0-9]*))+"
    r"|urn:uuid:[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
    r"|(?!urn:(oid|uuid):).*"
)
_BOOLEANS = {"Y": True, "N": False, "TRUE": True, "FALSE": False, "T": True, "F": False, "1": True, "0": False}


def date(text: str) -> str | None:
    """DT, DTM or FHIR date(Time) -> date with the precision given.  The time of day of a DTM is not looked at."""
    text = text.strip()
    match = _DATE.fullmatch(text)
    if match is not None:
        return _calendar_date(match[1], match[2], match[3])
    return _fhir_date(text.partition("T")[0])


def _fhir_date(text: str) -> str | None:
    return text if _FHIR_DATE.fullmatch(text) and _in_calendar(*_split_date(text)) else None


def _calendar_date(year: str, month: str | None, day: str | None) -> str | None:
    if not _in_calendar(year, month, day):
        return None
    return year if month is None else f"{year}-{month}" if day is None else f"{year}-{month}-{day}"


@lru_cache(maxsize=64)
def zone_offset(name: str) -> Offset:
    """The offset of the time zone `name`, which depends on daylight saving time.  ValueError: unknown zone."""
    try:
        zone = ZoneInfo(name)
    except (LookupError, OSError) as error:
        raise ValueError(f"there is no time zone {name!r}") from error
    if name == "UTC":
        return "Z"

    @lru_cache(maxsize=4096)
    def offset(local: str) -> str:
        text = datetime.fromisoformat(local).replace(tzinfo=zone).strftime("%z")
        return f"{text[:3]}:{text[3:5]}"

    return offset


@contextmanager
def message_zone(sent: str, offset: Offset) -> Iterator[None]:
    """While a message is mapped: times without an offset have that of its MSH-7, `sent`, else that of the sender, else
    `offset`.
    """
    own = SENDER_ZONE.get()
    token = MESSAGE_OFFSET.set(_message_offset(sent, offset if own is None else own) or own)
    try:
        yield
    finally:
        MESSAGE_OFFSET.reset(token)


def _message_offset(sent: str, offset: Offset) -> str | None:
    """What MSH-7 says of the times of its message (HL7 v2.9 section 2.A.22); None: `offset` is right.

    A zone of the sender or the installation with this offset at this time stays in use, because it knows of daylight
    saving time.
    """
    match = _DTM.fullmatch(sent.strip())
    if match is None or match["offset"] is None:
        return None
    local, stated = date_time(sent[: match.start("offset")], offset), _zone(match["offset"])
    return None if local is not None and local.endswith(stated) else stated


def _offset_at(offset: Offset, local: str) -> str:
    own = MESSAGE_OFFSET.get()
    if own is not None:
        offset = own
    return offset if isinstance(offset, str) else offset(local[:16])


def date_time(text: str, offset: Offset = "Z") -> str | None:
    """DTM or FHIR dateTime -> dateTime: dates keep their precision, a time gets seconds and an offset."""
    text = text.strip()
    match = _DTM.fullmatch(text)
    if match is None:
        return _fhir_date_time(text, offset)
    sent, hour, minute, second, fraction, given = match.groups()
    day = _calendar_date(sent[:4], sent[4:6] or None, sent[6:] or None)
    if hour is None or day is None:
        return day
    local = f"{day}T{hour}:{minute or '00'}:{second or '00'}{fraction or ''}"
    return local + (_offset_at(offset, local) if given is None else _zone(given))


def _fhir_date_time(text: str, offset: Offset) -> str | None:
    if "T" not in text:
        return _fhir_date(text)
    match = _FHIR_DATETIME.fullmatch(text)
    if match is None or not _in_calendar(*_split_date(match[1])):
        return None
    return f"{match[1]}T{match[2]}{match[3] or ':00'}{match[4] or _offset_at(offset, text)}"


def instant(text: str, offset: Offset = "Z") -> str | None:
    """DTM or FHIR dateTime -> instant; a date becomes its first moment, a year or month None."""
    value = date_time(text, offset)
    if value is None or "T" in value:
        return value
    if len(value) != 10:
        return None
    first = f"{value}T00:00:00"
    return first + _offset_at(offset, first)


def time(text: str) -> str | None:
    """TM, the time of a DTM, or FHIR time -> time with seconds."""
    text = text.strip()
    match = _TM.fullmatch(text)
    if match is not None:
        return f"{match[1]}:{match[2] or '00'}:{match[3] or '00'}{match[4] or ''}"
    match = _FHIR_TIME.fullmatch(text)
    if match is not None:
        return f"{match[1]}{match[2] or ':00'}"
    value = date_time(text)
    return value[11:].rstrip("Z").partition("+")[0].partition("-")[0] if value and "T" in value else None


def _split_date(text: str) -> tuple[str, str | None, str | None]:
    return text[:4], text[5:7] or None, text[8:10] or None


def _in_calendar(year: str, month: str | None, day: str | None) -> bool:
    if year == "0000":
        return False
    if month is None:
        return True
    if not "01" <= month <= "12":
        return False
    if day is None or "01" <= day <= "28":
        return True
    return day >= "01" and int(day) <= monthrange(int(year), int(month))[1]


def _zone(given: str) -> str:
    return "Z" if given == "+0000" else f"{given[:3]}:{given[3:]}"


def integer(text: str) -> int | None:
    """`5`, `+5`, `5.0`, within 32 bits."""
    text = text.strip()
    if _INTEGER.fullmatch(text):
        value: JsonDecimal | int | None = int(text)
    else:
        value = decimal(text)
    if value is None or not -_LARGEST_INTEGER <= value + 0 <= _LARGEST_INTEGER or value != int(value):
        return None
    return int(value)


def positive(text: str) -> int | None:
    """An integer from 1."""
    value = integer(text)
    return value if value is not None and value > 0 else None


def unsigned(text: str) -> int | None:
    """An integer from 0."""
    value = integer(text)
    return value if value is not None and value >= 0 else None


def decimal(text: str) -> JsonDecimal | None:
    """NM or FHIR decimal with its digits: the one rule of what a number is.

    A sign, digits with at most one point, which may come first or last, and an exponent of two digits; at most 40
    characters.  HL7 (2.A.46) has no exponents, but FHIR's decimal does, and `1.2e5` has one meaning.  `+5`, `.5`, `5.`
    and `007` become valid JSON numbers.
    """
    text = text.strip()
    match = _NUMBER.fullmatch(text)
    if match is None or len(text) > _MOST_CHARACTERS:
        return None
    sign, whole, fraction, exponent = match.groups()
    if not whole and not fraction:
        return None
    digits = (whole.lstrip("0") or "0") + ("." + fraction if fraction else "") + ("e" + exponent if exponent else "")
    return JsonDecimal(("-" if sign == "-" else "") + digits)


def boolean(text: str) -> bool | None:
    """HL7 table 0136 (Y, N), or a JSON word."""
    return _BOOLEANS.get(text.upper())


def string(text: str) -> str | None:
    """Text other than white space."""
    return printable(text) if text and not text.isspace() else None


def code(text: str) -> str | None:
    """A token: trimmed, with single spaces."""
    text = text.strip()
    if text.isprintable() and " " not in text:
        return text or None
    return printable(_SPACES.sub(" ", text))


def uri(text: str) -> str | None:
    """A token without white space; after `urn:oid:` and `urn:uuid:` an OID or a UUID."""
    text = text.strip()
    if not text or _SPACES.search(text) or (text.startswith("urn:") and not _URN.fullmatch(text)):
        return None
    return printable(text)


def identifier(text: str) -> str | None:
    """FHIR `id`: at most 64 letters, digits, '.', '-'."""
    return text if _ID.fullmatch(text) else None


def base64(text: str) -> str | None:
    """base64Binary: white space removed."""
    return _SPACES.sub("", text) or None


CONVERSIONS: dict[str, Convert] = {
    "base64Binary": base64,
    "boolean": boolean,
    "canonical": uri,
    "code": code,
    "date": date,
    "dateTime": date_time,
    "decimal": decimal,
    "id": identifier,
    "instant": instant,
    "integer": integer,
    "markdown": string,
    "oid": uri,
    "positiveInt": positive,
    "string": string,
    "time": time,
    "unsignedInt": unsigned,
    "uri": uri,
    "url": uri,
    "uuid": uri,
    "xhtml": string,
}
"""Conversion by FHIR primitive type."""

ZONED = ("dateTime", "instant")


def conversions(offset: Offset) -> dict[str, Convert]:
    """The conversions for messages without an offset that were written in the zone `offset`."""
    if offset == "Z":
        return CONVERSIONS
    return {
        **CONVERSIONS,
        "dateTime": lambda text: date_time(text, offset),
        "instant": lambda text: instant(text, offset),
    }


def as_text(value: Any) -> str | None:
    """Text of a source value: an HL7 v2 node, a JSON scalar, a FHIRPath value; None for structures and None."""
    if type(value) is str:
        return value
    if value is None or type(value) in (dict, list):
        return None
    if value is True or value is False:
        return "true" if value else "false"
    if isinstance(value, JsonDecimal):
        return value.literal
    if type(value) is FhirNode:
        return as_text(value.value)
    text = getattr(value, "text", value)
    return text if text is None or type(text) is str else str(text)
