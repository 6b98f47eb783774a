"""Bounds on a quantity in one UCUM unit, put in another unit of the same dimension.

Index entries keep the number and the unit as they were sent; a search converts its bounds to each unit that occurs.  In
SQL and in memory this is the same function, so both answer the same.  Temperatures convert as well.  A scale that falls
as the quantity rises (`[pH]` beside `mol/L`) is searched in its own unit.

Source: https://hl7.org/fhir/R4/search.html#quantity (canonical units)
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from ipf.fhir import ucum
from ipf.fhir.ucum import Measure
from ipf.ports.queries.predicates import Bounds


def in_unit(bounds: Bounds, unit: str, other: str) -> Bounds | None:
    """`bounds` in `unit` as bounds in `other`; None when these do not convert."""
    if unit == other:
        return bounds
    given, wanted = ucum.measure(unit), ucum.measure(other)
    if given is None or wanted is None or given.dimensions != wanted.dimensions or not _same_direction(given, wanted):
        return None
    converted = []
    for every in bounds:
        pairs = [(bound, ucum.convert(Decimal(str(bound.value)), unit, other)) for bound in every]
        converted.append(tuple(replace(bound, value=value) for bound, value in pairs if value is not None))
        if len(converted[-1]) < len(pairs):
            return None
    return tuple(converted)


def _same_direction(given: Measure, wanted: Measure) -> bool:
    falls = [one.function for one in (given, wanted) if one.function is not None and not one.function.rises]
    return not falls or given.function is wanted.function


def ucum_code(unit_text: str) -> str | None:
    """The code of a unit text of the index (`system TAB code TAB unit TAB`) when it is UCUM's."""
    system, _, rest = unit_text.partition("\t")
    code = rest.partition("\t")[0]
    return code if system == ucum.SYSTEM and code else None
