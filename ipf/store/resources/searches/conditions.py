"""A predicate of `ports/queries/predicates.py` in, an SQL condition on one resource out; values become `Parameters`.

A test on one value of the text index is a probe by (value, rid); dates are probed by rid.  Every other test on index
entries is a set of rids that PostgreSQL computes once, or with `Mode.PROBES` a probe by rid.  Chains are sets as well,
or conditions on the resources at the other end.  Tests that concern the resource itself become conditions that hold
for all candidates: the caller filters them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import count

from ipf.errors import Category, Problem
from ipf.fhir.index.entries import clean
from ipf.fhir.search.evaluation.ucum_bounds import in_unit, ucum_code
from ipf.fhir.search.predicate import inner
from ipf.ports.queries.predicates import (
    AllOf,
    AnyOf,
    Bounds,
    DateRange,
    Filtered,
    Has,
    IdAmong,
    IdIn,
    IndexedWords,
    LastUpdated,
    Linked,
    ManyValues,
    Not,
    Present,
    QuantityIn,
    QuantityRange,
    Test,
    TextAmong,
    TextContains,
    TextEnds,
    TextEquals,
    TextParts,
    TextPrefix,
    TextSuffix,
    TypedIdentifier,
)
from ipf.store.postgres.prepared import Parameters
from ipf.store.postgres.quoting import following, joined
from ipf.store.postgres.symbols import Parameter, SymbolTable
from ipf.store.resources.searches.words import words_query

TABLES = {"text": "index_text", "date": "index_date", "quantity": "index_quantity", "words": "index_words"}
_OPERATORS = {"<": "<", "<=": "<=", ">": ">", ">=": ">="}
_OF_ROWS = IdIn | IdAmong | LastUpdated | Has
_PROBES = 20  # values that are probed one by one; more are computed as a set


@dataclass(frozen=True, slots=True)
class Columns:
    """SQL expressions of an index entry: of its row, or of fields of a composite."""

    val: str
    lo: str
    hi: str
    unit: str
    words: str = ""


class Mode(Enum):
    """How tests are put to the rows of a scan.

    `JOINS`: as the planner likes.  `FENCES`: probes and sets are optimisation fences: PostgreSQL evaluates them for
    each row of the scan and does not turn them into joins.  It would choose their order by the number of matches,
    which it cannot know for pairs of parameter and value.  `PROBES`: as FENCES, and sets become probes by rid: for few
    rows, or where the scan ends as soon as the page is full.
    """

    JOINS = "joins"
    FENCES = "fences"
    PROBES = "probes"


class Conditions:
    """Builds the conditions of one statement of one tenant.  `units`: the unit texts that occur.  `mode` may change."""

    def __init__(self, partition: int, symbols: SymbolTable, units: Sequence[str] = ()) -> None:
        self.mode = Mode.JOINS
        self.parameters = Parameters()
        self._add = self.parameters.add
        self._partition = self._add(partition, "smallint")
        self._symbols = symbols
        self._units = units
        self._numbers = count(1)

    def live(self, alias: str, resource_type: str) -> str:
        """Rows of `resources` under `alias` that are not deleted and of this type."""
        type_ = self._add(resource_type)
        return f"{alias}.partition_id = {self._partition} AND {alias}.resource_type = {type_} AND NOT {alias}.deleted"

    def entry(self, alias: str, resource_type: str, *codes: str) -> str:
        """Rows of an index under `alias` that belong to these parameters."""
        numbers = sorted(self._symbols.parameter(resource_type, code) for code in codes)
        placeholders = [self._add(number, "smallint") for number in numbers]
        param = f"= {placeholders[0]}" if len(placeholders) == 1 else f"IN ({', '.join(placeholders)})"
        return f"{alias}.partition_id = {self._partition} AND {alias}.param {param}"

    def driven(self, test: TextEquals, resource_type: str) -> str:
        """Rows of the index of texts, under the alias `d`, that have the one value of a test."""
        return f"{self.entry('d', resource_type, test.code)} AND d.val = {self._add(test.values[0])}"

    def test(self, test: Test, resource_type: str, alias: str = "r") -> str:
        """The condition on the row of `resources` under `alias`, which is of this type."""
        match test:
            case TextEquals(_, values) if len(values) <= _PROBES:
                return self._probe(test, resource_type, alias)
            case DateRange() | TextAmong():
                return self._probe(test, resource_type, alias)
            case IdAmong(many):
                return f"({alias}.id IN ({self._many(many)})) IS TRUE"
            case IdIn(ids):
                return f"{alias}.id IN ({', '.join(map(self._add, ids))})"
            case LastUpdated(bounds):
                return self._bounds(bounds, "timestamptz", at=f"{alias}.last_updated")
            case AllOf(tests):
                return "(" + " AND ".join(self.test(one, resource_type, alias) for one in tests) + ")"
            case AnyOf(tests):
                return self._any(tests, resource_type, alias)
            case Not(one):
                return f"NOT {self.test(one, resource_type, alias)}"
            case Linked():
                return self._linked(test, resource_type, alias)
            case Has():
                return self._has(test, resource_type, alias)
            case _ if isinstance(test, Filtered):
                return "true"
        if self._probes(test):
            return self._probe(test, resource_type, alias)
        return self._member(alias, self._set(test, resource_type))

    def rids(self, test: Test, resource_type: str) -> str:
        """SELECT of the rids of resources that pass.

        Tests that are put together become INTERSECT, UNION and EXCEPT.  PostgreSQL computes these in time that grows
        with the number of rows, whatever it expects; joins of several sets it may do by comparing every pair.
        """
        match test:
            case AllOf(tests):
                return self._all_rids(tests, resource_type)
            case AnyOf(tests):
                return " UNION ".join(f"({self.rids(one, resource_type)})" for one in tests)
            case Not(one):
                return f"{self._live_rids(resource_type)} EXCEPT ({self.rids(one, resource_type)})"
            case Linked():
                return self._linked_rids(test, resource_type)
            case _ if isinstance(test, _OF_ROWS | Filtered):
                return f"{self._live_rids(resource_type)} AND {self.test(test, resource_type, 'y')}"
        return self._set(test, resource_type)

    def _all_rids(self, tests: Sequence[Test], resource_type: str) -> str:
        """What a test excludes is taken from what the others select, not from all resources."""
        excluded = [one for one in tests if isinstance(one, Not)]
        selected = [f"({self.rids(one, resource_type)})" for one in tests if not isinstance(one, Not)]
        sets = " INTERSECT ".join(selected or [self._live_rids(resource_type)])
        return sets + "".join(f" EXCEPT ({self.rids(one.test, resource_type)})" for one in excluded)

    def _live_rids(self, resource_type: str) -> str:
        return f"SELECT y.rid FROM resources y WHERE {self.live('y', resource_type)}"

    # -- one index

    def _probes(self, test: Test) -> bool:
        """Whether a set is probed by rid; quantities have no index by rid."""
        return self.mode is Mode.PROBES and _kind_of(test) != "quantity"

    def _probe(self, test: Test, resource_type: str, alias: str) -> str:
        t = self._alias()
        kind, entry = _kind_of(test), self.entry(t, resource_type, *_codes(test))
        # One value is looked up with its rid.  Of a range or a list, PostgreSQL would look up each value, or walk the
        # range; `IS TRUE` leaves the rid.
        many = isinstance(test, TextAmong)
        by_rid = many or (self.mode is not Mode.JOINS and not (isinstance(test, TextEquals) and len(test.values) == 1))
        found = f"{entry} AND {t}.rid = {alias}.rid"
        if not isinstance(test, Present):
            on = self._on(_without_type(test), row(t))
            found += f" AND ({on}) IS TRUE" if by_rid else f" AND {on}"
        return f"EXISTS (SELECT 1 FROM {TABLES[kind]} {t} WHERE {found}{' OFFSET 0' if many else self._fence})"

    @property
    def _fence(self) -> str:
        return "" if self.mode is Mode.JOINS else " OFFSET 0"

    def distinct(self, test: Test, resource_type: str) -> str:
        """SELECT of the rids that pass, each once; `test` is one of a set, or alternatives of these."""
        tests = inner(test) if isinstance(test, AnyOf) else (test,)
        if len(tests) == 1:
            return self._set(test, resource_type, "DISTINCT ")
        return " UNION ".join(self._set(one, resource_type) for one in tests)

    def _any(self, tests: Sequence[Test], resource_type: str, alias: str) -> str:
        sets = [one for one in tests if is_set(one) and not self._probes(one)]
        found = [self.test(one, resource_type, alias) for one in tests if one not in sets]
        if sets:
            union = " UNION ALL ".join(self._set(one, resource_type) for one in sets)
            found.append(self._member(alias, union))
        return f"({' OR '.join(found)})"

    def _member(self, alias: str, rids: str) -> str:
        """Whether the resource is in a set; fenced, the set is computed once and never joined."""
        return f"({alias}.rid IN ({rids}))" + ("" if self.mode is Mode.JOINS else " IS TRUE")

    def _set(self, test: Test, resource_type: str, distinct: str = "") -> str:
        """SELECT of the rids that pass."""
        t = self._alias()
        if isinstance(test, Present):
            entry = self.entry(t, resource_type, test.code)
            return f"SELECT {distinct}{t}.rid FROM {TABLES[test.kind]} {t} WHERE {entry}"
        entry, on = self.entry(t, resource_type, *_codes(test)), self._on(_without_type(test), row(t))
        return f"SELECT {distinct}{t}.rid FROM {TABLES[_kind_of(test)]} {t} WHERE {entry} AND {on}"

    def _on(self, test: Test, at: Columns) -> str:
        """The condition on the columns of one entry."""
        match test:
            case TextEquals(_, (value,)):
                return f"{at.val} = {self._add(value)}"
            case TextEquals(_, values):
                return f"{at.val} = ANY(string_to_array({self._add(joined(values))}, E'\\x1f'))"
            case TextAmong(_, many):
                return f"{at.val} IN ({self._many(many)})"
            case TextPrefix(_, prefix):
                return self._begins(at.val, prefix)
            case TextSuffix(_, suffix):
                return f"right({at.val}, {len(suffix)}) = {self._add(suffix)}"
            case TextContains(_, part):
                return f"strpos(split_part({at.val}, E'\\t', 1), {self._add(part)}) > 0"
            case TextEnds(_, part):
                return f"right(split_part({at.val}, E'\\t', 1), {len(part)}) = {self._add(part)}"
            case DateRange(_, bounds):
                return self._bounds(bounds, "bigint", lo=at.lo, hi=at.hi)
            case QuantityRange(_, bounds, unit_prefix, unit_part):
                unit = f" AND {self._begins(at.unit, unit_prefix)}" if unit_prefix else ""
                part = f" AND strpos({at.unit}, {self._add(unit_part)}) > 0" if unit_part else ""
                return f"{self._bounds(bounds, 'numeric', lo=at.lo, hi=at.hi)}{unit}{part}"
            case QuantityIn():
                return self._in_units(test, at)
            case IndexedWords(_, query):
                return f"{at.words} @@ {self._add(words_query(query))}::tsquery"
            case TextParts(_, parts):
                return " AND ".join([*self._narrowed(at.val, parts), *(self._part(*part, at.val) for part in parts)])
            case AnyOf(tests):
                return "(" + " OR ".join(self._on(one, at) for one in tests) + ")"
            case LastUpdated(()):
                return "false"
        raise Problem(Category.INTERNAL, f"no SQL for {type(test).__name__}")

    def _many(self, many: ManyValues) -> str:
        """SELECT of many values, which PostgreSQL hashes once."""
        return f"SELECT unnest(string_to_array({self._add(joined(many.ordered))}, E'\\x1f'))"

    def _part(self, field: int, test: Test, val: str) -> str:
        def at(offset: int, cast: str = "") -> str:
            return f"split_part({val}, E'\\n', {field + 1 + offset}){cast}"

        cast = "::bigint" if _kind(test) == "date" else "::numeric"
        return self._on(test, Columns(at(0), at(0, cast), at(1, cast), at(2)))

    def _in_units(self, test: QuantityIn, at: Columns) -> str:
        """The bounds in each unit that occurs and has the same dimension."""
        found = []
        for unit in self._units:
            code = ucum_code(unit)
            bounds = None if code is None else in_unit(test.bounds, test.unit, code)
            if bounds is not None:
                where = self._bounds(bounds, "numeric", lo=at.lo, hi=at.hi)
                found.append(f"({at.unit} = {self._add(unit)} AND {where})")
        return f"({' OR '.join(found)})" if found else "false"

    def _narrowed(self, val: str, parts: Sequence[tuple[int, Test]]) -> list[str]:
        """The range of the index that the first component of a composite selects."""
        field, first = parts[0]
        if field == 0 and isinstance(first, TextEquals) and len(first.values) == 1:
            return [self._begins(val, f"{first.values[0]}\n")]
        return [self._begins(val, first.prefix)] if field == 0 and isinstance(first, TextPrefix) else []

    def _begins(self, column: str, prefix: str) -> str:
        """A range condition for a b-tree in collation "C"."""
        if not prefix:
            return "true"
        end = following(prefix)
        upper = "" if end is None else f" AND {column} < {self._add(end)}"
        return f"{column} >= {self._add(prefix)}{upper}"

    def _bounds(self, bounds: Bounds, kind: str, **columns: str) -> str:
        """Alternatives of conjunctions; column names and operators are of a closed set, values are of this SQL type."""
        alternatives = [
            " AND ".join(f"{columns[b.column]} {_OPERATORS[b.operator]} {self._add(b.value, kind)}" for b in every)
            for every in bounds
        ]
        return "(" + " OR ".join(f"({every or 'true'})" for every in alternatives) + ")" if alternatives else "false"

    # -- other resources

    def _linked(self, test: Linked, resource_type: str, alias: str) -> str:
        if self.mode is not Mode.PROBES:
            return self._member(alias, self._linked_rids(test, resource_type))
        t, x = self._alias(), self._alias("x")
        prefix = f"{test.resource_type}/"
        return (
            f"EXISTS (SELECT 1 FROM index_text {t} JOIN resources {x} "
            f"ON {self.live(x, test.resource_type)} AND {x}.id = substr({t}.val, {len(prefix) + 1}) "
            f"WHERE {self.entry(t, resource_type, test.code)} AND ({self._begins(f'{t}.val', prefix)}) IS TRUE "
            f"AND {t}.rid = {alias}.rid AND {self._all(test.tests, test.resource_type, x)}{self._fence})"
        )

    def _linked_rids(self, test: Linked, resource_type: str) -> str:
        """From the other end: the resources there, then those that refer to one of them."""
        t, x, prefix = self._alias(), self._alias("x"), self._add(f"{test.resource_type}/")
        found = self.rids(_all_of(test.tests), test.resource_type)
        ids = f"SELECT {prefix} || {x}.id FROM resources {x} WHERE {x}.rid IN ({found})"
        return (
            f"SELECT {t}.rid FROM index_text {t} WHERE {self.entry(t, resource_type, test.code)} AND {t}.val IN ({ids})"
        )

    def _has(self, test: Has, resource_type: str, alias: str) -> str:
        """From this end in any mode: of many that refer to a resource, one that passes is often found soon."""
        t, x = self._alias(), self._alias("x")
        return (
            f"EXISTS (SELECT 1 FROM index_text {t} JOIN resources {x} "
            f"ON {x}.rid = {t}.rid AND {self.live(x, test.resource_type)} "
            f"WHERE {self.entry(t, test.resource_type, test.code)} "
            f"AND {t}.val = {self._add(resource_type + '/')} || {alias}.id "
            f"AND {self._all(test.tests, test.resource_type, x)}{self._fence})"
        )

    def _all(self, tests: Iterable[Test], resource_type: str, alias: str) -> str:
        return " AND ".join(self.test(one, resource_type, alias) for one in tests)

    def _alias(self, letter: str = "t") -> str:
        return f"{letter}{next(self._numbers)}"


def row(alias: str) -> Columns:
    """The columns of a row of an index table."""
    return Columns(f"{alias}.val", f"{alias}.lo", f"{alias}.hi", f"{alias}.unit", f"{alias}.words")


def predicate_parameters(test: Test, resource_type: str) -> set[Parameter]:
    """The search parameters whose numbers the SQL of a test needs."""
    match test:
        case Linked(code, other, tests):
            return {(resource_type, code)}.union(*(predicate_parameters(one, other) for one in tests))
        case Has(other, code, tests):
            return {(other, code)}.union(*(predicate_parameters(one, other) for one in tests))
        case AllOf() | AnyOf() | Not():
            return set[Parameter]().union(*(predicate_parameters(one, resource_type) for one in inner(test)))
        case _ if isinstance(test, IdIn | IdAmong | LastUpdated | Filtered):
            return set()
    return {(resource_type, code) for code in _codes(test)}


def uses_units(test: Test) -> bool:
    """Whether the SQL of a test depends on the units that occur."""
    if isinstance(test, TextParts):
        return any(uses_units(part) for _, part in test.parts)
    return isinstance(test, QuantityIn) or any(uses_units(one) for one in inner(test))


def _codes(test: Test) -> tuple[str, ...]:
    """The codes that the entries of a test have."""
    code: Callable[[], str] | str | None = getattr(test, "code", None)
    if not isinstance(code, str):
        raise Problem(Category.INTERNAL, f"no SQL for {type(test).__name__}")
    return (code, *test.others) if isinstance(test, TextPrefix) else (code,)


def is_set(test: Test) -> bool:
    """Whether the rids that pass a test are computed as a set."""
    texts = TextPrefix | TextSuffix | TextContains | TextEnds | TextParts | TypedIdentifier
    return isinstance(test, texts | QuantityRange | QuantityIn | IndexedWords | Present)


def _all_of(tests: Sequence[Test]) -> Test:
    return tests[0] if len(tests) == 1 else AllOf(tuple(tests))


def _without_type(test: Test) -> Test:
    """An identifier with a type as its value alone: the type is looked at in the resource."""
    return TextPrefix(test.code, f"{clean(test.value)}\t") if isinstance(test, TypedIdentifier) else test


def _kind_of(test: Test) -> str:
    """The index that the entries of a test are in."""
    match test:
        case Present(_, kind):
            return kind
        case DateRange():
            return "date"
        case QuantityRange() | QuantityIn():
            return "quantity"
        case IndexedWords():
            return "words"
    return "text"


def is_probe(test: Test, mode: Mode) -> bool:
    """Whether a test looks up few entries for each row, so that its plan is the same for all values."""
    if isinstance(test, AllOf | AnyOf | Not):
        return all(is_probe(one, mode) for one in inner(test))
    if mode is not Mode.PROBES:
        return isinstance(test, TextEquals | DateRange)
    if isinstance(test, TextEquals):
        return len(test.values) <= _PROBES  # of a parameter, PostgreSQL would split a longer list for each row
    return _kind_of(test) != "quantity" and all(is_probe(one, mode) for one in inner(test))


def _kind(test: Test) -> str:
    tests = inner(test) or (test,)
    return "date" if isinstance(tests[0], DateRange) else "quantity"
