"""The sets of segments that a converted message states: recorded with the Patient or Encounter, and what they end.

The version of the Patient records the sets, so that two messages that change them at one time do not pass each other:
the second is planned again.  It gets a new version of equal content when its sets change.

A Patient into which another one is merged takes over its sets; the other one keeps them for the undoing.

Arrives: the entries of a unit and their outcomes, after their writes.  Leaves: the resources that ended; `MoreNeeded`
when one must be read first.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from typing import Protocol

from ipf.ports import Change, Json, Version
from ipf.ports.queries.field_sources import SegmentSet, SetMove
from ipf.rest.identity.segment_sets import apart, ended, replaced, sets_in, together, with_sets
from ipf.rest.write.entry_names import reference_to
from ipf.rest.write.pending import Pending
from ipf.rest.write.second_look import Key, MoreNeeded, SecondLook
from ipf.rest.write.snapshot import State, StoreSnapshot
from ipf.rest.write.unit import Entry, EntryResult, Outcome

Outcomes = MutableSequence[EntryResult | Pending]


class Write(Protocol):
    """Adds a version of a resource to the unit."""

    def __call__(self, key: Key, state: State | None, resource: Json | None, entry: Entry, sources: str) -> Version:
        """The version."""


class SetPlan:
    """The sets of one unit.  `changes`: its writes so far."""

    def __init__(self, tenant: str, snapshot: StoreSnapshot, changes: Sequence[Change], write: Write) -> None:
        self._tenant = tenant
        self._snapshot = snapshot
        self._changes = changes
        self._write = write
        self._unread: dict[Key, None] = {}

    def run(self, entries: Sequence[Entry], outcomes: Outcomes) -> tuple[EntryResult, ...]:
        """Record the sets; the resources that ended.  The outcome of a Patient that is only written for its sets
        changes.
        """
        found: list[EntryResult] = []
        for number, entry in enumerate(entries):
            if entry.set_move is not None:
                self._move(number, entry, entry.set_move, outcomes)
            if entry.sets:
                found += self._about(number, entry, outcomes)
        if self._unread:  # all at once: each look plans the whole unit again
            raise MoreNeeded(SecondLook(ids=self._unread))
        return tuple(found)

    def _about(self, number: int, entry: Entry, outcomes: Outcomes) -> list[EntryResult]:
        """What the sets of one Patient or Encounter end."""
        owner = reference_to(outcomes[number])
        key = self._key(owner)
        state = self._snapshot.state(key)
        if state is None or state.resource is None:
            return []
        before = sets = sets_in(state.version.sources)
        found: list[EntryResult] = []
        for told in entry.sets:
            ids = [reference_to(outcomes[one]).rpartition("/")[2] for one in told.members]
            sets, left_out = replaced(sets, told, ids)
            ends = [self._end(told, one, owner, entry) for one in left_out]
            found += [one for one in ends if one is not None]
        if sets != before:
            self._record(state, key, with_sets(state.version.sources, sets), entry, outcomes, number)
        return found

    def _move(self, number: int, entry: Entry, move: SetMove, outcomes: Outcomes) -> None:
        """The sets of a Patient after a merge, or after its undoing; the other one keeps what it had."""
        key = self._key(reference_to(outcomes[number]))
        state, other = self._snapshot.state(key), self._snapshot.state((self._tenant, "Patient", move.patient_id))
        if state is None or state.resource is None or other is None:
            return
        before, further = sets_in(state.version.sources), sets_in(other.version.sources)
        sets = apart(before, further) if move.is_undone else together(before, further)
        if sets != before:
            self._record(state, key, with_sets(state.version.sources, sets), entry, outcomes, number)

    def _record(self, state: State, key: Key, sources: str, entry: Entry, outcomes: Outcomes, number: int) -> None:
        """Record the sets in the version that the unit writes, or in a new one."""
        if any(change.version is state.version for change in self._changes):
            state.version.sources = sources
            return
        result = EntryResult(200, Outcome.UPDATED, self._write(key, state, state.resource, entry, sources))
        outcome = outcomes[number]
        if isinstance(outcome, Pending):
            result.kept = outcome.result.kept if outcome.result is not None else ()
            outcome.result = result
        else:
            outcomes[number] = result

    def _end(self, told: SegmentSet, id: str, owner: str, entry: Entry) -> EntryResult | None:
        """End a resource; None: it has ended already, is no longer what the set had, or must be read first."""
        key = self._tenant, told.resource_type, id
        state = self._snapshot.state(key)
        if state is None and key not in self._snapshot.prefetch.absent:
            self._unread[key] = None
        if state is None or state.resource is None:
            return None
        made = ended(state.resource, state.version.sources, owner)
        if made is None:
            return None
        version = self._write(key, state, made[0], entry, made[1])
        return EntryResult(200, Outcome.UPDATED, version, left_out=told.segment)

    def _key(self, reference: str) -> Key:
        resource_type, _, id = reference.partition("/")
        return self._tenant, resource_type, id
