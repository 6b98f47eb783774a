"""The prefixes of FHIR search (`eq`, `gt`, `sa` ...) as comparisons with stored ranges: one table for each index.

With S the range of the value sent and E that of an entry: `eq` means that S contains E, `ne` that it does not, `gt`
that E reaches beyond S, `lt` that E begins before S, `ge` and `le` the same or `eq`, `sa` and `eb` that E lies wholly
after or before, `ap` that they overlap (the caller has widened S).  A number with a prefix other than `eq` and `ne` is
exact; with these, it covers half a unit of its last digit either way.

Source: https://hl7.org/fhir/R4/search.html#prefix
"""

from __future__ import annotations

from decimal import Decimal

from ipf.fhir.model import dates
from ipf.ports.queries.predicates import Bound, Bounds


def date_bounds(prefix: str, lo: int, hi: int) -> Bounds:
    """Half-open entry [lo, hi) against half-open [lo, hi) of the search."""
    table: dict[str, Bounds] = {
        "eq": ((Bound("lo", ">=", lo), Bound("hi", "<=", hi)),),
        "ne": ((Bound("lo", "<", lo),), (Bound("hi", ">", hi),)),
        "gt": ((Bound("hi", ">", hi),),),
        "lt": ((Bound("lo", "<", lo),),),
        "ge": ((Bound("hi", ">", hi),), (Bound("lo", ">=", lo),)),
        "le": ((Bound("lo", "<", lo),), (Bound("hi", "<=", hi),)),
        "sa": ((Bound("lo", ">=", hi),),),
        "eb": ((Bound("hi", "<=", lo),),),
        "ap": ((Bound("lo", "<", hi), Bound("hi", ">", lo)),),
    }
    return table[prefix]


def moment_bounds(prefix: str, lo: int, hi: int) -> Bounds:
    """An instant against half-open [lo, hi) of the search."""
    first, after = dates.moment(lo), dates.moment(hi)
    table: dict[str, Bounds] = {
        "eq": ((Bound("at", ">=", first), Bound("at", "<", after)),),
        "ne": ((Bound("at", "<", first),), (Bound("at", ">=", after),)),
        "gt": ((Bound("at", ">=", after),),),
        "lt": ((Bound("at", "<", first),),),
        "ge": ((Bound("at", ">=", first),),),
        "le": ((Bound("at", "<", after),),),
    }
    same = {"sa": "gt", "eb": "lt", "ap": "eq"}
    return table[same.get(prefix, prefix)]


def number_bounds(prefix: str, exact: Decimal) -> Bounds:
    """Closed entry [lo, hi] against an exact number, or for eq and ne against its half-open range."""
    half, tenth = _half_unit(exact), abs(exact) / 10
    lo, hi = exact - half, exact + half
    table: dict[str, Bounds] = {
        "eq": ((Bound("lo", ">=", lo), Bound("hi", "<", hi)),),
        "ne": ((Bound("lo", "<", lo),), (Bound("hi", ">=", hi),)),
        "gt": ((Bound("hi", ">", exact),),),
        "lt": ((Bound("lo", "<", exact),),),
        "ge": ((Bound("hi", ">=", exact),),),
        "le": ((Bound("lo", "<=", exact),),),
        "sa": ((Bound("lo", ">", exact),),),
        "eb": ((Bound("hi", "<", exact),),),
        "ap": ((Bound("lo", "<=", exact + tenth), Bound("hi", ">=", exact - tenth)),),
    }
    return table[prefix]


def _half_unit(number: Decimal) -> Decimal:
    """Half a unit of the last digit: 100 -> 0.5, 100.00 -> 0.005; 1e2 -> 5, as the specification's example has it."""
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int), "the number was read from digits"
    return Decimal(5).scaleb(exponent - 1 if exponent <= 0 else exponent - 2)
