"""Delivery: numbered events in, notifications to subscribers out, at least once and in order of number.

A subscription with events due is leased (a row, so that no two processes send for it at once), and its first events
come with the lease.  Each lease is worked on by a coroutine of its own: send them one after another (or as many in one
notification as the Subscription's terms say), settle.  Settling moves the cursor over what was acknowledged, writes
every attempt to the ledger, and answers the next events or, when there are none, gives the lease back, so a batch costs
one call of the store; it happens on a failure as well, and at least every `SETTLE_SECONDS` while sending, which also
renews the lease.  A failure gives the lease back with the time of the next try, at which the stage wakes; when the
retry budget is used up the Subscription becomes `error` (decisions sections 2 and 6).

One slow or dead endpoint never delays another: a lease whose request has waited longer than `SLOW_SECONDS` no longer
counts against the number of leases worked on at once, a long backlog gives way when others wait, and no place takes
more than its share (`places.py`).  While a place's circuit is open its subscriptions are not tried; that costs no
attempt, but the time counts: the budget ends when all attempts are used up, or after as long as they would have taken.

A subscription that asked for heartbeats and was told nothing for so long is leased for one; if it fails, that is a
failure like any other.

What survives a crash: everything settled.  What was sent but not settled is sent again, which is what the specification
allows ("at-least-once; receivers must be idempotent").

Source: interface specification "Subscription notifications"; https://hl7.org/fhir/R4/subscription.html.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from ipf.errors import Problem, StoreUnreachable
from ipf.pipeline.deliver.activate import SetStatus
from ipf.pipeline.deliver.attempts import (
    attempt_of,
    budget_seconds,
    correlation_of,
    instant,
    reason_of,
    retry_delay_seconds,
)
from ipf.pipeline.deliver.authorization import Outdated
from ipf.pipeline.deliver.destinations import Destinations, Wait
from ipf.pipeline.deliver.timer import Timer
from ipf.pipeline.worker import FailureLog, Sleep, Worker, finished_within
from ipf.ports import (
    Attempt,
    Backoff,
    Channel,
    Channels,
    Clock,
    Compose,
    Delivered,
    DeliveryEnd,
    DeliveryQueue,
    Event,
    Lease,
    Notifier,
    Terms,
)
from ipf.ports.delivery import AuthorizationFilter, Settled
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
LOOK_SECONDS = 0.01
TURN_SECONDS = 5.0
T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Run:
    """One lease being worked on.  Volatile: what is in here and not settled is sent again after a crash."""

    lease: Lease
    terms: Terms
    until: datetime
    started: float
    settled: float
    failing_since: datetime | None
    failures: int
    is_heartbeat: bool
    rings: int = 0
    sending_since: float | None = None
    delivered_to: int | None = None
    attempts: list[Attempt] = field(default_factory=list)
    ended: bool = False


class Deliver:
    """The stage, with its worker; `step` takes leases, and returns while their coroutines work on.

    `compose` makes the notifications, `channels` send them.  `lease_seconds` must be longer than the channels' time
    limit.  `clock` measures, `now` tells the time of day, `chance` in [0, 1) spreads waits.  `authorization_filter`
    leaves out events
    that the subscriber may not know of (`release.py`).
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
        at_once: int = AT_ONCE,
        chance: Callable[[], float] = random.random,
        authorization_filter: AuthorizationFilter | None = None,
    ) -> None:
        self._queue = queue
        self._channels = channels
        self._compose = compose
        self._chance = chance
        self._authorization_filter = authorization_filter
        self._places = Destinations(clock, chance, longest_seconds=backoff.max_ms / 1000)
        self._set_status = set_status
        self._clock = clock
        self._now = now
        self._name = worker
        self._backoff = backoff
        self._lease_seconds = lease_seconds
        self._at_once = at_once
        self._runs: dict[Run, Deferred[None]] = {}
        self._failures = FailureLog("deliver", clock)
        self._room: Sleep | None = None
        self._pause: Sleep | None = None
        self._rings = 0
        self._stopping = False
        self._worker = Worker(self.step, notifier, BELL, poll_seconds, clock, name="deliver")
        self._beats = Worker(self.beat, notifier, None, poll_seconds, clock, name="heartbeats")
        self._alarm = Timer(clock, self._worker.wake)
        notifier.subscribe(BELL, self._heard)

    def start(self) -> None:
        """Begin to deliver."""
        self._worker.start()
        self._beats.start()

    async def step(self) -> bool:
        """Lease what is due, as far as there is room (waits for room); True when there may be more.

        While something is in hand it looks a hundred times a second at most: what rings is mostly for that.
        """
        room = await self._wait_for_room()
        if self._stopping:
            return False
        leases = await self._queue.lease(self._name, room, self._until())
        self._begin(leases)
        if self._runs and len(leases) < room:
            self._pause = Sleep(self._clock, LOOK_SECONDS)
            await self._pause.finished
            self._pause = None
        return len(leases) >= room

    async def beat(self) -> bool:
        """As `step`, for heartbeats that are due."""
        room = self._free()
        if room <= 0 or self._stopping:
            return False
        return self._begin(await self._queue.heartbeats(self._name, room, self._until()), is_heartbeat=True)

    def _begin(self, leases: Sequence[Lease], is_heartbeat: bool = False) -> bool:
        for lease in leases:
            now, terms = self._clock.seconds(), self._compose.terms(lease.resource)
            run = Run(lease, terms, lease.until, now, now, lease.failing_since, lease.attempt_count, is_heartbeat)
            work = Deferred.fromCoroutine(self._work(run))
            if not run.ended:
                self._runs[run] = work
        return bool(leases)

    async def stop(self, within_seconds: float = 10.0) -> bool:
        """Finish the request in hand of each lease, settle and give back; False when that took too long."""
        self._stopping = True
        self._alarm.stop()
        for sleep in (self._room, self._pause):
            if sleep is not None:
                sleep.end()
        idle = await self._worker.stop(within_seconds)
        await self._beats.stop(within_seconds)
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
            self._room = Sleep(self._clock, ROOM_SECONDS)
            await self._room.finished
            self._room = None
        return room

    def _leave(self, run: Run) -> None:
        run.ended = True
        self._runs.pop(run, None)
        if self._room is not None and self._free() >= self._at_once // 4:
            self._room.end()
        if self._pause is not None and not self._runs:
            self._pause.end()
        if run.rings != self._rings and not self._stopping:
            self._worker.wake()  # it rang after the last look at this subscription's events

    # -- one lease

    async def _work(self, run: Run) -> None:
        try:
            await self._send_all(run)
        except Outdated:
            log.info("Subscription/{id} was changed meanwhile: its lease ends", id=run.lease.subscription_id)
        except Exception as error:
            if not self._stopping:
                self._failures.failed(error)  # the lease runs out, then the events are due again
        finally:
            self._leave(run)

    async def _send_all(self, run: Run) -> None:
        size, events = run.terms.max_count, run.lease.events
        if run.is_heartbeat and not events and not await self._send_one(run, ()):
            return
        while True:
            sent = (
                events
                if self._authorization_filter is None
                else await self._persist(run, partial(self._authorization_filter, run.lease, events))
            )
            for start in range(0, len(sent), size):
                if not await self._send_one(run, sent[start : start + size]):
                    return
                if self._gives_way(run):
                    await self._settle(run)
                    return
            run.delivered_to = events[-1].number if events else run.delivered_to  # also of what was passed over
            run.rings = self._rings
            settled = await self._settle(run, keep=True, more=max(EVENTS, size))
            if settled is None or not settled.is_kept:
                return
            events = settled.events or await self._load(run)
            if not events:
                await self._settle(run)
                return

    async def _load(self, run: Run) -> Sequence[Event]:
        """What the row counts and a statement that met its writer did not see."""
        return await self._persist(run, partial(self._queue.events, run.lease, EVENTS))

    def _gives_way(self, run: Run) -> bool:
        return self._stopping or (self._room is not None and self._clock.seconds() - run.started > TURN_SECONDS)

    async def _send_one(self, run: Run, events: Sequence[Event]) -> bool:
        """Send some events, or a heartbeat; False when the lease is no longer held (failure, or lost)."""
        channel = self._channels.get(run.terms.channel_type)
        if channel is None:
            text = f"this server has no channel {run.terms.channel_type}"
            await self._fail(run, events, Delivered(None, 0, text))
            return False
        place = channel.place(run.terms.endpoint)
        wait = await self._places.enter(place)
        if wait is not None:
            await self._put_off(run, events, wait)
            return False
        delivered = await self._attempt(run, channel, place, events)
        if not delivered.succeeded:
            await self._fail(run, events, delivered)
            return False
        if events:
            run.delivered_to = events[-1].number
        run.failures, run.failing_since = 0, None
        if self._clock.seconds() - run.settled >= SETTLE_SECONDS:
            return await self._settle(run, keep=True) is not None
        return True

    async def _attempt(self, run: Run, channel: Channel, place: str, events: Sequence[Event]) -> Delivered:
        attempted_at = self._now()
        run.sending_since = self._clock.seconds()
        delivered = None
        try:
            delivered = await self._send(channel, run.lease, events)
        finally:
            run.sending_since = None
            self._places.leave(place, delivered, None if delivered is None else reason_of(delivered))
        metrics.notification_sent(delivered.succeeded, delivered.duration_ms / 1000)
        run.attempts.append(attempt_of(events, attempted_at, delivered))
        return delivered

    async def _send(self, channel: Channel, lease: Lease, events: Sequence[Event]) -> Delivered:
        try:
            notification = await (self._compose.events(lease, events) if events else self._compose.heartbeat(lease))
        except (StoreUnreachable, Outdated):
            raise
        except Problem as problem:
            return Delivered(None, 0, problem.text)
        except Exception:
            log.failure("no notification can be made for Subscription/{id}", id=lease.subscription_id)
            return Delivered(None, 0, "no notification can be made of this event")
        return await channel.send(notification)

    async def _put_off(self, run: Run, events: Sequence[Event], wait: Wait) -> None:
        """Give the lease back for a while, without an attempt."""
        failures = run.failures
        if wait.reason is not None:
            failures = max(failures, 1)  # the time counts from now
            since = run.failing_since
            if since is not None and (self._now() - since).total_seconds() > budget_seconds(self._backoff):
                if await self._settle(run, retry_at=self._now(), failures=0):
                    await self._give_up(run, events, f"could not be sent since {instant(since)}: {wait.reason}")
                return
        await self._settle(run, retry_at=self._now() + timedelta(seconds=wait.seconds), failures=failures)

    async def _fail(self, run: Run, events: Sequence[Event], delivered: Delivered) -> None:
        run.failures += 1
        reason = reason_of(delivered)
        spent = run.failures >= self._backoff.max_attempts
        delay = retry_delay_seconds(self._backoff, run.failures, delivered, self._chance())
        line = event_line(
            "delivery_failed",
            subscription_id=run.lease.subscription_id,
            event_number=events[0].number if events else 0,
            attempt_count=run.failures,
            backoff_ms=None if spent else round(delay * 1000),
            last_error=reason,
        )
        log.info(line, correlation_id=correlation_of(events))
        since = run.failing_since or self._now()
        retry_at = self._now() + timedelta(seconds=delay)
        held = await self._settle(run, retry_at=retry_at, failures=0 if spent else run.failures)
        if spent and held:
            text = f"failed {run.failures} times since {instant(since)}: {reason}"
            await self._give_up(run, events, text)

    async def _give_up(self, run: Run, events: Sequence[Event], what: str) -> None:
        """Status `error`.  The settled row counts from zero again: for when the subscriber asks to be served again,
        and for a crash right here, after which the budget is simply spent once more.
        """
        tenant, subscription_id = run.lease.tenant, run.lease.subscription_id
        text = f"event {events[0].number} {what}" if events else f"a heartbeat {what}"
        await self._persist(run, partial(self._set_status, tenant, subscription_id, "error", text))
        line = event_line("subscription_error", subscription_id=subscription_id, last_error=text)
        log.warn(line, correlation_id=correlation_of(events))

    async def _settle(
        self,
        run: Run,
        *,
        keep: bool = False,
        more: int = 0,
        retry_at: datetime | None = None,
        failures: int | None = None,
    ) -> Settled | None:
        """Write cursor and ledger; None when another process has the lease now."""
        until = self._until() if keep else None
        count = run.failures if failures is None else failures
        end = DeliveryEnd(run.delivered_to, tuple(run.attempts), retry_at, count, until, more)
        settled = await self._persist(run, partial(self._queue.settle, run.lease, end))
        run.settled = self._clock.seconds()
        run.delivered_to = None
        run.attempts.clear()
        if until is not None:
            run.until = until
        if settled is None:
            log.warn("the lease on Subscription/{id} was lost", id=run.lease.subscription_id)
        elif retry_at is not None and not self._stopping:
            self._alarm.at((retry_at - self._now()).total_seconds())
        return settled

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
                await Sleep(self._clock, wait).finished
        raise AssertionError("unreachable")
