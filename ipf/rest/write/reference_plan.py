"""The references of the resources of a unit, completed once each entry has its resource.

Links to entries become `Type/id`, and so do conditional references: each means the one resource, stored or of the same
unit, that it matches.

Source: https://hl7.org/fhir/R4/http.html#trules
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from ipf.errors import Category, Problem
from ipf.fhir.index.extract import extract
from ipf.fhir.search.evaluation.match import matches
from ipf.ports import Json
from ipf.ports.queries.search import Query
from ipf.rest.write.entry_names import EntryNames
from ipf.rest.write.links import rewrite
from ipf.rest.write.pending import Pending
from ipf.rest.write.prefetch import ConditionKey, PreparedUnit, condition_key
from ipf.rest.write.references import conditional_references
from ipf.rest.write.second_look import Key
from ipf.rest.write.snapshot import StoreSnapshot
from ipf.rest.write.stamp import stamp
from ipf.rest.write.unit import Entry


class ReferencePlan:
    """The references of one unit.  `pending`: its resources; `by_condition`: those that were found by a condition."""

    def __init__(
        self,
        prepared: PreparedUnit,
        snapshot: StoreSnapshot,
        now: datetime,
        pending: Mapping[Key, Pending],
        by_condition: Mapping[ConditionKey, Pending],
    ) -> None:
        self._prepared = prepared
        self._snapshot = snapshot
        self._now = now
        self._pending = pending
        self._by_condition = by_condition
        self._resolved: dict[str, str] = {}  # conditional references, resolved once per unit

    def complete(self, pending: Pending, names: EntryNames | None) -> Json:
        """The resource with its references completed; `names` None: they have been completed in place."""
        resource = pending.entry.resource or {}
        if names is None:
            return resource
        text = pending.text
        searches: dict[str, str] = {}
        if self._prepared.references and b"?" in text:
            for reference in conditional_references(resource):
                if reference not in self._resolved:
                    self._resolved[reference] = self._resolve(reference, pending.entry)
                searches[reference] = self._resolved[reference]
        if not searches and (
            self._prepared.unit.references is not None or not any(mark in text for mark in names.search_bytes)
        ):
            return resource
        return rewrite(resource, names.with_searches(searches))

    def _resolve(self, reference: str, entry: Entry) -> str:
        """`Type/id` of the one resource, stored or of this unit, that a conditional reference matches."""
        query = self._prepared.references[reference]
        condition = condition_key(self._prepared.unit.tenant, query)
        earlier = self._by_condition.get(condition)
        if earlier is not None:
            return f"{earlier.key[1]}/{earlier.key[2]}"
        stored = self._snapshot.matching(condition, query)
        found = [key for key in stored if key not in self._pending]
        found += [key for key, pending in self._pending.items() if self._will_match(pending, query)]
        if len(found) == 1:
            return f"{found[0][1]}/{found[0][2]}"
        reason = "matches nothing" if not found else "matches more than one resource"
        category = Category.PRECONDITION if not found else Category.AMBIGUOUS
        raise Problem(category, f"a conditional reference to {query.resource_type} {reason}", entry.place)

    def _will_match(self, pending: Pending, query: Query) -> bool:
        resource, key = pending.entry.resource, pending.key
        if key[1] != query.resource_type or resource is None:
            return False
        stamped = stamp(resource, key[2], 1, self._now)
        return matches(query, extract(stamped), id=key[2], last_updated=self._now, resource=stamped)
