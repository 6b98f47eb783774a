"""The resources that conditions of one unit create: two conditions may mean one of them in other words.

Equal conditions share a resource, and so do two of which each matches what the other would create: `identifier=s|v`
and `identifier=v`.  Conditions that match nothing of each other create a resource each, in any order.

Source: https://hl7.org/fhir/R4/http.html#trules
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from ipf.fhir.budget import Budget
from ipf.fhir.index.extract import extract
from ipf.fhir.search.evaluation.match import matches
from ipf.ports.queries.index import Entries
from ipf.ports.queries.predicates import AllOf, AnyOf, Test, TextEquals
from ipf.ports.queries.search import Query
from ipf.rest.write.match_locks import IDENTIFIER, identifiers_in, identifiers_of
from ipf.rest.write.pending import Pending
from ipf.rest.write.prefetch import ConditionKey
from ipf.rest.write.unit import Entry

_STEPS = 100_000  # comparisons, some microseconds each; 447 conditions with each other


@dataclass(slots=True)
class _Created:
    """A new resource, with the condition that creates it."""

    pending: Pending
    query: Query
    entries: Entries | None = None

    @property
    def texts(self) -> Entries:
        """Its index entries."""
        if self.entries is None:
            self.entries = extract(self.pending.entry.resource or {})
        return self.entries


class Created:
    """New and updated resources of one unit, by the conditions of their entries."""

    def __init__(self, now: datetime) -> None:
        self.by_condition: dict[ConditionKey, Pending] = {}
        self._now = now
        self._by_value: dict[tuple[str, str, str], list[_Created]] = {}  # type, code, value
        self._others: dict[str, list[_Created]] = {}
        self._left = Budget(_STEPS, "the comparison of conditions without exact values in one transaction")

    def find(self, entry: Entry, condition: ConditionKey) -> Pending | None:
        """The resource that an earlier entry has under this condition, in these words or others.

        Problem COSTLY when it must be compared with too many.
        """
        known = self.by_condition.get(condition)
        if known is not None or entry.condition is None or entry.resource is None:
            return known
        if entry.resource_type not in self._others:
            return None
        entries = extract(entry.resource)
        for one in self._candidates(entry.resource_type, entries):
            if self._matches(one.query, entries, entry) and self._matches(
                entry.condition, one.texts, one.pending.entry
            ):
                self.by_condition[condition] = one.pending
                return one.pending
        return None

    def add(self, pending: Pending, condition: ConditionKey) -> None:
        """An entry has this resource by its condition."""
        self.by_condition[condition] = pending
        query = pending.entry.condition
        if query is None or not pending.has_new_id:
            return
        one, kind = _Created(pending, query), query.resource_type
        others = self._others.setdefault(kind, [])
        values = _values_in(query)
        if not values:
            others.append(one)
        for code, value in values:
            self._by_value.setdefault((kind, code, value), []).append(one)

    def _candidates(self, resource_type: str, entries: Entries) -> Iterator[_Created]:
        """Those whose condition may match a resource with these entries."""
        numbers = [(IDENTIFIER, value) for value in identifiers_of(entries)]
        for code, value in (*numbers, *entries.texts):
            yield from self._spending(self._by_value.get((resource_type, code, value), ()))
        yield from self._spending(self._others[resource_type])

    def _spending(self, found: Iterable[_Created]) -> Iterator[_Created]:
        for one in found:
            self._left.spend()
            yield one

    def _matches(self, query: Query, entries: Entries, entry: Entry) -> bool:
        return matches(query, entries, id="", last_updated=self._now, resource=entry.resource)


def _values_in(query: Query) -> list[tuple[str, str]]:
    """(code, value): a match of the condition has one of these, as an identifier or in its index."""
    numbers = identifiers_in(query)
    if numbers:
        return [(IDENTIFIER, value) for value in numbers]
    exact = [found for term in query.terms if (found := _exact(term.test))]
    return min(exact, key=len, default=[])


def _exact(test: Test) -> list[tuple[str, str]]:
    """As `_values_in`, of one test."""
    match test:
        case TextEquals(code, values):
            return [(code, value) for value in values]
        case AllOf(tests):
            return min((found for one in tests if (found := _exact(one))), key=len, default=[])
        case AnyOf(tests):
            parts = [_exact(one) for one in tests]
            return [one for part in parts for one in part] if all(parts) else []
    return []
