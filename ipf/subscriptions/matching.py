"""Which subscriptions a change fires, at a cost that does not grow with the number of subscriptions.

Each subscription is filed under one of its equality terms (a token, a reference, an id), the rarest one so far; a
changed resource looks up its own index entries there, and the few candidates are verified with the whole query.  Only
subscriptions without any equality term are tried on every change of their resource type.

The index is a cache of rows, replaced as a whole when the epoch of a writer's transaction is not its own
(`ports.Matcher`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from twisted.logger import Logger

from ipf.errors import Problem
from ipf.fhir.index import Entries
from ipf.fhir.match import matches
from ipf.fhir.predicate import AnyOf, IdIn, Test, TextEquals, TextPrefix, TextSuffix
from ipf.fhir.query import Query
from ipf.ports import ActiveSubscription, Change, Matcher
from ipf.subscriptions.criteria import query_of

log = Logger()

FileKey = tuple[str, str]
"""(code, whole index value), (code, first part with its tab), (code, tab with the last part), or ("_id", id)"""


@dataclass(frozen=True, slots=True)
class _Filed:
    """One subscription; `rid` is unique and orders."""

    rid: int
    query: Query


@dataclass(slots=True)
class _Drawer:
    """The subscriptions of one tenant to one resource type.

    `by_key`: filed under an equality.  `heads`, `tails`: codes with keys that are first or last parts only, so that
    these are looked up.
    `always`: without an equality.
    """

    by_key: dict[FileKey, list[_Filed]] = field(default_factory=dict)
    heads: set[str] = field(default_factory=set)
    tails: set[str] = field(default_factory=set)
    always: list[_Filed] = field(default_factory=list)

    def file(self, filed: _Filed) -> None:
        """Put a subscription where the fewest others are."""
        choices = [keys for term in filed.query.terms if (keys := equality_keys(term.test))]
        if not choices:
            self.always.append(filed)
            return
        chosen = min(choices, key=self._crowd)
        for key in chosen:
            self.by_key.setdefault(key, []).append(filed)
            if key[1].endswith("\t"):
                self.heads.add(key[0])
            if key[1].startswith("\t"):
                self.tails.add(key[0])

    def candidates(self, id: str, entries: Entries) -> Iterator[_Filed]:
        """Every subscription that may match, some twice."""
        yield from self.always
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
        return [key for part in parts for key in part] if all(parts) else []
    return []


class MatchingIndex:
    """`ports.Matcher` in memory."""

    def __init__(self) -> None:
        self._epoch = -1
        self._drawers: dict[tuple[str, str], _Drawer] = {}
        self._read: dict[str, Query] = {}

    @property
    def epoch(self) -> int:
        """Epoch of the rows it was built from; -1 before the first load."""
        return self._epoch

    def load(self, epoch: int, subscriptions: Sequence[ActiveSubscription]) -> None:
        """Replace the whole index.  A row that cannot be read (any more) is logged and never fires."""
        self._drawers, before, self._read = {}, self._read, {}
        for subscription in subscriptions:
            criteria = str(subscription.resource.get("criteria"))
            try:
                query = self._read[criteria] = before.get(criteria) or query_of(subscription.resource)
            except Problem as refused:
                text = "event=subscription_unreadable subscription_id={subscription_id} reason={reason}"
                log.warn(text, subscription_id=subscription.id, reason=str(refused))
                continue
            drawer = self._drawers.setdefault((subscription.tenant, query.resource_type), _Drawer())
            drawer.file(_Filed(subscription.rid, query))
        self._epoch = epoch

    def match(self, change: Change) -> list[int]:
        """rids of the subscriptions that `change` fires, in ascending order.  Deletions fire no legacy subscription."""
        version = change.version
        drawer = self._drawers.get((change.tenant, version.resource_type))
        if drawer is None or version.deleted:
            return []
        found: set[int] = set()
        seen: set[int] = set()
        for filed in drawer.candidates(version.id, change.after):
            if filed.rid in seen:
                continue
            seen.add(filed.rid)
            at, whole = version.last_updated, change.resource
            if matches(filed.query, change.after, id=version.id, last_updated=at, resource=whole):
                found.add(filed.rid)
        return sorted(found)


_: type[Matcher] = MatchingIndex
