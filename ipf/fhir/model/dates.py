"""Dates of FHIR as ranges of time: `2015-02` is all instants from the first of February to the first of March.

A range is half-open, `[lo, hi)`, in microseconds since 1970-01-01T00:00:00Z, so that ranges compare as plain numbers,
in Python and in SQL (bigint).  A time without a zone is taken as UTC.  The open end of a Period is `-FOREVER` or
`FOREVER`.

Sources: https://hl7.org/fhir/R4/datatypes.html#dateTime, https://hl7.org/fhir/R4/search.html#date
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta

FOREVER = 2**62
DAY = 86_400_000_000
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_DATE = re.compile(r"(\d{4})(?:-(\d\d)(?:-(\d\d))?)?", re.ASCII)
_DATE_TIME = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d)(?::(\d\d)(?:\.(\d+))?)?(Z|[+-]\d\d:\d\d)?", re.ASCII)

Range = tuple[int, int]


def date_range(text: str) -> Range | None:
    """The range of a date, dateTime or instant, by its precision; None for any other text.

    Also accepts the forms of search values: a time without seconds or without a zone.  Digits beyond the microsecond
    are dropped.
    """
    try:
        if len(text) == 10:
            return _day_range(date.fromisoformat(text)) if text[4] == text[7] == "-" else None
        return _time_range(text) if len(text) > 10 else _long_range(text)
    except (ValueError, OverflowError):
        return None


def microseconds(moment: datetime) -> int:
    """An aware datetime as microseconds since 1970 UTC."""
    return (moment - _EPOCH) // _MICROSECOND


def moment(value: int) -> datetime:
    """Microseconds since 1970 UTC as an aware datetime, held within the years 1 to 9999."""
    if value <= _FIRST:
        return datetime.min.replace(tzinfo=UTC)
    return datetime.max.replace(tzinfo=UTC) if value >= _LAST else _EPOCH + timedelta(microseconds=value)


def _day_range(day: date) -> Range:
    lo = (day.toordinal() - _EPOCH_DAY) * DAY
    return lo, lo + DAY


def _long_range(text: str) -> Range | None:
    found = _DATE.fullmatch(text)
    if found is None:
        return None
    year = int(found[1])
    first = date(year, int(found[2] or 1), 1).toordinal()
    months = 1 if found[2] else 12
    following = first + sum(_month_length(year, int(found[2] or 1) + after) for after in range(months))
    return (first - _EPOCH_DAY) * DAY, (following - _EPOCH_DAY) * DAY


def _month_length(year: int, month: int) -> int:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31


def _time_range(text: str) -> Range | None:
    found = _DATE_TIME.fullmatch(text)
    if found is None:
        return None
    day, minute, second, fraction, zone = found.groups()
    leap = second == "60"
    whole = datetime.fromisoformat(f"{day}T{minute}:{'59' if leap else second or '00'}{zone or '+00:00'}")
    lo = microseconds(whole) + (1_000_000 if leap else 0)
    if second is None:
        return lo, lo + 60_000_000
    if fraction is None:
        return lo, lo + 1_000_000
    digits = fraction[:6]
    step = 10 ** (6 - len(digits))
    lo += int(digits) * step
    return lo, lo + step


_FIRST = microseconds(datetime.min.replace(tzinfo=UTC))
_LAST = microseconds(datetime.max.replace(tzinfo=UTC))
