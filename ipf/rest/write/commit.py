"""The commit of units in one database transaction: prefetch, lock against double creates, plan, match, commit.

Units share the transaction and its two or three round trips; each succeeds or fails individually.  After a write
conflict, all units are planned again from a new prefetch; after repeated conflicts each unit gets its own transaction.
A unit that writes Subscriptions, topics or search parameters has its own transaction, so that later units see them.
So has a unit with reads (the GETs of a transaction Bundle), which run after its writes and before the commit.

Crash: the transaction is stored completely or not at all.  When the connection breaks during the commit,
StoreUnreachable is raised and the outcome is unknown; a unit with a receipt may be sent again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from itertools import groupby

from ipf.errors import Problem, WriteConflict
from ipf.fhir.search.parameters.custom import changed, install
from ipf.ports import (
    DEFAULT_TENANT,
    Changes,
    Clock,
    FhirStore,
    FhirTransaction,
    Lookup,
    Matcher,
    NewEvent,
    ReindexRequest,
    Writes,
)
from ipf.ports.audit.records import Audit, millisecond_of
from ipf.ports.queries.search import Query
from ipf.ports.threads import LARGE, RunInThread, run_inline, yield_to_reactor
from ipf.rest.write.large_bundle import clear_gradually
from ipf.rest.write.plan import Plan, make_plan
from ipf.rest.write.prefetch import (
    ConditionKey,
    Prefetch,
    PreparedUnit,
    lookup_for,
    prepare,
    with_references_read,
)
from ipf.rest.write.second_look import MoreNeeded, SecondLook
from ipf.rest.write.snapshot import StoreSnapshot
from ipf.rest.write.transaction_audit import TransactionAudit
from ipf.rest.write.unit import Unit, UnitResult
from ipf.security.access import refresh_access
from ipf.subscriptions.endpoint_names import EndpointNames, KnownNames

_SHARED_ATTEMPTS = 3

Reads = Callable[[FhirTransaction], Awaitable[None]]
"""Reads within a transaction, after its writes; what it raises rolls everything back.  A retry calls it again."""


async def commit(
    units: Sequence[Unit],
    store: FhirStore,
    matcher: Matcher,
    clock: Clock,
    *,
    attempts: int = 16,
    run_in_thread: RunInThread = run_inline,
    is_large: bool = False,
    reads: Reads | None = None,
    names: EndpointNames | None = None,
) -> list[UnitResult | Problem]:
    """Store each unit completely or not at all; one result or Problem per unit, in order.

    `attempts`: maximum number of attempts of a single unit; then its Problem is WriteConflict.  `run_in_thread`: used
    for many entries, or when `is_large`.  `reads`: of the only unit; what it raises is raised.  `names`: of the
    endpoints of Subscriptions; None = not looked up.  Raises StoreUnreachable when the outcome of every unit is
    unknown.
    """
    if not is_large and sum([len(unit.entries) for unit in units]) < LARGE:
        run_in_thread = run_inline
    committer = _Committer(store, matcher, clock, attempts, run_in_thread, reads, names)
    results: list[UnitResult | Problem] = []
    prepared_units: list[PreparedUnit] = await run_in_thread(lambda: [prepare(unit, lazy=True) for unit in units])
    for _, run in groupby(enumerate(prepared_units), key=_transaction_key):
        results += await committer.store_all([prepared for _, prepared in run])
    return results


async def preview(unit: Unit, store: FhirStore, matcher: Matcher, clock: Clock) -> Plan:
    """The plan that `commit` makes of a unit; its transaction is rolled back.

    Problem CONFLICT when others keep the resources from being read consistently.
    """
    return await _Committer(store, matcher, clock, 16, run_inline).preview(prepare(unit))


def _transaction_key(numbered: tuple[int, PreparedUnit]) -> int:
    """Equal for neighbouring units that may share a transaction."""
    number, prepared = numbered
    return number if prepared.unit.changes_subscriptions else -1


class _Committer:
    """One call of `commit`."""

    def __init__(
        self,
        store: FhirStore,
        matcher: Matcher,
        clock: Clock,
        attempts: int,
        run_in_thread: RunInThread,
        reads: Reads | None = None,
        names: EndpointNames | None = None,
    ) -> None:
        self._reads = reads
        self._names = None if names is None else KnownNames(names)
        self._store = store
        self._matcher = matcher
        self._clock = clock
        self._attempts = attempts
        self._run_in_thread = run_in_thread
        self._locks: dict[ConditionKey, tuple[str, Query]] = {}  # match keys that plans were found to need

    async def store_all(
        self, prepared_units: Sequence[PreparedUnit], exclusive: bool = False
    ) -> list[UnitResult | Problem]:
        """Store units in shared transactions where possible.  `exclusive`: they may write topics."""
        attempts = self._attempts if len(prepared_units) == 1 else _SHARED_ATTEMPTS
        conflict = WriteConflict()
        for _ in range(attempts):
            try:
                results_or_none = await self._attempt(prepared_units, exclusive)
            except WriteConflict as lost:
                conflict = lost
                continue
            except MoreNeeded as more:
                self._locks |= more.wanted.locks
                if self._names is not None and more.wanted.hosts:
                    await self._names.look_up(more.wanted.hosts)
                continue
            if results_or_none is None:
                return await self._one_by_one(prepared_units, exclusive=True)
            return await self._complete(prepared_units, results_or_none)
        if len(prepared_units) == 1:
            return [conflict]
        return await self._one_by_one(prepared_units, exclusive)

    async def _one_by_one(self, prepared_units: Sequence[PreparedUnit], exclusive: bool) -> list[UnitResult | Problem]:
        return [result for prepared in prepared_units for result in await self.store_all([prepared], exclusive)]

    async def _complete(
        self, prepared_units: Sequence[PreparedUnit], results_or_none: Sequence[UnitResult | Problem | None]
    ) -> list[UnitResult | Problem]:
        """Store units that need a new prefetch, in further transactions."""
        retried = [
            with_references_read(prepared)
            for prepared, end in zip(prepared_units, results_or_none, strict=True)
            if end is None
        ]
        retried_results = iter(await self.store_all(retried) if retried else ())
        return [next(retried_results) if end is None else end for end in results_or_none]

    async def preview(self, prepared: PreparedUnit) -> Plan:
        """See `preview`."""
        for _ in range(self._attempts):
            try:
                async with self._store.transaction() as transaction:
                    return (await self._planned(transaction, [prepared], changing=False))[0]
            except MoreNeeded as more:
                self._locks |= more.wanted.locks
        raise WriteConflict()

    async def _attempt(
        self, prepared_units: Sequence[PreparedUnit], exclusive: bool
    ) -> list[UnitResult | Problem | None] | None:
        """One transaction; None: the plan replaces a topic, which needs the exclusive lock.

        MoreNeeded: more locks, or the addresses of names.
        """
        changing = exclusive or any(prepared.unit.changes_subscriptions for prepared in prepared_units)
        reindex: Sequence[ReindexRequest] = ()
        await refresh_access()  # for the events that the changes fire
        async with self._store.transaction() as transaction:
            plan, snapshot = await self._planned(transaction, prepared_units, changing)
            if plan.topics and not changing:
                return None
            reads = self._reads_of(plan, transaction)
            if plan.changes or plan.receipts or plan.job_results or reads:
                reindex = _reindex(plan) if changing else ()
                events = await self._events(plan)
                audit = TransactionAudit(prepared_units, plan)
                ended = millisecond_of(self._clock())
                records: list[Audit] = await self._run_in_thread(lambda: audit.records(ended))
                states, topics = plan.subscriptions, plan.topics
                rest = states, reindex, topics, plan.creators, records, plan.job_results
                refused = await transaction.commit(Writes(plan.changes, events, plan.receipts, *rest), reads)
                audit.ended(refused)
        if any(request.is_definition for request in reindex):
            await refresh(self._store, self._matcher)  # for later searches of this process
        if self._run_in_thread is not run_inline:
            await self._run_in_thread(lambda: clear_gradually(plan.changes, *snapshot.parts))
        return plan.results

    def _reads_of(self, plan: Plan, transaction: FhirTransaction) -> Callable[[], Awaitable[None]] | None:
        """The reads after the writes of a plan; None when there are none, or the plan has failed."""
        if self._reads is None or not isinstance(plan.results[0], UnitResult):
            return None
        return partial(self._reads, transaction)

    async def _planned(
        self, transaction: FhirTransaction, prepared_units: Sequence[PreparedUnit], changing: bool
    ) -> tuple[Plan, StoreSnapshot]:
        """Read, lock and plan; read what the plan is found to need, and plan again.  MoreNeeded: more locks."""
        lookup: Lookup = await self._run_in_thread(lambda: lookup_for(prepared_units, self._locks))
        result = await transaction.look_up(lookup, subscriptions_change=changing)
        await load_changes(transaction, result.epoch, self._matcher)
        prefetch: Prefetch = await self._run_in_thread(lambda: Prefetch.of(lookup, result))
        conditions, locks = await self._run_in_thread(lambda: prefetch.creating_conditions(prepared_units, self._locks))
        if conditions:
            locked = await transaction.lock(conditions, locks)
            await self._run_in_thread(lambda: prefetch.add_locked(conditions, locked))
        needed = await self._run_in_thread(lambda: prefetch.rids_needed(prepared_units))
        rids = [await self._store.new_rid() for _ in range(needed)]
        changes_subscriptions = any(prepared.unit.changes_subscriptions for prepared in prepared_units)
        run_in_thread = run_inline if changes_subscriptions else self._run_in_thread
        while True:
            snapshot: StoreSnapshot = await self._run_in_thread(
                lambda: StoreSnapshot(prefetch, lookup.conditions, self._matcher, self._names)
            )
            plan = await self._plan(prepared_units, snapshot, iter(rids), run_in_thread)
            if not plan.wanted:
                return plan, snapshot
            await self._read_more(transaction, plan.wanted, prefetch, rids, changing)

    async def _read_more(
        self, transaction: FhirTransaction, wanted: SecondLook, prefetch: Prefetch, rids: list[int], changing: bool
    ) -> None:
        """Read what a plan was found to need.  Each call reads something new, so that planning comes to an end.

        MoreNeeded: locks, which a transaction takes before all else, or names.
        """
        if wanted.locks or wanted.hosts:
            raise MoreNeeded(wanted)
        if wanted.ids:
            ids = tuple(wanted.ids)
            prefetch.add_ids(ids, (await transaction.look_up(Lookup(ids), subscriptions_change=changing)).by_id)
        if wanted.conditions:
            conditions = tuple(wanted.conditions.values())
            read = await transaction.look_up(Lookup((), conditions), subscriptions_change=changing)
            prefetch.add_matches(conditions, read.by_condition)
        if wanted.answers:
            keys = tuple(wanted.answers)
            prefetch.answers.update(zip(keys, await transaction.identity_answers(keys), strict=True))
        rids += [await self._store.new_rid() for _ in range(wanted.rids)]

    async def _plan(
        self,
        prepared_units: Sequence[PreparedUnit],
        snapshot: StoreSnapshot,
        rids: Iterator[int],
        run_in_thread: RunInThread,
    ) -> Plan:
        """The plan.  It runs in the reactor thread when it reads the matching index."""
        now = _now(self._clock)
        plan: Plan = await run_in_thread(lambda: make_plan(prepared_units, snapshot, now, rids))
        return plan

    async def _events(self, plan: Plan) -> list[NewEvent]:
        """The events that the changes fire; the reactor runs in between.

        The transaction holds a shared lock, so the subscriptions do not change in the meantime.
        """
        match, found = self._matcher.match, []
        for number, change in enumerate(plan.changes, 1):
            for rid in match(change):
                found.append(NewEvent(rid, number - 1))
            if number % LARGE == 0:
                await yield_to_reactor(self._run_in_thread)
        return found


async def refresh(store: FhirStore, matcher: Matcher) -> bool:
    """Load changes of subscriptions, topics and search parameters from the store; whether there were any."""
    known = matcher.epoch
    async with store.transaction() as transaction:
        await load_changes(transaction, (await transaction.look_up(Lookup())).epoch, matcher)
    return matcher.epoch != known


async def load_changes(transaction: FhirTransaction, epoch: int, matcher: Matcher) -> None:
    """Bring this process to the epoch of a transaction; search parameters first, as subscriptions may use them."""
    if matcher.epoch == epoch:
        return

    async def read(since: int) -> Changes:
        changes = await transaction.changes_since(since)
        if changes.search_parameters is not None:
            install(changes.search_parameters)
        return changes

    await matcher.update_to(epoch, read)


def _reindex(plan: Plan) -> list[ReindexRequest]:
    """The reindex requests for changed SearchParameters; those of the default tenant apply to all tenants."""
    found = []
    for change in plan.changes:
        if change.version.resource_type == "SearchParameter" and change.tenant == DEFAULT_TENANT:
            types, stale = changed(change.previous, change.resource)
            if types or stale:
                reason = f"SearchParameter/{change.version.id}"
                found.append(ReindexRequest(change.tenant, tuple(types), tuple(stale), reason, is_definition=True))
    return found


def _now(clock: Clock) -> datetime:
    """Now in whole milliseconds, the precision of `meta.lastUpdated`."""
    now = clock()
    return now.replace(microsecond=now.microsecond // 1000 * 1000)
