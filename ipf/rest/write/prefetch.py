"""The prefetch: one lookup of everything that the plan of a transaction needs from the store.

Source: ports.Lookup and ports.LookupResult.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType

from ipf.errors import Category, Problem
from ipf.fhir.model.json import dumps
from ipf.fhir.search.language.query import by_token, for_write, parse_criteria
from ipf.fhir.search.predicate import parameters_that_need_store
from ipf.mapping.bundle.identity import token
from ipf.ports import Caller, Json, Lookup, LookupResult, MatchLocks, Version
from ipf.ports.identity import IdentityAnswer, Role
from ipf.ports.queries.entries import NumberedLink
from ipf.ports.queries.search import Query
from ipf.rest.identity.decisions import WITHOUT_SUBJECT
from ipf.rest.write.entry_names import names_elsewhere
from ipf.rest.write.match_locks import add_resources, locks_of
from ipf.rest.write.named_conditions import NamedCondition, Names, with_known_entries, with_known_names
from ipf.rest.write.permission import limited
from ipf.rest.write.references import conditional_references, has_url, make_relative, with_relative_references
from ipf.rest.write.second_look import AnswerKey, Key
from ipf.rest.write.unit import Entry, Method, Unit
from ipf.security.access import Unauthorized

_SEARCH = re.compile(rb'"reference":"[A-Z][A-Za-z]+\?').search
_DELETE, _UPDATE = Method.DELETE, Method.UPDATE  # looking up a member of an Enum is slow
_EAGER_UNITS = 1000
_NEVER_CREATE = frozenset({_DELETE, Method.PATCH})

ConditionKey = tuple[str, str, str]
"""(tenant, resource type, canonical text of the query)"""


EntryLookup = tuple[ConditionKey, Query]


def condition_key(tenant: str, query: Query) -> ConditionKey:
    """Equal for equal queries of one tenant."""
    return tenant, query.resource_type, query.canonical


@dataclass(slots=True)
class PreparedUnit:
    """A unit with its conditional references parsed.

    `references`: the query of each conditional reference.  `texts`: the entries as JSON, to search for references;
    empty when no search is needed.  `keys`: of the conditions of the entries; of an auxiliary resource with one number
    that of its result, which later units of the transaction share.  `lookups`: the searches of each entry, by its
    condition or its identity.  `problem`: a reference or condition is invalid; the unit fails.
    `references_are_read`: False when conditional references were not searched for; when the plan then finds one, it
    raises ReplanNeeded, and `with_references_read` searches for them.
    `named`: the conditions that name other entries, by number; these have no lookups.
    """

    unit: Unit
    references: dict[str, Query]
    texts: tuple[bytes, ...]
    keys: tuple[ConditionKey | None, ...]
    lookups: tuple[Sequence[EntryLookup], ...] = ()
    problem: Problem | None = None
    references_are_read: bool = True
    named: Mapping[int, NamedCondition] = field(default_factory=dict)


def prepare(unit: Unit, *, lazy: bool = False) -> PreparedUnit:
    """Prepare a unit once for all attempts.

    `lazy`: do not search converted messages for conditional references in advance; few have any.  Conditions are
    limited to the caller's grants, so that the response reveals nothing about other resources.
    """
    named: Mapping[int, NamedCondition] = {}
    if any(entry.condition is not None for entry in unit.entries):
        try:
            unit, named = _read_conditions(unit)
        except Problem as refused:
            return PreparedUnit(unit, {}, (), (), (), refused)
    prepared = _prepared(unit, named, lazy)
    prepared.named = named
    return prepared


def _prepared(unit: Unit, named: Collection[int], lazy: bool) -> PreparedUnit:
    tenant, entries = unit.tenant, unit.entries
    lookups = tuple([() if number in named else _lookups(tenant, entry) for number, entry in enumerate(entries)])
    keys = tuple([_result_key(entry, found) for entry, found in zip(entries, lookups, strict=True)])
    for entry in entries:
        query = entry.condition
        if query is not None and query.single_token is None and parameters_that_need_store(query):
            return PreparedUnit(unit, {}, (), keys, lookups, _needs_other_resources(query, entry.place))
    if unit.references is not None:
        lazy = lazy and REFERENCE_HISTORY.may_be_lazy()
        if lazy or not may_be_incomplete(dumps([entry.resource for entry in entries])):
            return PreparedUnit(unit, {}, (), keys, lookups, None, not lazy)
    unit, texts = _with_relative_references(unit)
    references: dict[str, Query] = {}
    names: Names | None = None
    for entry, text in zip(unit.entries, texts, strict=True):
        for reference in conditional_references(entry.resource) if b"?" in text else ():
            if reference not in references:
                names = names or Names.of(unit.entries)
                try:
                    references[reference] = _reference_query(reference, entry, unit, names)
                except Problem as refused:
                    return PreparedUnit(unit, {}, texts, keys, lookups, refused)
    return PreparedUnit(unit, references, texts, keys, lookups)


def _reference_query(reference: str, entry: Entry, unit: Unit, names: Names) -> Query:
    """The search of a conditional reference.  Problem, with the place of its entry, for a refused one."""
    try:
        query = for_write(parse_criteria(reference, base_url=unit.base_url))
        query = limited(with_known_entries(query, entry, unit.entries, names, unit.base_url), unit.caller)
    except Unauthorized as problem:
        problem.place = entry.place
        raise
    except Problem as problem:
        raise Problem(problem.category, f"a conditional reference: {problem.text}", entry.place) from problem
    if parameters_that_need_store(query):
        raise _needs_other_resources(query, entry.place)
    return query


def _read_conditions(unit: Unit) -> tuple[Unit, Mapping[int, NamedCondition]]:
    """The unit with its conditions limited, and the conditions that name entries.  Problem for a refused one."""
    entries, named = unit.entries, dict[int, NamedCondition]()
    if any(entry.full_url is not None for entry in entries):
        entries, named = with_known_names(entries, unit.base_url)
    if not unit.caller.is_unlimited:
        entries = tuple([_limit_condition(entry, unit.caller) for entry in entries])
    return (unit if entries is unit.entries else replace(unit, entries=entries)), named


def _lookups(tenant: str, entry: Entry) -> Sequence[EntryLookup]:
    """The searches that find the resource of an entry, or what may be it."""
    if entry.identity is not None:
        keys = entry.identity.keys
        if entry.identity.role is Role.AUXILIARY:
            queries = [_shared_query(entry.resource_type, key.system, key.value) for key in keys]
        else:
            queries = [identifier_query(entry.resource_type, key.system, key.value) for key in keys]
        found = {(tenant, query.resource_type, query.canonical): query for query in queries}
        return tuple(found.items())
    query = entry.condition
    return () if query is None else (((tenant, query.resource_type, query.canonical), query),)


def identifier_query(resource_type: str, system: str, value: str) -> Query:
    """The search for an identifier by system and value; the type is compared later."""
    short = by_token(resource_type, "identifier", system, value) if system else None
    return short or parse_criteria(f"{resource_type}?identifier={token({'system': system, 'value': value})}")


def link_query(link: NumberedLink) -> Query:
    """The search for the order of a reference by number; for a result, the search for the reports of its order.

    Of any system: senders name the authority in one place and leave it out in another.
    """
    resource_type = "ServiceRequest" if link.resource_type == "ServiceRequest" else "DiagnosticReport"
    return parse_criteria(f"{resource_type}?identifier={token({'value': link.key.value}).removeprefix('|')}")


_shared_query = lru_cache(maxsize=4096)(identifier_query)
"""The search for a practitioner, a ward or an organization; they repeat often."""


def _result_key(entry: Entry, lookups: Sequence[EntryLookup]) -> ConditionKey | None:
    if entry.identity is None:
        return lookups[0][0] if lookups else None
    if entry.identity.role is not Role.AUXILIARY or entry.resource_type not in WITHOUT_SUBJECT:
        return None
    tenant, resource_type, canonical = lookups[0][0]
    return tenant, resource_type, f"{canonical} {entry.identity.keys[0].type}"


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


def may_be_incomplete(text: bytes) -> bool:
    """Whether compact JSON contains a conditional reference, or one by URL."""
    return (b"?" in text and _SEARCH(text) is not None) or has_url(text)


def _with_relative_references(unit: Unit) -> tuple[Unit, tuple[bytes, ...]]:
    """The unit with relative references to this server, and its entries as JSON.

    Those of a converted message are changed in place: others of its references are completed there.
    """
    if unit.references is not None:
        for one in unit.entries:
            make_relative(one.resource or {}, unit.base_url)
    elsewhere = names_elsewhere(unit.entries, unit.base_url)
    entries, texts = list[Entry](), list[bytes]()
    for entry in unit.entries:
        text = b""
        if entry.resource is not None:
            resource, text = with_relative_references(entry.resource, unit.base_url, elsewhere)
            entry = entry if resource is entry.resource else replace(entry, resource=resource)
        entries.append(entry)
        texts.append(text)
    return replace(unit, entries=tuple(entries)), tuple(texts)


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


def lookup_for(
    prepared_units: Sequence[PreparedUnit], wanted: Mapping[ConditionKey, tuple[str, Query]] = MappingProxyType({})
) -> Lookup:
    """The lookup of all ids, conditions and receipts of the units, without duplicates.

    `wanted`: conditions that an earlier plan was found to need.
    """
    ids: dict[Key, None] = {}
    conditions: dict[ConditionKey, tuple[str, Query]] = dict(wanted)
    receipts: dict[tuple[str, str], None] = {}
    for prepared in prepared_units:
        if prepared.problem is not None:
            continue
        tenant = prepared.unit.tenant
        if prepared.unit.receipt is not None:
            receipts[tenant, prepared.unit.receipt] = None
        for entry, lookups in zip(prepared.unit.entries, prepared.lookups, strict=True):
            if entry.id is not None:
                ids[tenant, entry.resource_type, entry.id] = None
            for key, query in lookups:
                if key not in conditions:
                    conditions[key] = tenant, query
        for entry in prepared.unit.entries:
            for link in entry.numbered:
                query = link_query(link)
                conditions[condition_key(tenant, query)] = tenant, query
        for query in prepared.references.values():
            conditions[condition_key(tenant, query)] = tenant, query
    return Lookup(tuple(ids), tuple(conditions.values()), tuple(receipts))


@dataclass(slots=True)
class Prefetch:
    """Lookup results: current versions, matches of each condition (the newest of many), stored receipts.

    `absent`: resources that were looked for and never existed.  `answers`: of operators, None = there is none.
    `locked`: the conditions whose match keys are locked.
    """

    current: dict[Key, Version] = field(default_factory=dict)
    matches: dict[ConditionKey, tuple[Key, ...]] = field(default_factory=dict)
    receipts: frozenset[tuple[str, str]] = frozenset()
    absent: set[Key] = field(default_factory=set)
    answers: dict[AnswerKey, IdentityAnswer | None] = field(default_factory=dict)
    locked: set[ConditionKey] = field(default_factory=set)

    @staticmethod
    def of(lookup: Lookup, results: LookupResult) -> Prefetch:
        """The results by key."""
        prefetch = Prefetch(receipts=results.receipts)
        prefetch.add_ids(lookup.ids, results.by_id)
        prefetch.add_matches(lookup.conditions, results.by_condition)
        return prefetch

    def add_ids(self, ids: Sequence[Key], versions: Iterable[Version | None]) -> None:
        """Add the current versions of resources."""
        for key, version in zip(ids, versions, strict=True):
            if version is not None:
                self.current[key] = version
            else:
                self.absent.add(key)

    def add_locked(self, conditions: Sequence[tuple[str, Query]], results: Iterable[Sequence[Version]]) -> None:
        """Add the matches of conditions that were read after their match keys were locked."""
        self.add_matches(conditions, results)
        self.locked.update(condition_key(tenant, query) for tenant, query in conditions)

    def add_matches(self, conditions: Sequence[tuple[str, Query]], results: Iterable[Sequence[Version]]) -> None:
        """Add the matches of conditions; later results replace earlier ones."""
        for (tenant, query), versions in zip(conditions, results, strict=True):
            keys = tuple([(tenant, version.resource_type, version.id) for version in versions])
            self.matches[tenant, query.resource_type, query.canonical] = keys
            for key, version in zip(keys, versions, strict=True):
                self.current[key] = version

    def creating_conditions(
        self, prepared_units: Sequence[PreparedUnit], wanted: Mapping[ConditionKey, tuple[str, Query]]
    ) -> tuple[list[tuple[str, Query]], MatchLocks]:
        """Conditions without a match of entries that will create a resource, and what must be locked for them.

        Those of a Patient that has a match by another number too: else two messages could give one number to two.
        `wanted`: conditions that an earlier plan was found to need; those of the units are locked as well.
        """
        conditions: dict[ConditionKey, tuple[str, Query]] = {key: wanted[key] for key in wanted if key in self.matches}
        created: list[tuple[str, Json]] = []
        for prepared in prepared_units:
            unit = prepared.unit
            is_done = unit.receipt is not None and (unit.tenant, unit.receipt) in self.receipts
            if is_done or prepared.problem is not None:
                continue
            for number, (entry, lookups) in enumerate(zip(unit.entries, prepared.lookups, strict=True)):
                if entry.method in _NEVER_CREATE:
                    continue
                missing = [(key, query) for key, query in lookups if not self.matches[key] or key in wanted]
                if len(missing) == len(lookups) or entry.method is _UPDATE:
                    conditions.update((key, (unit.tenant, query)) for key, query in missing)
                    if entry.condition is not None and (missing or number in prepared.named):
                        created.append((unit.tenant, entry.resource or {}))
        locks = locks_of(conditions.values())
        add_resources(locks, created)
        return [conditions[key] for key in sorted(conditions)], locks

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
        for entry, lookups in zip(entries, prepared.lookups, strict=True):
            if entry.method is _DELETE:
                return sum(one.resource is not None for one in entries)
            if lookups:
                count += not any(self.matches[key] for key, _ in lookups)
            elif entry.id is None or (tenant, entry.resource_type, entry.id) not in self.current:
                count += 1
        return count


def ambiguous(place: str | None) -> Problem:
    """The refusal of a condition with more than one match."""
    return Problem(Category.AMBIGUOUS, "the condition matches more than one resource", place)
