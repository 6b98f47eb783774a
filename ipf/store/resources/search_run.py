"""A search step by step: names to numbers, chains to ids where they are few, pages, and the second look at resources.

A chain is asked first, on its own: when few resources stand at its other end (nearly always, a chain goes over an
identifier or a name), the search becomes one for references to these, which an index walks; else it stays a condition
in the SQL.  Queries that look at the resource itself (`:text`, `:of-type`) are read in batches and looked at one by
one; what they may look at is bounded.
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
from ipf.store.postgres.prepared import Call, Run
from ipf.store.postgres.quoting import Statement
from ipf.store.postgres.symbols import Names
from ipf.store.resources.search import COLUMNS, DEFAULT_COUNT, SearchSql, Token, can_walk_dates, driver, parameters_of
from ipf.store.resources.search_conditions import uses_units

FEW_IDS = 1000
FEW_REFERRING = 300
MOST_LOOKED_AT = 20_000
MOST_SORTED = 5000
_BATCH = 400

UNITS = Statement("fhir_units", "smallint", "SELECT unit FROM index_units WHERE partition_id = $1")

STATEMENTS = (UNITS,)

# A chain that stays in the SQL joins tables with themselves.  Where these were never analysed (after a first load)
# PostgreSQL takes them for empty, and would try every pair.
ANALYSE = "SELECT ensure_statistics()"

HAS_STATISTICS = "SELECT min(reltuples) > 0 FROM pg_class WHERE oid IN ('resources'::regclass, 'index_text'::regclass)"

Many = Callable[[str], Awaitable[list[Row]]]


class Search:
    """Searches of one tenant through `many`: a pool, or the session of a transaction.

    `run`: how its statements are run; None = with their values in them.
    """

    def __init__(self, tenant: str, many: Many, names: Names, run: Run | None = None) -> None:
        self._tenant = tenant
        self._many = many
        self._run = run or self._written
        self._names = names
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

    async def _written(self, call: Call) -> list[Row]:
        return await self._many(call.text)

    async def first(self, query: Query, limit: int) -> list[Version]:
        """The first matches in order."""
        sql, query = await self._prepared(query)
        return [version(row[:COLUMNS]) for row in await self._rows(sql, query, limit, None)]

    async def _prepared(self, query: Query) -> tuple[SearchSql, Query]:
        await self._names.load((self._tenant,), parameters_of(query))
        if len(query.terms) > 1 and not self._names.has_statistics:
            self._names.has_statistics = (await self._many(HAS_STATISTICS))[0][0]
            if not self._names.has_statistics:
                await self._many(ANALYSE)
        if any(needs_store(term.test) for term in query.terms):
            self._has_driver = driver(query) is not None
            terms = [replace(term, test=await self._resolved(term.test, query.resource_type)) for term in query.terms]
            query = replace(query, terms=tuple(terms))
            if any(needs_store(term.test) for term in terms):
                await self._many(ANALYSE)
        return await self._sql(query), query

    async def _sql(self, query: Query) -> SearchSql:
        return SearchSql(self._tenant, query, self._names, await self._units(query))

    async def _units(self, query: Query) -> Sequence[str]:
        if not any(uses_units(term.test) for term in query.terms):
            return ()
        rows = await self._many(UNITS.call(self._names.partition(self._tenant)))
        return [unit for (unit,) in rows]

    # -- chains

    async def _resolved(self, test: Test, resource_type: str) -> Test:
        """The test with chains that few resources answer as tests on the resource alone."""
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
        sql = await self._sql(_asking(test.resource_type, test.tests))
        rows = await self._run(sql.ids(FEW_IDS + 1))
        if len(rows) > FEW_IDS:
            return test
        return tests_equal(test.code, [f"{test.resource_type}/{id_}" for (id_,) in rows])

    async def _has(self, test: Has, resource_type: str) -> Test:
        if self._has_driver:
            return test  # few resources are looked at anyway, each by what refers to it
        sql = await self._sql(_asking(test.resource_type, test.tests))
        rows = await self._run(sql.page(FEW_REFERRING + 1))
        if len(rows) > FEW_REFERRING:
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
            if can_walk_dates(query) and await self._many_match(sql, query):
                return await self._by_date(query, limit, after)
            return await self._run(sql.page(limit, after))
        found: list[Row] = []
        async for row in self._looked_at(sql, query, after):
            found.append(row)
            if len(found) == limit:
                break
        return found

    async def _many_match(self, sql: SearchSql, query: Query) -> bool:
        """Whether so many resources may match that sorting them all would cost more than walking in their order."""
        if any(isinstance(term.test, IdIn) or needs_store(term.test) for term in query.terms):
            return False
        if driver(query) is None:
            return True
        return int((await self._run(sql.driver_count(MOST_SORTED + 1)))[0][0]) > MOST_SORTED

    async def _by_date(self, query: Query, limit: int, after: Token | None) -> list[Row]:
        """Rows in the order of a date, read from its index; then, in order of rid, those that have none."""
        rows: list[Row] = []
        if after is None or after.keys != (None,):
            walk = SearchSql(self._tenant, query, self._names, await self._units(query), walks_dates=True)
            rows = await self._run(walk.page(limit, after))
            if len(rows) == limit:
                return rows
            after = None
        (sort,) = query.sort
        missing = Term("", "", Not(Present(sort.code, "date")))
        rest = replace(query, terms=(*query.terms, missing), sort=())
        sql = SearchSql(self._tenant, rest, self._names, await self._units(query), descending=sort.descending)
        behind = None if after is None else replace(after, keys=())
        return rows + [(*row, None) for row in await self._run(sql.page(limit - len(rows), behind))]

    async def _count(self, sql: SearchSql, query: Query) -> int:
        if not query_needs_resource(query):
            return int((await self._run(sql.count()))[0][0])
        total = 0
        async for _ in self._looked_at(sql, query, None):
            total += 1
        return total

    async def _looked_at(self, sql: SearchSql, query: Query, after: Token | None) -> AsyncIterator[Row]:
        """Rows whose resources pass; Problem COSTLY when too many would have to be looked at."""
        tests = [term.test for term in query.terms if needs_resource(term.test)]
        for _ in range(MOST_LOOKED_AT // _BATCH):
            rows = await self._run(sql.page(_BATCH, after))
            for row in rows:
                if _passes(version(row[:COLUMNS]), tests):
                    yield row
            if len(rows) < _BATCH:
                return
            after = Token.parse(sql.token(rows[-1], None), sql.check)
        names = ", ".join(term.name for term in query.terms if needs_resource(term.test))
        raise Problem(
            Category.COSTLY, f"search parameter {names}: more than {MOST_LOOKED_AT} resources would have to be read; "
            "add a parameter that selects fewer", names,
        )  # fmt: skip


def _asking(resource_type: str, tests: Sequence[Test]) -> Query:
    return Query(resource_type, tuple(Term("", "", test) for test in tests))


def _merged(tests: Sequence[Test]) -> Test:
    """Alternatives without those that nothing passes."""
    left = tuple(test for test in tests if test != NOTHING)
    return NOTHING if not left else left[0] if len(left) == 1 else AnyOf(left)


def _passes(found: Version, tests: Sequence[Test]) -> bool:
    now = datetime.now(UTC)
    candidate = Candidate(found.resource_type, EMPTY, found.id, now, loads(found.body))
    return all(candidate.passes(test) for test in tests)
