"""The deliver stage: numbered events become notifications, sent at least once and in order of number.

A subscription with due events is leased (a row, so that one process at a time sends for it) together with its first
events.  A coroutine per lease sends the events one by one, or `max_count` in one notification, and settles.  Settling
advances the cursor, writes the attempts to the ledger, and returns the next events or releases the lease, so a batch
takes one call of the store.  A lease is also settled after a failure, and at least every `SETTLE_SECONDS` while
sending, which renews it, or ends it when the subscription is not active any more.  After a failure the lease is
released with the time of the next attempt; when the retry budget is used up, the status becomes `error` (decisions
sections 2 and 6).

With `in_flight` above 1 several notifications are in flight, the first of a lease alone (`window.py`); the cursor
follows the longest acknowledged prefix.

A slow endpoint does not delay others: a lease with a request older than `SLOW_SECONDS` does not count against
`max_leases`, a long backlog yields when other subscriptions wait, and each destination has a concurrency limit
(`destinations.py`).  An open circuit postpones its subscriptions without an attempt; the budget then ends after the
time that all attempts would have taken.

A subscription with heartbeats is leased after its idle period; a failed heartbeat counts as a failure.

Crash: settled events are durable.  Unsettled ones, at most a batch, are sent again, as the specification allows
("at-least-once; receivers must be idempotent").

Source: interface specification "Subscription notifications"; https://hl7.org/fhir/R4/subscription.html.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from ipf.errors import StoreUnreachable
from ipf.pipeline.deliver.activate import SetStatus
from ipf.pipeline.deliver.attempts import (
    attempt_of,
    audits_of,
    budget_seconds,
    correlation_of,
    failure_line,
    instant,
    reason_of,
    retry_delay_seconds,
    send,
    settle,
    terms_of,
)
from ipf.pipeline.deliver.authorization import SubscriptionChanged
from ipf.pipeline.deliver.destinations import Destinations, Postponed
from ipf.pipeline.deliver.lease_run import LeaseRun, all_ended
from ipf.pipeline.deliver.timer import Timer
from ipf.pipeline.deliver.window import Outcome, Window
from ipf.pipeline.worker import FailureLog, Sleep, Worker, finished_within
from ipf.ports import Backoff, Channel, Channels, Clock, Compose, Delivered, DeliveryQueue, Event, Lease, Notifier
from ipf.ports.delivery import AuthorizationFilter, Settled
from ipf.security.audit.delivery import AuditDelivery
from ipf.telemetry import metrics
from ipf.telemetry.logs import event_line

log = Logger()

NOTIFY_CHANNEL = "delivery"
MAX_EVENTS = 100
MAX_LEASES = 64
MAX_SLOW_LEASES = 512
SLOW_SECONDS = 1.0
CAPACITY_CHECK_SECONDS = 0.05
SETTLE_SECONDS = 0.5
MIN_LEASE_INTERVAL_SECONDS = 0.01
MAX_TURN_SECONDS = 5.0
NEVER_SENT_PAUSE = timedelta(minutes=1)  # until the next look at a heartbeat that is not sent
T = TypeVar("T")


class Deliver:
    """The stage and its workers; `step` takes leases and returns while their coroutines run.

    `lease_seconds` must exceed the time limit of the channels.  `clock`: monotonic time; `now`: wall clock; `chance` in
    [0, 1) spreads waits.  `authorization_filter` removes events that the subscriber may not receive
    (`authorization.py`).  `audit`: makes the records of attempts.  `in_flight`: notifications of one subscription in
    flight; 1 is strictly in order of number.  `never_sent`: channel types whose events are skipped without an attempt.
    """

    def __init__(
        self,
        queue: DeliveryQueue,
        channels: Channels,
        compose: Compose,
        set_status: SetStatus,
        notifier: Notifier,
        clock: IReactorTime,
        now: Clock,
        *,
        worker: str,
        backoff: Backoff,
        poll_seconds: float = 1.0,
        lease_seconds: float = 30.0,
        max_leases: int = MAX_LEASES,
        in_flight: int = 1,
        chance: Callable[[], float] = random.random,
        authorization_filter: AuthorizationFilter | None = None,
        audit: AuditDelivery | None = None,
        never_sent: frozenset[str] = frozenset(),
    ) -> None:
        self._queue = queue
        self._never_sent = never_sent
        self._channels = channels
        self._compose = compose
        self._chance = chance
        self._authorization_filter = authorization_filter
        self._audit = audit
        self._destinations = Destinations(clock, chance, max_pause_seconds=backoff.max_ms / 1000)
        self._set_status = set_status
        self._clock = clock
        self._now = now
        self._worker_name = worker
        self._backoff = backoff
        self._lease_seconds = lease_seconds
        self._max_leases = max_leases
        self._in_flight = in_flight
        self._runs: dict[LeaseRun, Deferred[None]] = {}
        self._failures = FailureLog("deliver", clock)
        self._capacity_wait: Sleep | None = None
        self._interval_wait: Sleep | None = None
        self._notification_count = 0
        self._stopping = False
        self._worker = Worker(self.step, notifier, NOTIFY_CHANNEL, poll_seconds, clock, name="deliver")
        self._heartbeat_worker = Worker(self.heartbeat_step, notifier, None, poll_seconds, clock, name="heartbeats")
        self._retry_timer = Timer(clock, self._worker.wake)
        notifier.subscribe(NOTIFY_CHANNEL, self._count_notification)

    def start(self) -> None:
        """Start delivery."""
        self._worker.start()
        self._heartbeat_worker.start()

    async def step(self) -> bool:
        """Lease due subscriptions, up to the free capacity (waits for capacity); True when there may be more.

        While leases are in progress, the interval between two calls is at least `MIN_LEASE_INTERVAL_SECONDS`.
        """
        capacity = await self._wait_for_capacity()
        if self._stopping:
            return False
        leases = await self._queue.lease(self._worker_name, capacity, self._until())
        self._begin(leases)
        if self._runs and len(leases) < capacity:
            self._interval_wait = Sleep(self._clock, MIN_LEASE_INTERVAL_SECONDS)
            await self._interval_wait.finished
            self._interval_wait = None
        return len(leases) >= capacity

    async def heartbeat_step(self) -> bool:
        """Lease subscriptions with due heartbeats."""
        capacity = self._capacity()
        if capacity <= 0 or self._stopping:
            return False
        return self._begin(await self._queue.heartbeats(self._worker_name, capacity, self._until()), is_heartbeat=True)

    def _begin(self, leases: Sequence[Lease], is_heartbeat: bool = False) -> bool:
        for lease in leases:
            now, terms = self._clock.seconds(), terms_of(self._compose, lease)
            run = LeaseRun(lease, terms, lease.until, now, now, lease.failing_since, lease.attempt_count, is_heartbeat)
            running = Deferred.fromCoroutine(self._run(run))
            if not run.ended:
                self._runs[run] = running
        return bool(leases)

    async def stop(self, within_seconds: float = 10.0) -> bool:
        """Finish the current request of each lease, settle and release; False on timeout."""
        self._stopping = True
        self._retry_timer.stop()
        for sleep in (self._capacity_wait, self._interval_wait):
            if sleep is not None:
                sleep.end()
        idle = await self._worker.stop(within_seconds)
        await self._heartbeat_worker.stop(within_seconds)
        return await finished_within(list(self._runs.values()), within_seconds, self._clock) and idle

    def _count_notification(self) -> None:
        self._notification_count += 1

    def _until(self) -> datetime:
        return self._now() + timedelta(seconds=self._lease_seconds)

    def _capacity(self) -> int:
        since = self._clock.seconds() - SLOW_SECONDS
        slow = sum(bool(run.sending) and run.sending[0] <= since for run in self._runs)
        return min(self._max_leases - len(self._runs) + slow, MAX_SLOW_LEASES - len(self._runs))

    async def _wait_for_capacity(self) -> int:
        while (capacity := self._capacity()) <= 0 and not self._stopping:
            self._capacity_wait = Sleep(self._clock, CAPACITY_CHECK_SECONDS)
            await self._capacity_wait.finished
            self._capacity_wait = None
        return capacity

    def _finish(self, run: LeaseRun) -> None:
        run.ended = True
        self._runs.pop(run, None)
        if self._capacity_wait is not None and self._capacity() >= self._max_leases // 4:
            self._capacity_wait.end()
        if self._interval_wait is not None and not self._runs:
            self._interval_wait.end()
        if run.notification_count != self._notification_count and not self._stopping:
            self._worker.wake()  # a notification arrived after the last read of this subscription's events

    async def _run(self, run: LeaseRun) -> None:
        try:
            await self._send_all(run)
        except SubscriptionChanged:
            log.info("Subscription/{id} has changed: its lease ends", id=run.lease.subscription_id)
        except Exception as error:
            if not self._stopping:
                self._failures.failed(error)  # the events are due again when the lease expires
                if not isinstance(error, StoreUnreachable):
                    await self._record_unforeseen(run, error)
        finally:
            self._finish(run)

    async def _record_unforeseen(self, run: LeaseRun, error: Exception) -> None:
        """What nobody foresaw counts as a failed attempt: in the end the status is `error`."""
        try:
            await self._record_failure(run, run.lease.events, Delivered(None, 0, f"unexpected {type(error).__name__}"))
        except Exception as failed:
            self._failures.failed(failed)

    async def _send_all(self, run: LeaseRun) -> None:
        events = run.lease.events
        is_sent = run.terms.channel_type not in self._never_sent
        if run.is_heartbeat and not events and not is_sent:
            await self._settle(run, retry_at=self._now() + NEVER_SENT_PAUSE)
            return
        if run.is_heartbeat and not events and not await self._send_batch(run, [()]):
            return
        while True:
            sent = events if is_sent else ()
            if sent and self._authorization_filter is not None:
                sent = await self._persist(run, partial(self._authorization_filter, run.lease, sent))
            size = run.terms.max_count
            if not await self._send_batch(run, [sent[start : start + size] for start in range(0, len(sent), size)]):
                return
            run.delivered_to = events[-1].number if events else run.delivered_to  # including skipped events
            run.notification_count = self._notification_count
            settled = await self._settle(run, keep=True, more=max(MAX_EVENTS, size))
            if settled is None or not settled.is_kept:
                return
            events = settled.events or await self._load(run)
            if not events:
                await self._settle(run)
                return

    async def _send_batch(self, run: LeaseRun, notifications: Sequence[Sequence[Event]]) -> bool:
        """Send notifications; False when that ended the lease: a failure, a yield, or the lease is not held."""
        window = Window(notifications, run.width)
        await all_ended(self._send_window(run, window) for _ in range(min(self._in_flight, len(notifications))))
        if run.is_over:
            return False
        if window.failure is not None:
            events, outcome = window.failure
            if isinstance(outcome, Postponed):
                await self._postpone(run, events, outcome)
            else:
                await self._record_failure(run, events, replace(outcome, retry_after=window.retry_after))
            return False
        if not window.is_acknowledged or self._should_yield(run):
            await self._settle(run)
            return False
        return True

    async def _send_window(self, run: LeaseRun, window: Window) -> None:
        """Send one notification of the window after another, beside others that do the same."""
        try:
            while (taken := await window.take()) is not None:
                position, events = taken
                outcome = await self._send_one(run, events)
                if not (isinstance(outcome, Delivered) and outcome.succeeded):
                    window.fail(position, outcome)
                    return
                run.width = window.width = self._in_flight
                if window.acknowledge(position):
                    run.delivered_to = window.acknowledged_to
                    run.failures, run.failing_since = 0, None
                await self._settle_progress(run)
                if run.is_over or self._should_yield(run):
                    return
        finally:
            window.end()

    async def _settle_progress(self, run: LeaseRun) -> None:
        """Settle and renew the lease when it is time.  It is over when lost, or when the subscription is not active."""
        if run.is_settling or self._clock.seconds() - run.settled < SETTLE_SECONDS:
            return
        run.is_settling = True
        try:
            settled = await self._settle(run, keep=True)
        finally:
            run.is_settling = False
        run.is_over = settled is None or not settled.is_kept

    async def _load(self, run: LeaseRun) -> Sequence[Event]:
        """The next events; `settle` does not see those of a transaction that commits at the same time."""
        return await self._persist(run, partial(self._queue.events, run.lease, MAX_EVENTS))

    def _should_yield(self, run: LeaseRun) -> bool:
        if self._stopping or self._now() >= run.until:
            return True
        return self._capacity_wait is not None and self._clock.seconds() - run.started > MAX_TURN_SECONDS

    async def _send_one(self, run: LeaseRun, events: Sequence[Event]) -> Outcome:
        """Send events, or a heartbeat."""
        channel = self._channels.get(run.terms.channel_type)
        if channel is None:
            return Delivered(None, 0, f"this server has no channel {run.terms.channel_type}")
        destination = channel.destination(run.terms.endpoint)
        postponed = await self._destinations.acquire(destination)
        return postponed or await self._attempt(run, channel, destination, events)

    async def _attempt(self, run: LeaseRun, channel: Channel, destination: str, events: Sequence[Event]) -> Delivered:
        attempted_at = self._now()
        began = self._clock.seconds()
        run.sending.append(began)
        delivered = None
        try:
            delivered = await send(self._compose, channel, run.lease, events)
        finally:
            run.sending.remove(began)
            self._destinations.release(destination, delivered, None if delivered is None else reason_of(delivered))
        metrics.notification_sent(delivered.succeeded, delivered.duration_ms / 1000)
        run.attempts.append(attempt_of(events, attempted_at, delivered))
        run.audits += audits_of(self._audit, run.lease, run.terms, events, delivered, self._now())
        return delivered

    async def _postpone(self, run: LeaseRun, events: Sequence[Event], postponed: Postponed) -> None:
        """Release the lease without an attempt, until the destination may be used."""
        failures = run.failures
        if postponed.reason is not None:
            failures = max(failures, 1)  # the retry budget starts now
            since = run.failing_since
            if since is not None and (self._now() - since).total_seconds() > budget_seconds(self._backoff):
                await self._end_in_error(run, events, f"could not be sent since {instant(since)}: {postponed.reason}")
                return
        await self._settle(run, retry_at=self._now() + timedelta(seconds=postponed.seconds), failures=failures)

    async def _record_failure(self, run: LeaseRun, events: Sequence[Event], delivered: Delivered) -> None:
        run.failures += 1
        reason = reason_of(delivered)
        is_exhausted = run.failures >= self._backoff.max_attempts
        delay = retry_delay_seconds(self._backoff, run.failures, delivered, self._chance())
        line = failure_line(run.lease, events, run.failures, None if is_exhausted else delay, reason)
        log.info(line, correlation_id=correlation_of(events))
        if is_exhausted:
            since = run.failing_since or self._now()
            await self._end_in_error(run, events, f"failed {run.failures} times since {instant(since)}: {reason}")
        else:
            await self._settle(run, retry_at=self._now() + timedelta(seconds=delay))

    async def _end_in_error(self, run: LeaseRun, events: Sequence[Event], what: str) -> None:
        """Set the status `error`, which sets the failures to 0.

        The lease is kept meanwhile: with another one a notification could succeed, and the status would be wrong.  It
        is written for the leased version only: late, it would hit a Subscription that was requested again.

        Crash before the status is written: the lease expires, and the next failure sets the status.
        """
        settled = await self._settle(run, keep=True)
        if settled is None or not settled.is_kept:
            return
        lease, subscription_id = run.lease, run.lease.subscription_id
        text = f"a notification {what}" if events else f"a heartbeat {what}"  # without a number: others read it
        await self._persist(
            run, partial(self._set_status, lease.tenant, subscription_id, "error", text, lease.version_id)
        )
        line = event_line("subscription_error", subscription_id=subscription_id, last_error=text)
        log.warn(line, correlation_id=correlation_of(events))

    async def _settle(
        self,
        run: LeaseRun,
        *,
        keep: bool = False,
        more: int = 0,
        retry_at: datetime | None = None,
        failures: int | None = None,
    ) -> Settled | None:
        """Write cursor and ledger; None when another process holds the lease."""
        until = self._until() if keep else None
        count = run.failures if failures is None else failures
        end = run.end(retry_at, count, until, more)
        settled = await self._persist(run, partial(settle, self._queue, run.lease, end))
        run.settled = self._clock.seconds()
        run.until = until or run.until
        if settled is None:
            log.warn("the lease on Subscription/{id} was lost", id=run.lease.subscription_id)
        elif retry_at is not None and not self._stopping:
            self._retry_timer.at((retry_at - self._now()).total_seconds())
        return settled

    async def _persist(self, run: LeaseRun, call: Callable[[], Awaitable[T]]) -> T:
        """Call the store; retry every second while it is unreachable, until the lease expires."""
        for attempt in itertools.count():
            try:
                answer = await call()
                self._failures.worked()
                return answer
            except StoreUnreachable as error:
                wait = self._failures.failed(error)
                if self._stopping or (attempt and self._now() >= run.until):
                    raise
                await Sleep(self._clock, wait).finished
        raise AssertionError("unreachable")
