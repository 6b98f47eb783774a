"""The prefetch: one lookup of everything that the plan of a transaction needs from the store.

Source: ports.Lookup and ports.LookupResult.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from ipf.errors import Category, Problem
from ipf.fhir.model.json import dumps
from ipf.fhir.search.predicate import parameters_that_need_store
from ipf.fhir.search.query import parse_criteria
from ipf.ports import Caller, Lookup, LookupResult, Version
from ipf.ports.search import Query
from ipf.rest.write.permission import limited
from ipf.rest.write.references import conditional_references
from ipf.rest.write.unit import Entry, Method, Unit
from ipf.security.access import Unauthorized

Key = tuple[str, str, str]
"""(tenant, resource type, id)"""

_SEARCH = re.compile(rb'"reference":"[A-Z][A-Za-z]+\?').search
_DELETE = Method.DELETE  # looking up a member of an Enum is slow
_EAGER_UNITS = 1000
_NEVER_CREATE = frozenset({_DELETE, Method.PATCH})

ConditionKey = tuple[str, str, str]
"""(tenant, resource type, canonical text of the query)"""


def condition_key(tenant: str, query: Query) -> ConditionKey:
    """Equal for equal queries of one tenant."""
    return tenant, query.resource_type, query.canonical


@dataclass(slots=True)
class PreparedUnit:
    """A unit with its conditional references parsed.

    `references`: the query of each conditional reference.  `texts`: the entries as JSON, to search for references;
    empty when no search is needed.  `keys`: of the conditions of the entries.  `problem`: a reference or condition is
    invalid; the unit fails.  `references_are_read`: False when conditional references were not searched for; when the
    plan then finds one, it raises ReplanNeeded, and `with_references_read` searches for them.
    """

    unit: Unit
    references: dict[str, Query]
    texts: tuple[bytes, ...]
    keys: tuple[ConditionKey | None, ...]
    problem: Problem | None = None
    references_are_read: bool = True


def prepare(unit: Unit, *, lazy: bool = False) -> PreparedUnit:
    """Prepare a unit once for all attempts.

    `lazy`: do not search converted messages for conditional references in advance; few have any.  Conditions are
    limited to the caller's grants, so that the response reveals nothing about other resources.
    """
    if not unit.caller.is_unlimited and any(entry.condition is not None for entry in unit.entries):
        try:
            unit = replace(unit, entries=tuple([_limit_condition(entry, unit.caller) for entry in unit.entries]))
        except Problem as beyond:
            return PreparedUnit(unit, {}, (), (), beyond)
    tenant, entries = unit.tenant, unit.entries
    conditions = [entry.condition for entry in entries]
    keys = tuple([None if query is None else (tenant, query.resource_type, query.canonical) for query in conditions])
    for query, entry in zip(conditions, entries, strict=True):
        if query is not None and query.single_token is None and parameters_that_need_store(query):
            return PreparedUnit(unit, {}, (), keys, _needs_other_resources(query, entry.place))
    if unit.references is not None:
        lazy = lazy and REFERENCE_HISTORY.may_be_lazy()
        if lazy or not has_conditional_reference(dumps([entry.resource for entry in entries])):
            return PreparedUnit(unit, {}, (), keys, None, not lazy)
    texts = tuple([dumps(entry.resource) if entry.resource is not None else b"" for entry in entries])
    references: dict[str, Query] = {}
    for entry, text in zip(entries, texts, strict=True):
        if b"?" not in text:
            continue
        for reference in conditional_references(entry.resource):
            if reference not in references:
                try:
                    references[reference] = limited(parse_criteria(reference), unit.caller)
                except Unauthorized as problem:
                    problem.place = entry.place
                    return PreparedUnit(unit, {}, texts, keys, problem)
                except Problem as problem:
                    refusal = Problem(problem.category, f"a conditional reference: {problem.text}", entry.place)
                    return PreparedUnit(unit, {}, texts, keys, refusal)
                if parameters_that_need_store(references[reference]):
                    return PreparedUnit(
                        unit, {}, texts, keys, _needs_other_resources(references[reference], entry.place)
                    )
    return PreparedUnit(unit, references, texts, keys)


def with_references_read(prepared: PreparedUnit) -> PreparedUnit:
    """The unit with its conditional references searched for."""
    if prepared.references_are_read:
        return prepared
    again = prepare(prepared.unit)
    if again.references or again.problem is not None:
        REFERENCE_HISTORY.eager_units = _EAGER_UNITS
    return again


class _ReferenceHistory:
    """After a unit with an unexpected conditional reference, the next units are searched in advance."""

    def __init__(self) -> None:
        self.eager_units = 0

    def may_be_lazy(self) -> bool:
        """Whether the next unit may be lazy; counts the unit."""
        if self.eager_units:
            self.eager_units -= 1
            return False
        return True


REFERENCE_HISTORY = _ReferenceHistory()


def has_conditional_reference(text: bytes) -> bool:
    """Whether compact JSON contains a conditional reference."""
    return b"?" in text and _SEARCH(text) is not None


def _limit_condition(entry: Entry, caller: Caller) -> Entry:
    """The entry with its condition limited to the caller's grants.  Problem UNAUTHORIZED."""
    if entry.condition is None:
        return entry
    try:
        condition = limited(entry.condition, caller)
    except Unauthorized as problem:
        problem.place = entry.place
        raise
    return entry if condition is entry.condition else replace(entry, condition=condition)


def _needs_other_resources(query: Query, place: str | None) -> Problem:
    """The refusal of a condition on other resources, since it cannot see resources of the same transaction."""
    names = ", ".join(parameters_that_need_store(query))
    text = f"the condition of a write may test the resource itself only: {names} cannot be used"
    return Problem(Category.NOT_SUPPORTED, text, place)


def lookup_for(prepared_units: Sequence[PreparedUnit]) -> Lookup:
    """The lookup of all ids, conditions and receipts of the units, without duplicates."""
    ids: dict[Key, None] = {}
    conditions: dict[ConditionKey, tuple[str, Query]] = {}
    receipts: dict[tuple[str, str], None] = {}
    for prepared in prepared_units:
        if prepared.problem is not None:
            continue
        tenant = prepared.unit.tenant
        if prepared.unit.receipt is not None:
            receipts[tenant, prepared.unit.receipt] = None
        for entry, key in zip(prepared.unit.entries, prepared.keys, strict=True):
            if entry.id is not None:
                ids[tenant, entry.resource_type, entry.id] = None
            if entry.condition is not None and key is not None and key not in conditions:
                conditions[key] = tenant, entry.condition
        for query in prepared.references.values():
            conditions[condition_key(tenant, query)] = tenant, query
    return Lookup(tuple(ids), tuple(conditions.values()), tuple(receipts))


@dataclass(slots=True)
class Prefetch:
    """Lookup results: current versions, matches of each condition (at most two), stored receipts."""

    current: dict[Key, Version] = field(default_factory=dict)
    matches: dict[ConditionKey, tuple[Key, ...]] = field(default_factory=dict)
    receipts: frozenset[tuple[str, str]] = frozenset()

    @staticmethod
    def of(lookup: Lookup, results: LookupResult) -> Prefetch:
        """The results by key."""
        prefetch = Prefetch(receipts=results.receipts)
        for key, version in zip(lookup.ids, results.by_id, strict=True):
            if version is not None:
                prefetch.current[key] = version
        prefetch.add_matches(lookup.conditions, results.by_condition)
        return prefetch

    def add_matches(self, conditions: Sequence[tuple[str, Query]], results: Iterable[Sequence[Version]]) -> None:
        """Add the matches of conditions; later results replace earlier ones."""
        for (tenant, query), versions in zip(conditions, results, strict=True):
            keys = tuple([(tenant, version.resource_type, version.id) for version in versions])
            self.matches[tenant, query.resource_type, query.canonical] = keys
            for key, version in zip(keys, versions, strict=True):
                self.current[key] = version

    def creating_conditions(self, prepared_units: Sequence[PreparedUnit]) -> list[tuple[str, Query]]:
        """Conditions without a match of entries that will create a resource; they must be locked."""
        conditions: dict[ConditionKey, tuple[str, Query]] = {}
        for prepared in prepared_units:
            tenant = prepared.unit.tenant
            is_done = prepared.unit.receipt is not None and (tenant, prepared.unit.receipt) in self.receipts
            if is_done or prepared.problem is not None:
                continue
            for entry, key in zip(prepared.unit.entries, prepared.keys, strict=True):
                if key is None or entry.condition is None or self.matches[key] or entry.method in _NEVER_CREATE:
                    continue
                conditions[key] = tenant, entry.condition
        return [conditions[key] for key in sorted(conditions)]

    def rids_needed(self, prepared_units: Sequence[PreparedUnit]) -> int:
        """Number of resources that the units will create.

        The plan may need more, when a unit changes the match of another unit's condition; it then raises ReplanNeeded.
        """
        return sum(self._creations(prepared) for prepared in prepared_units)

    def _creations(self, prepared: PreparedUnit) -> int:
        tenant, entries = prepared.unit.tenant, prepared.unit.entries
        if prepared.problem is not None:
            return 0
        count = 0
        for entry, key in zip(entries, prepared.keys, strict=True):
            if entry.method is _DELETE:
                return sum(one.resource is not None for one in entries)
            if key is not None:
                count += not self.matches[key]
            elif entry.id is None or (tenant, entry.resource_type, entry.id) not in self.current:
                count += 1
        return count


def ambiguous(place: str | None) -> Problem:
    """The refusal of a condition with more than one match."""
    return Problem(Category.AMBIGUOUS, "the condition matches more than one resource", place)
