"""A search query in, SQL out: pages in order, counts, and page tokens.

A search scans one index in order and stops when the page is full: the entries of a single token when the query has one
(`index_text`, in order of rid), else the resources of the type.  Of several tokens the one that is likely the rarest
drives: an identifier, then a reference, then the others.  The other conditions are those of `conditions.py`.
A statement with one best plan for all values may be prepared (`prepared.py`); otherwise the planner sees the values.
Searches in the order of a parameter, and chains to many resources, are those of `probes.py`.

Pages are cut by key: each continues after the values of the last row, rows without a value last, so pages neither
repeat nor skip rows while others write.  The token carries the total, which is counted for the first page only.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any
from zlib import crc32

import orjson

from ipf.errors import Category, Problem
from ipf.fhir.model.definitions import definitions
from ipf.fhir.search.predicate import needs_store
from ipf.ports.queries.predicates import AllOf, IdIn, TextEquals
from ipf.ports.queries.search import Query, Sort
from ipf.store.postgres.lookup import VERSION_COLUMNS
from ipf.store.postgres.prepared import DynamicStatement
from ipf.store.postgres.quoting import Value
from ipf.store.postgres.symbols import Parameter, SymbolTable
from ipf.store.resources.searches.conditions import TABLES, Conditions, Mode, is_probe, predicate_parameters
from ipf.store.resources.searches.index_scan import IndexScan, index_scan_of

DEFAULT_COUNT = 50

# Prepared statements use nested loops only; a search with ranges needs the other joins.  For one transaction.
PLANNER = "SET LOCAL enable_seqscan = on; SET LOCAL enable_hashjoin = on; SET LOCAL enable_mergejoin = on"

VERSIONS = "JOIN resource_versions v ON v.rid = r.rid AND v.version_id = r.version_id"
SORT_VALUES = {"text": "val", "date": "lo", "quantity": "lo"}
REFERENCE = 1  # see `ranked`
COLUMNS = 8  # of VERSION_COLUMNS


@dataclass(frozen=True, slots=True)
class Token:
    """Where a page continues: after the row with these `keys` and this rid.  `check` is the checksum of its search."""

    check: int
    total: int | None
    rid: int
    keys: tuple[str | None, ...] = ()

    def text(self) -> str:
        """The token as it travels in a URL."""
        content = orjson.dumps([self.check, self.total, f"{self.rid:019}", self.keys])  # of one length: it is encrypted
        return base64.urlsafe_b64encode(content).decode().rstrip("=")

    @classmethod
    def parse(cls, text: str, check: int) -> Token:
        """Problem VALUE for a text that is no token, or a token of another search."""
        try:
            found, total, number, keys = orjson.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
            rid = int(number)
            if not 0 <= rid < 2**63 or not all(isinstance(key, str | None) for key in keys):
                raise ValueError
            if not (total is None or (type(total) is int and 0 <= total < 2**53)):
                raise ValueError
        except (ValueError, TypeError, binascii.Error) as refused:
            raise Problem(Category.VALUE, "the page token cannot be read", "_cursor") from refused
        if found != check:
            raise Problem(Category.VALUE, "the page token belongs to another search", "_cursor")
        return cls(check, total, rid, tuple(keys))


@dataclass(frozen=True, slots=True)
class SortKey:
    """One sort key: its SQL, the parser of its value in a token, and its SQL type."""

    sql: str
    descending: bool
    nullable: bool
    read: Callable[[str], Value]
    kind: str


class SearchSql:
    """The statements of one search of one tenant.  `units`: unit texts that occur, for quantities in UCUM units.

    `descending`: the direction of rid among resources that are equal in the order; None = that of the first key.
    """

    def __init__(
        self,
        tenant: str,
        query: Query,
        symbols: SymbolTable,
        units: Sequence[str] = (),
        *,
        descending: bool | None = None,
    ) -> None:
        self._query = query
        self._partition = symbols.partition(tenant)
        self._symbols = symbols
        self._units = units
        self._is_descending = descending
        self._driver, rank = ranked(query)
        self._is_selective = rank <= REFERENCE
        self._backwards = query.backwards

    def _reset(self) -> None:
        """Start another statement."""
        self._conditions = Conditions(self._partition, self._symbols, self._units)
        self._add = self._conditions.parameters.add
        self._joins, keys = self._order()
        self._keys = [replace(key, descending=key.descending != self._backwards) for key in keys]

    @property
    def check(self) -> int:
        """Equal for the same search in the same order."""
        return crc32(f"{self._query.canonical}|{self._query.sort}".encode())

    def page(self, limit: int, after: Token | None = None) -> DynamicStatement:
        """At most `limit` rows of VERSION_COLUMNS and the keys of the order, after `after`.

        Of a query `backwards`, rows before `after`, the last one first.
        """
        self._reset()
        scan = None if self._query.sort else self._index_scan()
        if scan is not None:
            conditions = [] if after is None else [self._after(after, "d.rid")]
            order = f"d.rid{' DESC' if self._descending() else ''}"
            rids = scan.select_rids(conditions, order, self._add(limit, "bigint"))
            # Its own ORDER BY keeps the planner from reordering the join with the versions.
            current = f"SELECT r.* FROM ({rids}) d JOIN resources r ON r.rid = d.rid ORDER BY {order}"
            rows = f"SELECT {VERSION_COLUMNS} FROM ({current}) r {VERSIONS}"
            settings = "" if scan.probes_only else PLANNER
            return self._statement(f"{rows} ORDER BY {self._order_by([])}", settings, scan.stable)
        stable = self._is_stable()
        self._conditions.mode = Mode.PROBES if stable else Mode.JOINS
        where = [*self._where(), *([] if after is None else [self._after(after)])]
        keys = [f"{key.sql} AS k{number}" for number, key in enumerate(self._keys)]
        columns = ", ".join(["r.rid", "r.resource_type", "r.id", "r.version_id", *keys])
        names = ", ".join([VERSION_COLUMNS, *(f"r.k{number}" for number in range(len(keys)))])
        return self._statement(
            f"SELECT {names} FROM (SELECT {columns} FROM {self._from()}{self._joins} "
            f"WHERE {' AND '.join(where)} ORDER BY {self._order_by()} LIMIT {self._add(limit, 'bigint')}) r "
            f"{VERSIONS} ORDER BY {self._order_by([f'r.k{number}' for number in range(len(keys))])}",
            "" if stable else PLANNER,
            stable,
        )

    def count(self) -> DynamicStatement:
        """The number of matches; an index scan alone may do, because entries exist for live resources only."""
        self._reset()
        scan = self._index_scan()
        if scan is not None:
            settings = "" if scan.stable else PLANNER
            return self._statement(
                f"SELECT count(*) FROM {scan.source} d WHERE {scan.condition}", settings, scan.stable
            )
        if any(needs_store(term.test) for term in self._query.terms):
            return self.count_sets()
        return self._statement(f"SELECT count(*) FROM {self._from()} WHERE {' AND '.join(self._where())}", PLANNER)

    def count_sets(self) -> DynamicStatement:
        """As `count`, for terms that many resources pass each."""
        self._reset()
        test = AllOf(tuple(term.test for term in self._query.terms))
        rids = self._conditions.rids(test, self._query.resource_type)
        return self._statement(f"SELECT count(*) FROM (SELECT DISTINCT d.rid FROM ({rids}) d) d", PLANNER)

    def ids(self, limit: int) -> DynamicStatement:
        """Logical ids of at most `limit` matches, in no order."""
        self._reset()
        scan = self._index_scan()
        if scan is not None:
            rids = f"SELECT d.rid FROM {scan.source} d WHERE {scan.condition} LIMIT {self._add(limit, 'bigint')}"
            found = f"SELECT r.id FROM ({rids}) d JOIN resources r ON r.rid = d.rid"
            return self._statement(found, "" if scan.stable else PLANNER, scan.stable)
        where = " AND ".join(self._where())
        return self._statement(
            f"SELECT r.id FROM {self._from()} WHERE {where} LIMIT {self._add(limit, 'bigint')}", PLANNER
        )

    def sizes(self, numbers: Sequence[int], limit: int) -> DynamicStatement:
        """For each of these terms, which are sets, the number of its entries, counted up to `limit`."""
        self._reset()
        most = self._add(limit, "bigint")
        counts = (f"(SELECT count(*) FROM ({self._set_of(number)} LIMIT {most}) n)" for number in numbers)
        return self._statement(f"SELECT {', '.join(counts)}", "", True)

    def token(self, row: Sequence[Any], total: int | None) -> str:
        """The token that continues after a row of a page."""
        keys = tuple(_key_text(value) for value in row[COLUMNS:])
        return Token(self.check, total, row[0], keys).text()

    # -- parts

    def _statement(self, sql: str, settings: str, stable: bool = False) -> DynamicStatement:
        return DynamicStatement(sql, self._conditions.parameters, settings, stable)

    def _is_stable(self) -> bool:
        """Whether nested loops over rows of `resources` are the best plan for all values.

        So it is for an identifier, a reference or one id, when each of the other tests looks up single entries.
        """
        if any(sort.kind in ("text", "quantity") for sort in self._query.sort):
            return False
        tests = [term.test for number, term in enumerate(self._query.terms) if number != self._driver]
        if not (self._driver is not None and self._is_selective):
            ids = [test for test in tests if isinstance(test, IdIn) and len(test.ids) == 1]
            if not ids:
                return False
            tests.remove(ids[0])
        return all(is_probe(one, Mode.PROBES) for one in tests)

    def _index_scan(self) -> IndexScan | None:
        """The index scan that answers the query, apart from its order."""
        return index_scan_of(self._query, self._driver, self._conditions, self._is_selective)

    def _set_of(self, number: int) -> str:
        """SELECT of the rids that pass one term."""
        return self._conditions.rids(self._query.terms[number].test, self._query.resource_type)

    @property
    def _scan_rid(self) -> str:
        return "d.rid" if self._driver is not None else "r.rid"

    def _from(self) -> str:
        return "resources r" if self._driver is None else "index_text d JOIN resources r ON r.rid = d.rid"

    def _where(self) -> list[str]:
        type_ = self._query.resource_type
        found = [self._conditions.live("r", type_)]
        for number, term in enumerate(self._query.terms):
            if number == self._driver and isinstance(term.test, TextEquals):
                found.append(self._conditions.driven(term.test, type_))
            else:
                found.append(self._conditions.test(term.test, type_))
        return found

    def _order(self) -> tuple[str, list[SortKey]]:
        joins, keys = "", []
        for number, sort in enumerate(self._query.sort):
            if sort.kind == "id":
                keys.append(SortKey("r.id", sort.descending, False, str, "text"))
            elif sort.kind == "last_updated":
                keys.append(SortKey("r.last_updated", sort.descending, False, _aware, "timestamptz"))
            else:
                joins += self._sort_join(number, sort)
                keys.append(SortKey(f"o{number}.k", sort.descending, True, *READERS[sort.kind]))
        return joins, keys

    def _sort_join(self, number: int, sort: Sort) -> str:
        best = f"{'max' if sort.descending else 'min'}(t.{SORT_VALUES[sort.kind]}) AS k"
        entry = self._conditions.entry("t", self._query.resource_type, sort.code, *sort.others)
        if sort.kind == "date":
            found = f"SELECT {best} FROM index_date t WHERE {entry} AND t.rid = r.rid"
            return f" LEFT JOIN LATERAL ({found}) o{number} ON true"
        found = f"SELECT t.rid, {best} FROM {TABLES[sort.kind]} t WHERE {entry} GROUP BY t.rid"
        return f" LEFT JOIN ({found}) o{number} ON o{number}.rid = r.rid"

    def _order_by(self, names: Sequence[str] | None = None) -> str:
        keys = [key.sql for key in self._keys] if names is None else list(names)
        nulls = " NULLS FIRST" if self._backwards else " NULLS LAST"
        found = [
            f"{name}{' DESC' if key.descending else ''}{nulls if key.nullable else ''}"
            for name, key in zip(keys, self._keys, strict=True)
        ]
        rid = self._scan_rid if names is None else "r.rid"
        return ", ".join([*found, f"{rid} DESC" if self._descending() else rid])

    def _descending(self) -> bool:
        if self._is_descending is not None:
            return self._is_descending != self._backwards
        return self._keys[0].descending if self._keys else self._backwards

    def _after(self, after: Token, rid: str | None = None) -> str:
        """The condition for rows later in the order than `after`; `rid`: the column that the scan is ordered by."""
        if len(after.keys) != len(self._keys):
            raise Problem(Category.VALUE, "the page token belongs to another search", "_cursor")
        rid, sign, last_rid = rid or self._scan_rid, "<" if self._descending() else ">", self._add(after.rid, "bigint")
        one_direction = all(key.descending == self._descending() for key in self._keys)
        if (
            len(self._keys) == 1 and one_direction and not self._keys[0].nullable
        ):  # one row comparison, which an index scan can use
            key, value = self._keys[0], after.keys[0]
            return f"({key.sql}, {rid}) {sign} ({self._read(key, value)}, {last_rid})"
        found = f"{rid} {sign} {last_rid}"
        for key, text in zip(reversed(self._keys), reversed(after.keys), strict=True):
            if text is None:
                found = f"({key.sql} IS {'NOT NULL OR' if self._backwards else 'NULL AND'} {found})"
                continue
            value, further = self._read(key, text), "<" if key.descending else ">"
            last = f" OR {key.sql} IS NULL" if key.nullable and not self._backwards else ""
            found = f"({key.sql} {further} {value}{last} OR ({key.sql} = {value} AND {found}))"
        return found

    def _read(self, key: SortKey, text: str | None) -> str:
        """The placeholder for a key of a token."""
        try:
            return self._add(key.read(text or ""), key.kind)
        except (ValueError, InvalidOperation) as refused:
            raise Problem(Category.VALUE, "the page token cannot be read", "_cursor") from refused


def query_parameters(query: Query) -> set[Parameter]:
    """The search parameters whose numbers the SQL needs."""
    found = set[Parameter]().union(*(predicate_parameters(term.test, query.resource_type) for term in query.terms))
    sorts = (sort for sort in query.sort if sort.kind in TABLES)
    return found | {(query.resource_type, code) for sort in sorts for code in (sort.code, *sort.others)}


def driver(query: Query) -> int | None:
    """The term that drives the index scan: of the single tokens, the one that is likely the rarest."""
    return ranked(query)[0]


def ranked(query: Query) -> tuple[int | None, int]:
    """That term and its selectivity class: 0 identifiers, 1 references, 2 to 4 the others."""
    parameters = definitions().search_parameters(query.resource_type)

    def rank(test: TextEquals) -> int:
        parameter = parameters.get(test.code)
        kind = "" if parameter is None else parameter.type
        if test.code == "identifier":
            return 0
        if kind in ("reference", "uri"):
            return REFERENCE if test.code != "_profile" else 4
        return 3 if test.values[0].endswith("\t") else 2  # without a system: a status, a gender

    tests = [(term.test, n) for n, term in enumerate(query.terms)]
    able = [(rank(test), n) for test, n in tests if isinstance(test, TextEquals) and len(test.values) == 1]
    rank_, number = min(able, default=(4, None))
    return number, rank_


def _key_text(value: Any) -> str | None:
    return value.isoformat() if isinstance(value, datetime) else None if value is None else str(value)


def _aware(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError
    return found


def _number(text: str) -> Decimal:
    found = Decimal(text)
    if found.is_nan():
        raise ValueError
    return found


def _whole(text: str) -> int:
    found = int(text)
    if not -(2**63) <= found < 2**63:
        raise ValueError
    return found


READERS: dict[str, tuple[Callable[[str], Value], str]] = {
    "text": (str, "text"),
    "date": (_whole, "bigint"),
    "quantity": (_number, "numeric"),
}
