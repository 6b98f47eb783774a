"""Pages that the index finds alone: one walk gives the numbers of the page's resources, their rows are read after it.

Index entries are those of live resources, so a search whose tests all look at entries needs `resources` only for the
rows that it answers.  That is half of what PostgreSQL would have to plan, and planning is the larger part of a small
page (measured: 20 resources of a patient 0.36 ms with all tables at once, 0.24 ms so).

What is walked: one token when the query has one (`search.driver`), else what is computed as a set (`family=Smi`).  When
it is likely to select few, the other tests are put to each of its rows, whatever the statistics say or do not say yet:
PostgreSQL takes tables that were never analysed for empty, and would try every pair of two sets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ipf.fhir.search.predicate import inner, within
from ipf.ports.predicates import (
    AllOf,
    AnyOf,
    DateRange,
    Has,
    IdIn,
    LastUpdated,
    Linked,
    Not,
    Present,
    Test,
    TextEquals,
    TextPrefix,
)
from ipf.ports.search import Query
from ipf.store.resources.search_conditions import Conditions, is_set

_OF_RESOURCES = (IdIn, LastUpdated, Linked, Has)  # tests that look at rows of `resources`
_COMBINED = (AllOf, AnyOf, Not)


@dataclass(frozen=True, slots=True)
class Walk:
    """FROM and WHERE of the walk, whose rows are `d.rid` without repeats.

    `probes_only`: all further tests look up single entries, so that nested loops are the best plan.  `stable`: and
    that is so for all values.
    """

    source: str
    where: tuple[str, ...]
    probes_only: bool
    stable: bool

    @property
    def condition(self) -> str:
        """What its rows must pass."""
        return " AND ".join(self.where) or "true"

    def numbers(self, behind: Sequence[str], order: str, limit: str) -> str:
        """SELECT of the first `limit` rids in this order, where `behind` holds."""
        where = " AND ".join([self.condition, *behind])
        return f"SELECT d.rid FROM {self.source} d WHERE {where} ORDER BY {order} LIMIT {limit}"


def walk_of(query: Query, driver: int | None, conditions: Conditions, is_selective: bool) -> Walk | None:
    """The walk that answers a query; None when it takes rows of `resources`, or has none of these.

    `is_selective`: the driver is an identifier or a reference.
    """
    if any(within(term.test, *_OF_RESOURCES) for term in query.terms):
        return None
    number = driver if driver is not None else _set_of(query)
    if number is None:
        return None
    type_, test = query.resource_type, query.terms[number].test
    others = [term.test for n, term in enumerate(query.terms) if n != number]
    conditions.fenced = is_selective or driver is None
    where = [conditions.test(one, type_, "d") for one in others]
    probes_only = all(map(is_probe, others))
    stable = probes_only and (conditions.fenced or not others)
    conditions.fenced = False
    if isinstance(test, TextEquals):
        return Walk("index_text", (conditions.driven(test, type_), *where), probes_only, stable)
    return Walk(f"({conditions.distinct(test, type_)})", tuple(where), probes_only, stable)


def _set_of(query: Query) -> int | None:
    """The term whose rids are computed first: the longest beginning of a text, else any that is a set."""
    able = [(min(map(_rank, found)), n) for n, term in enumerate(query.terms) if (found := _sets(term.test))]
    return max(able)[1] if able else None


def _rank(test: Test) -> int:
    return len(test.prefix) if isinstance(test, TextPrefix) else -1 if isinstance(test, Present) else 0


def _sets(test: Test) -> tuple[Test, ...]:
    tests = inner(test) if isinstance(test, AnyOf) else (test,)
    return tests if all(map(is_set, tests)) else ()


def is_probe(test: Test) -> bool:
    """Whether a test looks up single entries of the index of texts or dates."""
    if isinstance(test, _COMBINED):
        return all(map(is_probe, inner(test)))
    return isinstance(test, TextEquals | DateRange)
