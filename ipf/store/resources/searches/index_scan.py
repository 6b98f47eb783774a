"""Searches that the index answers alone: one index scan yields the rids of a page, their rows are read afterwards.

Index entries exist for live resources only, so a search whose tests all concern entries reads `resources` only for the
rows of its page.  That halves what PostgreSQL has to plan, which is the larger part of the cost of a small page.

The scan is over one token if the query has one (`search.driver`), else over a set of rids (`family=Smi`).  When the
scan is likely to select few rows, the other tests probe each of them, whatever the statistics say: PostgreSQL takes
tables that were never analysed for empty and would join sets by comparing every pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ipf.fhir.index.entries import is_text_code
from ipf.fhir.search.predicate import inner, within
from ipf.ports.queries.predicates import (
    AnyOf,
    Has,
    IdAmong,
    IdIn,
    LastUpdated,
    Linked,
    Present,
    Test,
    TextEquals,
    TextPrefix,
)
from ipf.ports.queries.search import Query
from ipf.store.resources.searches.conditions import Conditions, Mode, is_probe, is_set

_OF_RESOURCES = (IdIn, IdAmong, LastUpdated, Linked, Has)  # tests that look at rows of `resources`

_TEXTS = 20  # texts with certain words are taken for as selective as a beginning of so many characters


@dataclass(frozen=True, slots=True)
class IndexScan:
    """FROM and WHERE of the scan, whose rows are distinct `d.rid`.

    `probes_only`: all other tests look up single entries, so nested loops are the best plan.  `stable`: for all values.
    """

    source: str
    where: tuple[str, ...]
    probes_only: bool
    stable: bool

    @property
    def condition(self) -> str:
        """The condition on its rows."""
        return " AND ".join(self.where) or "true"

    def select_rids(self, after: Sequence[str], order: str, limit: str) -> str:
        """SELECT of the first `limit` rids in this order, where `after` holds."""
        where = " AND ".join([self.condition, *after])
        return f"SELECT d.rid FROM {self.source} d WHERE {where} ORDER BY {order} LIMIT {limit}"


def index_scan_of(query: Query, driver: int | None, conditions: Conditions, is_selective: bool) -> IndexScan | None:
    """The scan that answers a query; None when a test needs rows of `resources`, or no term can be scanned.

    `is_selective`: the driver is an identifier or a reference.
    """
    if any(within(term.test, *_OF_RESOURCES) for term in query.terms):
        return None
    number = driver if driver is not None else _set_of(query)
    if number is None:
        return None
    type_, test = query.resource_type, query.terms[number].test
    others = [term.test for n, term in enumerate(query.terms) if n != number]
    conditions.mode = Mode.PROBES if is_selective else Mode.JOINS if driver is not None else Mode.FENCES
    where = [conditions.test(one, type_, "d") for one in others]
    probes_only = all(is_probe(one, conditions.mode) for one in others)
    stable = probes_only and (conditions.mode is not Mode.JOINS or not others)
    conditions.mode = Mode.JOINS
    if isinstance(test, TextEquals) and len(test.values) == 1:
        return IndexScan("index_text", (conditions.driven(test, type_), *where), probes_only, stable)
    return IndexScan(f"({conditions.distinct(test, type_)})", tuple(where), probes_only, stable)


def _set_of(query: Query) -> int | None:
    """The term whose rids are computed first: the longest beginning of a text, else any that is a set."""
    able = [(min(map(_selectivity, found)), n) for n, term in enumerate(query.terms) if (found := _sets(term.test))]
    return max(able)[1] if able else None


def _selectivity(test: Test) -> int:
    if isinstance(test, TextEquals):
        return _TEXTS
    return len(test.prefix) if isinstance(test, TextPrefix) else -1 if isinstance(test, Present) else 0


def _sets(test: Test) -> tuple[Test, ...]:
    tests = inner(test) if isinstance(test, AnyOf) else (test,)
    return tests if all(is_set(one) or _is_texts(one) for one in tests) else ()


def _is_texts(test: Test) -> bool:
    """Whether a test is for the texts that `:text` selects."""
    return isinstance(test, TextEquals) and is_text_code(test.code)
