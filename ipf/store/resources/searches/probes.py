"""Searches whose candidates come from one index scan, each of them tested by rid: in an order, and with chains.

With `candidates`, the scan is over the set of one term, which is known to be small; all candidates are sorted.
Without, it walks the index of the first sort key (or the resources, in the order of rid) and ends when the page is
full: PostgreSQL sorts only what is equal in the first key.  That suits a search that many resources pass.  Both have
the same plan whatever the planner expects: nested loops over probes by rid.

A walk in the order of a parameter has the resources with a value; those without one follow in a statement of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

from ipf.fhir.search.predicate import within
from ipf.ports.queries.predicates import Has, IdAmong, IdIn, LastUpdated, Test, TextEquals
from ipf.ports.queries.search import Query, Sort
from ipf.store.postgres.lookup import VERSION_COLUMNS
from ipf.store.postgres.prepared import DynamicStatement
from ipf.store.postgres.symbols import SymbolTable
from ipf.store.resources.searches.conditions import TABLES, Mode, is_probe, is_set
from ipf.store.resources.searches.query import READERS, SORT_VALUES, VERSIONS, SearchSql, SortKey, Token

_COLUMN_KINDS = ("id", "last_updated")
_OF_COLUMNS = (IdIn, IdAmong, LastUpdated, Has)  # tests on columns of `resources`


class ProbedSql(SearchSql):
    """The statements of one search of one tenant.  `candidates`: the term whose set is scanned; None = a walk."""

    def __init__(
        self,
        tenant: str,
        query: Query,
        symbols: SymbolTable,
        units: Sequence[str] = (),
        *,
        candidates: int | None,
    ) -> None:
        super().__init__(tenant, query, symbols, units)
        self._candidates = candidates
        self._walked = query.sort[0] if candidates is None and is_walked(query) else None
        self._alias = "d" if candidates is not None else "r" if self._walked is None else "o0"
        tests = [term.test for term in query.terms]
        self._needs_columns = any(within(test, *_OF_COLUMNS) for test in tests) or any(
            sort.kind in _COLUMN_KINDS for sort in query.sort
        )
        others = [test for number, test in enumerate(tests) if number != candidates]
        self._has_stable_plan = candidates is not None and all(is_probe(test, Mode.PROBES) for test in others)

    def page(self, limit: int, after: Token | None = None) -> DynamicStatement:
        """As `SearchSql.page`."""
        self._reset()
        source, where = self._source(), self._tests()
        where += [] if after is None else [*self._from_there(after), self._after(after)]
        names = [f"r.k{number}" for number in range(len(self._keys))]
        columns = [f"{self._scan_rid} AS rid", *(f"{key.sql} AS k{number}" for number, key in enumerate(self._keys))]
        rows = (
            f"SELECT {', '.join(columns)} FROM {source}{self._joins} WHERE {' AND '.join(where) or 'true'} "
            f"ORDER BY {self._order_by()} LIMIT {self._add(limit, 'bigint')}"
        )
        # Its own ORDER BY keeps the planner from reordering the join with the versions.
        keys = "".join(f", d.k{number}" for number in range(len(self._keys)))
        order = self._order_by([f"d.k{number}" for number in range(len(self._keys))])
        current = f"SELECT r.*{keys} FROM ({rows}) d JOIN resources r ON r.rid = d.rid ORDER BY {order}"
        return self._statement(
            f"SELECT {', '.join([VERSION_COLUMNS, *names])} FROM ({current}) r {VERSIONS} "
            f"ORDER BY {self._order_by(names)}",
            "",
            self._has_stable_plan,
        )

    def count(self) -> DynamicStatement:
        """As `SearchSql.count`: by probes of few candidates, else as it does."""
        if self._candidates is None:
            return self.count_sets() if len(self._query.terms) > 1 else super().count()
        self._reset()
        sql = f"SELECT count(*) FROM {self._source()} WHERE {' AND '.join(self._tests()) or 'true'}"
        return self._statement(sql, "", self._has_stable_plan)

    def ids(self, limit: int) -> DynamicStatement:
        """As `SearchSql.ids`, like `count`."""
        if self._candidates is None:
            return super().ids(limit)
        self._reset()
        where, most = " AND ".join(self._tests()) or "true", self._add(limit, "bigint")
        rids = f"SELECT {self._scan_rid} AS rid FROM {self._source()} WHERE {where} LIMIT {most}"
        found = f"SELECT r.id FROM ({rids}) d JOIN resources r ON r.rid = d.rid"
        return self._statement(found, "", self._has_stable_plan)

    @property
    def is_walk(self) -> bool:
        """Whether an index is walked in the order of the search."""
        return self._candidates is None

    # -- parts

    @property
    def _scan_rid(self) -> str:
        return f"{self._alias}.rid"

    def _source(self) -> str:
        if self._alias == "r":
            return "resources r"
        if self._candidates is None:
            source = f"{TABLES[self._query.sort[0].kind]} o0"
        else:
            self._conditions.mode = Mode.JOINS
            source = f"(SELECT DISTINCT c.rid FROM ({self._set_of(self._candidates)}) c) d"
        return source + (f" JOIN resources r ON r.rid = {self._scan_rid}" if self._needs_columns else "")

    def _tests(self) -> list[str]:
        type_ = self._query.resource_type
        found = [] if self._walked is None else self._first_value(self._walked)
        found += [self._conditions.live("r", type_)] if self._alias == "r" else []
        self._conditions.mode = Mode.PROBES
        found += [self._test(term.test) for number, term in enumerate(self._query.terms) if number != self._candidates]
        return found

    def _test(self, test: Test) -> str:
        alias = "r" if within(test, *_OF_COLUMNS) else self._alias
        return self._conditions.test(test, self._query.resource_type, alias)

    def _first_value(self, sort: Sort) -> list[str]:
        """The condition for the entry of a resource, out of several, that the order uses."""
        better, type_ = ">" if sort.descending else "<", self._query.resource_type
        value, table = SORT_VALUES[sort.kind], TABLES[sort.kind]
        is_better = f"e.{value} {better} o0.{value}"
        if sort.kind == "date":
            is_better += " OR (e.lo = o0.lo AND e.hi < o0.hi)"
        same = f"{self._conditions.entry('e', type_, sort.code)} AND e.rid = o0.rid AND ({is_better}) IS TRUE"
        return [
            self._conditions.entry("o0", type_, sort.code),
            f"NOT EXISTS (SELECT 1 FROM {table} e WHERE {same} OFFSET 0)",
        ]

    def _from_there(self, after: Token) -> list[str]:
        """A condition that starts the walk at the first key of the token, for orders by several keys."""
        if self._walked is None or len(self._keys) == 1:
            return []
        key = self._keys[0]
        return [f"{key.sql} {'<=' if key.descending else '>='} {self._read(key, after.keys[0])}"]

    def _order(self) -> tuple[str, list[SortKey]]:
        joins, keys = super()._order()
        if self._walked is not None:
            sort = self._walked
            keys[0] = SortKey(f"o0.{SORT_VALUES[sort.kind]}", sort.descending, False, *READERS[sort.kind])
        return joins, keys

    def _sort_join(self, number: int, sort: Sort) -> str:
        """The value of each candidate by rid; the first of a walk is there."""
        if number == 0 and self._walked is not None:
            return ""
        best = f"{'max' if sort.descending else 'min'}(t.{SORT_VALUES[sort.kind]}) AS k"
        entry = self._conditions.entry("t", self._query.resource_type, sort.code, *sort.others)
        found = f"SELECT {best} FROM {TABLES[sort.kind]} t WHERE {entry} AND t.rid = {self._scan_rid}"
        return f" LEFT JOIN LATERAL ({found}) o{number} ON true"


def is_walked(query: Query) -> bool:
    """Whether the first sort key has an index with its values in order."""
    return bool(query.sort) and query.sort[0].kind in ("text", "date") and not query.sort[0].others


def can_probe(query: Query) -> bool:
    """Whether candidates can be sorted by probes: quantities have no index by rid."""
    return all(sort.kind != "quantity" for sort in query.sort)


def can_walk(query: Query) -> bool:
    """Whether an index has the resources in the order of the search."""
    return not query.sort or is_walked(query) or query.sort[0].kind in _COLUMN_KINDS


def set_terms(query: Query) -> list[int]:
    """The terms that are sets of rids, of which the smallest may give the candidates."""
    return [n for n, term in enumerate(query.terms) if isinstance(term.test, TextEquals) or is_set(term.test)]
