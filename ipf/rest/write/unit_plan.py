"""The plan of one unit: the resource of each entry, the completed references, the new versions.

The order is that of R4: deletions, creates, updates.  Then references to other entries and conditional references are
completed, and every changed resource becomes a new version.

Source: https://hl7.org/fhir/R4/http.html#trules, #ccreate, #cond-update, #3.1.0.7.1 (conditional delete)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import NoReturn, cast

from ipf.errors import Category, Problem
from ipf.fhir.index.extract import extract
from ipf.fhir.model.json import dumps
from ipf.fhir.topics.basic import TOPIC_TYPES, topic_in
from ipf.fhir.topics.topic import is_served, read_topic
from ipf.mapping.bundle.orders import ORDER
from ipf.ports import Change, Json, SubscriptionCreator, Version
from ipf.ports.queries.index import EMPTY
from ipf.ports.queries.topics import Topic
from ipf.rest.identity.kept_elements import with_retained
from ipf.rest.identity.omitted import keep_omitted
from ipf.rest.write.access_check import access_check_of
from ipf.rest.write.condition_plan import ConditionPlan
from ipf.rest.write.created import Created
from ipf.rest.write.entry_names import EntryNames, complete_references, names_of, reference_to, restore_names
from ipf.rest.write.identity_plan import IdentityPlan
from ipf.rest.write.ids import new_id
from ipf.rest.write.numbered_links import NumberedLinks, with_parents
from ipf.rest.write.pending import Pending, interaction, result_of
from ipf.rest.write.prefetch import ConditionKey, PreparedUnit, ambiguous, may_be_incomplete
from ipf.rest.write.reference_plan import ReferencePlan
from ipf.rest.write.references import with_relative_references, written_targets
from ipf.rest.write.second_look import Key, MoreNeeded, SecondLook
from ipf.rest.write.set_plan import SetPlan
from ipf.rest.write.snapshot import ReplanNeeded, State, StoreSnapshot
from ipf.rest.write.stamp import stamp
from ipf.rest.write.subscription_plan import SubscriptionPlan
from ipf.rest.write.unit import Entry, EntryResult, Method, Outcome, UnitResult

_RANK = {Method.DELETE: 0, Method.CREATE: 1, Method.UPDATE: 2, Method.PATCH: 2}
_HTTP_METHOD = {Method.DELETE: "DELETE", Method.CREATE: "POST", Method.UPDATE: "PUT", Method.PATCH: "PATCH"}
# Looking up a member of an Enum is slow, and a message needs a hundred of them.
_DELETE, _CREATE, _UPDATE, _PATCH = Method.DELETE, Method.CREATE, Method.UPDATE, Method.PATCH
_CREATED, _UPDATED, _UNCHANGED = Outcome.CREATED, Outcome.UPDATED, Outcome.UNCHANGED
_FOUND, _DELETED = Outcome.FOUND, Outcome.DELETED


class UnitPlan:
    """The plan of one unit."""

    def __init__(self, prepared: PreparedUnit, snapshot: StoreSnapshot, now: datetime, rids: Iterator[int]) -> None:
        self.prepared = prepared
        self.unit = prepared.unit
        self.snapshot = snapshot
        self.now = now
        self.rids = rids
        self._access_check = access_check_of(prepared.unit.caller)
        self.changes: list[Change] = []
        self._entries = list(prepared.unit.entries)
        self._found: list[EntryResult | Pending | None] = []
        self._pending: dict[Key, Pending] = {}
        self._created = Created(now)
        self._deleted: set[Key] = set()
        self._references = ReferencePlan(prepared, snapshot, now, self._pending, self._created.by_condition)
        self._conditions = ConditionPlan(prepared, snapshot)
        self._subscriptions = SubscriptionPlan(prepared.unit, snapshot.matcher, snapshot.names)
        self._identities = IdentityPlan(prepared, snapshot) if prepared.unit.is_conversion else None

    def run(self) -> UnitResult:
        """Results in the order of the entries; after any exception the caller discards the layer."""
        if self.prepared.problem is not None:
            raise self.prepared.problem
        entries, links = self.unit.entries, self.unit.references
        if links:
            restore_names(links, entries)
        with self._conditions.complete():
            outcomes = self._identify_all(entries)
        if links:
            complete_references(links, outcomes)
        NumberedLinks(self.unit.tenant, self.snapshot).complete(entries, outcomes)
        names = None if links is not None and not self.prepared.references else names_of(entries, outcomes)
        for pending in self._pending.values():
            if not pending.entry.targets_unit:
                self._write_if_changed(pending, names)
        if self._subscriptions.hosts:
            raise MoreNeeded(SecondLook(hosts=self._subscriptions.hosts))
        self._add_parents(entries, outcomes)
        ended = SetPlan(self.unit.tenant, self.snapshot, self.changes, self._write).run(entries, outcomes)
        if any(entry.targets_unit for entry in entries):
            self._write_provenance(outcomes, names)
        both = zip(self._entries, outcomes, strict=True)
        results = tuple([end if isinstance(end, EntryResult) else result_of(entry, end) for entry, end in both])
        if self._identities is None:
            return UnitResult(results)
        return UnitResult(
            results,
            warnings=tuple(self._identities.warnings),
            differences=tuple(self._identities.differences),
            ended=ended,
        )

    # -- the resource of each entry

    def _identify_all(self, entries: Sequence[Entry]) -> list[EntryResult | Pending]:
        """The resource or result of each entry, determined in the processing order of R4.

        Of a converted message the Patients come first, since the subject of all else is checked against them.
        """
        keys = self.prepared.keys
        ranks = [_RANK[entry.method] for entry in entries]
        may_use_found_results = self._access_check is None and 0 not in ranks
        found_results: dict[ConditionKey, EntryResult] = self.snapshot.found_results if may_use_found_results else {}
        found = self._found = [None] * len(entries)
        if self._identities is not None and 0 not in ranks:
            for number in self._identities.order(entries):
                end = found[number] = self._identify(number)
                self._identities.add_patient(entries[number], reference_to(end).rpartition("/")[2])
        for rank in (0, 1, 2):
            if rank not in ranks:
                continue
            if rank == 2:
                self._find_patched()
            for number, key in enumerate(keys):
                if ranks[number] == rank and found[number] is None:
                    known = found_results.get(key) if key is not None and rank == 1 else None
                    found[number] = end = self._identify(number) if known is None else known
                    if self._identities is not None and entries[number].resource_type in (ORDER, "DiagnosticReport"):
                        self._identities.orders[entries[number].full_url or ""] = reference_to(end)
        return cast(list[EntryResult | Pending], found)

    def _find_patched(self) -> None:
        """Ask for all resources to patch that are found by conditions which name other entries.

        A patch needs its resource at once, so that each alone would cost a transaction that begins anew.
        """
        for number, entry in enumerate(self.unit.entries):
            if entry.method is Method.PATCH and number in self._conditions:
                with suppress(MoreNeeded):
                    self._named(number)

    def _identify(self, number: int) -> EntryResult | Pending:
        entry, condition, texts = self.unit.entries[number], self.prepared.keys[number], self.prepared.texts
        text = texts[number] if texts else b""
        if number in self._conditions:
            entry, condition = self._named(number)
        if entry.identity is not None:
            return self._by_identity(number, entry, text, condition)
        if entry.method is _CREATE:
            return self._create(entry, text, condition)
        if entry.method is _DELETE:
            return self._delete(entry, condition)
        if entry.patch is not None:
            return self._patch(entry, entry.patch, condition)
        return self._update(entry, text, condition)

    def _named(self, number: int) -> tuple[Entry, ConditionKey]:
        """An entry and the key of its condition, which names other entries; these are identified first."""
        with self._conditions.targets(number) as targets:
            for target in targets:
                if self._found[target] is None:
                    self._found[target] = self._identify(target)
        self._entries[number], key = self._conditions.resolved(number, self._found)
        return self._entries[number], key

    def _by_identity(
        self, number: int, entry: Entry, text: bytes, result_key: ConditionKey | None
    ) -> EntryResult | Pending:
        """An entry of a converted message: update what is there, or leave it when it is written once."""
        identity, plan = entry.identity, self._identities
        if identity is None or plan is None:
            raise RuntimeError("an entry with an identity belongs to a converted message")
        warned = len(plan.warnings)
        key = plan.match(number, identity)
        if key is None:
            self._check_locked(number)
            return self._new(entry, text, None)
        state = self.snapshot.state(key)
        if entry.method is _UPDATE or state is None or not state.exists:
            for further in plan.further.get(number, ()):
                self._plan_write(entry, text, further)
            return self._plan_write(entry, text, key)
        if result_key is not None and len(plan.warnings) == warned:
            return self.snapshot.found_result(result_key, key)
        return EntryResult(200, _FOUND, state.version)

    def _check_condition_locked(self, entry: Entry, condition: ConditionKey | None) -> None:
        """As `_check_locked`, for the condition of an entry: what it matched may be gone since."""
        if condition is not None and entry.condition is not None and condition not in self.snapshot.prefetch.locked:
            raise MoreNeeded(SecondLook(locks={condition: (self.unit.tenant, entry.condition)}))

    def _check_locked(self, number: int) -> None:
        """A resource may be new only while the match keys of its identifiers are locked.  MoreNeeded otherwise."""
        locked, tenant = self.snapshot.prefetch.locked, self.unit.tenant
        missing = {key: (tenant, query) for key, query in self.prepared.lookups[number] if key not in locked}
        if missing:
            raise MoreNeeded(SecondLook(locks=missing))

    def _delete(self, entry: Entry, condition: ConditionKey | None) -> EntryResult:
        key = self._key(entry.resource_type, entry.id) if entry.id is not None else None
        if condition is not None:
            found = self._matching(entry, condition)
            key = found[0] if found else None
        state = self._state(entry, key) if key is not None else None
        self._check_version(entry, state)
        if key is not None and (self.unit.distinct or (state is not None and state.exists)):
            self._refuse_deleted(key, entry)
            self._deleted.add(key)
        if key is None or state is None or not state.exists:
            return EntryResult(204, _DELETED, state.version if state else None)
        return EntryResult(204, _DELETED, self._write(key, state, None, entry))

    def _create(self, entry: Entry, text: bytes, condition: ConditionKey | None) -> EntryResult | Pending:
        if condition is not None:
            earlier = self._created.find(entry, condition)
            if earlier is not None:
                return earlier
            found = self._matching(entry, condition)
            if found:
                if entry.resource_type == "Patient":
                    self._check_subject(entry, found[0])
                return self.snapshot.found_result(condition, found[0])
        return self._new(entry, text, condition)

    def _update(self, entry: Entry, text: bytes, condition: ConditionKey | None) -> Pending:
        if condition is None:
            if entry.id is None:
                return self._new(entry, text, None)
            key = self._key(entry.resource_type, entry.id)
            self._check_subject(entry, key)
            return self._plan_write(entry, text, key)
        earlier = self._created.find(entry, condition)
        if earlier is not None:
            return self._same_write(entry, earlier)
        found = self._matching(entry, condition)
        if found and entry.id is not None and entry.id != found[0][2]:
            reason = "the id of the resource differs from the id of the resource that the condition matches"
            raise Problem(Category.VALUE, reason, entry.place)
        if found:
            self._check_subject(entry, found[0])
            return self._plan_write(entry, text, found[0], condition)
        if entry.id is None:
            return self._new(entry, text, condition)
        key = self._key(entry.resource_type, entry.id)
        state = self._state(entry, key)
        if state is not None and state.exists:
            raise Problem(Category.CONFLICT, "the resource with this id does not match the condition", entry.place)
        self._check_condition_locked(entry, condition)
        return self._plan_write(entry, text, key, condition)

    def _patch(self, entry: Entry, patch: Callable[[Json], Json], condition: ConditionKey | None) -> Pending:
        """A patch of the planned state of an existing resource."""
        found: Sequence[Key] = [self._key(entry.resource_type, entry.id)] if entry.id is not None else ()
        if condition is not None:
            found = self._matching(entry, condition)
        state = self._state(entry, found[0]) if found else None
        resource = state.resource if state is not None else None
        if not found or resource is None:
            was_deleted = state is not None
            reason = "the resource was deleted" if was_deleted else "there is no such resource"
            raise Problem(Category.GONE if was_deleted else Category.NOT_FOUND, reason, entry.place)
        if found[0] in self._pending:
            self._refuse_second_change(found[0], entry)
        self._check_version(entry, state)
        if self._access_check is not None and state is not None:
            self._access_check.check_patch(state)
        patched, text = with_relative_references(patch(resource), self.unit.base_url)
        return self._plan_write(replace(entry, resource=patched), text, found[0], condition)

    def _check_subject(self, entry: Entry, key: Key) -> None:
        """A converted message changes the subject of no resource and no person, by whatever condition it was found."""
        if self._identities is not None:
            self._identities.check_subject(entry, key)

    def _new(self, entry: Entry, text: bytes, condition: ConditionKey | None) -> Pending:
        """A resource with a new id."""
        if self._access_check is not None:
            self._access_check.check_right(entry.method, entry.resource_type)
        self._check_condition_locked(entry, condition)
        self._check_version(entry, None)
        key = self.unit.tenant, entry.resource_type, new_id(self.now)
        pending = self._pending[key] = Pending(entry, text, key, None)
        if condition is not None:
            self._created.add(pending, condition)
        return pending

    def _plan_write(self, entry: Entry, text: bytes, key: Key, condition: ConditionKey | None = None) -> Pending:
        earlier = self._pending.get(key)
        if earlier is not None:
            return self._same_write(entry, earlier)
        state = self._state(entry, key, may_create=True)
        self._check_version(entry, state)
        self._refuse_deleted(key, entry)
        pending = self._pending[key] = Pending(entry, text, key, state)
        if condition is not None:
            self._created.add(pending, condition)
        return pending

    def _same_write(self, entry: Entry, earlier: Pending) -> Pending:
        """A second entry for one resource: accepted when it is equal, refused otherwise."""
        if entry.resource != earlier.entry.resource or (self.unit.distinct and entry.method is _UPDATE):
            self._refuse_second_change(earlier.key, entry)
        return earlier

    def _refuse_deleted(self, key: Key, entry: Entry) -> None:
        if key in self._deleted:
            self._refuse_second_change(key, entry)

    def _refuse_second_change(self, key: Key, entry: Entry) -> NoReturn:
        raise Problem(Category.VALUE, f"the transaction changes {key[1]}/{key[2]} twice", entry.place)

    def _state(self, entry: Entry, key: Key, *, may_create: bool = False) -> State | None:
        """The stored resource that an entry changes, as far as the caller may know of it."""
        state, check = self.snapshot.state(key), self._access_check
        return state if check is None else check.known(entry, key[2], state, may_create=may_create)

    def _check_version(self, entry: Entry, state: State | None) -> None:
        if entry.must_be_new and state is not None and state.exists:
            raise Problem(Category.PRECONDITION, "the resource already exists", entry.place)
        if entry.if_match is None:
            return
        if state is None or not state.exists or state.version.version_id != entry.if_match:
            raise Problem(Category.PRECONDITION, "If-Match does not name the current version", entry.place)

    def _matching(self, entry: Entry, condition: ConditionKey) -> Sequence[Key]:
        found = self.snapshot.matching(condition, entry.condition) if entry.condition is not None else ()
        if len(found) > 1:
            raise ambiguous(entry.place)
        return found

    def _key(self, resource_type: str, id: str) -> Key:
        return self.unit.tenant, resource_type, id

    # -- writing

    def _write_if_changed(self, pending: Pending, names: EntryNames | None) -> None:
        """Complete the references of a resource, and write it when it has changed."""
        entry, state, key = pending.entry, pending.state, pending.key
        resource = self._references.complete(pending, names)
        stored, before = (state.resource, state.version.sources) if state is not None else (None, "")
        if self._identities is not None and stored is not None:
            resource = with_retained(resource, stored, entry, before, self._identities.patients)
        sources: str | None = None
        kept: tuple[str, ...] = ()
        if entry.sources is not None:
            merged = keep_omitted(resource, stored, entry.sources, before)
            resource, kept, sources = merged.resource, merged.paths, merged.sources
        if key[1] == "Subscription":
            resource = self._subscriptions.completed(pending, resource, self._new_topics())
        if state is None or not state.exists:
            pending.result = EntryResult(201, _CREATED, self._write(key, state, resource, entry, sources))
        elif state.is_unchanged_by(resource):
            pending.result = EntryResult(200, _UNCHANGED, state.version, kept)
        else:
            pending.result = EntryResult(200, _UPDATED, self._write(key, state, resource, entry, sources), kept)

    def _write_provenance(self, outcomes: Sequence[EntryResult | Pending], names: EntryNames | None) -> None:
        """Write the Provenance about all versions that were written before it, if there are any."""
        for number, end in enumerate(outcomes):
            if isinstance(end, Pending) and end.entry.targets_unit:
                end.result = EntryResult(200, _UNCHANGED, None)
                if targets := written_targets(self.changes, end.entry.place):
                    resource = {**(end.entry.resource or {}), "target": targets}
                    self._entries[number] = end.entry = replace(end.entry, resource=resource)
                    self._write_if_changed(end, names)

    def _add_parents(self, entries: Sequence[Entry], outcomes: list[EntryResult | Pending]) -> None:
        """Add the parents (OBR-29) of orders that a result only mentions to stored ones."""
        for number, entry in enumerate(entries):
            end = outcomes[number]
            if not entry.numbered or entry.resource_type != ORDER or not isinstance(end, EntryResult):
                continue
            key = self._key(*reference_to(end).split("/"))
            state = None if key in self._pending else self.snapshot.state(key)
            resource = None if state is None else with_parents(state.resource, entry)
            if resource is not None:
                outcomes[number] = EntryResult(200, _UPDATED, self._write(key, state, resource, entry))

    def _new_topics(self) -> list[Topic]:
        """The topics that the unit writes and that are served then."""
        topics = [topic_in(one.entry.resource) for one in self._pending.values() if one.key[1] in TOPIC_TYPES]
        return [read_topic(one) for one in topics if one is not None and is_served(one)]

    @property
    def creators(self) -> list[SubscriptionCreator]:
        """The new creators of the Subscriptions that were written."""
        return self._subscriptions.creators(self.changes)

    def _write(
        self, key: Key, state: State | None, resource: Json | None, entry: Entry, sources: str | None = None
    ) -> Version:
        """Add a version of a resource to the layer and the changes; `resource` None deletes it.

        `sources`: of the elements of a message's resource; None = as they were.
        """
        tenant, resource_type, id = key
        if state is None:
            rid, number, when, before, previous = self._new_rid(), 1, self.now, EMPTY, None
        else:
            old = state.version
            rid, number, when = old.rid, old.version_id + 1, max(self.now, old.last_updated)
            before, previous = state.entries, state.resource
        stamped, body, after = None, b"", EMPTY
        if resource is not None:
            stamped = stamp(resource, id, number, when)
            body = dumps(stamped)
            if not self.prepared.references_are_read and may_be_incomplete(body):
                raise ReplanNeeded
            after = extract(stamped)
        if sources is None:
            sources = state.version.sources if state is not None and stamped is not None else ""
        method = _HTTP_METHOD[entry.method]
        version = Version(rid, resource_type, id, number, when, body, stamped is None, method, sources)
        if self._access_check is not None and stamped is not None:
            self._access_check.check_write(entry.method, version, stamped, after)
        how = interaction(state, stamped)
        self.changes.append(Change(tenant, version, stamped, before, after, self.unit.correlation_id, how, previous))
        self.snapshot.write(key, State(version, stamped, after))
        return version

    def _new_rid(self) -> int:
        rid = next(self.rids, None)
        if rid is None:
            raise MoreNeeded(SecondLook(rids=len(self.unit.entries)))  # what matched was not what is meant
        return rid
