"""Bounds on a quantity in one UCUM unit, put in another unit of the same dimension.

Index entries keep the number and the unit as they were sent; a search converts its bounds to each unit that occurs.  In
SQL and in memory this is the same function, so both answer the same.

Source: https://hl7.org/fhir/R4/search.html#quantity (canonical units)
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from functools import lru_cache

from ipf.fhir.fhirpath.units import scale
from ipf.ports.predicates import Bound, Bounds

UCUM = "http://unitsofmeasure.org"
_SPECIAL = {
    "Cel": (Decimal(1), Decimal("273.15")),
    "[degF]": (Decimal(5) / 9, Decimal("459.67") * 5 / 9),
}
_KELVIN = (("K", 1),)


@lru_cache(maxsize=4096)
def affine(unit: str) -> tuple[Decimal, Decimal, tuple[tuple[str, int], ...]] | None:
    """(factor, offset, dimensions): a value v in `unit` is v * factor + offset in base units; None when unknown."""
    special = _SPECIAL.get(unit)
    if special is not None:
        return (*special, _KELVIN)
    found = scale(unit)
    return None if found is None else (found[0], Decimal(0), found[1])


def in_unit(bounds: Bounds, unit: str, other: str) -> Bounds | None:
    """`bounds` in `unit` as bounds in `other`; None when these have not the same dimension."""
    if unit == other:
        return bounds
    given, wanted = affine(unit), affine(other)
    if given is None or wanted is None or given[2] != wanted[2]:
        return None

    def converted(bound: Bound) -> Bound:
        base = Decimal(str(bound.value)) * given[0] + given[1]
        return replace(bound, value=(base - wanted[1]) / wanted[0])

    return tuple(tuple(converted(bound) for bound in every) for every in bounds)


def ucum_code(unit_text: str) -> str | None:
    """The code of a unit text of the index (`system TAB code TAB unit TAB`) when it is UCUM's."""
    system, _, rest = unit_text.partition("\t")
    code = rest.partition("\t")[0]
    return code if system == UCUM and code else None
