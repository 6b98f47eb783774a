"""Where searches are filed, so that a changed resource finds the few that it may meet without trying all.

Each item is filed under one of its equality terms (a token, a reference, an id), the rarest one so far; a changed
resource looks up its own index entries.  Only items without any equality term are candidates for every change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from ipf.ports.index import Entries
from ipf.ports.predicates import AnyOf, IdIn, Test, TextEquals, TextPrefix, TextSuffix
from ipf.ports.search import Query

FileKey = tuple[str, str]
"""(code, whole index value), (code, first part with its tab), (code, tab with the last part), or ("_id", id)"""


class Item(Protocol):
    """What is filed: `number` is unique in its shelf."""

    @property
    def number(self) -> int:
        """By which it is taken away again."""


T = TypeVar("T", bound=Item)


@dataclass(slots=True)
class Shelf(Generic[T]):
    """Items by their keys.

    `heads`, `tails`: codes with keys that are first or last parts only, with how many, so that these are looked up.
    `always`: items without an equality.  `keys`: where each of the others is.
    """

    by_key: dict[FileKey, list[T]] = field(default_factory=dict)
    heads: dict[str, int] = field(default_factory=dict)
    tails: dict[str, int] = field(default_factory=dict)
    always: dict[int, T] = field(default_factory=dict)
    keys: dict[int, Sequence[FileKey]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.always) + len(self.keys)

    def put(self, item: T, query: Query | None) -> None:
        """File an item, which the resources that meet the query may want, where the fewest others are."""
        terms = query.terms if query is not None else ()
        choices = [keys for term in terms if (keys := equality_keys(term.test))]
        if not choices:
            self.always[item.number] = item
            return
        chosen = choices[0] if len(choices) == 1 else min(choices, key=self._crowd)
        self.keys[item.number] = chosen
        for key in chosen:
            self.by_key.setdefault(key, []).append(item)
            self._count(key, 1)

    def take(self, number: int) -> None:
        """Take an item away; nothing when it is not there."""
        if self.always.pop(number, None) is not None:
            return
        for key in self.keys.pop(number, ()):
            left = [one for one in self.by_key[key] if one.number != number]
            if left:
                self.by_key[key] = left
            else:
                del self.by_key[key]
            self._count(key, -1)

    def candidates(self, id: str, entries: Entries) -> Iterator[T]:
        """Every item that may be wanted by the resource with this id and these entries, some twice."""
        yield from self.always.values()
        by_key, heads, tails = self.by_key, self.heads, self.tails
        if not by_key:
            return
        yield from by_key.get(("_id", id), ())
        for text in entries.texts:
            if text in by_key:
                yield from by_key[text]
            if text[0] in heads:
                head, tab, system = text[1].partition("\t")
                if system:  # without a system the head is the whole value, looked up already
                    yield from by_key.get((text[0], head + tab), ())
            if text[0] in tails:
                head, tab, system = text[1].partition("\t")
                if head:
                    yield from by_key.get((text[0], tab + system), ())

    def _count(self, key: FileKey, step: int) -> None:
        for codes, partial in ((self.heads, key[1].endswith("\t")), (self.tails, key[1].startswith("\t"))):
            if partial:
                codes[key[0]] = codes.get(key[0], 0) + step
                if not codes[key[0]]:
                    del codes[key[0]]

    def _crowd(self, keys: Sequence[FileKey]) -> int:
        return max(len(self.by_key.get(key, ())) for key in keys) + len(keys) - 1


def equality_keys(test: Test) -> list[FileKey]:
    """Keys of which a resource has at least one when it passes the test; empty when there are none to be had."""
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
