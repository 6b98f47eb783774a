"""The conditions of a unit that name other entries, once these entries have their resources.

The condition is searched with the `Type/id` of the resource.  Its search, and its lock against double creates, are not
in the prefetch: the plan asks for them, and the transaction begins anew with them (`second_look.py`).

Source: https://hl7.org/fhir/R4/http.html#trules
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from ipf.errors import Problem
from ipf.ports.queries.search import Query
from ipf.rest.write.entry_names import EntryOutcome, reference_to
from ipf.rest.write.named_conditions import Names, refusal, with_names
from ipf.rest.write.pending import Pending
from ipf.rest.write.permission import limited
from ipf.rest.write.prefetch import ConditionKey, PreparedUnit, condition_key
from ipf.rest.write.second_look import MoreNeeded, SecondLook
from ipf.rest.write.snapshot import StoreSnapshot
from ipf.rest.write.unit import Entry, Method

_DEEPEST = 8  # entries, each of which is identified by the next


class ConditionPlan:
    """The conditions of one unit that name other entries."""

    def __init__(self, prepared: PreparedUnit, snapshot: StoreSnapshot) -> None:
        self._unit = prepared.unit
        self._named = prepared.named
        self._names = Names.of(prepared.unit.entries) if prepared.named else Names()
        self._snapshot = snapshot
        self._open: list[int] = []
        self._wanted = SecondLook()

    def __contains__(self, number: int) -> bool:
        """Whether the condition of this entry names others."""
        return number in self._named

    @contextmanager
    def complete(self) -> Iterator[None]:
        """Around the identification of all entries.  MoreNeeded if a search was not in the prefetch.

        Until then the plan goes on without a match, to find all that it needs; what fails so has not failed yet.
        """
        try:
            yield
        except Problem:
            if not self._wanted:
                raise
        if self._wanted:
            raise MoreNeeded(self._wanted)

    @contextmanager
    def targets(self, number: int) -> Iterator[list[int]]:
        """The entries that the condition of an entry names.  Problem VALUE when these name it in turn."""
        entry = self._unit.entries[number]
        if number in self._open:
            raise refusal(entry, "the conditions of the two name each other")
        if len(self._open) >= _DEEPEST:
            raise refusal(entry, f"more than {_DEEPEST} entries are each identified by the next")
        self._open.append(number)
        try:
            yield list(dict.fromkeys(self._names.numbers[name] for name in self._named[number].names))
        finally:
            self._open.pop()

    def resolved(self, number: int, outcomes: Sequence[EntryOutcome | None]) -> tuple[Entry, ConditionKey]:
        """The entry with the condition that is meant, and its key.  `outcomes`: of the entries that it names."""
        entry, named = self._unit.entries[number], self._named[number]
        references: dict[str, str | None] = {}
        stored: dict[str, str | None] = {}
        for name in named.names:
            outcome = outcomes[self._names.numbers[name]]
            reference = "" if outcome is None else reference_to(outcome)
            if not reference:
                raise refusal(entry, "the other one has no resource")
            references[name] = reference
            stored[name] = None if isinstance(outcome, Pending) and outcome.has_new_id else reference
        whole = self._query(number, references)
        if whole is None:
            raise refusal(entry, "it has no value")
        key = condition_key(self._unit.tenant, whole)
        self._look_up(entry, key, self._query(number, stored))
        self._snapshot.prefetch.locked.add(key)  # with what is stored for it; until then the transaction begins anew
        return replace(entry, condition=whole), key

    def _query(self, number: int, references: dict[str, str | None]) -> Query | None:
        query = with_names(self._named[number].query, references, self._names, self._unit.base_url)
        return None if query is None else limited(query, self._unit.caller)

    def _look_up(self, entry: Entry, key: ConditionKey, query: Query | None) -> None:
        """Make what is stored for `query` the matches of the condition; None: nothing can be."""
        prefetch = self._snapshot.prefetch
        if query is None:
            prefetch.matches[key] = ()
            return
        stored = condition_key(self._unit.tenant, query)
        if stored in prefetch.locked:
            prefetch.matches[key] = prefetch.matches[stored]
            return
        self._wanted.locks[stored] = (self._unit.tenant, query)
        if entry.method is Method.PATCH:
            raise MoreNeeded(self._wanted)
        prefetch.matches[key] = ()
