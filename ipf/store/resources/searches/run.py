"""A search step by step: symbols, chains resolved to ids where these are few, pages, and filtering of resources.

A chain whose far end matches few resources becomes a test for references to these, which the index answers; otherwise
it stays a condition in the SQL.  Queries that concern the resource itself (`:text`, `:of-type`) read resources in
batches and filter them one by one, up to a bound.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from ipf.errors import Category, Problem
from ipf.fhir.index.extract import extract
from ipf.fhir.index.words import words_are_indexed
from ipf.fhir.model.json import loads
from ipf.fhir.search.evaluation.match import Candidate
from ipf.fhir.search.predicate import needs_resource, needs_store, query_needs_resource, tests_equal, within
from ipf.ports import SearchPage, Version
from ipf.ports.queries.index import EMPTY
from ipf.ports.queries.predicates import (
    NOTHING,
    AllOf,
    AnyOf,
    CodedText,
    Contained,
    ContextOutside,
    FullText,
    Has,
    IdIn,
    Linked,
    Not,
    Present,
    Test,
    TextAmong,
)
from ipf.ports.queries.search import Query, Term
from ipf.store.postgres.database import Row
from ipf.store.postgres.lookup import version
from ipf.store.postgres.prepared import DynamicStatement, RunStatement
from ipf.store.postgres.quoting import Statement
from ipf.store.postgres.symbols import SymbolTable
from ipf.store.resources.searches import texts as search_texts
from ipf.store.resources.searches.conditions import uses_units
from ipf.store.resources.searches.probes import ProbedSql, can_probe, can_walk, is_walked, set_terms
from ipf.store.resources.searches.query import (
    COLUMNS,
    DEFAULT_COUNT,
    REFERENCE,
    SearchSql,
    Token,
    driver,
    query_parameters,
    ranked,
)
from ipf.store.resources.searches.texts import Many, with_indexed_texts
from ipf.store.resources.searches.words import with_indexed_words

MAX_CHAIN_IDS = 1000
MAX_REFERRING = 300
MAX_FILTERED = 20_000
MAX_CANDIDATES = 2000
"""Resources that are tested and sorted one by one; of more, an index is walked in the order of the search."""
_BATCH_SIZE = 400

UNITS = Statement("fhir_units", "smallint", "SELECT unit FROM index_units WHERE partition_id = $1")

STATEMENTS = (UNITS, *search_texts.STATEMENTS)

# PostgreSQL takes tables that were never analysed (after a first load) for empty: it would compare every pair of a
# join, and cannot tell the index by rid from the others.
# A standby gets the statistics of its primary, and refuses to make some.
ANALYSE = "SELECT CASE WHEN NOT pg_is_in_recovery() THEN ensure_statistics()::text END"

HAS_STATISTICS = "SELECT min(reltuples) > 0 FROM pg_class WHERE oid IN ('resources'::regclass, 'index_text'::regclass)"


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
        if query.backwards:
            found.reverse()
        matches = tuple(version(row[:COLUMNS]) for row in found)
        ends = tuple(sql.token(row, total) for row in found) if query.each_token else ()
        has_next, has_previous = (token is not None, more) if query.backwards else (more, token is not None)
        following = sql.token(found[-1], total) if found and has_next else None
        previous = sql.token(found[0], total) if found and has_previous else None
        return SearchPage(total, matches, following, ends, previous)

    async def _run_as_text(self, statement: DynamicStatement) -> list[Row]:
        return await self._many(statement.text)

    async def first(self, query: Query, limit: int) -> list[Version]:
        """The first matches in order."""
        sql, query = await self._prepared(query)
        return [version(row[:COLUMNS]) for row in await self._rows(sql, query, limit, None)]

    async def _prepared(self, query: Query) -> tuple[SearchSql, Query]:
        query = await self.resolved(query)
        return await self._sql(query), query

    async def resolved(self, query: Query) -> Query:
        """The query with tests on the index for words, texts and short chains; its symbols are loaded."""
        if any(within(term.test, FullText) for term in query.terms):
            query = await with_indexed_words(query, self._many, self._symbols)
        if any(within(term.test, CodedText) for term in query.terms):
            query = await with_indexed_texts(query, self._tenant, self._many, self._symbols)
        await self._symbols.load((self._tenant,), query_parameters(query))
        if len(query.terms) + len(query.sort) > 1 and not self._symbols.has_statistics:
            self._symbols.has_statistics = (await self._many(HAS_STATISTICS))[0][0]
            if not self._symbols.has_statistics:
                await self._many(ANALYSE)
        if any(needs_store(term.test) for term in query.terms):
            self._has_driver = driver(query) is not None
            terms = [replace(term, test=await self._resolved(term.test, query.resource_type)) for term in query.terms]
            query = replace(query, terms=tuple(terms))
            if any(needs_store(term.test) for term in terms):
                await self._many(ANALYSE)
        return query

    async def _sql(self, query: Query) -> SearchSql:
        """The statements, by the number of resources that the tests are put to."""
        units = await self.units(query)
        if not _is_probed(query):
            return SearchSql(self._tenant, query, self._symbols, units)
        count, candidates = await self._fewest(query, units)
        if count > MAX_CANDIDATES and not can_walk(query):
            return SearchSql(self._tenant, query, self._symbols, units)
        few = candidates if count <= MAX_CANDIDATES else None
        return ProbedSql(self._tenant, query, self._symbols, units, candidates=few)

    async def _fewest(self, query: Query, units: Sequence[str]) -> tuple[int, int]:
        """The number of entries of the smallest set, and its term.  Of an identifier or a reference alone, if any."""
        number, rank = ranked(query)
        numbers = [number] if number is not None and rank <= REFERENCE else set_terms(query)
        if not numbers:
            return MAX_CANDIDATES + 1, 0
        sql = SearchSql(self._tenant, query, self._symbols, units)
        (sizes,) = await self._run(sql.sizes(numbers, MAX_CANDIDATES + 1))
        return min(zip(sizes, numbers, strict=True))

    async def units(self, query: Query) -> Sequence[str]:
        """The unit texts that occur, if the query depends on them."""
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
            if isinstance(sql, ProbedSql) and sql.is_walk and is_walked(query):
                return await self._walked(sql, query, limit, after)
            return await self._run(sql.page(limit, after))
        found: list[Row] = []
        async for row in self._filtered(sql, query, after):
            found.append(row)
            if len(found) == limit:
                break
        return found

    async def _walked(self, walk: SearchSql, query: Query, limit: int, after: Token | None) -> list[Row]:
        """Rows in the order of the first key, read from its index; then those without a value of it."""
        rows: list[Row] = []
        without_value = after is not None and after.keys[:1] == (None,)
        if query.backwards:
            if after is None or without_value:
                rows = await self._without_value(query, limit, after)
            if len(rows) == limit:
                return rows
            return rows + await self._run(walk.page(limit - len(rows), None if without_value else after))
        if not without_value:
            rows = await self._run(walk.page(limit, after))
            if len(rows) == limit:
                return rows
        return rows + await self._without_value(query, limit - len(rows), after if without_value else None)

    async def _without_value(self, query: Query, limit: int, after: Token | None) -> list[Row]:
        """Rows of a walk without a value of the first key."""
        first, *others = query.sort
        assert first.kind in ("text", "date"), "what is walked"
        missing = Term("", "", Not(Present(first.code, first.kind)))
        rest = replace(query, terms=(*query.terms, missing), sort=tuple(others))
        units = await self.units(query)
        sql = SearchSql(self._tenant, rest, self._symbols, units, descending=first.descending)
        following = None if after is None else replace(after, keys=after.keys[1:])
        return [(*row[:COLUMNS], None, *row[COLUMNS:]) for row in await self._run(sql.page(limit, following))]

    async def _count(self, sql: SearchSql, query: Query) -> int:
        if not query_needs_resource(query):
            is_by_sets = _excludes_many(query) or await self._many_pass_each(sql, query)
            counting = sql.count_sets() if is_by_sets else sql.count()
            return int((await self._run(counting))[0][0])
        total = 0
        async for _ in self._filtered(sql, query, None):
            total += 1
        return total

    async def _many_pass_each(self, sql: SearchSql, query: Query) -> bool:
        """Whether each term of several selects so many that their sets are compared as a whole."""
        if isinstance(sql, ProbedSql) or len(query.terms) < 2 or driver(query) is not None:
            return False
        if any(isinstance(term.test, IdIn) for term in query.terms):
            return False
        return bool(set_terms(query)) and (await self._fewest(query, await self.units(query)))[0] > MAX_CANDIDATES

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
            f"add a parameter that selects fewer{_setting(tests)}", names,
        )  # fmt: skip


def _setting(tests: Sequence[Test]) -> str:
    """What would answer the search without reading resources."""
    if not any(within(test, FullText) for test in tests):
        return ""
    return ", or index words with IPF_FHIR_FULL_TEXT=true" + (" (the job is not done)" if words_are_indexed() else "")


def _is_probed(query: Query) -> bool:
    """Whether the order or a chain takes more than one index scan, so that the number of candidates counts."""
    if query_needs_resource(query) or not can_probe(query):
        return False
    if any(isinstance(term.test, IdIn) for term in query.terms):
        return False
    ordered = any(sort.kind in ("text", "date") for sort in query.sort)
    return ordered or any(needs_store(term.test) for term in query.terms)


def _excludes_many(query: Query) -> bool:
    """Whether a test on many values is put to all resources of the type: their set is computed once."""
    return driver(query) is None and any(within(term.test, TextAmong) for term in query.terms)


def _query_for(resource_type: str, tests: Sequence[Test]) -> Query:
    return Query(resource_type, tuple(Term("", "", test) for test in tests))


def _merged(tests: Sequence[Test]) -> Test:
    """The alternatives without those that match nothing."""
    left = tuple(test for test in tests if test != NOTHING)
    return NOTHING if not left else left[0] if len(left) == 1 else AnyOf(left)


def _passes(found: Version, tests: Sequence[Test]) -> bool:
    now = datetime.now(UTC)
    resource = loads(found.body)
    entries = extract(resource) if any(within(test, ContextOutside, AllOf, Contained) for test in tests) else EMPTY
    candidate = Candidate(found.resource_type, entries, found.id, now, resource)
    return all(candidate.passes(test) for test in tests)
