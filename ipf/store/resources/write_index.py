"""Index entries in, the statements that write the difference out: rows of `index_text`, `index_date`, `index_quantity`.

The rows of one resource are written by whoever holds its row in `resources`, so their order is free.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from ipf.store.postgres.quoting import Statement, array, joined
from ipf.store.postgres.symbols import Names
from ipf.store.resources.write_rows import Span

_Place = tuple[int, Mapping[str, str], str]
"""Partition, numbers of the parameters of its type, and rid of a resource"""


@dataclass(frozen=True, slots=True)
class _Index:
    """The statements of one index table, the group of `Entries` that it holds, and which columns are texts.

    `fill`: rows of resources that are new, so that no row can be there already (a fifth of the cost of the whole commit
    is saved by not looking).  `add`, `remove`: rows that are there already, or gone already, are no error.  The first
    parameter is the partition, the others are the columns: the parameter, the values, the rid.
    """

    group: str
    texts: tuple[bool, ...]
    fill: Statement
    add: Statement
    remove: Statement


def _index(table: str, group: str, values: Mapping[str, str]) -> _Index:
    """`values`: names and types.  The arrays are taken apart in the target list: a FROM clause would store them."""
    columns = {"param": "smallint", **values, "rid": "bigint"}
    types = ", ".join(["smallint", *("text" if type_ == "text" else f"{type_}[]" for type_ in columns.values())])
    taken = ", ".join(
        f"unnest(string_to_array(${n}, E'\\x1f')) AS {name}" if type_ == "text" else f"unnest(${n}) AS {name}"
        for n, (name, type_) in enumerate(columns.items(), 2)
    )
    selected = ", ".join(f"coalesce({name}, '')" if type_ == "text" else name for name, type_ in columns.items())
    names = ", ".join(["partition_id", *columns])
    rows = f"SELECT partition_id, {selected} FROM (SELECT $1 AS partition_id, {taken}) AS u"
    same = " AND ".join(f"i.{name} = t.{name}" for name in ("partition_id", *columns))
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


def index_calls(spans: Sequence[Span], names: Names) -> Iterator[str]:
    """The statements that bring the index from what was before each span to what is after it."""
    new, old = [span for span in spans if span.is_new], [span for span in spans if not span.is_new]
    places = [_place(span, names) for span in new]
    for index in _INDEXES:
        group = attrgetter(index.group)
        found = [(group(span.last.after), place) for span, place in zip(new, places, strict=True)]
        yield from _calls(index, index.fill, found)
        if old:
            yield from _difference_calls(index, old, names)


def _difference_calls(index: _Index, old: Sequence[Span], names: Names) -> Iterator[str]:
    group = attrgetter(index.group)
    changes = [(group(span.first.before), group(span.last.after), _place(span, names)) for span in old]
    yield from _calls(index, index.remove, [(before - after, place) for before, after, place in changes])
    yield from _calls(index, index.add, [(after - before, place) for before, after, place in changes])


def _calls(index: _Index, statement: Statement, found: Sequence[tuple[frozenset[Any], _Place]]) -> Iterator[str]:
    """The statement for the entries of each resource, once for each partition."""
    rows: dict[int, _Rows] = {}
    for entries, (partition, numbers, rid) in found:
        if entries:
            if partition not in rows:
                rows[partition] = _Rows(index)
            rows[partition].add(entries, numbers, rid)
    for partition, one in rows.items():
        yield one.call(statement, index, partition)


def _place(span: Span, names: Names) -> _Place:
    version = span.last.version
    return names.partition(span.last.tenant), names.numbers(version.resource_type), str(version.rid)
