"""The parts of dates and times: yearOf() to millisecondOf(), timezoneOffsetOf(), dateOf(), timeOf().

Empty where the value does not have the part.
Source: https://hl7.org/fhirpath/#extract-datedatetimetime-components (trial use).
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from ipf.fhir.fhirpath.evaluation.context import Context
from ipf.fhir.fhirpath.evaluation.registry import plain_function
from ipf.fhir.fhirpath.items import operators as op
from ipf.fhir.fhirpath.items.nodes import Items
from ipf.fhir.fhirpath.items.values import Date, DateTime, Parts, Time


def _on_moments(name: str, call: Callable[[Any], Any]) -> None:
    def run(context: Context, focus: Items) -> Items:
        found = call(op.single(focus, f"{name}()"))
        return [] if found is None else [found]

    plain_function(name)(run)


def _date(value: Any) -> Parts:
    return value.parts[:3] if isinstance(value, (Date, DateTime)) else ()


def _clock(value: Any) -> Parts:
    if isinstance(value, Time):
        return value.parts
    return value.parts[3:] if isinstance(value, DateTime) else ()


def _part(parts: Callable[[Any], Parts], at: int) -> Callable[[Any], int | None]:
    return lambda value: int(found[at]) if len(found := parts(value)) > at else None


def _milliseconds(value: Any) -> int | None:
    parts = _clock(value)
    return int(parts[2] % 1 * 1000) if len(parts) > 2 else None


def _offset(value: Any) -> Decimal | None:
    offset = value.offset if isinstance(value, DateTime) else None
    return None if offset is None else Decimal(offset) / 60


_on_moments("yearOf", _part(_date, 0))
_on_moments("monthOf", _part(_date, 1))
_on_moments("dayOf", _part(_date, 2))
_on_moments("hourOf", _part(_clock, 0))
_on_moments("minuteOf", _part(_clock, 1))
_on_moments("secondOf", _part(_clock, 2))
_on_moments("millisecondOf", _milliseconds)
_on_moments("timezoneOffsetOf", _offset)
_on_moments("dateOf", lambda value: Date(_date(value)) if _date(value) else None)
_on_moments("timeOf", lambda value: Time(_clock(value)) if isinstance(value, DateTime) and _clock(value) else None)
