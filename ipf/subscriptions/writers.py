"""The grants of the creators of Subscriptions, at the moment a change is matched.

Arrives: a change with both versions, and the Subscriptions whose search it matches.  Leaves: the Subscriptions that
may learn of it, and as what.  There is no event of a resource that is hidden from one of the writers, so the numbers of
events have no gaps and count nothing hidden.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ipf.ports import Caller, Change
from ipf.ports.queries.search import Query
from ipf.ports.queries.topics import Topic
from ipf.security.event_access import View, as_create, view_of


class WriterIndex:
    """The writers of each Subscription, by its rid.  Equal callers are kept once."""

    def __init__(self) -> None:
        self._writers: dict[int, tuple[Caller, ...]] = {}
        self._owners: dict[int, Caller] = {}
        self._same: dict[Caller, Caller] = {}

    def put(self, rid: int, writers: Sequence[Caller], owner: Caller | None = None) -> None:
        """Replace the writers of a Subscription.  `owner`: the one that sent the secrets of its channel."""
        self._writers.pop(rid, None)
        self._owners.pop(rid, None)
        if owner is not None:
            self._owners[rid] = self._same.setdefault(owner, owner)
        if writers:
            self._writers[rid] = tuple(self._same.setdefault(one, one) for one in writers)

    def of(self, rid: int) -> Sequence[Caller]:
        """All writers of a Subscription; empty when it was written without authentication."""
        return self._writers.get(rid, ())

    def owner(self, rid: int) -> Caller | None:
        """The caller that sent the secrets of the channel of a Subscription."""
        return self._owners.get(rid)


class ChangeViews:
    """One change as the writers of Subscriptions see it."""

    def __init__(self, change: Change, writers: WriterIndex) -> None:
        self._change = change
        self._writers = writers
        self._views: dict[int, View] = {}

    def visible(self, rids: Iterable[int]) -> list[int]:
        """The Subscriptions that may learn of the new version."""
        return [rid for rid in rids if View.HIDDEN not in self._of(rid)]

    def by_view(self, rids: Iterable[int]) -> list[tuple[Change, list[int]]]:
        """The change as it is and as a create, each with the Subscriptions whose writers see it so.

        When one of the writers sees a create, the change is a create for all: the version before decides nothing.
        """
        whole: list[int] = []
        created: list[int] = []
        for rid in rids:
            views = self._of(rid)
            if View.HIDDEN not in views:
                (created if View.CREATE in views else whole).append(rid)
        return [(self._change, whole), (as_create(self._change), created)] if created else [(self._change, whole)]

    def _of(self, rid: int) -> set[View]:
        writers = self._writers.of(rid)
        return {self._view(one) for one in writers} if writers else {View.WHOLE}

    def _view(self, caller: Caller) -> View:
        view = self._views.get(id(caller))
        if view is None:
            view = self._views[id(caller)] = view_of(caller, self._change)
        return view


def tested_types(queries: Mapping[str, Query], topic: Topic | None) -> dict[str, bool]:
    """By resource type, whether criteria test the content: by a search, a filter, or a trigger of the topic."""
    tested = {name for name, query in queries.items() if query.terms}
    for trigger in topic.triggers if topic is not None else ():
        if trigger.previous is not None or trigger.current is not None or trigger.expression is not None:
            tested.add(trigger.resource_type)
    return {name: name in tested for name in queries}
