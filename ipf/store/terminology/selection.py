"""The statements for the concepts that a rule and words select.

The parts that must all hold and that an index lists (descendants of a concept, concepts with a property) are counted
first, up to FEW.  Where one of them has so few concepts, these are tested one by one.  Otherwise the concepts are
walked in their order: of parts with at least FEW concepts each, the first page is found soon.

Words that many concepts have fill the page within the first WALKED concepts.  Others are looked up in the index of
words, whose scan gives the rows as they are stored, which is the order of their ids: an import writes them so, and
nothing changes them later.  So the scan ends after the rows of the page, or after COUNTED rows; a sort would have to
read every match.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ipf.ports.fhir.terminology import EveryRule, ImportedSystem, Rule
from ipf.store.postgres.prepared import DynamicStatement, Parameters
from ipf.store.terminology.rule_sql import RuleSql, conjuncts

FEW = 10_000
WALKED = 5_000
COUNTED = 200
"""Matches of words that are counted for a page; of more, the total is not told."""
# A scan of the whole table would otherwise begin where another one is.
_IN_STORED_ORDER = "SET LOCAL max_parallel_workers_per_gather = 0; SET LOCAL synchronize_seqscans = off"


class Selection:
    """A rule and words on one system.  `ids`: of the codes that the rule names."""

    def __init__(self, system: ImportedSystem, ids: Mapping[str, int], rule: Rule, words: Sequence[str]) -> None:
        self._system = system
        self._ids = ids
        self._rules = conjuncts(rule)
        self._words = words

    def sizes(self) -> DynamicStatement | None:
        """Counts of the parts that an index lists, up to FEW and one more; None when there is no such part."""
        parameters, sql = self._sql()
        counts = [f"(SELECT count(*) FROM (SELECT 1 FROM {source} LIMIT {FEW + 1}) n)" for _, source in self._sets(sql)]
        return DynamicStatement(f"SELECT {', '.join(counts)}", parameters) if counts else None

    def driven(self, columns: str, driver: int, ending: str) -> DynamicStatement:
        """SELECT of the concepts of the part with this number in `sizes` that pass the other parts."""
        parameters, sql = self._sql()
        column, listed = self._sets(sql)[driver]
        text = (
            f"WITH few AS MATERIALIZED (SELECT DISTINCT {column} AS id FROM {listed}) SELECT {columns} FROM few"
            f" JOIN {sql.table('concepts')} c ON c.id = few.id WHERE {self._passes(sql)} {ending}"
        )
        return DynamicStatement(text, parameters)

    def by_words(self, columns: str, offset: int, limit: int) -> DynamicStatement:
        """SELECT of a page of the concepts that the index of words gives and that pass the rules.

        The last column is their number, or `most_counted` when there are as many or more.
        """
        most = self.most_counted(offset, limit)
        parameters, sql = self._sql()
        page = f"SELECT f.id FROM found f ORDER BY f.id OFFSET {int(offset)} LIMIT {int(limit)}"
        text = (
            f"WITH found AS MATERIALIZED ({self._with_words(sql, most)})"
            f" SELECT {columns}, (SELECT count(*) FROM found) FROM ({page}) p"
            f" JOIN {sql.table('concepts')} c ON c.id = p.id ORDER BY c.id"
        )
        return DynamicStatement(text, parameters, _IN_STORED_ORDER)

    def count_by_words(self) -> DynamicStatement:
        """How many concepts the index of words gives that pass the rules."""
        parameters, sql = self._sql()
        return DynamicStatement(f"SELECT count(*) FROM ({self._with_words(sql, None)}) f", parameters)

    @staticmethod
    def most_counted(offset: int, limit: int) -> int:
        """How many matches a page of `by_words` reads."""
        return max(COUNTED, offset + limit) + 1

    def walked(self, columns: str, ending: str, most: int | None = None) -> DynamicStatement:
        """SELECT of the concepts that pass, of the first `most`, or of all."""
        parameters, sql = self._sql()
        concepts = sql.table("concepts")
        source = concepts if most is None else f"(SELECT * FROM {concepts} k ORDER BY k.id LIMIT {most})"
        return DynamicStatement(f"SELECT {columns} FROM {source} c WHERE {self._passes(sql)} {ending}", parameters)

    def _with_words(self, sql: RuleSql, most: int | None) -> str:
        """The concepts with the words, read by the index of words alone, that pass the rules."""
        named = f"SELECT * FROM {sql.table('concepts')} c WHERE {sql.words(self._words)} OFFSET 0"
        limit = "" if most is None else f" LIMIT {most}"
        return f"SELECT c.id FROM ({named}) c WHERE {self._rule(sql)}{limit}"

    def _passes(self, sql: RuleSql) -> str:
        where = f"({self._rule(sql)})"
        return f"{where} AND {sql.words(self._words)}" if self._words else where

    def _rule(self, sql: RuleSql) -> str:
        return sql.condition(EveryRule(tuple(self._rules)))

    def _sql(self) -> tuple[Parameters, RuleSql]:
        parameters = Parameters()
        return parameters, RuleSql(self._system.id, self._ids, parameters)

    def _sets(self, sql: RuleSql) -> list[tuple[str, str]]:
        return [one for one in map(sql.set_of, self._rules) if one is not None]
