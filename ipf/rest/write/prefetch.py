"""What a plan must know of the store, asked for once for all units of a transaction, and the answers laid out to read.

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
_DELETE = Method.DELETE  # a member of an Enum takes a third of a microsecond to look up
_LOOKED_THROUGH_AFTERWARDS = 1000
_NEVER_CREATE = frozenset({_DELETE, Method.PATCH})

ConditionKey = tuple[str, str, str]
"""(tenant, resource type, canonical text of the query)"""


def condition_key(tenant: str, query: Query) -> ConditionKey:
    """Equal for queries that ask the same."""
    return tenant, query.resource_type, query.canonical


@dataclass(slots=True)
class Question:
    """A unit with what was read out of its resources: conditional references by their text, and by entry.

    `refused` is set when one of them cannot be read: the unit fails, the others go on.  `texts` are the entries as
    JSON, so that a reference can be looked for without walking the resource; none when nothing is to be looked for.
    `keys` are those of their conditions.  `is_looked_through`: False when conditional references were not looked for; a
    resource that is to be written and has one then makes the plan say Again, and `looked_through` is asked.
    """

    unit: Unit
    references: dict[str, Query]
    texts: tuple[bytes, ...]
    keys: tuple[ConditionKey | None, ...]
    refused: Problem | None = None
    is_looked_through: bool = True


def question(unit: Unit, *, later: bool = False) -> Question:
    """Read a unit once; the result serves every attempt.  `later`: conditional references may be looked for when they
    turn up, where nothing else has to be looked for: converted messages seldom have any, and look much alike.

    Its conditions find what the caller may find, and no more: else the answer would tell what others hold.
    """
    if not unit.caller.is_unlimited and any(entry.condition is not None for entry in unit.entries):
        try:
            unit = replace(unit, entries=tuple([_within_limits(entry, unit.caller) for entry in unit.entries]))
        except Problem as beyond:
            return Question(unit, {}, (), (), beyond)
    tenant, entries = unit.tenant, unit.entries
    asked = [entry.condition for entry in entries]
    keys = tuple([None if query is None else (tenant, query.resource_type, query.canonical) for query in asked])
    for query, entry in zip(asked, entries, strict=True):
        if query is not None and query.single_token is None and parameters_that_need_store(query):
            return Question(unit, {}, (), keys, _follows(query, entry.place))
    if unit.references is not None:
        later = later and HABIT.may_wait()
        if later or not has_search(dumps([entry.resource for entry in entries])):
            return Question(unit, {}, (), keys, None, not later)
    texts = tuple([dumps(entry.resource) if entry.resource is not None else b"" for entry in entries])
    found: dict[str, Query] = {}
    for entry, text in zip(entries, texts, strict=True):
        if b"?" not in text:
            continue
        for reference in conditional_references(entry.resource):
            if reference not in found:
                try:
                    found[reference] = limited(parse_criteria(reference), unit.caller)
                except Unauthorized as problem:
                    problem.place = entry.place
                    return Question(unit, {}, texts, keys, problem)
                except Problem as problem:
                    refused = Problem(problem.category, f"a conditional reference: {problem.text}", entry.place)
                    return Question(unit, {}, texts, keys, refused)
                if parameters_that_need_store(found[reference]):
                    return Question(unit, {}, texts, keys, _follows(found[reference], entry.place))
    return Question(unit, found, texts, keys)


def looked_through(asked: Question) -> Question:
    """The same with its conditional references, when they were not looked for."""
    if asked.is_looked_through:
        return asked
    found = question(asked.unit)
    if found.references or found.refused is not None:
        HABIT.left = _LOOKED_THROUGH_AFTERWARDS
    return found


class _Habit:
    """Whether units of late had conditional references: then those after them are looked through at once."""

    def __init__(self) -> None:
        self.left = 0

    def may_wait(self) -> bool:
        """For one unit; counts it."""
        if self.left:
            self.left -= 1
            return False
        return True


HABIT = _Habit()


def has_search(text: bytes) -> bool:
    """Whether a conditional reference stands in compact JSON; the name of a member is never within another text."""
    return b"?" in text and _SEARCH(text) is not None


def _within_limits(entry: Entry, caller: Caller) -> Entry:
    """The entry with a condition that finds what the caller may find.  Problem UNAUTHORIZED."""
    if entry.condition is None:
        return entry
    try:
        condition = limited(entry.condition, caller)
    except Unauthorized as refused:
        refused.place = entry.place
        raise
    return entry if condition is entry.condition else replace(entry, condition=condition)


def _follows(query: Query, place: str | None) -> Problem:
    """The refusal of a condition that other resources answer, since those that are planned beside it do not count."""
    names = ", ".join(parameters_that_need_store(query))
    text = f"the condition of a write is put to the resource alone: {names} cannot be used"
    return Problem(Category.NOT_SUPPORTED, text, place)


def asks_for(questions: Sequence[Question]) -> Lookup:
    """Everything that the units need to know, without repeats."""
    ids: dict[Key, None] = {}
    conditions: dict[ConditionKey, tuple[str, Query]] = {}
    receipts: dict[tuple[str, str], None] = {}
    for asked in questions:
        if asked.refused is not None:
            continue
        tenant = asked.unit.tenant
        if asked.unit.receipt is not None:
            receipts[tenant, asked.unit.receipt] = None
        for entry, key in zip(asked.unit.entries, asked.keys, strict=True):
            if entry.id is not None:
                ids[tenant, entry.resource_type, entry.id] = None
            if entry.condition is not None and key is not None and key not in conditions:
                conditions[key] = tenant, entry.condition
        for query in asked.references.values():
            conditions[condition_key(tenant, query)] = tenant, query
    return Lookup(tuple(ids), tuple(conditions.values()), tuple(receipts))


@dataclass(slots=True)
class Prefetch:
    """The answers: current versions, who meets each condition (two at most), receipts that are there."""

    current: dict[Key, Version] = field(default_factory=dict)
    matches: dict[ConditionKey, tuple[Key, ...]] = field(default_factory=dict)
    receipts: frozenset[tuple[str, str]] = frozenset()

    @staticmethod
    def of(asks: Lookup, answers: LookupResult) -> Prefetch:
        """Lay out the answers by what they answer."""
        known = Prefetch(receipts=answers.receipts)
        for key, version in zip(asks.ids, answers.by_id, strict=True):
            if version is not None:
                known.current[key] = version
        known.learn(asks.conditions, answers.by_condition)
        return known

    def learn(self, conditions: Sequence[tuple[str, Query]], answers: Iterable[Sequence[Version]]) -> None:
        """Take in answers to conditions; later ones replace earlier ones."""
        for (tenant, query), found in zip(conditions, answers, strict=True):
            keys = tuple([(tenant, version.resource_type, version.id) for version in found])
            self.matches[tenant, query.resource_type, query.canonical] = keys
            for key, version in zip(keys, found, strict=True):
                self.current[key] = version

    def would_create(self, questions: Sequence[Question]) -> list[tuple[str, Query]]:
        """Conditions of entries that will create because nothing matches: those to be serialised."""
        found: dict[ConditionKey, tuple[str, Query]] = {}
        for asked in questions:
            tenant = asked.unit.tenant
            is_done = asked.unit.receipt is not None and (tenant, asked.unit.receipt) in self.receipts
            if is_done or asked.refused is not None:
                continue
            for entry, key in zip(asked.unit.entries, asked.keys, strict=True):
                if key is None or entry.condition is None or self.matches[key] or entry.method in _NEVER_CREATE:
                    continue
                found[key] = tenant, entry.condition
        return [found[key] for key in sorted(found)]

    def rids_needed(self, questions: Sequence[Question]) -> int:
        """How many resources the units will create.

        Planning may need more, when a unit takes away what another one's condition met, and then says Again.
        """
        return sum(self._creations(asked) for asked in questions)

    def _creations(self, asked: Question) -> int:
        tenant, entries = asked.unit.tenant, asked.unit.entries
        if asked.refused is not None:
            return 0
        count = 0
        for entry, key in zip(entries, asked.keys, strict=True):
            if entry.method is _DELETE:
                return sum(one.resource is not None for one in entries)
            if key is not None:
                count += not self.matches[key]
            elif entry.id is None or (tenant, entry.resource_type, entry.id) not in self.current:
                count += 1
        return count


def ambiguous(place: str | None) -> Problem:
    """The refusal of a condition that more than one resource meets."""
    return Problem(Category.AMBIGUOUS, "the condition matches more than one resource", place)
