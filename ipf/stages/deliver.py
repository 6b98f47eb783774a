"""Delivery: numbered events in, requests to subscribers out, at least once and in order of number.

A subscription with events due is leased (a row, so that no two processes send for it at once).  Each lease is worked
on by a coroutine of its own: load up to `EVENTS` events, send them one after another, settle.  Settling moves the
cursor over what was acknowledged and writes every attempt to the ledger; it happens after each load, on a failure, and
at least every `SETTLE_SECONDS` while sending, which also renews the lease.  A failure gives the lease back with the
time of the next try; when the retry budget is used up the Subscription becomes `error` (decisions sections 2 and 6).

One slow or dead endpoint never delays another: a lease whose request has waited longer than `SLOW_SECONDS` no longer
counts against the number of leases worked on at once, and a long backlog gives way when others wait.

What survives a crash: everything settled.  What was sent but not settled is sent again, which is what the specification
allows ("at-least-once; receivers must be idempotent").

Source: interface specification "Subscription notifications"; https://hl7.org/fhir/R4/subscription.html.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from ipf.errors import Problem, StoreUnreachable
from ipf.ports import (
    Attempt,
    Backoff,
    Bell,
    Channel,
    Clock,
    Delivered,
    DeliveryEnd,
    DeliveryQueue,
    Event,
    Json,
    Lease,
    Notification,
)
from ipf.stages.activate import SetStatus
from ipf.stages.worker import FailureLog, Nap, Worker, finished_within
from ipf.telemetry import metrics
from ipf.telemetry.logs import event_line

log = Logger()

BELL = "delivery"
EVENTS = 100
AT_ONCE = 64
SLOW_AT_ONCE = 512
SLOW_SECONDS = 1.0
ROOM_SECONDS = 0.05
SETTLE_SECONDS = 0.5
TURN_SECONDS = 5.0
LONGEST_RETRY_AFTER_SECONDS = 900.0

Build = Callable[[Json, Event], Notification]
T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Run:
    """One lease being worked on.  Volatile: what is in here and not settled is sent again after a crash."""

    lease: Lease
    until: datetime
    started: float
    settled: float
    rings: int = 0
    sending_since: float | None = None
    delivered_to: int | None = None
    failures: int = 0
    attempts: list[Attempt] = field(default_factory=list)
    ended: bool = False


class Deliver:
    """The stage, with its worker; `step` takes leases, and returns while their coroutines work on.

    `build(subscription, event)` makes the request.  `lease_seconds` must be longer than the channel's time limit.
    `clock` measures, `now` tells the time of day.
    """

    def __init__(
        self,
        queue: DeliveryQueue,
        channel: Channel,
        build: Build,
        set_status: SetStatus,
        bell: Bell,
        clock: IReactorTime,
        now: Clock,
        *,
        worker: str,
        backoff: Backoff,
        poll_seconds: float = 1.0,
        lease_seconds: float = 30.0,
        at_once: int = AT_ONCE,
    ) -> None:
        self._queue = queue
        self._channel = channel
        self._build = build
        self._set_status = set_status
        self._clock = clock
        self._now = now
        self._name = worker
        self._backoff = backoff
        self._lease_seconds = lease_seconds
        self._at_once = at_once
        self._runs: dict[Run, Deferred[None]] = {}
        self._failures = FailureLog("deliver", clock)
        self._room: Nap | None = None
        self._rings = 0
        self._stopping = False
        self._worker = Worker(self.step, bell, BELL, poll_seconds, clock, name="deliver")
        bell.subscribe(BELL, self._heard)

    def start(self) -> None:
        """Begin to deliver."""
        self._worker.start()

    async def step(self) -> bool:
        """Lease what is due, as far as there is room (waits for room); True when something was leased."""
        room = await self._wait_for_room()
        if self._stopping:
            return False
        leases = await self._queue.lease(self._name, room, self._until())
        for lease in leases:
            now = self._clock.seconds()
            run = Run(lease, lease.until, now, now, failures=lease.attempt_count)
            work = Deferred.fromCoroutine(self._work(run))
            if not run.ended:
                self._runs[run] = work
        return bool(leases)

    async def stop(self, within_seconds: float = 10.0) -> bool:
        """Finish the request in hand of each lease, settle and give back; False when that took too long."""
        self._stopping = True
        if self._room is not None:
            self._room.end()
        idle = await self._worker.stop(within_seconds)
        return await finished_within(list(self._runs.values()), within_seconds, self._clock) and idle

    # -- how many at once

    def _heard(self) -> None:
        self._rings += 1

    def _until(self) -> datetime:
        return self._now() + timedelta(seconds=self._lease_seconds)

    def _free(self) -> int:
        since = self._clock.seconds() - SLOW_SECONDS
        slow = sum(run.sending_since is not None and run.sending_since <= since for run in self._runs)
        return min(self._at_once - len(self._runs) + slow, SLOW_AT_ONCE - len(self._runs))

    async def _wait_for_room(self) -> int:
        while (room := self._free()) <= 0 and not self._stopping:
            self._room = Nap(self._clock, ROOM_SECONDS)
            await self._room.over
            self._room = None
        return room

    def _leave(self, run: Run) -> None:
        run.ended = True
        self._runs.pop(run, None)
        if self._room is not None and self._free() >= self._at_once // 4:
            self._room.end()
        if run.rings != self._rings and not self._stopping:
            self._worker.wake()  # it rang after the last look at this subscription's events

    # -- one lease

    async def _work(self, run: Run) -> None:
        try:
            await self._send_all(run)
        except Exception as error:
            if not self._stopping:
                self._failures.failed(error)  # the lease runs out, then the events are due again
        finally:
            self._leave(run)

    async def _send_all(self, run: Run) -> None:
        more = True
        while more:
            limit = 1 if run.failures else EVENTS  # a subscriber that failed is tried with one
            run.rings = self._rings
            events = await self._persist(run, partial(self._queue.events, run.lease, limit))
            more = len(events) == limit
            for event in events:
                if not await self._send_one(run, event):
                    return
                if self._gives_way(run):
                    more = False
                    break
            if not await self._settle(run, keep=more):
                return

    def _gives_way(self, run: Run) -> bool:
        return self._stopping or (self._room is not None and self._clock.seconds() - run.started > TURN_SECONDS)

    async def _send_one(self, run: Run, event: Event) -> bool:
        """Send one event; False when the lease is no longer held (failure, or lost)."""
        delivered = await self._attempt(run, event)
        if not delivered.succeeded:
            await self._fail(run, event, delivered)
            return False
        run.delivered_to = event.number
        run.failures = 0
        if self._clock.seconds() - run.settled >= SETTLE_SECONDS:
            return await self._settle(run, keep=True)
        return True

    async def _attempt(self, run: Run, event: Event) -> Delivered:
        attempted_at = self._now()
        run.sending_since = self._clock.seconds()
        try:
            delivered = await self._send(run.lease, event)
        finally:
            run.sending_since = None
        metrics.notification_sent(delivered.succeeded, delivered.duration_ms / 1000)
        run.attempts.append(
            Attempt(
                event.number,
                attempted_at,
                delivered.succeeded,
                delivered.http_status,
                delivered.duration_ms,
                reason_of(delivered),
                event.correlation_id,
            )
        )
        return delivered

    async def _send(self, lease: Lease, event: Event) -> Delivered:
        try:
            request = self._build(lease.resource, event)
        except Problem as problem:
            return Delivered(None, 0, problem.text)
        except Exception:
            log.failure("no notification can be made for Subscription/{id}", id=lease.subscription_id)
            return Delivered(None, 0, "no notification can be made of this event")
        return await self._channel.send(request)

    async def _fail(self, run: Run, event: Event, delivered: Delivered) -> None:
        run.failures += 1
        reason = reason_of(delivered)
        spent = run.failures >= self._backoff.max_attempts
        delay = retry_delay_seconds(self._backoff, run.failures, delivered)
        line = event_line(
            "delivery_failed",
            subscription_id=run.lease.subscription_id,
            event_number=event.number,
            attempt_count=run.failures,
            backoff_ms=None if spent else round(delay * 1000),
            last_error=reason,
        )
        log.info(line, correlation_id=event.correlation_id)
        retry_at = self._now() + timedelta(seconds=delay)
        held = await self._settle(run, retry_at=retry_at, failures=0 if spent else run.failures)
        if spent and held:
            await self._give_up(run, event, f"event {event.number} failed {run.failures} times: {reason}")

    async def _give_up(self, run: Run, event: Event, text: str) -> None:
        """Status `error`.  The settled row counts from zero again: for when the subscriber asks to be served again,
        and for a crash right here, after which the budget is simply spent once more.
        """
        tenant, subscription_id = run.lease.tenant, run.lease.subscription_id
        await self._persist(run, partial(self._set_status, tenant, subscription_id, "error", text))
        line = event_line("subscription_error", subscription_id=subscription_id, last_error=text)
        log.warn(line, correlation_id=event.correlation_id)

    async def _settle(
        self, run: Run, *, keep: bool = False, retry_at: datetime | None = None, failures: int | None = None
    ) -> bool:
        """Write cursor and ledger; False when another process has the lease now."""
        until = self._until() if keep else None
        end = DeliveryEnd(
            run.delivered_to, tuple(run.attempts), retry_at, run.failures if failures is None else failures, until
        )
        held = await self._persist(run, partial(self._queue.settle, run.lease, end))
        run.settled = self._clock.seconds()
        run.delivered_to = None
        run.attempts.clear()
        if until is not None:
            run.until = until
        if not held:
            log.warn("the lease on Subscription/{id} was lost", id=run.lease.subscription_id)
        return held

    async def _persist(self, run: Run, call: Callable[[], Awaitable[T]]) -> T:
        """Call the store, again each second while it is away, as long as the lease lasts."""
        for attempt in itertools.count():
            try:
                answer = await call()
                self._failures.worked()
                return answer
            except StoreUnreachable as error:
                wait = self._failures.failed(error)
                if self._stopping or (attempt and self._now() >= run.until):
                    raise
                await Nap(self._clock, wait).over
        raise AssertionError("unreachable")


def reason_of(delivered: Delivered) -> str | None:
    """Why an attempt failed, for the ledger and the log; None when it did not."""
    if delivered.succeeded:
        return None
    return delivered.error or f"HTTP status {delivered.http_status}"


def retry_delay_seconds(backoff: Backoff, failures: int, delivered: Delivered) -> float:
    """How long to wait after failure number `failures`.

    A 4xx is retried less aggressively (specification, "FHIR Subscription status"): it waits as after two more failures.
    A Retry-After is honoured as the least wait, up to `LONGEST_RETRY_AFTER_SECONDS`.
    """
    status = delivered.http_status or 0
    steps = failures + 2 if 400 <= status < 500 and status not in (408, 425, 429) else failures
    least = min(delivered.retry_after or 0.0, LONGEST_RETRY_AFTER_SECONDS)
    return max(backoff.delay_ms(steps) / 1000, least)
