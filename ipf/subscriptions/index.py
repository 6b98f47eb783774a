"""An index of searches: a changed resource finds the searches that it may match without evaluating all of them.

Each search is stored in the buckets of one of its equality terms (a token, a reference, an id), the term with the
smallest buckets.  A changed resource looks up the buckets of its own index entries.  Searches without an equality term
are candidates for every change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from ipf.ports.queries.index import Entries
from ipf.ports.queries.predicates import AnyOf, IdIn, Test, TextEquals, TextPrefix, TextSuffix
from ipf.ports.queries.search import Query

BucketKey = tuple[str, str]
"""(code, index value), (code, first part and tab), (code, tab and last part), or ("_id", id)"""


class Item(Protocol):
    """An indexed item; `number` is unique in its index."""

    @property
    def number(self) -> int:
        """Identifies the item for removal."""


T = TypeVar("T", bound=Item)


@dataclass(slots=True)
class CriteriaIndex(Generic[T]):
    """Items by bucket.

    `prefix_codes`, `suffix_codes`: number of keys, by code, that are a first or last part only.
    `unkeyed`: items without an equality term.  `keys`: the buckets of each other item, by its number.
    """

    buckets: dict[BucketKey, list[T]] = field(default_factory=dict)
    prefix_codes: dict[str, int] = field(default_factory=dict)
    suffix_codes: dict[str, int] = field(default_factory=dict)
    unkeyed: dict[int, T] = field(default_factory=dict)
    keys: dict[int, Sequence[BucketKey]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.unkeyed) + len(self.keys)

    def add(self, item: T, query: Query | None) -> None:
        """Add an item under the equality term of its query with the smallest buckets."""
        terms = query.terms if query is not None else ()
        choices = [keys for term in terms if (keys := equality_keys(term.test))]
        if not choices:
            self.unkeyed[item.number] = item
            return
        keys = choices[0] if len(choices) == 1 else min(choices, key=self._largest_bucket)
        self.keys[item.number] = keys
        for key in keys:
            self.buckets.setdefault(key, []).append(item)
            self._count(key, 1)

    def remove(self, number: int) -> None:
        """Remove an item; no effect when it is absent."""
        if self.unkeyed.pop(number, None) is not None:
            return
        for key in self.keys.pop(number, ()):
            rest = [one for one in self.buckets[key] if one.number != number]
            if rest:
                self.buckets[key] = rest
            else:
                del self.buckets[key]
            self._count(key, -1)

    def candidates(self, id: str, entries: Entries) -> Iterator[T]:
        """Every item that a resource with this id and these entries may match, some of them twice."""
        yield from self.unkeyed.values()
        buckets, prefix_codes, suffix_codes = self.buckets, self.prefix_codes, self.suffix_codes
        if not buckets:
            return
        yield from buckets.get(("_id", id), ())
        for entry in entries.texts:
            if entry in buckets:
                yield from buckets[entry]
            if entry[0] in prefix_codes:
                prefix, separator, suffix = entry[1].partition("\t")
                if suffix:  # without a suffix, the prefix is the whole value, which was looked up above
                    yield from buckets.get((entry[0], prefix + separator), ())
            if entry[0] in suffix_codes:
                prefix, separator, suffix = entry[1].partition("\t")
                if prefix:
                    yield from buckets.get((entry[0], separator + suffix), ())

    def _count(self, key: BucketKey, step: int) -> None:
        for codes, partial in (
            (self.prefix_codes, key[1].endswith("\t")),
            (self.suffix_codes, key[1].startswith("\t")),
        ):
            if partial:
                codes[key[0]] = codes.get(key[0], 0) + step
                if not codes[key[0]]:
                    del codes[key[0]]

    def _largest_bucket(self, keys: Sequence[BucketKey]) -> int:
        return max(len(self.buckets.get(key, ())) for key in keys) + len(keys) - 1


def equality_keys(test: Test) -> list[BucketKey]:
    """Keys of which a resource that passes the test has at least one; empty when the test has no equality."""
    if isinstance(test, TextEquals):
        return [(test.code, value) for value in test.values]
    if isinstance(test, TextPrefix) and test.prefix.find("\t") == len(test.prefix) - 1:
        return [(test.code, test.prefix)]
    if isinstance(test, TextSuffix):
        return [(test.code, test.suffix)]
    if isinstance(test, IdIn):
        return [("_id", id) for id in test.ids]
    if isinstance(test, AnyOf):
        parts = [equality_keys(part) for part in test.tests]
        return list(dict.fromkeys(key for part in parts for key in part)) if all(parts) else []
    return []
