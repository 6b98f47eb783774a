"""A search step by step: symbols, chains resolved to ids where these are few, pages, and filtering of resources.

A chain whose far end matches few resources becomes a test for references to these, which the index answers; otherwise
it stays a condition in the SQL.  Queries that concern the resource itself (`:text`, `:of-type`) read resources in
batches and filter them one by one, up to a bound.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from ipf.errors import Category, Problem
from ipf.fhir.index.extract import extract
from ipf.fhir.model.json import loads
from ipf.fhir.search.match import Candidate
from ipf.fhir.search.predicate import needs_resource, needs_store, query_needs_resource, tests_equal
from ipf.ports import SearchPage, Version
from ipf.ports.index import EMPTY
from ipf.ports.predicates import NOTHING, AllOf, AnyOf, Has, IdIn, Linked, Not, Present, Test
from ipf.ports.search import Query, Term
from ipf.store.postgres.database import Row
from ipf.store.postgres.lookup import version
from ipf.store.postgres.prepared import DynamicStatement, RunStatement
from ipf.store.postgres.quoting import Statement
from ipf.store.postgres.symbols import SymbolTable
from ipf.store.resources.search import (
    COLUMNS,
    DEFAULT_COUNT,
    SearchSql,
    Token,
    can_scan_dates,
    driver,
    query_parameters,
)
from ipf.store.resources.search_conditions import uses_units

MAX_CHAIN_IDS = 1000
MAX_REFERRING = 300
MAX_FILTERED = 20_000
MAX_SORTED = 5000
_BATCH_SIZE = 400

UNITS = Statement("fhir_units", "smallint", "SELECT unit FROM index_units WHERE partition_id = $1")

STATEMENTS = (UNITS,)

# A chain that stays in the SQL joins tables with themselves.  PostgreSQL takes tables that were never analysed (after a
# first load) for empty and would compare every pair.
ANALYSE = "SELECT ensure_statistics()"

HAS_STATISTICS = "SELECT min(reltuples) > 0 FROM pg_class WHERE oid IN ('resources'::regclass, 'index_text'::regclass)"

Many = Callable[[str], Awaitable[list[Row]]]


class Search:
    """Searches of one tenant through `many`: a pool, or the session of a transaction.

    `run`: runs its statements; None = as text with the values in it.
    """

    def __init__(self, tenant: str, many: Many, symbols: SymbolTable, run: RunStatement | None = None) -> None:
        self._tenant = tenant
        self._many = many
        self._run = run or self._run_as_text
        self._symbols = symbols
        self._has_driver = False

    async def page(self, query: Query, after: str | None) -> SearchPage:
        """See `ports.FhirStore.search`.  The total is counted unless `_total=none`."""
        count = DEFAULT_COUNT if query.count is None else query.count
        sql, query = await self._prepared(query)
        if query.summary_count or count == 0:
            return SearchPage(await self._count(sql, query), (), None)
        token = None if after is None else Token.parse(after, sql.check)
        rows = await self._rows(sql, query, count + 1, token)
        found, more = rows[:count], len(rows) > count
        total = None if query.total == "none" else None if token is None else token.total
        if query.total != "none" and token is None:
            total = await self._count(sql, query) if more else len(found)
        matches = tuple(version(row[:COLUMNS]) for row in found)
        ends = tuple(sql.token(row, total) for row in found) if query.each_token else ()
        return SearchPage(total, matches, sql.token(found[-1], total) if more else None, ends)

    async def _run_as_text(self, statement: DynamicStatement) -> list[Row]:
        return await self._many(statement.text)

    async def first(self, query: Query, limit: int) -> list[Version]:
        """The first matches in order."""
        sql, query = await self._prepared(query)
        return [version(row[:COLUMNS]) for row in await self._rows(sql, query, limit, None)]

    async def _prepared(self, query: Query) -> tuple[SearchSql, Query]:
        await self._symbols.load((self._tenant,), query_parameters(query))
        if len(query.terms) > 1 and not self._symbols.has_statistics:
            self._symbols.has_statistics = (await self._many(HAS_STATISTICS))[0][0]
            if not self._symbols.has_statistics:
                await self._many(ANALYSE)
        if any(needs_store(term.test) for term in query.terms):
            self._has_driver = driver(query) is not None
            terms = [replace(term, test=await self._resolved(term.test, query.resource_type)) for term in query.terms]
            query = replace(query, terms=tuple(terms))
            if any(needs_store(term.test) for term in terms):
                await self._many(ANALYSE)
        return await self._sql(query), query

    async def _sql(self, query: Query) -> SearchSql:
        return SearchSql(self._tenant, query, self._symbols, await self._units(query))

    async def _units(self, query: Query) -> Sequence[str]:
        if not any(uses_units(term.test) for term in query.terms):
            return ()
        rows = await self._many(UNITS.call(self._symbols.partition(self._tenant)))
        return [unit for (unit,) in rows]

    # -- chains

    async def _resolved(self, test: Test, resource_type: str) -> Test:
        """The test with chains to few resources replaced by tests on the resource alone."""
        match test:
            case Linked(code, other, tests):
                return await self._linked(Linked(code, other, await self._each(tests, other)))
            case Has(other, code, tests):
                return await self._has(Has(other, code, await self._each(tests, other)), resource_type)
            case AllOf(tests):
                return AllOf(await self._each(tests, resource_type))
            case AnyOf(tests):
                return _merged(await self._each(tests, resource_type))
            case Not(one):
                return Not(await self._resolved(one, resource_type))
        return test

    async def _each(self, tests: Sequence[Test], resource_type: str) -> tuple[Test, ...]:
        return tuple([await self._resolved(one, resource_type) for one in tests])

    async def _linked(self, test: Linked) -> Test:
        sql = await self._sql(_query_for(test.resource_type, test.tests))
        rows = await self._run(sql.ids(MAX_CHAIN_IDS + 1))
        if len(rows) > MAX_CHAIN_IDS:
            return test
        return tests_equal(test.code, [f"{test.resource_type}/{id_}" for (id_,) in rows])

    async def _has(self, test: Has, resource_type: str) -> Test:
        if self._has_driver:
            return test  # few candidates, each checked by its referrers
        sql = await self._sql(_query_for(test.resource_type, test.tests))
        rows = await self._run(sql.page(MAX_REFERRING + 1))
        if len(rows) > MAX_REFERRING:
            return test
        prefix = f"{resource_type}/"
        found = {
            value.removeprefix(prefix)
            for row in rows
            for code, value in extract(loads(version(row[:COLUMNS]).body)).texts
            if code == test.code and value.startswith(prefix)
        }
        return IdIn(tuple(sorted(found))) if found else NOTHING

    # -- rows

    async def _rows(self, sql: SearchSql, query: Query, limit: int, after: Token | None) -> list[Row]:
        if not query_needs_resource(query):
            if can_scan_dates(query) and await self._many_match(sql, query):
                return await self._by_date(query, limit, after)
            return await self._run(sql.page(limit, after))
        found: list[Row] = []
        async for row in self._filtered(sql, query, after):
            found.append(row)
            if len(found) == limit:
                break
        return found

    async def _many_match(self, sql: SearchSql, query: Query) -> bool:
        """Whether so many resources may match that an ordered scan costs less than sorting all of them."""
        if any(isinstance(term.test, IdIn) or needs_store(term.test) for term in query.terms):
            return False
        if driver(query) is None:
            return True
        return int((await self._run(sql.driver_count(MAX_SORTED + 1)))[0][0]) > MAX_SORTED

    async def _by_date(self, query: Query, limit: int, after: Token | None) -> list[Row]:
        """Rows in the order of a date, read from its index; then, in order of rid, those without a date."""
        rows: list[Row] = []
        if after is None or after.keys != (None,):
            scan = SearchSql(self._tenant, query, self._symbols, await self._units(query), scans_dates=True)
            rows = await self._run(scan.page(limit, after))
            if len(rows) == limit:
                return rows
            after = None
        (sort,) = query.sort
        missing = Term("", "", Not(Present(sort.code, "date")))
        rest = replace(query, terms=(*query.terms, missing), sort=())
        sql = SearchSql(self._tenant, rest, self._symbols, await self._units(query), descending=sort.descending)
        following = None if after is None else replace(after, keys=())
        return rows + [(*row, None) for row in await self._run(sql.page(limit - len(rows), following))]

    async def _count(self, sql: SearchSql, query: Query) -> int:
        if not query_needs_resource(query):
            return int((await self._run(sql.count()))[0][0])
        total = 0
        async for _ in self._filtered(sql, query, None):
            total += 1
        return total

    async def _filtered(self, sql: SearchSql, query: Query, after: Token | None) -> AsyncIterator[Row]:
        """Rows whose resources pass; Problem COSTLY when too many would have to be read."""
        tests = [term.test for term in query.terms if needs_resource(term.test)]
        for _ in range(MAX_FILTERED // _BATCH_SIZE):
            rows = await self._run(sql.page(_BATCH_SIZE, after))
            for row in rows:
                if _passes(version(row[:COLUMNS]), tests):
                    yield row
            if len(rows) < _BATCH_SIZE:
                return
            after = Token.parse(sql.token(rows[-1], None), sql.check)
        names = ", ".join(term.name for term in query.terms if needs_resource(term.test))
        raise Problem(
            Category.COSTLY, f"search parameter {names}: more than {MAX_FILTERED} resources would have to be read; "
            "add a parameter that selects fewer", names,
        )  # fmt: skip


def _query_for(resource_type: str, tests: Sequence[Test]) -> Query:
    return Query(resource_type, tuple(Term("", "", test) for test in tests))


def _merged(tests: Sequence[Test]) -> Test:
    """The alternatives without those that match nothing."""
    left = tuple(test for test in tests if test != NOTHING)
    return NOTHING if not left else left[0] if len(left) == 1 else AnyOf(left)


def _passes(found: Version, tests: Sequence[Test]) -> bool:
    now = datetime.now(UTC)
    candidate = Candidate(found.resource_type, EMPTY, found.id, now, loads(found.body))
    return all(candidate.passes(test) for test in tests)
