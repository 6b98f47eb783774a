"""Planted faults: each replaces one method or rule by a faulty one, and the simulation must find it.

Source: issue 31, "Proof that it finds faults".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any
from unittest.mock import patch

from ipf.errors import StoreUnreachable, WriteConflict
from ipf.pipeline.convert.convert import Converter
from ipf.pipeline.deliver import deliver as deliver_module
from ipf.pipeline.deliver.deliver import Deliver
from ipf.pipeline.forward.forward import Forwarder
from ipf.pipeline.poll.feed_pass import LEASE_SECONDS, FeedPass
from ipf.pipeline.receive.group_commit import GroupCommit
from ipf.pipeline.worker import Worker
from ipf.ports import Backoff, Event, Outcome, Status
from ipf.ports.messages.forwards import Forwarded, ForwardStatus
from ipf.rest.operations import subscription_status
from tests.fakes.deliveries import MemoryDeliveryQueue, _Cursor
from tests.fakes.forwards import MemoryForwards
from tests.fakes.inbox import MemoryInbox, Row
from tests.fakes.resources import MemoryTransaction


@dataclass(frozen=True)
class Planted:
    """A fault: `owner.name` becomes what `make` makes of it.  `seed`: one that finds it."""

    text: str
    owner: Any
    name: str
    make: Callable[[Any], Any]
    seed: int

    @contextmanager
    def grown(self) -> Iterator[None]:
        """The fault is there meanwhile."""
        with patch.object(self.owner, self.name, self.make(getattr(self.owner, self.name))):
            yield


# -- receive


def _early_ack(real: Any) -> Any:
    def submit(self: GroupCommit, received: Any, source: object, done: Any) -> None:
        self._timer.callLater(0, done, Outcome.STORED)
        real(self, received, source, lambda result: None)

    return submit


def _unreachable_is_stored(real: Any) -> Any:
    async def write(self: GroupCommit, batch: Any, running: Any) -> None:
        self._inbox = _Forgiving(self._inbox)  # type: ignore[assignment]
        await real(self, batch, running)

    return write


class _Forgiving:
    """Stores, or says that it has."""

    def __init__(self, inbox: Any) -> None:
        self._inbox = getattr(inbox, "_inbox", inbox)

    async def store(self, rows: Any) -> Any:
        """See `Inbox.store`."""
        try:
            return await self._inbox.store(rows)
        except StoreUnreachable:
            return [Outcome.DUPLICATE] * len(rows)


def _store_always(real: Any) -> Any:
    def store_one(self: MemoryInbox, message: Any) -> Outcome:
        self._last_id += 1
        self.rows[self._last_id] = Row(self._last_id, message, self._clock())
        return Outcome.STORED

    return store_one


# -- convert


def _any_fence(real: Any) -> Any:
    def held(self: MemoryInbox, message_id: int, fence: int) -> Any:
        row = self.rows.get(message_id)
        return row if row is not None and row.status is Status.TRANSFORMING else None

    return held


def _claims_leased(real: Any) -> Any:
    async def claim(self: MemoryInbox, worker: str, limit: int) -> Any:
        for row in self.rows.values():
            if row.status is Status.TRANSFORMING and row.leased_at < self._clock() - timedelta(seconds=2):  # type: ignore[operator]
                row.status = Status.RECEIVED
        return await real(self, worker, limit)

    return claim


def _attempts(more: int, real: Any) -> Any:
    def failure_settlement(self: Converter, message: Any, failure: Any) -> Any:
        with patch.object(self, "_backoff", replace(self._backoff, max_attempts=self._backoff.max_attempts + more)):
            return real(self, message, failure)

    return failure_settlement


def _uncounted_recovery(real: Any) -> Any:
    def recover(self: MemoryInbox, lost: Any, backoff: Backoff) -> Any:
        found = real(self, lost, backoff)
        for one in found:
            self.rows[one.id].attempt_count -= 1
        return found

    return recover


def _counter_stays(real: Any) -> Any:
    def put_back(self: MemoryInbox, row: Row) -> None:
        count = row.attempt_count
        real(self, row)
        row.attempt_count = count

    return put_back


def _deletes_any(real: Any) -> Any:
    async def delete(self: MemoryInbox, message_id: int) -> None:
        del self.rows[self._in_state(message_id, *Status).id]

    return delete


def _releases_all(real: Any) -> Any:
    async def release_except(self: MemoryInbox, worker: str, held: Any) -> int:
        return int(await real(self, worker, []))

    return release_except


def _forgets_claims(real: Any) -> Any:
    async def step(self: Converter) -> bool:
        found = await real(self)
        self._claimed.clear()
        return bool(found)

    return step


def _no_renewal(real: Any) -> Any:
    async def renew(self: Converter) -> None:
        return

    return renew


def _submit_forgives(real: Any) -> Any:
    async def store(self: Converter, mapped: Any, failures: Any) -> Any:
        known = len(failures)
        ends = await real(self, mapped, failures)
        lost = [one for one in failures[known:] if isinstance(one[1].problem, StoreUnreachable)]
        for one in lost:
            failures.remove(one)
            ends.append(self._pass_through(one[0]))
        return ends

    return store


# -- resources and events


def _forgets_receipts(real: Any) -> Any:
    async def look_up(self: MemoryTransaction, lookup: Any, **kw: Any) -> Any:
        found = await real(self, lookup, **kw)
        return replace(found, receipts=frozenset())

    return look_up


def _no_versions(real: Any) -> Any:
    def expect(self: MemoryTransaction, writes: Any) -> None:
        try:
            real(self, writes)
        except WriteConflict:
            if any((one.tenant, one.key) in self._store.receipts for one in writes.receipts):
                raise

    return expect


def _old_index(real: Any) -> Any:
    def commit(self: MemoryTransaction, writes: Any) -> str:
        self._epoch = self._store.epoch
        return str(real(self, writes))

    return commit


def _number_again(real: Any) -> Any:
    def number(self: MemoryTransaction, writes: Any, rid: int, change: int) -> None:
        real(self, writes, rid, change)
        events = self._store.streams[rid].events
        if len(events) > 4:
            events[-1] = replace(events[-1], number=len(events) - 1)

    return number


def _half_a_commit(real: Any) -> Any:
    def commit(self: MemoryTransaction, writes: Any) -> str:
        return str(real(self, replace(writes, events=writes.events[:1])))

    return commit


# -- deliver


def _cursor_first(real: Any) -> Any:
    async def send_one(self: Deliver, run: Any, events: Any) -> Any:
        run.delivered_to = events[-1].number if events else run.delivered_to
        return await real(self, run, events)

    return send_one


def _skips_failed(real: Any) -> Any:
    async def record_failure(self: Deliver, run: Any, events: list[Event], delivered: Any) -> None:
        run.delivered_to = events[-1].number
        await real(self, run, events, delivered)

    return record_failure


def _lost_lease_settles(real: Any) -> Any:
    def held(self: MemoryDeliveryQueue, lease: Any) -> Any:
        return self._cursors[lease.subscription_rid]

    return held


def _leases_held(real: Any) -> Any:
    def may(self: MemoryDeliveryQueue, stream: Any, cursor: Any) -> bool:
        return (cursor.leased and stream.state.status == "active") or bool(real(self, stream, cursor))

    return may


def _paused_loses(real: Any) -> Any:
    def follow(self: _Cursor, stream: Any, *now: Any) -> None:
        if self.requests and self.requests != stream.requests:
            self.delivered = len(stream.events)
        real(self, stream, *now)

    return follow


def _shorter_wait(real: Any) -> Any:
    return lambda *args: real(*args) / 2


def _no_error(real: Any) -> Any:
    async def end_in_error(self: Deliver, run: Any, events: Any, what: str) -> None:
        await self._settle(run, keep=True)

    return end_in_error


def _counts_from_one(real: Any) -> Any:
    async def record_failure(self: Deliver, run: Any, events: Any, delivered: Any) -> None:
        run.failures = 0
        await real(self, run, events, delivered)

    return record_failure


def _delivers_paused(real: Any) -> Any:
    def may(self: MemoryDeliveryQueue, stream: Any, cursor: Any) -> bool:
        ready = cursor.ready_at is None or cursor.ready_at <= self._clock()
        return ready and stream.state.status in ("active", "off")

    return may


# -- forward and poll


def _silence_is_sent(real: Any) -> Any:
    def failed(self: Forwarder, pending: Any, code: str, text: str) -> Forwarded:
        return Forwarded(pending.message_id, ForwardStatus.SENT, code, text)

    return failed


def _passes_over(real: Any) -> Any:
    async def fill(self: MemoryForwards, name: str, *args: Any, **kw: Any) -> Any:
        found = await real(self, name, *args, **kw)
        self._rows[name].filled_to += bool(found)
        return found

    return fill


def _forward_waits_long(real: Any) -> Any:
    def failed(self: Forwarder, pending: Any, code: str, text: str) -> Any:
        return replace(
            real(self, pending, code, text), retry_seconds=2.0 * real(self, pending, code, text).retry_seconds
        )

    return failed


def _second_forwarder(real: Any) -> Any:
    async def begin(self: MemoryForwards, name: str, *args: Any) -> Any:
        if name in self._rows and not self._rows[name].paused:
            self._rows[name].leased_until = None
        return await real(self, name, *args)

    return begin


def _mark_first(real: Any) -> Any:
    async def store(self: FeedPass, taken: Any, following: Any) -> bool:
        await self._parts.feeds.save(self._lease, (), following, LEASE_SECONDS, None)
        return bool(await real(self, taken, following))

    return store


# -- the worker


def _never_polls(real: Any) -> Any:
    def init(self: Worker, step: Any, notifier: Any, channel: Any, poll: float, clock: Any, **kw: Any) -> None:
        real(self, step, notifier, channel, 1e6 if channel == "inbox" else poll, clock, **kw)

    return init


PLANTED = (
    Planted("an acknowledgement before the commit", GroupCommit, "submit", _early_ack, 0),
    Planted("an unreachable store is acknowledged", GroupCommit, "_write", _unreachable_is_stored, 6),
    Planted("a duplicate is not recognised", MemoryInbox, "_store_one", _store_always, 0),
    Planted("a settlement without its fence", MemoryInbox, "_held", _any_fence, 147),
    Planted("a claimed message is claimed again", MemoryInbox, "claim", _claims_leased, 1),
    Planted("the ordering key is ignored", MemoryInbox, "_passes", lambda real: lambda self, row: True, 1),
    Planted("the back-off is one factor too long", Backoff, "delay_ms",
            lambda real: lambda self, attempt: real(self, attempt + 1), 0),
    Planted("a dead letter one attempt late", Converter, "_failure_settlement", partial(_attempts, 1), 0),
    Planted("a dead letter one attempt early", Converter, "_failure_settlement", partial(_attempts, -1), 0),
    Planted("a recovery is no attempt", MemoryInbox, "_recover", _uncounted_recovery, 2),
    Planted("a retry keeps the counter", MemoryInbox, "put_back", _counter_stays, 14),
    Planted("any message is deleted", MemoryInbox, "delete", _deletes_any, 21),
    Planted("what is held is released", MemoryInbox, "release_except", _releases_all, 24),
    Planted("a runner forgets the claims of another", Converter, "step", _forgets_claims, 24),
    Planted("the lease is not renewed", Converter, "renew", _no_renewal, 58),
    Planted("a lost answer is a success", Converter, "_store", _submit_forgives, 1),
    Planted("a stop counts as a failed attempt", Converter, "_raise_if_stopped",
            lambda real: lambda self, error: None, 58),
    Planted("receipts are not found", MemoryTransaction, "look_up", _forgets_receipts, 24),
    Planted("versions are not checked", MemoryTransaction, "_expect", _no_versions, 49),
    Planted("events are matched with an old index", MemoryTransaction, "_commit", _old_index, 37),
    Planted("an event number is used again", MemoryTransaction, "_number", _number_again, 0),
    Planted("a commit without its last events", MemoryTransaction, "_commit", _half_a_commit, 0),
    Planted("the cursor moves before the answer", Deliver, "_send_one", _cursor_first, 6),
    Planted("an event is skipped after a failure", Deliver, "_record_failure", _skips_failed, 6),
    Planted("a lost delivery lease is settled", MemoryDeliveryQueue, "_held", _lost_lease_settles, 7),
    Planted("a leased subscription is leased again", MemoryDeliveryQueue, "_may", _leases_held, 0),
    Planted("a paused subscription loses events", _Cursor, "follow", _paused_loses, 20),
    Planted("a paused subscription is delivered", MemoryDeliveryQueue, "_may", _delivers_paused, 24),
    Planted("deliveries wait half as long", deliver_module, "retry_delay_seconds", _shorter_wait, 6),
    Planted("no error after the last attempt", Deliver, "_end_in_error", _no_error, 195),
    Planted("the status error hits a later request", subscription_status, "is_version",
            lambda real: lambda resource, version_id: True, 502044),
    Planted("failures are counted from one", Deliver, "_record_failure", _counts_from_one, 14),
    Planted("silence counts as sent", Forwarder, "_failed", _silence_is_sent, 1),
    Planted("forwarding passes over a message", MemoryForwards, "fill", _passes_over, 0),
    Planted("forwarding waits twice as long", Forwarder, "_failed", _forward_waits_long, 1),
    Planted("two processes forward", MemoryForwards, "begin", _second_forwarder, 0),
    Planted("the mark moves before the page is stored", FeedPass, "_store", _mark_first, 75),
    Planted("a lost notification is never made up for", Worker, "__init__", _never_polls, 2),
)  # fmt: skip
"""All planted faults."""
