"""Values that JSON has no type for: dates and times that know their precision, and quantities.

`@2015-02` is a month, not its first day: comparing it with a day of that month has no answer.  All values are frozen.
Sources: http://hl7.org/fhirpath/N1/#literals, #date-time-arithmetic, #comparison.
"""

from __future__ import annotations

import re
from calendar import monthrange
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal

_PARTIAL_DATE = re.compile(r"(\d{4})(?:-(\d{2}))?", re.ASCII)
_CLOCK = re.compile(r"(\d{2})(?::(\d{2})(?::(\d{2}(?:\.\d+)?))?)?", re.ASCII)
_ZONE = re.compile(r"Z|[+-]\d{2}:\d{2}", re.ASCII)

CALENDAR_UNITS = {
    word: unit
    for unit in ("year", "month", "week", "day", "hour", "minute", "second", "millisecond")
    for word in (unit, unit + "s")
}
YEAR, MONTH, DAY, HOUR, MINUTE, SECOND = 1, 2, 3, 4, 5, 6
Parts = tuple[int | Decimal, ...]


@dataclass(frozen=True, slots=True)
class Date:
    """A year, a month or a day: `parts` has one to three numbers."""

    parts: Parts

    def __str__(self) -> str:
        return _date_text(self.parts)


@dataclass(frozen=True, slots=True)
class DateTime:
    """A date with, perhaps, a time of day.  `offset` is in minutes east of UTC, None when not said.

    `parts` has one to six numbers; the sixth, seconds, is a Decimal that keeps the digits of its fraction.
    """

    parts: Parts
    offset: int | None = None

    def __str__(self) -> str:
        text = _date_text(self.parts[:3])
        if len(self.parts) > DAY:
            text += "T" + _clock_text(self.parts[3:])
        return text + _zone_text(self.offset)


@dataclass(frozen=True, slots=True)
class Time:
    """A time of day of one to three parts: hour, minute, seconds (Decimal)."""

    parts: Parts

    def __str__(self) -> str:
        return _clock_text(self.parts)


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number with a unit: a UCUM code, or the singular word of a calendar duration when `calendar`."""

    value: Decimal
    unit: str = "1"
    calendar: bool = field(default=False)

    def __str__(self) -> str:
        if not self.calendar:
            return f"{self.value} '{self.unit}'"
        return f"{self.value} {self.unit}" if self.value == 1 else f"{self.value} {self.unit}s"


Temporal = Date | DateTime | Time


def parse_date(text: str) -> Date | None:
    """`2015`, `2015-02` or `2015-02-04`; None when it is no date of the calendar."""
    if len(text) == 10 and text[4] == text[7] == "-":
        try:
            found = date.fromisoformat(text)
        except ValueError:
            return None
        return Date((found.year, found.month, found.day))
    match = _PARTIAL_DATE.fullmatch(text)
    year, month = (int(match[1]), int(match[2] or 1)) if match else (0, 0)
    if match is None or not (year >= 1 and 1 <= month <= 12):
        return None
    return Date((year, month) if match[2] else (year,))


def parse_datetime(text: str) -> DateTime | None:
    """A date, with or without `T`, time of day and zone; None when it is none."""
    day, _, rest = text.partition("T")
    found = parse_date(day)
    if found is None or not rest:
        return DateTime(found.parts) if found else None
    zone = _ZONE.search(rest)
    clock = parse_time(rest[: zone.start()] if zone else rest)
    if clock is None or (zone and zone.end() != len(rest)):
        return None
    if len(found.parts) < DAY:
        return None
    offset = _offset(zone.group()) if zone else None
    return None if offset is not None and abs(offset) > 14 * 60 else DateTime(found.parts + clock.parts, offset)


def parse_time(text: str) -> Time | None:
    """`14`, `14:30`, `14:30:05` or `14:30:05.123`; None when it is no time of day."""
    match = _CLOCK.fullmatch(text)
    if match is None or int(match[1]) > 23 or int(match[2] or 0) > 59:
        return None
    parts: Parts = tuple(int(part) for part in match.groups()[:2] if part)
    if match[3]:
        parts = (*parts, Decimal(match[3]))
        if parts[2] >= 61:
            return None
    return Time(parts)


def compare(left: Temporal, right: Temporal) -> int | None:
    """-1, 0 or 1; None when the precisions (or a missing zone) leave it open.  Both must be times, or neither."""
    a, b = left.parts, right.parts
    if type(left) is Date and type(right) is Date and len(a) == len(b):
        return (a > b) - (a < b)
    left_offset, right_offset = _zone_of(left), _zone_of(right)
    if left_offset is not None and right_offset is not None and left_offset != right_offset:
        a, b = _to_utc(a, left_offset), _to_utc(b, right_offset)
    elif (left_offset is None) != (right_offset is None) and not _far_apart(a, b):
        return None
    for x, y in zip(a, b, strict=False):
        if x != y:
            return -1 if x < y else 1
    return 0 if len(a) == len(b) else None


def add(value: Temporal, amount: Decimal, unit: str) -> Temporal | None:
    """Add calendar units (`year` to `millisecond`); None when the result leaves the years 1 to 9999.

    Fractions count only for seconds and milliseconds.  A finer unit than the value's precision is counted in whole
    units of that precision (a month is 30 days, a year 365), as the specification says.
    """
    if unit in ("year", "month"):
        months = int(amount) * (12 if unit == "year" else 1)
        return _add_months(value, int(months / 12) * 12 if len(value.parts) == YEAR else months)
    seconds = amount * _SECONDS[unit] if unit in ("second", "millisecond") else int(amount) * _SECONDS[unit]
    if isinstance(value, Time):
        return _add_to_clock(value, Decimal(seconds))
    precision = len(value.parts)
    if precision < DAY:
        days = int(seconds / 86400)
        months = int(days / 30) if precision == MONTH else int(days / 365) * 12
        return _add_months(value, months)
    return _add_seconds(value, Decimal(seconds))


_SECONDS = {
    "week": Decimal(604800),
    "day": Decimal(86400),
    "hour": Decimal(3600),
    "minute": Decimal(60),
    "second": Decimal(1),
    "millisecond": Decimal("0.001"),
}


def _offset(zone: str) -> int:
    if zone == "Z":
        return 0
    minutes = int(zone[1:3]) * 60 + int(zone[4:6])
    return -minutes if zone[0] == "-" else minutes


def _zone_of(value: Temporal) -> int | None:
    return value.offset if isinstance(value, DateTime) else None


def _as_datetime(parts: Parts) -> tuple[datetime, Decimal]:
    """The moment without zone, missing parts as their lowest value, and the fraction of its second."""
    whole = [int(part) for part in parts]
    padded = (whole + [1, 1, 1, 0, 0, 0][len(whole) :])[:6]
    fraction = Decimal(parts[5]) - whole[5] if len(parts) >= SECOND else Decimal(0)
    padded[5] = min(padded[5], 59)
    return datetime(*padded), fraction  # type: ignore[arg-type]  # a list of exactly six ints


def _from_datetime(moment: datetime, fraction: Decimal, precision: int) -> Parts:
    second = Decimal(moment.second) + fraction
    return (moment.year, moment.month, moment.day, moment.hour, moment.minute, second)[:precision]


def _to_utc(parts: Parts, offset: int) -> Parts:
    moment, fraction = _as_datetime(parts)
    try:
        return _from_datetime(moment - timedelta(minutes=offset), fraction, len(parts))
    except OverflowError:
        return parts


def _far_apart(a: Parts, b: Parts) -> bool:
    """More than the widest span of zones (26 hours) and of the coarser precision apart: a zone cannot matter."""
    precision = min(len(a), len(b))
    span = {YEAR: 368, MONTH: 33}.get(precision, 3)
    return abs((_as_datetime(a)[0] - _as_datetime(b)[0]).days) > span


def _add_months(value: Temporal, months: int) -> Temporal | None:
    if isinstance(value, Time):
        return None
    parts = list(value.parts)
    month = int(parts[1]) if len(parts) >= MONTH else 1
    year, month_index = divmod(int(parts[0]) * 12 + month - 1 + months, 12)
    if not 1 <= year <= 9999:
        return None
    parts[0] = year
    if len(parts) >= MONTH:
        parts[1] = month_index + 1
    if len(parts) >= DAY:
        day = int(parts[2])
        parts[2] = day if day <= 28 else min(day, monthrange(year, month_index + 1)[1])
    return _with_parts(value, tuple(parts))


def _add_seconds(value: Date | DateTime, seconds: Decimal) -> Temporal | None:
    moment, fraction = _as_datetime(value.parts)
    precision = len(value.parts)
    step = {DAY: 86400, HOUR: 3600, MINUTE: 60}.get(precision)
    if step is not None:
        seconds = Decimal(int(seconds / step) * step)
    total = seconds + fraction
    whole = int(total // 1)
    if total < 0 and total != whole:
        whole = int(total.to_integral_value(rounding="ROUND_FLOOR"))
    try:
        moved = moment + timedelta(seconds=whole)
    except OverflowError:
        return None
    return _with_parts(value, _from_datetime(moved, total - whole, precision))


def _add_to_clock(value: Time, seconds: Decimal) -> Time:
    hour, minute, second = (*value.parts, 0, Decimal(0))[:3] if len(value.parts) < 3 else value.parts
    total = (Decimal(int(hour) * 3600 + int(minute) * 60) + second + seconds) % 86400
    if total < 0:
        total += 86400
    whole = int(total)
    parts: Parts = (whole // 3600, whole // 60 % 60, Decimal(whole % 60) + (total - whole))
    return Time(parts[: len(value.parts)])


def _with_parts(value: Temporal, parts: Parts) -> Temporal:
    return DateTime(parts, value.offset) if isinstance(value, DateTime) else Date(parts)


def _date_text(parts: Parts) -> str:
    return "-".join((f"{int(parts[0]):04d}", *(f"{int(part):02d}" for part in parts[1:])))


def _clock_text(parts: Parts) -> str:
    text = ":".join(f"{int(part):02d}" for part in parts[:2])
    if len(parts) < 3:
        return text
    whole, mark, fraction = f"{Decimal(parts[2]):f}".partition(".")
    return f"{text}:{whole:0>2}{mark}{fraction}"


def _zone_text(offset: int | None) -> str:
    if not offset:
        return "" if offset is None else "Z"
    hours, minutes = divmod(abs(offset), 60)
    return f"{'-' if offset < 0 else '+'}{hours:02d}:{minutes:02d}"
