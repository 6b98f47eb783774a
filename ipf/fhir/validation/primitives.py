"""The primitive types: the JSON type and the format of each.

Source: https://hl7.org/fhir/R4/datatypes.html#primitive
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable
from decimal import Decimal
from typing import Any

ErrorText = str | None
Primitive = Callable[[Any], ErrorText]

_YEAR = r"[0-9]([0-9]([0-9][1-9]|[1-9]0)|[1-9]00)|[1-9]000"
_MONTH = r"(0[1-9]|1[0-2])"
_DAY = r"(0[1-9]|[12][0-9]|3[01])"
_CLOCK = r"([01][0-9]|2[0-3]):[0-5][0-9]:([0-5][0-9]|60)(\.[0-9]+)?"
_ZONE = r"(Z|(\+|-)((0[0-9]|1[0-3]):[0-5][0-9]|14:00))"
_LARGEST_INTEGER = 2**31 - 1
_LONGEST_TEXT = 1024 * 1024

_FORMS: dict[str, tuple[str, str]] = {
    "base64Binary": (
        r"\s*(?:[0-9a-zA-Z+/]{4}\s*)*(?:(?:[0-9a-zA-Z+/]{2}==|[0-9a-zA-Z+/]{3}=)\s*)?",
        "not valid Base64",
    ),
    "instant": (rf"({_YEAR})-{_MONTH}-{_DAY}T{_CLOCK}{_ZONE}", "not an instant: date, time with seconds, and offset"),
    "date": (rf"({_YEAR})(-{_MONTH}(-{_DAY})?)?", "not a date: YYYY, YYYY-MM or YYYY-MM-DD"),
    "dateTime": (
        rf"({_YEAR})(-{_MONTH}(-{_DAY}(T{_CLOCK}{_ZONE})?)?)?",
        "not a dateTime: a date, or date, time with seconds, and offset",
    ),
    "time": (_CLOCK, "not a time: hh:mm:ss"),
    "code": (r"[^\s]+(\s[^\s]+)*", "not a code: no leading, trailing or repeated whitespace"),
    "oid": (r"urn:oid:[0-2](\.(0|[1-9][0-9]*))+", "not an oid: urn:oid: and numbers"),
    "id": (r"[A-Za-z0-9\-.]{1,64}", "not an id: 1 to 64 letters, digits, '-' and '.'"),
    "uuid": (
        r"urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
        "not a uuid: urn:uuid: in lower case",
    ),
    "uri": (r"\S*", "not a uri: it contains whitespace"),
    "url": (r"\S*", "not a url: it contains whitespace"),
    "canonical": (r"\S*", "not a canonical: it contains whitespace"),
}
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_UUID = re.compile(r"urn:uuid:[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}")
_OID = re.compile(_FORMS["oid"][0])


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
    """string, markdown and xhtml: not empty, no control characters, bounded."""
    if type(value) is not str:
        return "a text is expected"
    if not value or value.isspace():
        return "the text is empty"
    if len(value) > _LONGEST_TEXT:
        return "the text has more than 1,048,576 characters"
    if not value.isprintable() and _CONTROLS.search(value):
        return "the text has control characters"
    return None


def _form(name: str) -> Primitive:
    pattern, error = _FORMS[name]
    match = re.compile(pattern).fullmatch

    def check(value: Any) -> ErrorText:
        if type(value) is not str:
            return "a text is expected"
        if not value:
            return "the text is empty"
        return None if match(value) else f"'{_shown(value)}' is {error}"

    return check


def _dated(name: str) -> Primitive:
    form = _form(name)

    def check(value: Any) -> ErrorText:
        error = form(value)
        if error is not None or len(value) < 10 or value[8:10] < "29":
            return error
        year, month, day = int(value[:4]), int(value[5:7]), int(value[8:10])
        return None if day <= monthrange(year, month)[1] else f"'{_shown(value)}' is not a day of the calendar"

    return check


def _uri(name: str) -> Primitive:
    form = _form(name)

    def check(value: Any) -> ErrorText:
        error = form(value)
        if error is not None or not value.startswith("urn:"):
            return error
        if value.startswith("urn:uuid:") and not _UUID.match(value):
            return "after urn:uuid: a UUID is expected"
        if value.startswith("urn:oid:") and not _OID.match(value):
            return "after urn:oid: an OID is expected"
        return None

    return check


def _shown(value: str) -> str:
    return value[:60]


PRIMITIVES: dict[str, Primitive] = {
    "boolean": _boolean,
    "integer": _integer(-(2**31)),
    "unsignedInt": _integer(0),
    "positiveInt": _integer(1),
    "decimal": _decimal,
    "string": text,
    "markdown": text,
    "xhtml": text,
    **{name: _form(name) for name in ("base64Binary", "time", "code", "oid", "id", "uuid")},
    **{name: _dated(name) for name in ("instant", "date", "dateTime")},
    **{name: _uri(name) for name in ("uri", "url", "canonical")},
}
"""Type -> a function of a JSON value that returns None, or the text of the error."""
