"""A query in, SQL out: the algebra of `fhir/predicate.py` as literal fragments with quoted values.

A search walks one index in order and stops when the page is full: the index of a single token when the query has one
(`index_text`, in order of rid), else the resources of the type.  Further equalities are probes by (value, rid); ranges
and prefixes are sets of rids, computed once.  The planner sees the values, since these statements are not prepared.

Paging is by key for the natural order, `_id` and `_lastUpdated` (pages neither repeat nor skip while others write), by
offset for any other order.  The token carries the total, which is counted once, for the first page.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import orjson

from ipf.errors import Category, Problem
from ipf.fhir.predicate import (
    AnyOf,
    Bounds,
    DateRange,
    IdIn,
    LastUpdated,
    Not,
    Present,
    QuantityRange,
    Test,
    TextContains,
    TextEquals,
    TextPrefix,
)
from ipf.fhir.query import Query, Sort
from ipf.store.asks import VERSION_COLUMNS
from ipf.store.names import Names, Parameter
from ipf.store.quoting import literal, script

DEFAULT_COUNT = 50

# Prepared statements want nested loops only; a search with ranges does not.  Ends with the statement's transaction.
PLANNER = "SET LOCAL enable_seqscan = on; SET LOCAL enable_hashjoin = on; SET LOCAL enable_mergejoin = on"

_TABLES = {"text": "index_text", "date": "index_date", "quantity": "index_quantity"}
_SORT_VALUES = {"text": "val", "date": "lo", "quantity": "lo"}


@dataclass(frozen=True, slots=True)
class Token:
    """Where a page continues: after a key (`key`, `rid`), or at an offset."""

    total: int | None
    rid: int = 0
    key: str | None = None
    offset: int = 0

    def text(self) -> str:
        """The token as it travels in a URL."""
        content = orjson.dumps([self.total, self.rid, self.key, self.offset])
        return base64.urlsafe_b64encode(content).decode().rstrip("=")

    @classmethod
    def parse(cls, text: str) -> Token:
        """Problem VALUE for what this module did not write."""
        try:
            total, rid, key, offset = orjson.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
            if not (isinstance(rid, int) and isinstance(offset, int) and isinstance(key, str | None)):
                raise ValueError
        except (ValueError, TypeError, binascii.Error) as refused:
            raise Problem(Category.VALUE, "the page token cannot be read", "_cursor") from refused
        return cls(total, rid, key, offset)


class SearchSql:
    """The statements of one search of one tenant."""

    def __init__(self, tenant: str, query: Query, names: Names) -> None:
        self._query = query
        self._names = names
        self._partition = names.partition(tenant)
        self._driver = next((n for n, term in enumerate(query.terms) if _is_token(term.test)), None)
        self._number = 0

    def page(self, limit: int, after: Token | None = None) -> str:
        """At most `limit` rows of VERSION_COLUMNS from behind `after`."""
        joins, order = self._order()
        where = [*self._conditions(), *([] if after is None else self._behind(after))]
        offset = f" OFFSET {after.offset}" if after is not None and after.offset else ""
        return script(
            PLANNER,
            f"SELECT {VERSION_COLUMNS} FROM {self._from()} "
            f"JOIN resource_versions v ON v.rid = r.rid AND v.version_id = r.version_id{joins} "
            f"WHERE {' AND '.join(where)} ORDER BY {order} LIMIT {limit}{offset}",
        )

    def count(self) -> str:
        """How many there are."""
        return script(PLANNER, f"SELECT count(*) FROM {self._from()} WHERE {' AND '.join(self._conditions())}")

    def token(self, last: Any, total: int | None, seen: int) -> str:
        """The token behind the last row of a page; `seen`: rows up to it, for orders paged by offset."""
        match self._kind():
            case "rid":
                return Token(total, rid=last.rid).text()
            case "id":
                return Token(total, rid=last.rid, key=last.id).text()
            case "last_updated":
                return Token(total, rid=last.rid, key=last.last_updated.isoformat()).text()
        return Token(total, offset=seen).text()

    # -- parts

    @property
    def _walk(self) -> str:
        return "d.rid" if self._driver is not None else "r.rid"

    def _from(self) -> str:
        return "resources r" if self._driver is None else "index_text d JOIN resources r ON r.rid = d.rid"

    def _conditions(self) -> list[str]:
        found = [
            f"r.partition_id = {literal(self._partition)}",
            f"r.resource_type = {literal(self._query.resource_type)}",
            "NOT r.deleted",
        ]
        for number, term in enumerate(self._query.terms):
            if number == self._driver and isinstance(term.test, TextEquals):
                found.append(f"{self._entry('d', term.test.code)} AND d.val = {literal(term.test.values[0])}")
            else:
                found.append(self._test(term.test))
        return found

    def _kind(self) -> str:
        """How the order is paged."""
        sort = self._query.sort
        if not sort:
            return "rid"
        return sort[0].kind if len(sort) == 1 and sort[0].kind in ("id", "last_updated") else "offset"

    def _order(self) -> tuple[str, str]:
        """(joins, ORDER BY)"""
        joins, keys = "", []
        for number, sort in enumerate(self._query.sort):
            direction = " DESC" if sort.descending else ""
            if sort.kind in ("id", "last_updated"):
                keys.append(f"r.{sort.kind}{direction}")
            else:
                joins += self._sort_join(number, sort)
                keys.append(f"o{number}.k{direction} NULLS LAST")
        keys.append(self._walk + (" DESC" if self._descending() else ""))
        return joins, ", ".join(keys)

    def _sort_join(self, number: int, sort: Sort) -> str:
        value, best = _SORT_VALUES[sort.kind], "max" if sort.descending else "min"
        return (
            f" LEFT JOIN (SELECT t.rid, {best}(t.{value}) AS k FROM {_TABLES[sort.kind]} t "
            f"WHERE {self._entry('t', sort.code)} GROUP BY t.rid) o{number} ON o{number}.rid = r.rid"
        )

    def _descending(self) -> bool:
        return bool(self._query.sort) and self._query.sort[0].descending

    def _behind(self, after: Token) -> list[str]:
        sign = "<" if self._descending() else ">"
        kind = self._kind()
        if kind == "rid":
            return [f"{self._walk} > {after.rid}"]
        if kind == "offset":
            return []
        if after.key is None:
            raise Problem(Category.VALUE, "the page token belongs to another search", "_cursor")
        return [f"(r.{kind}, {self._walk}) {sign} ({literal(after.key)}, {after.rid})"]

    def _entry(self, alias: str, code: str) -> str:
        parameter = self._names.parameter(self._query.resource_type, code)
        return f"{alias}.partition_id = {literal(self._partition)} AND {alias}.param = {literal(parameter)}"

    def _test(self, test: Test) -> str:
        match test:
            case TextEquals(code, values):
                found = f"t.val IN ({', '.join(literal(value) for value in values)}) AND t.rid = r.rid"
                return f"EXISTS (SELECT 1 FROM index_text t WHERE {self._entry('t', code)} AND {found})"
            case IdIn(ids):
                return f"r.id IN ({', '.join(literal(id_) for id_ in ids)})"
            case LastUpdated(bounds):
                return _bounds("r", bounds, "last_updated")
            case AnyOf(tests):
                return f"({' OR '.join(self._test(one) for one in tests)})"
            case Not(inner):
                return f"NOT {self._test(inner)}"
        kind, code, condition = _set(test)
        return f"r.rid IN (SELECT t.rid FROM {_TABLES[kind]} t WHERE {self._entry('t', code)}{condition})"


def _set(test: Test) -> tuple[str, str, str]:
    """(kind of index, code, further condition on its rows t) of a test that selects a set of rows."""
    match test:
        case TextPrefix(code, prefix):
            return "text", code, f" AND {_begins('t.val', prefix)}"
        case TextContains(code, part):
            return "text", code, f" AND strpos(split_part(t.val, E'\\t', 1), {literal(part)}) > 0"
        case DateRange(code, bounds):
            return "date", code, f" AND {_bounds('t', bounds)}"
        case QuantityRange(code, bounds, unit_prefix, unit_part):
            unit = f" AND {_begins('t.unit', unit_prefix)}" if unit_prefix else ""
            part = f" AND strpos(t.unit, {literal(unit_part)}) > 0" if unit_part else ""
            return "quantity", code, f" AND {_bounds('t', bounds)}{unit}{part}"
        case Present(code, kind):
            return kind, code, ""
    raise Problem(Category.INTERNAL, f"no SQL for {type(test).__name__}")


def parameters_of(query: Query) -> set[Parameter]:
    """The search parameters whose numbers the SQL needs."""
    codes = {code for term in query.terms for code in _codes(term.test)}
    codes |= {sort.code for sort in query.sort if sort.kind in _TABLES}
    return {(query.resource_type, code) for code in codes}


def _codes(test: Test) -> Iterable[str]:
    match test:
        case AnyOf(tests):
            return [code for one in tests for code in _codes(one)]
        case Not(inner):
            return _codes(inner)
        case IdIn() | LastUpdated():
            return []
    return [test.code]


def _is_token(test: Test) -> bool:
    return isinstance(test, TextEquals) and len(test.values) == 1


def _begins(column: str, prefix: str) -> str:
    """A range that a b-tree in collation "C" can walk."""
    if not prefix:
        return "true"
    following = _following(prefix)
    upper = "" if following is None else f" AND {column} < {literal(following)}"
    return f"{column} >= {literal(prefix)}{upper}"


def _following(prefix: str) -> str | None:
    """The least text that is greater than all that begin with `prefix`; None when there is none."""
    for end in range(len(prefix), 0, -1):
        point = ord(prefix[end - 1])
        if point < 0x10FFFF:
            following = 0xE000 if point == 0xD7FF else _storable(point + 1)
            return prefix[: end - 1] + chr(following)
    return None


def _storable(point: int) -> int:
    """`point`, or the next one that a literal may hold."""
    return 0x20 if point in (0x1E, 0x1F) else point


def _bounds(alias: str, bounds: Bounds, at: str = "at") -> str:
    """Alternatives of conjunctions; column names and operators are of a closed set, values are quoted."""
    columns = {"lo": "lo", "hi": "hi", "at": at}
    operators = {"<": "<", "<=": "<=", ">": ">", ">=": ">="}
    alternatives = [
        " AND ".join(f"{alias}.{columns[b.column]} {operators[b.operator]} {literal(b.value)}" for b in every)
        for every in bounds
    ]
    return "(" + " OR ".join(f"({every or 'true'})" for every in alternatives) + ")" if alternatives else "false"
