"""The statements for the concepts that a rule and words select.

The parts that must all hold and that an index lists (descendants of a concept, concepts with a property) are counted
first, up to FEW.  Where one of them has so few concepts, these are tested one by one.  Otherwise the concepts are
walked in their order: of parts with at least FEW concepts each, the first page is found soon.  Words that many concepts
have fill the page within the first WALKED concepts; others are looked up in the index of words, which for those of many
concepts takes twenty times as long.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ipf.ports.terminology import EveryRule, ImportedSystem, Rule
from ipf.store.postgres.prepared import DynamicStatement, Parameters
from ipf.store.terminology.rule_sql import RuleSql, conjuncts

FEW = 10_000
WALKED = 10_000


class Selection:
    """A rule and words on one system.  `ids`: of the codes that the rule names."""

    def __init__(self, system: ImportedSystem, ids: Mapping[str, int], rule: Rule, words: Sequence[str]) -> None:
        self._system = system
        self._ids = ids
        self._rules = conjuncts(rule)
        self._words = words

    @property
    def has_words(self) -> bool:
        """Whether words are asked for."""
        return bool(self._words)

    def sizes(self) -> DynamicStatement | None:
        """Counts of the parts that an index lists, up to FEW and one more; None when there is no such part."""
        parameters, sql = self._sql()
        counts = [f"(SELECT count(*) FROM (SELECT 1 FROM {source} LIMIT {FEW + 1}) n)" for _, source in self._sets(sql)]
        return DynamicStatement(f"SELECT {', '.join(counts)}", parameters) if counts else None

    def driven(self, columns: str, driver: int, ending: str) -> DynamicStatement:
        """SELECT of the concepts of the part with this number in `sizes` that pass the other parts."""
        parameters, sql = self._sql()
        column, listed = self._sets(sql)[driver]
        return self._joined(f"SELECT DISTINCT {column} AS id FROM {listed}", columns, ending, parameters, sql)

    def by_words(self, columns: str, ending: str) -> DynamicStatement:
        """SELECT of the concepts that the index of words gives and that pass the rules."""
        parameters, sql = self._sql()
        few = f"SELECT w.id FROM {sql.table('concepts')} w WHERE {sql.words(self._words, 'w')}"
        return self._joined(few, columns, ending, parameters, sql)

    def walked(self, columns: str, ending: str, most: int | None = None) -> DynamicStatement:
        """SELECT of the concepts that pass, of the first `most`, or of all."""
        parameters, sql = self._sql()
        concepts = sql.table("concepts")
        source = concepts if most is None else f"(SELECT * FROM {concepts} k ORDER BY k.id LIMIT {most})"
        return DynamicStatement(f"SELECT {columns} FROM {source} c WHERE {self._passes(sql)} {ending}", parameters)

    def _joined(self, few: str, columns: str, ending: str, parameters: Parameters, sql: RuleSql) -> DynamicStatement:
        text = (
            f"WITH few AS MATERIALIZED ({few}) SELECT {columns} FROM few"
            f" JOIN {sql.table('concepts')} c ON c.id = few.id"
            f" WHERE {self._passes(sql)} {ending}"
        )
        return DynamicStatement(text, parameters)

    def _passes(self, sql: RuleSql) -> str:
        where = f"({sql.condition(EveryRule(tuple(self._rules)))})"
        return f"{where} AND {sql.words(self._words)}" if self._words else where

    def _sql(self) -> tuple[Parameters, RuleSql]:
        parameters = Parameters()
        return parameters, RuleSql(self._system.id, self._ids, parameters)

    def _sets(self, sql: RuleSql) -> list[tuple[str, str]]:
        return [one for one in map(sql.set_of, self._rules) if one is not None]
