"""The store as it will be after the units planned so far: what was answered, with what was planned laid over it.

A unit writes into a layer of its own, which is kept when the whole unit could be planned and forgotten when it could
not; so a failed unit leaves no trace, and later units see earlier ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ipf.fhir.index.extract import extract
from ipf.fhir.model.json import loads
from ipf.fhir.search.match import matches
from ipf.fhir.search.predicate import query_needs_resource
from ipf.ports import Json, Matcher, Version
from ipf.ports.index import EMPTY, Entries, TextEntry
from ipf.ports.search import Query
from ipf.rest.write.prefetch import ConditionKey, Key, Prefetch
from ipf.rest.write.unit import EntryResult, Outcome

_FOUND = Outcome.FOUND


class ReplanNeeded(Exception):
    """The answers do not suffice for this unit after those before it: plan it in the next transaction."""


@dataclass(slots=True)
class State:
    """A resource's current version, with its parsed form and index entries once somebody asked for them."""

    version: Version
    parsed: Json | None = None
    extracted: Entries | None = None

    @property
    def alive(self) -> bool:
        """Whether the resource is not deleted."""
        return not self.version.deleted

    @property
    def resource(self) -> Json | None:
        """The parsed resource; None when deleted."""
        if self.parsed is None and self.alive:
            self.parsed = loads(self.version.body)
        return self.parsed

    @property
    def entries(self) -> Entries:
        """The index entries; none when deleted."""
        if self.extracted is None:
            resource = self.resource
            self.extracted = EMPTY if resource is None else extract(resource)
        return self.extracted

    def meets(self, query: Query) -> bool:
        """Whether the resource is there and answers the query."""
        version = self.version
        whole = self.resource if query.single_token is None and query_needs_resource(query) else None
        at = version.last_updated
        return self.alive and matches(query, self.entries, id=version.id, last_updated=at, resource=whole)


class StoreSnapshot:
    """Reading and writing the planned state; `conditions` are all that may be asked of `matching`.

    `matcher`: which topics are served; None = nobody asks.  `answers`: what creates are answered whose condition met
    one resource, as long as nothing of its type has been written.
    """

    def __init__(
        self, knowledge: Prefetch, conditions: Iterable[tuple[str, Query]], matcher: Matcher | None = None
    ) -> None:
        self.knowledge = knowledge
        self.matcher = matcher
        self._kept: dict[Key, State] = {}
        self._layer: dict[Key, State] = {}
        self.answers: dict[ConditionKey, EntryResult] = {}
        self._found: dict[Key, EntryResult] = {}
        self._written: dict[tuple[str, str], dict[Key, None]] = {}
        self._holders: dict[tuple[str, str, TextEntry], dict[Key, None]] = {}
        self._watched: dict[tuple[str, str], set[TextEntry]] = {}
        for tenant, query in conditions:
            if query.single_token is not None:
                self._watched.setdefault((tenant, query.resource_type), set()).add(query.single_token)

    @property
    def parts(self) -> tuple[dict[Any, Any], ...]:
        """What it is made of, to be emptied when it has served."""
        return self.knowledge.current, self._kept, self._layer, self.answers, self._found, self._written, self._holders

    def state(self, key: Key) -> State | None:
        """The resource as planned so far; None when it never was."""
        state = self._layer.get(key) or self._kept.get(key)
        if state is None:
            version = self.knowledge.current.get(key)
            if version is not None:
                state = self._kept[key] = State(version)
        return state

    def found(self, condition: ConditionKey, key: Key) -> EntryResult:
        """What an If-None-Exist that this resource meets is answered; the same for all units until it is written."""
        written = self._written.get(key[:2], ())
        result = self._found.get(key)
        if result is None or key in written:
            state = self.state(key)
            result = self._found[key] = EntryResult(200, _FOUND, state.version if state else None)
        if not written:
            self.answers[condition] = result
        return result

    def write(self, key: Key, state: State) -> None:
        """Put a new version into the unit's layer."""
        self._layer[key] = state
        tenant, resource_type, _ = key
        kind = tenant, resource_type
        written = self._written.get(kind)
        if written is None:
            written = self._written[kind] = {}
            self.answers = {known: answer for known, answer in self.answers.items() if known[:2] != kind}
        written[key] = None
        watched = self._watched.get(kind)
        if watched:
            for text in watched & state.entries.texts:
                self._holders.setdefault((tenant, resource_type, text), {})[key] = None

    def keep(self) -> None:
        """The unit is planned: later units see its layer."""
        self._kept.update(self._layer)
        self._layer.clear()

    def forget(self) -> None:
        """The unit failed: nobody sees its layer."""
        self._layer.clear()

    def matching(self, condition: ConditionKey, query: Query) -> Sequence[Key]:
        """Resources that answer the query, which has this key, now; two or more meaning that it is ambiguous."""
        tenant = condition[0]
        keys = self.knowledge.matches[condition]
        written = self._written.get((tenant, query.resource_type))
        if not written:
            return keys
        found = [key for key in keys if key not in written or self._meets(key, query)]
        if len(keys) > 1 and len(found) < 2 and any(key in written and key not in self._layer for key in keys):
            raise ReplanNeeded
        if query.single_token is not None:
            written = self._holders.get((tenant, query.resource_type, query.single_token), {})
        found += [key for key in written if key not in found and self._meets(key, query)]
        return found

    def _meets(self, key: Key, query: Query) -> bool:
        state = self.state(key)
        return state is not None and state.meets(query)
