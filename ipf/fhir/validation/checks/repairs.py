"""The valid form of a primitive that was meant: dates in other notations, numbers as texts, and the like.

Source: https://hl7.org/fhir/R4/datatypes.html#primitive
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from ipf.fhir.validation.checks.primitives import PRIMITIVES
from ipf.fhir.validation.findings import Meant

_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,18})?")
_WHOLE = frozenset(("integer", "positiveInt", "unsignedInt"))
_COMPACT = re.compile(r"(\d{4})(\d\d)?(\d\d)?(?:(\d\d)(\d\d)(\d\d)?)?([+-]\d{4})?", re.ASCII)
_ISO = re.compile(
    r"(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})(?:[T ](\d{1,2}):(\d\d)(?::(\d\d(?:\.\d+)?))?)?\s*(.*)", re.ASCII
)
_DAY_FIRST = re.compile(r"(\d{1,2})[./-](\d{1,2})[./-](\d{4})", re.ASCII)
_ZONE = re.compile(r"(Z)|([+-]\d\d):?(\d\d)", re.ASCII)
_LONGEST = 64


def primitive_meant(kind: str, value: Any) -> Meant:
    """What a value that is no `kind` was meant to be; None when it cannot be told."""
    valid = PRIMITIVES[kind]
    return next((one for one in _candidates(kind, value) if valid(one) is None), None)


def _candidates(kind: str, value: Any) -> Iterator[Any]:
    if isinstance(value, (int, Decimal, float)):
        yield str(value).lower()
        if kind in _WHOLE and not isinstance(value, bool) and -(2**31) < value < 2**31 and value == int(value):
            yield int(value)
    if not isinstance(value, str) or len(value) > _LONGEST:
        return
    text = value.strip()
    if kind == "boolean":
        yield {"true": True, "false": False}.get(text.lower())
    elif kind == "decimal" or kind in _WHOLE:
        if _NUMBER.fullmatch(text):
            yield int(text) if "." not in text else Decimal(text)
    elif kind in ("date", "dateTime", "instant"):
        yield from _dates(kind, text)
    elif kind == "time":
        found = re.fullmatch(r"(\d{1,2}):(\d\d)(?::(\d\d))?.*", text, re.ASCII)
        if found:
            yield f"{int(found[1]):02}:{found[2]}:{found[3] or '00'}"
    else:
        yield text.lower() if kind == "uuid" else text
        yield " ".join(text.split()) if kind == "code" else text.replace("_", "-").replace(" ", "-")


def _dates(kind: str, text: str) -> Iterator[str]:
    """The date in FHIR's form.  Of `04.05.1980` day and month are not guessed: the point says day first, else one of
    them must be larger than 12.  A time without an offset is proposed in UTC."""
    found = _COMPACT.fullmatch(text)
    if found:
        day = "-".join(part for part in found.groups()[:3] if part)
        clock = f"{found[4]}:{found[5]}:{found[6] or '00'}" if found[4] else ""
        yield from _joined(kind, day, clock, found[7] or "")
    found = _ISO.fullmatch(text)
    if found:
        day = f"{found[1]}-{int(found[2]):02}-{int(found[3]):02}"
        clock = f"{int(found[4]):02}:{found[5]}:{found[6] or '00'}" if found[4] else ""
        yield from _joined(kind, day, clock, found[7])
    found = _DAY_FIRST.fullmatch(text)
    if found:
        first, second = int(found[1]), int(found[2])
        day_first = "." in text or first > 12
        if day_first or second > 12:
            month, day_of_month = (second, first) if day_first else (first, second)
            yield f"{found[3]}-{month:02}-{day_of_month:02}"


def _joined(kind: str, day: str, clock: str, zone: str) -> Iterator[str]:
    offset = _ZONE.fullmatch(zone)
    if clock and kind != "date":
        yield f"{day}T{clock}" + (("Z" if offset[1] else f"{offset[2]}:{offset[3]}") if offset else "Z")
    yield day
