"""The primitive types: the JSON type and the format of each, as R4 states them.

The checks take time linear in the text.  Their texts do not contain the value, since they are logged.

Source: https://hl7.org/fhir/R4/datatypes.html#primitive
"""

from __future__ import annotations

import binascii
import re
from calendar import monthrange
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from xml.parsers import expat

from ipf.errors import Problem
from ipf.fhir.model.xml_pieces import check_well_formed

ErrorText = str | None
Primitive = Callable[[Any], ErrorText]

NO_TEXT = "a text is expected"
EMPTY = "the text is empty"
_YEAR = r"[0-9]([0-9]([0-9][1-9]|[1-9]0)|[1-9]00)|[1-9]000"
_MONTH = r"(0[1-9]|1[0-2])"
_DAY = r"(0[1-9]|[12][0-9]|3[01])"
_CLOCK = r"([01][0-9]|2[0-3]):[0-5][0-9]:([0-5][0-9]|60)(\.[0-9]+)?"
_ZONE = r"(Z|(\+|-)((0[0-9]|1[0-3]):[0-5][0-9]|14:00))"
_PIECE = 256 * 1024  # of Base64, a multiple of four characters
_WHITESPACE = b" \t\n\r\x0b\x0c"
_LARGEST_INTEGER = 2**31 - 1
_LONGEST_TEXT = 1024 * 1024

_FORMS: dict[str, tuple[str, str]] = {
    "instant": (rf"({_YEAR})-{_MONTH}-{_DAY}T{_CLOCK}{_ZONE}", "not an instant: date, time with seconds, and offset"),
    "date": (rf"({_YEAR})(-{_MONTH}(-{_DAY})?)?", "not a date: YYYY, YYYY-MM or YYYY-MM-DD"),
    "dateTime": (
        rf"({_YEAR})(-{_MONTH}(-{_DAY}(T{_CLOCK}{_ZONE})?)?)?",
        "not a dateTime: a date, or date, time with seconds, and offset",
    ),
    "time": (_CLOCK, "not a time: hh:mm:ss"),
    "oid": (r"urn:oid:[0-2](\.(0|[1-9][0-9]*))+", "not an oid: urn:oid: and numbers"),
    "id": (r"[A-Za-z0-9\-.]{1,64}", "not an id: 1 to 64 letters, digits, '-' and '.'"),
    "uuid": (
        r"urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
        "not a uuid: urn:uuid: in lower case",
    ),
}
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_ID = re.compile(_FORMS["id"][0])


def is_id(text: object) -> bool:
    """Whether `text` may be a logical id (https://hl7.org/fhir/R4/datatypes.html#id)."""
    return isinstance(text, str) and _ID.fullmatch(text) is not None


def _boolean(value: Any) -> ErrorText:
    return None if value is True or value is False else "true or false is expected, without quotes"


def _integer(least: int) -> Primitive:
    def check(value: Any) -> ErrorText:
        if type(value) is not int:
            return "a whole number is expected, without quotes"
        return None if least <= value <= _LARGEST_INTEGER else f"the number must be from {least} to {_LARGEST_INTEGER}"

    return check


def _decimal(value: Any) -> ErrorText:
    if isinstance(value, (int, Decimal, float)) and not isinstance(value, bool):
        return None
    return "a number is expected, without quotes"


def text(value: Any) -> ErrorText:
    """string and markdown: not empty, no control characters, bounded."""
    if type(value) is not str:
        return NO_TEXT
    if 0 < len(value) <= _LONGEST_TEXT:
        return None if value.isprintable() or not _CONTROLS.search(value) else "the text has control characters"
    return "the text has more than 1,048,576 characters" if value else EMPTY


def _base64(value: Any) -> ErrorText:
    """Whitespace is allowed anywhere."""
    if type(value) is not str:
        return NO_TEXT
    if not value:
        return EMPTY
    try:
        text = value.encode("ascii")
    except UnicodeEncodeError:
        return "not valid Base64"
    return None if _is_base64(text) or _is_base64(text.translate(None, _WHITESPACE)) else "not valid Base64"


def _is_base64(text: bytes) -> bool:
    """In pieces: the decoder in C keeps the interpreter lock until it returns.  Padding is in the last one alone.

    Python 3.11 takes padding that is too long for Base64 (`YWJj=`).
    """
    if len(text) % 4 or text.endswith(b"==="):
        return False
    try:
        for start in range(0, len(text), _PIECE):
            piece, is_last = text[start : start + _PIECE], start + _PIECE >= len(text)
            if not binascii.a2b_base64(piece, strict_mode=True) or (b"=" in piece and not is_last):
                return False
    except ValueError:
        return False
    return len(text) > 0


def _code(value: Any) -> ErrorText:
    if type(value) is not str:
        return NO_TEXT
    if " " not in value and value.isprintable():  # a printable text has no whitespace but spaces
        return None if value else EMPTY
    if " ".join(value.split()) != value or _CONTROLS.search(value):
        return "not a code: no leading, trailing or repeated whitespace"
    return None if value else EMPTY


def _uri(name: str) -> Primitive:
    """uri, url and canonical: no whitespace, no control characters."""

    def check(value: Any) -> ErrorText:
        if type(value) is not str:
            return NO_TEXT
        if " " not in value and value.isprintable():
            return None if value else EMPTY
        return f"not a {name}: it contains whitespace" if value.split() != [value] or _CONTROLS.search(value) else None

    return check


def _xhtml(value: Any) -> ErrorText:
    """Well-formed XML without a DOCTYPE, so that there are no entities but those of XML itself."""
    if type(value) is not str:
        return NO_TEXT
    if not value:
        return EMPTY
    try:
        check_well_formed(value)
    except Problem as refused:
        return refused.text
    except (expat.ExpatError, ValueError):
        return "the narrative is not well-formed XHTML"
    return None


def _form(name: str) -> Primitive:
    pattern, error = _FORMS[name]
    match = re.compile(pattern).fullmatch

    def check(value: Any) -> ErrorText:
        if type(value) is not str:
            return NO_TEXT
        if not value:
            return EMPTY
        return None if match(value) else error

    return check


def _dated(name: str) -> Primitive:
    form = _form(name)

    def check(value: Any) -> ErrorText:
        error = form(value)
        if error is not None or len(value) < 10 or value[8:10] < "29":
            return error
        year, month, day = int(value[:4]), int(value[5:7]), int(value[8:10])
        return None if day <= monthrange(year, month)[1] else f"not a {name}: the month does not have this day"

    return check


PRIMITIVES: dict[str, Primitive] = {
    "boolean": _boolean,
    "integer": _integer(-(2**31)),
    "unsignedInt": _integer(0),
    "positiveInt": _integer(1),
    "decimal": _decimal,
    "string": text,
    "markdown": text,
    "xhtml": _xhtml,
    "base64Binary": _base64,
    "code": _code,
    **{name: _form(name) for name in ("time", "oid", "id", "uuid")},
    **{name: _dated(name) for name in ("instant", "date", "dateTime")},
    **{name: _uri(name) for name in ("uri", "url", "canonical")},
}
"""Type -> a function of a JSON value that returns None, or the text of the error."""
