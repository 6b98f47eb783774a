"""The last Observations of each code, from the entries that hold subject, kind and time in this order.

One statement steps along the index from kind to kind of a subject, and reads the newest entries of each whose
resources pass the other tests.  Tests on code, category and status are put to one entry of each kind.  A date before
which the Observations begin is where the reading of a kind starts; the entries of Periods without a beginning have
their end instead, so where the tenant has such a Period, each kind is read from its newest entry.

Where the entries cannot answer (the subject is not named by references; a test reads the resource) the matches are
read, at most `MAX_FILTERED`.

Source: https://hl7.org/fhir/R4/observation-operation-lastn.html
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ipf.errors import Category, Problem
from ipf.fhir.index.lastn import DATE, LASTN, OBSERVATION, SUBJECT, lastn_key, time_text
from ipf.fhir.model.dates import FOREVER
from ipf.fhir.search.evaluation.lastn import Observed, latest_start, observed, of_kind_alone, too_many
from ipf.fhir.search.predicate import query_needs_resource, within
from ipf.ports.queries.predicates import AllOf, Has, IdAmong, IdIn, LastUpdated, Test, TextEquals
from ipf.ports.queries.search import Query
from ipf.store.postgres.lookup import VERSION_COLUMNS, version
from ipf.store.postgres.prepared import DynamicStatement, RunStatement
from ipf.store.postgres.quoting import joined
from ipf.store.postgres.symbols import SymbolTable
from ipf.store.resources.searches.conditions import Conditions, Mode, is_probe
from ipf.store.resources.searches.query import COLUMNS, VERSIONS
from ipf.store.resources.searches.run import MAX_FILTERED, Search
from ipf.store.resources.searches.texts import Many

_OF_COLUMNS = (IdIn, IdAmong, LastUpdated, Has)  # tests on columns of `resources`
_BATCH_SIZE = 400
_KINDS = 5  # times the limit may be read: the kinds of a code, of which the newest are kept


class Lastn:
    """`$lastn` of one tenant; see `Search`."""

    def __init__(self, tenant: str, many: Many, symbols: SymbolTable, run: RunStatement) -> None:
        self._tenant = tenant
        self._symbols = symbols
        self._run = run
        self._search = Search(tenant, many, symbols, run)

    async def found(self, query: Query, most: int, limit: int) -> list[Observed]:
        """Observations that hold the newest `most` of each group.

        Problem COSTLY when too many would have to be read for a result of at most `limit`.
        """
        resolved = await self._search.resolved(query)
        number = _subject_of(resolved)
        if number is None or query_needs_resource(resolved):
            return await self._read(query)
        await self._symbols.load((self._tenant,), ((OBSERVATION, LASTN), (OBSERVATION, DATE)))
        statement = await self._statement(resolved, number, most, limit)
        rows = await self._run(statement)
        if len(rows) > _KINDS * limit:
            raise too_many(limit)
        return [Observed(lastn_key(row[COLUMNS]), version(row[:COLUMNS])) for row in rows]

    async def _read(self, query: Query) -> list[Observed]:
        found: list[Observed] = []
        pages, after = replace(query, sort=(), count=_BATCH_SIZE, total="none"), None
        for _ in range(MAX_FILTERED // _BATCH_SIZE):
            page = await self._search.page(pages, after)
            found += map(observed, page.matches)
            after = page.next
            if after is None:
                break
        else:
            text = f"more than {MAX_FILTERED} Observations would have to be read; add a parameter that selects fewer"
            raise Problem(Category.COSTLY, text)
        return found

    async def _statement(self, query: Query, number: int, most: int, limit: int) -> DynamicStatement:
        units = await self._search.units(query)
        conditions = Conditions(self._symbols.partition(self._tenant), self._symbols, units)
        conditions.mode, add = Mode.PROBES, conditions.parameters.add
        subjects = add(joined(_subjects(query.terms[number].test)))
        tests = [term.test for place, term in enumerate(query.terms) if place != number]
        of_steps = [conditions.test(one, OBSERVATION, "k") for one in tests if of_kind_alone(one)]
        others = [one for one in tests if not of_kind_alone(one)]
        of_entries = [conditions.test(one, OBSERVATION, "r" if _needs_row(one) else "d") for one in others]
        row = " JOIN resources r ON r.rid = d.rid" if any(map(_needs_row, others)) else ""
        entry, step_entry = conditions.entry("d", OBSERVATION, LASTN), conditions.entry("i", OBSERVATION, LASTN)
        kind = r"k.subject || E'\n' || k.kind || "
        end = kind + _end(conditions, latest_start(AllOf(tuple(others))))
        first = _step("s", r"s.subject || E'\x0b'", step_entry)
        following = _step("k", kind + r"E'\n'", step_entry)
        sql = rf"""
WITH RECURSIVE k(subject, kind, rid) AS (
    SELECT s.subject, f.kind, f.rid FROM unnest(string_to_array({subjects}, E'\x1f')) s(subject)
    CROSS JOIN LATERAL ({first}) f
    UNION ALL
    SELECT k.subject, f.kind, f.rid FROM k CROSS JOIN LATERAL ({following}) f
)
SELECT {VERSION_COLUMNS}, r.entry FROM (
    SELECT r.*, e.val AS entry FROM (
        SELECT n.rid, n.val FROM k CROSS JOIN LATERAL (
            SELECT d.rid, d.val FROM index_text d{row}
            WHERE {" AND ".join([entry, *of_entries])} AND d.val >= {kind}E'\n' AND d.val <= {end}
            ORDER BY d.val DESC, d.rid DESC LIMIT {add(most, "bigint")}) n
        WHERE {" AND ".join(of_steps) or "true"} LIMIT {add(_KINDS * limit + 1, "bigint")}) e
    JOIN resources r ON r.rid = e.rid) r {VERSIONS}"""
        return DynamicStatement(sql, conditions.parameters, "", all(is_probe(one, Mode.PROBES) for one in tests))


def _end(conditions: Conditions, latest: int | None) -> str:
    """SQL of the end of the entries to read, after what names their kind; `latest`: see `latest_start`."""
    after_all = r"E'\x0b'"
    if latest is None:
        return after_all
    without_start = f"{conditions.entry('o', OBSERVATION, DATE)} AND o.lo <= {-FOREVER}"
    time = conditions.parameters.add(time_text(latest))
    exists = f"EXISTS (SELECT 1 FROM index_date o WHERE {without_start})"
    return rf"CASE WHEN {exists} THEN {after_all} ELSE E'\n' || {time} END"


def _step(alias: str, end: str, entry: str) -> str:
    """SELECT of the last entry of a subject before `end`."""
    return (
        rf"SELECT split_part(i.val, E'\n', 2) AS kind, i.rid FROM index_text i WHERE {entry} "
        rf"AND i.val > {alias}.subject || E'\n' AND i.val < {end} ORDER BY i.val DESC, i.rid DESC LIMIT 1"
    )


def _subject_of(query: Query) -> int | None:
    """The term that names the subject."""
    return next((place for place, term in enumerate(query.terms) if _subjects(term.test)), None)


def _subjects(test: Test) -> Sequence[str]:
    return test.values if isinstance(test, TextEquals) and test.code == SUBJECT else ()


def _needs_row(test: Test) -> bool:
    return within(test, *_OF_COLUMNS)
