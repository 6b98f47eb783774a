"""Units in, one database transaction out: ask, lock where something may be created twice, plan, match, commit.

Many units share the transaction and its two or three round trips; each succeeds or fails for itself.  When another
writer was first, everything is planned again from fresh answers; when that goes on, the units go one by one.  Units
that write Subscription resources have a transaction of their own, so that units after them see the new subscriptions.

What survives a crash: all of the transaction or nothing.  When the connection breaks while the commit is under way,
StoreUnreachable is raised and nothing is known; a unit with a receipt may simply be sent again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import groupby

from ipf.errors import Problem, WriteConflict
from ipf.fhir.search.custom_parameters import changed, install
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
from ipf.ports.threads import LARGE, RunInThread, here, turn
from ipf.rest.write.large_bundle import let_go
from ipf.rest.write.plan import Plan, make_plan
from ipf.rest.write.prefetch import Prefetch, Question, asks_for, looked_through, question
from ipf.rest.write.snapshot import StoreSnapshot
from ipf.rest.write.unit import Unit, UnitResult

_ATTEMPTS_TOGETHER = 3


async def commit(
    units: Sequence[Unit],
    store: FhirStore,
    matcher: Matcher,
    clock: Clock,
    *,
    attempts: int = 16,
    run_in_thread: RunInThread = here,
    is_large: bool = False,
) -> list[UnitResult | Problem]:
    """Store every unit, whole or not at all; one result or Problem for each, in order.

    `attempts`: how often a single unit is planned again after another writer was first; then its Problem is
    WriteConflict.  `run_in_thread`: where many entries are planned, or, when `is_large`, these.  Raises
    StoreUnreachable when
    nothing is known about any unit.
    """
    if not is_large and sum([len(unit.entries) for unit in units]) < LARGE:
        run_in_thread = here
    committer = _Committer(store, matcher, clock, attempts, run_in_thread)
    results: list[UnitResult | Problem] = []
    questions: list[Question] = await run_in_thread(lambda: [question(unit, later=True) for unit in units])
    for _, run in groupby(enumerate(questions), key=_run):
        results += await committer.store_all([asked for _, asked in run])
    return results


def _run(numbered: tuple[int, Question]) -> int:
    """Equal for neighbours that may share a transaction."""
    number, asked = numbered
    return number if asked.unit.changes_subscriptions else -1


class _Committer:
    """The parts that a commit works with."""

    def __init__(
        self, store: FhirStore, matcher: Matcher, clock: Clock, attempts: int, run_in_thread: RunInThread
    ) -> None:
        self._store = store
        self._matcher = matcher
        self._clock = clock
        self._attempts = attempts
        self._run_in_thread = run_in_thread

    async def store_all(self, questions: Sequence[Question], exclusive: bool = False) -> list[UnitResult | Problem]:
        """Results of units that share transactions as long as they can.  `exclusive`: they may write topics."""
        attempts = self._attempts if len(questions) == 1 else _ATTEMPTS_TOGETHER
        conflict = WriteConflict()
        for _ in range(attempts):
            try:
                ends = await self._attempt(questions, exclusive)
            except WriteConflict as lost:
                conflict = lost
                continue
            if ends is None:
                return await self._one_by_one(questions, exclusive=True)
            return await self._complete(questions, ends)
        if len(questions) == 1:
            return [conflict]
        return await self._one_by_one(questions, exclusive)

    async def _one_by_one(self, questions: Sequence[Question], exclusive: bool) -> list[UnitResult | Problem]:
        return [result for asked in questions for result in await self.store_all([asked], exclusive)]

    async def _complete(
        self, questions: Sequence[Question], ends: Sequence[UnitResult | Problem | None]
    ) -> list[UnitResult | Problem]:
        """Store in further transactions what could not be planned after the units before it."""
        again = [looked_through(asked) for asked, end in zip(questions, ends, strict=True) if end is None]
        later = iter(await self.store_all(again) if again else ())
        return [next(later) if end is None else end for end in ends]

    async def _attempt(
        self, questions: Sequence[Question], exclusive: bool
    ) -> list[UnitResult | Problem | None] | None:
        """One transaction; None: a topic is replaced, which nobody saw coming, and needs the exclusive lock."""
        own = any(asked.unit.changes_subscriptions for asked in questions)
        changing = exclusive or own
        async with self._store.transaction() as transaction:
            asks: Lookup = await self._run_in_thread(lambda: asks_for(questions))
            answers = await transaction.ask(asks, subscriptions_change=changing)
            await learn(transaction, answers.epoch, self._matcher)
            knowledge: Prefetch = await self._run_in_thread(lambda: Prefetch.of(asks, answers))
            creating = await self._run_in_thread(lambda: knowledge.would_create(questions))
            if creating:
                locked = await transaction.lock(creating)
                await self._run_in_thread(lambda: knowledge.learn(creating, locked))
            needed = await self._run_in_thread(lambda: knowledge.rids_needed(questions))
            rids = iter([await self._store.new_rid() for _ in range(needed)])
            reindex: Sequence[ReindexRequest] = ()
            view: StoreSnapshot = await self._run_in_thread(
                lambda: StoreSnapshot(knowledge, asks.conditions, self._matcher)
            )
            plan = await self._planned(questions, view, rids, here if own else self._run_in_thread)
            if plan.topics and not changing:
                return None
            if plan.changes or plan.receipts:
                reindex = _reindex(plan) if changing else ()
                events = await self._events(plan)
                await transaction.commit(
                    Writes(plan.changes, events, plan.receipts, plan.subscriptions, reindex, plan.topics, plan.creators)
                )
        if any(request.is_definition for request in reindex):
            await refresh(self._store, self._matcher)  # searches of this process know it from now on
        if self._run_in_thread is not here:
            await self._run_in_thread(lambda: let_go(plan.changes, *view.parts))
        return plan.results

    async def _planned(
        self, questions: Sequence[Question], view: StoreSnapshot, rids: Iterator[int], run_in_thread: RunInThread
    ) -> Plan:
        """The plan; `run_in_thread` only where nothing of it looks at the subscriptions, which belong to the
        reactor."""
        now = _now(self._clock)
        plan: Plan = await run_in_thread(lambda: make_plan(questions, view, now, rids))
        return plan

    async def _events(self, plan: Plan) -> list[NewEvent]:
        """What the changes fire; of many changes, with pauses in which the reactor goes on.

        The subscriptions stay the same meanwhile: the transaction holds its share of their lock.
        """
        match, found = self._matcher.match, []
        for number, change in enumerate(plan.changes, 1):
            for rid in match(change):
                found.append(NewEvent(rid, number - 1))
            if number % LARGE == 0:
                await turn(self._run_in_thread)
        return found


async def refresh(store: FhirStore, matcher: Matcher) -> bool:
    """Learn what other processes, or an earlier transaction, added; whether there was anything."""
    known = matcher.epoch
    async with store.transaction() as transaction:
        await learn(transaction, (await transaction.ask(Lookup())).epoch, matcher)
    return matcher.epoch != known


async def learn(transaction: FhirTransaction, epoch: int, matcher: Matcher) -> None:
    """Bring this process to the epoch of a transaction: search parameters first, since subscriptions may use them."""
    if matcher.epoch == epoch:
        return

    async def read(since: int) -> Changes:
        news = await transaction.news(since)
        if news.search_parameters is not None:
            install(news.search_parameters)
        return news

    await matcher.bring_to(epoch, read)


def _reindex(plan: Plan) -> list[ReindexRequest]:
    """What becomes of the index when SearchParameters change; those of the default tenant count, for all."""
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
