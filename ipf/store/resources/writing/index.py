"""The statements that write the difference of index entries: rows of `index_text` and of the others.

A transaction that writes the index rows of a resource holds its row in `resources`, so their order is free.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from ipf.store.postgres.quoting import Statement, array, joined
from ipf.store.postgres.symbols import SymbolTable
from ipf.store.resources.writing.rows import ResourceDelta

_Target = tuple[int, Mapping[str, str], str]
"""Partition, parameter numbers of its type, and rid of a resource."""


@dataclass(frozen=True, slots=True)
class _Index:
    """The statements of one index table, the group of `Entries` that it holds, and which columns are texts.

    `fill` inserts rows of new resources, which have none yet.  `add` and `remove` tolerate rows that exist already or
    are gone already.  The first parameter is the partition, the others are the columns: parameter, values, rid.
    """

    group: str
    texts: tuple[bool, ...]
    fill: Statement
    add: Statement
    remove: Statement


def _index(table: str, group: str, values: Mapping[str, str], stored_as: str = "") -> _Index:
    """`values`: names and types.  `stored_as`: the type of the column of a text.

    Arrays are unnested in the target list: a FROM clause would materialise them.
    """
    columns = {"param": "smallint", **values, "rid": "bigint"}
    types = ", ".join(["smallint", *("text" if type_ == "text" else f"{type_}[]" for type_ in columns.values())])
    taken = ", ".join(
        f"unnest(string_to_array(${n}, E'\\x1f')) AS {name}" if type_ == "text" else f"unnest(${n}) AS {name}"
        for n, (name, type_) in enumerate(columns.items(), 2)
    )
    text = "coalesce({}, '')" + (f"::{stored_as}" if stored_as else "")
    selected = ", ".join(text.format(name) if type_ == "text" else name for name, type_ in columns.items())
    names = ", ".join(["partition_id", *columns])
    rows = f"SELECT partition_id, {selected} FROM (SELECT $1 AS partition_id, {taken}) AS u"
    # By a range of one: for equal rids the planner may read all entries of the resource for each that it removes.
    equal = " AND ".join(f"i.{name} = t.{name}" for name in ("partition_id", "param", *values))
    same = f"{equal} AND i.rid BETWEEN t.rid AND t.rid"
    fill = f"INSERT INTO {table} ({names}) {rows}"
    remove = f"DELETE FROM {table} i USING ({rows}) AS t({names}) WHERE {same}"
    return _Index(
        group,
        tuple(type_ == "text" for type_ in values.values()),
        Statement(f"fhir_fill_{table}", types, fill),
        Statement(f"fhir_add_{table}", types, f"{fill} ON CONFLICT DO NOTHING"),
        Statement(f"fhir_remove_{table}", types, remove),
    )


_INDEXES = (
    _index("index_text", "texts", {"val": "text"}),
    _index("index_date", "dates", {"lo": "bigint", "hi": "bigint"}),
    _index("index_quantity", "quantities", {"lo": "numeric", "hi": "numeric", "unit": "text"}),
    _index("index_words", "words", {"words": "text"}, "tsvector"),
)

STATEMENTS = tuple(statement for index in _INDEXES for statement in (index.fill, index.add, index.remove))


class _Rows:
    """Index rows for one statement, column by column: parameters, the values of the entries, rids."""

    __slots__ = ("params", "rids", "values")

    def __init__(self, index: _Index) -> None:
        self.params: list[str] = []
        self.values: list[list[Any]] = [[] for _ in index.texts]
        self.rids: list[str] = []

    def add(self, entries: Collection[Sequence[Any]], numbers: Mapping[str, str], rid: str) -> None:
        """A row for each entry of one resource."""
        codes, *values = zip(*entries, strict=True)
        self.params += map(numbers.__getitem__, codes)
        self.rids += [rid] * len(codes)
        for column, more in zip(self.values, values, strict=True):
            column += more

    def call(self, statement: Statement, index: _Index, partition: int) -> str:
        """The statement that carries the rows."""
        columns = zip(index.texts, self.values, strict=True)
        values = [joined(column) if is_text else array(map(str, column)) for is_text, column in columns]
        return statement.call(partition, array(self.params), *values, array(self.rids))


def index_calls(deltas: Sequence[ResourceDelta], symbols: SymbolTable) -> Iterator[str]:
    """The statements that bring the index from the state before each delta to the state after it."""
    new, old = [delta for delta in deltas if delta.is_new], [delta for delta in deltas if not delta.is_new]
    targets = [_target(delta, symbols) for delta in new]
    for index in _INDEXES:
        group = attrgetter(index.group)
        found = [(group(delta.last.after), target) for delta, target in zip(new, targets, strict=True)]
        yield from _calls(index, index.fill, found)
        if old:
            yield from _difference_calls(index, old, symbols)


def _difference_calls(index: _Index, old: Sequence[ResourceDelta], symbols: SymbolTable) -> Iterator[str]:
    group = attrgetter(index.group)
    changes = [(group(delta.first.before), group(delta.last.after), _target(delta, symbols)) for delta in old]
    yield from _calls(index, index.remove, [(before - after, target) for before, after, target in changes])
    yield from _calls(index, index.add, [(after - before, target) for before, after, target in changes])


def _calls(index: _Index, statement: Statement, found: Sequence[tuple[frozenset[Any], _Target]]) -> Iterator[str]:
    """The statement for the entries of each resource, once for each partition."""
    rows: dict[int, _Rows] = {}
    for entries, (partition, numbers, rid) in found:
        if entries:
            if partition not in rows:
                rows[partition] = _Rows(index)
            rows[partition].add(entries, numbers, rid)
    for partition, one in rows.items():
        yield one.call(statement, index, partition)


def _target(delta: ResourceDelta, symbols: SymbolTable) -> _Target:
    version = delta.last.version
    return symbols.partition(delta.last.tenant), symbols.parameter_numbers(version.resource_type), str(version.rid)
