"""A rule of `ports/fhir/terminology.py` in, an SQL condition on a row `c` of `code_system_concepts` out.

The tables are the partitions of the system, by name: a condition on `system_id` would have PostgreSQL read the rows of
what their indexes list.

Relations and properties become probes by the id of the concept, fenced by OFFSET 0: PostgreSQL puts them to each row
and does not turn them into joins, for which it would have to guess how many of a concept's descendants have a word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ipf.errors import Category, Problem
from ipf.ports.fhir.terminology import (
    Above,
    Among,
    AnyRule,
    Below,
    ChildOf,
    EveryRule,
    HasProperty,
    IsActive,
    NoRule,
    ParentOf,
    Rule,
)
from ipf.store.postgres.prepared import Parameters
from ipf.store.postgres.quoting import joined

INDEXED = 200  # characters of a property that its index has


class RuleSql:
    """Conditions on the concepts of one system.  `ids`: of `named_codes`; `parameters` collects the values."""

    def __init__(self, system_id: int, ids: Mapping[str, int], parameters: Parameters) -> None:
        self._ids = ids
        self._parameters = parameters
        self._number = int(system_id)

    def table(self, name: str) -> str:
        """The partition of the system."""
        return f"code_system_{name}_{self._number}"

    def condition(self, rule: Rule) -> str:
        """The condition of a rule."""
        match rule:
            case EveryRule(rules):
                return " AND ".join(f"({self.condition(one)})" for one in rules) or "true"
            case AnyRule(rules):
                return " OR ".join(f"({self.condition(one)})" for one in rules) or "false"
            case NoRule(one):
                return f"NOT ({self.condition(one)})"
            case IsActive():
                return "c.is_active"
            case Among(codes):
                return f"c.code = ANY({self._texts(codes)})"
        found = self.set_of(rule)
        if found is None:
            raise Problem(Category.INTERNAL, f"no SQL for {type(rule).__name__}")
        column, source = found
        return f"EXISTS (SELECT 1 FROM {source} AND {column} = c.id OFFSET 0)"

    def set_of(self, rule: Rule) -> tuple[str, str] | None:
        """Column, and FROM with WHERE, of the ids that a rule selects; None when they are not in an index."""
        match rule:
            case Below(code):
                return self._related("ancestors", "descendant", "ancestor", code)
            case Above(code):
                return self._related("ancestors", "ancestor", "descendant", code)
            case ChildOf(code):
                return self._related("parents", "child", "parent", code)
            case ParentOf(code):
                return self._related("parents", "parent", "child", code)
            case Among(codes):
                return "k.id", f"{self.table('concepts')} k WHERE k.code = ANY({self._texts(codes)})"
            case HasProperty():
                return "p.concept_id", f"{self.table('properties')} p WHERE {self._property(rule)}"
        return None

    def words(self, words: Sequence[str]) -> str:
        """The condition that a concept has words that begin so."""
        text = " & ".join(f"{word}:*" for word in words)
        return f"c.words @@ {self._parameters.add(text)}::tsquery"

    def _related(self, table: str, wanted: str, known: str, code: str) -> tuple[str, str]:
        """Rows of a table of relations; an unknown concept has none."""
        end = self._parameters.add(self._ids.get(code, 0), "integer")
        return f"a.{wanted}", f"{self.table(table)} a WHERE a.{known} = {end}"

    def _property(self, rule: HasProperty) -> str:
        having = f"p.name = {self._parameters.add(rule.name)}"
        if rule.values is None:
            return having
        begins = self._texts(frozenset(value[:INDEXED] for value in rule.values))
        return f"{having} AND left(p.value, {INDEXED}) = ANY({begins}) AND p.value = ANY({self._texts(rule.values)})"

    def _texts(self, texts: frozenset[str]) -> str:
        if texts == {""}:
            return "ARRAY['']"
        return f"string_to_array({self._parameters.add(joined(sorted(texts)))}, E'\\x1f')"


def conjuncts(rule: Rule) -> list[Rule]:
    """The rules that must all hold."""
    return [each for one in rule.rules for each in conjuncts(one)] if isinstance(rule, EveryRule) else [rule]


def named_codes(rule: Rule) -> frozenset[str]:
    """The codes that a rule names as an end of a relation."""
    match rule:
        case EveryRule(rules) | AnyRule(rules):
            return frozenset[str]().union(*map(named_codes, rules))
        case NoRule(one):
            return named_codes(one)
        case Below(code) | Above(code) | ChildOf(code) | ParentOf(code):
            return frozenset((code,))
    return frozenset()
