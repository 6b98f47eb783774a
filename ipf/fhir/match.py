"""Whether a resource satisfies a query, from its index entries alone: the same answer as the store's SQL.

Used where a resource is at hand and no search is wanted: criteria of subscriptions against a change, conditions within
one transaction.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ipf.fhir.entries import Entries
from ipf.fhir.predicate import (
    AnyOf,
    Bounds,
    DateRange,
    IdIn,
    LastUpdated,
    Not,
    Present,
    QuantityRange,
    Test,
    TextContains,
    TextEquals,
    TextPrefix,
)
from ipf.fhir.query import Query

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def matches(query: Query, entries: Entries, *, id: str, last_updated: datetime) -> bool:
    """All terms of `query` hold of the resource with these entries (its type is not looked at)."""
    candidate = _Candidate(entries, id, last_updated)
    return all(candidate.passes(term.test) for term in query.terms)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """What tests are put to."""

    entries: Entries
    id: str
    last_updated: datetime

    def passes(self, test: Test) -> bool:
        """Whether one test holds."""
        match test:
            case TextEquals(code, values):
                return any((code, value) in self.entries.texts for value in values)
            case TextPrefix(code, prefix):
                return any(one == code and value.startswith(prefix) for one, value in self.entries.texts)
            case TextContains(code, part):
                return any(one == code and part in value.partition("\t")[0] for one, value in self.entries.texts)
            case DateRange(code, bounds):
                return any(one == code and _within(bounds, lo=lo, hi=hi) for one, lo, hi in self.entries.dates)
            case QuantityRange():
                return self._quantity(test)
            case Present(code, kind):
                return self._present(code, kind)
            case IdIn(ids):
                return self.id in ids
            case LastUpdated(bounds):
                return _within(bounds, at=self.last_updated)
            case AnyOf(tests):
                return any(self.passes(one) for one in tests)
            case Not(inner):
                return not self.passes(inner)

    def _quantity(self, test: QuantityRange) -> bool:
        return any(
            code == test.code
            and unit.startswith(test.unit_prefix)
            and test.unit_part in unit
            and _within(test.bounds, lo=lo, hi=hi)
            for code, lo, hi, unit in self.entries.quantities
        )

    def _present(self, code: str, kind: str) -> bool:
        if kind == "text":
            return any(one == code for one, _ in self.entries.texts)
        if kind == "date":
            return any(one == code for one, _, _ in self.entries.dates)
        return any(one == code for one, _, _, _ in self.entries.quantities)


def _within(bounds: Bounds, **columns: Any) -> bool:
    """One entry's columns satisfy all bounds of one alternative."""
    return any(all(_COMPARE[bound.operator](columns[bound.column], bound.value) for bound in every) for every in bounds)
