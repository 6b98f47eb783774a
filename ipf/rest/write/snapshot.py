"""A snapshot of the store, with the writes of the units planned so far.

Each unit writes into its own layer, which is accepted when the whole unit is planned and discarded when it fails.  A
failed unit has no effect; later units see earlier ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ipf.fhir.index.extract import extract
from ipf.fhir.model.json import dumps, loads
from ipf.fhir.search.evaluation.match import matches
from ipf.fhir.search.predicate import query_needs_resource
from ipf.ports import MATCH_LIMIT, Json, Matcher, Version
from ipf.ports.queries.index import EMPTY, Entries, TextEntry
from ipf.ports.queries.search import Query
from ipf.rest.write.prefetch import ConditionKey, Prefetch
from ipf.rest.write.second_look import Key
from ipf.rest.write.stamp import is_equal_content, stamp
from ipf.rest.write.unit import EntryResult, Outcome
from ipf.subscriptions.endpoint_names import KnownNames

_FOUND = Outcome.FOUND


class ReplanNeeded(Exception):
    """The prefetch does not suffice for this unit after earlier ones; plan it in the next transaction."""


@dataclass(slots=True)
class State:
    """The current version of a resource; its parsed form and index entries are computed on demand."""

    version: Version
    parsed: Json | None = None
    extracted: Entries | None = None

    @property
    def exists(self) -> bool:
        """Whether the resource is not deleted."""
        return not self.version.deleted

    @property
    def resource(self) -> Json | None:
        """The parsed resource; None when deleted."""
        if self.parsed is None and self.exists:
            self.parsed = loads(self.version.body)
        return self.parsed

    @property
    def entries(self) -> Entries:
        """The index entries; none when deleted."""
        if self.extracted is None:
            resource = self.resource
            self.extracted = EMPTY if resource is None else extract(resource)
        return self.extracted

    def is_unchanged_by(self, resource: Json) -> bool:
        """Whether the current version has equal content; equal bytes are compared first."""
        version = self.version
        stamped = stamp(resource, version.id, version.version_id, version.last_updated)
        if dumps(stamped) == version.body:
            return True
        stored = self.resource
        return stored is not None and is_equal_content(stamped, stored)

    def matches_query(self, query: Query) -> bool:
        """Whether the resource exists and matches the query."""
        version = self.version
        resource = self.resource if query.single_token is None and query_needs_resource(query) else None
        at = version.last_updated
        return self.exists and matches(query, self.entries, id=version.id, last_updated=at, resource=resource)


class StoreSnapshot:
    """Reads and writes of the planned state; `conditions`: all conditions that `matching` may be called with.

    `matcher`: gives the served topics; None = not needed.  `names`: of endpoints.
    `found_results`: results of conditional creates with one match, as long as no resource of the type has been written.
    """

    def __init__(
        self,
        prefetch: Prefetch,
        conditions: Iterable[tuple[str, Query]],
        matcher: Matcher | None = None,
        names: KnownNames | None = None,
    ) -> None:
        self.prefetch = prefetch
        self.matcher = matcher
        self.names = names
        self._planned: dict[Key, State] = {}
        self._unit_layer: dict[Key, State] = {}
        self.found_results: dict[ConditionKey, EntryResult] = {}
        self._results: dict[Key, EntryResult] = {}
        self._written: dict[tuple[str, str], dict[Key, None]] = {}
        self._holders: dict[tuple[str, str, TextEntry], dict[Key, None]] = {}
        self._watched_tokens: dict[tuple[str, str], set[TextEntry]] = {}
        for tenant, query in conditions:
            if query.single_token is not None:
                self._watched_tokens.setdefault((tenant, query.resource_type), set()).add(query.single_token)

    @property
    def parts(self) -> tuple[dict[Any, Any], ...]:
        """Its containers, to be emptied after use."""
        return (
            self.prefetch.current,
            self._planned,
            self._unit_layer,
            self.found_results,
            self._results,
            self._written,
            self._holders,
        )

    def state(self, key: Key) -> State | None:
        """The planned state of a resource; None when it never existed."""
        state = self._unit_layer.get(key) or self._planned.get(key)
        if state is None:
            version = self.prefetch.current.get(key)
            if version is not None:
                state = self._planned[key] = State(version)
        return state

    def found_result(self, condition: ConditionKey, key: Key) -> EntryResult:
        """The result of an If-None-Exist that this resource matches; shared until the resource is written."""
        written = self._written.get(key[:2], ())
        result = self._results.get(key)
        if result is None or key in written:
            state = self.state(key)
            result = self._results[key] = EntryResult(200, _FOUND, state.version if state else None)
        if not written:
            self.found_results[condition] = result
        return result

    def write(self, key: Key, state: State) -> None:
        """Write a new version into the unit's layer."""
        self._unit_layer[key] = state
        tenant, resource_type, _ = key
        kind = tenant, resource_type
        written = self._written.get(kind)
        if written is None:
            written = self._written[kind] = {}
            self.found_results = {known: answer for known, answer in self.found_results.items() if known[:2] != kind}
        written[key] = None
        watched = self._watched_tokens.get(kind)
        if watched:
            for text in watched & state.entries.texts:
                self._holders.setdefault((tenant, resource_type, text), {})[key] = None

    def accept_unit(self) -> None:
        """Accept the unit's layer: later units see it."""
        self._planned.update(self._unit_layer)
        self._unit_layer.clear()

    def discard_unit(self) -> None:
        """Discard the unit's layer."""
        self._unit_layer.clear()

    def matching(self, condition: ConditionKey, query: Query) -> Sequence[Key]:
        """Keys of the resources that match the query with this key; of many, the newest MATCH_LIMIT."""
        tenant = condition[0]
        keys = self.prefetch.matches[condition]
        written = self._written.get((tenant, query.resource_type))
        if not written:
            return keys
        found = [key for key in keys if key not in written or self._matches(key, query)]
        if len(keys) >= MATCH_LIMIT > len(found) and any(
            key in written and key not in self._unit_layer for key in keys
        ):
            raise ReplanNeeded
        if query.single_token is not None:
            written = self._holders.get((tenant, query.resource_type, query.single_token), {})
        found += [key for key in written if key not in found and self._matches(key, query)]
        return found

    def _matches(self, key: Key, query: Query) -> bool:
        state = self.state(key)
        return state is not None and state.matches_query(query)
