"""The rules of subscriptions: each change that matches is one event, numbers without gap or repeat, notifications at
least once and in order, the cursor never ahead of an answer, one lease at a time, back-off as specified.

Source: interface specification "Subscription notifications"; decisions section 6.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from ipf.ports import Attempt, Backoff, DeliveryEnd, Event, Lease, Notification
from tests.simulation.transports import Subscriber

if TYPE_CHECKING:
    from tests.simulation.faults import Process
    from tests.simulation.rules import Rules
    from tests.simulation.world import World

FIRING = ("requested", "active", "error")
REFUSED_STEPS = 2
JITTER = 0.25


@dataclass
class Held:
    """The lease of a subscription, its failures in a row, and how far it is."""

    token: int = 0
    until: datetime | None = None
    holder: str = ""
    requests: int = 0
    status: str = ""
    failures: int = 0
    not_before: datetime | None = None
    cursor: int = 0
    events: list[Event] = field(default_factory=list)
    failing_since: datetime | None = None
    end: DeliveryEnd | None = None
    exhausted: bool = False
    exhausted_at: float = 0.0
    exhausted_by: str = ""


@dataclass
class DeliveryRules:
    """See the module."""

    world: World
    rules: Rules
    held: dict[int, Held] = field(default_factory=dict)
    ends: list[DeliveryEnd] = field(default_factory=list)

    def called(self, process: Process, name: str, args: Sequence[Any]) -> None:
        """A back-off begins at the failure."""
        if name == "settle" and not any(end is args[1] for end in self.ends):
            self.ends.append(args[1])
            self._check_backoff(args[0], args[1])

    def committed(self, process: Process, name: str, args: Sequence[Any], result: Any) -> None:
        """Compare the streams and the cursors with what they were."""
        if name == "commit":
            self._check_events(args[0])
        elif name in ("lease", "heartbeats"):
            for lease in result:
                self._leased(lease)
                self.held[lease.subscription_rid].holder = process.name
        elif name == "release":
            for held in self.held.values():
                held.until = None if held.holder == args[0] else held.until
        elif name == "settle":
            self._settled(args[0], args[1], result)
        elif name == "events" and result:
            self._check_next(self.held[args[0].subscription_rid], result)
        self._check_cursors()

    # -- events

    def _check_events(self, writes: Any) -> None:
        written = {state.rid for state in writes.subscriptions}
        for rid, stream in self.world.fhir.streams.items():
            held = self.held.setdefault(rid, Held())
            subscriber = self.world.subscribers[stream.state.id]
            numbers = [event.number for event in stream.events]
            self.rules.hold(numbers == list(range(1, len(numbers) + 1)), f"{subscriber.id} has the events {numbers}")
            self.rules.hold(stream.events[: len(held.events)] == held.events, f"{subscriber.id}: events have changed")
            fires = held.status in FIRING and rid not in written
            expected = [
                (change.version.resource_type, change.version.id, change.version.version_id)
                for change in writes.changes if fires and change.version.resource_type == subscriber.resource_type
            ]  # fmt: skip
            new = [(one.resource_type, one.id, one.version_id) for one in stream.events[len(held.events) :]]
            self.rules.hold(new == expected, f"{subscriber.id} gets the events {new} instead of {expected}")
            held.events = list(stream.events)
            self._follow_status(held, stream)

    def _follow_status(self, held: Held, stream: Any) -> None:
        status = stream.state.status
        if status != held.status or stream.requests != held.requests:
            if status == "error" and held.status == "active":
                self.rules.hold(held.exhausted, f"{stream.state.id} became error before its attempts were used up")
            held.failures, held.not_before, held.exhausted = 0, None, False
            held.failing_since = None
        if stream.requests != held.requests:
            held.requests, held.until = stream.requests, None
        held.status = status

    # -- leases

    def _leased(self, lease: Lease) -> None:
        held, now = self.held[lease.subscription_rid], self.world.clock.now()
        name = lease.subscription_id
        self.rules.hold(held.until is None or held.until <= now, f"{name} is leased while another lease is held")
        self.rules.hold(lease.token > held.token, f"{name}: the fence {lease.token} was used before")
        self.rules.hold(held.status == "active", f"{name} is leased in status {held.status}")
        is_early = held.not_before is not None and held.not_before > now
        self.rules.hold(not is_early, f"{name} is sent again before {held.not_before}")
        self.rules.hold(lease.attempt_count == held.failures, f"{name}: the lease says {lease.attempt_count} failures")
        if held.exhausted:
            self.rules.hold(self._is_troubled(held), f"{name} is still active after its last attempt")
        held.token, held.until, held.not_before = lease.token, lease.until, None
        self._check_next(held, lease.events)

    def _is_troubled(self, held: Held) -> bool:
        """Whether the process that last used up the attempts could not write the status at once."""
        process = self.world.processes.get(held.exhausted_by)
        if not held.exhausted_by or process is None:
            return bool(held.exhausted_by)
        return not process.alive or process.trouble >= held.exhausted_at - 1.0

    def _check_next(self, held: Held, events: Sequence[Event]) -> None:
        numbers = [event.number for event in events]
        expected = list(range(held.cursor + 1, held.cursor + len(numbers) + 1))
        self.rules.hold(numbers == expected, f"the events {numbers} are handed out after {held.cursor}")

    def _settled(self, lease: Lease, end: DeliveryEnd, result: Any) -> None:
        held, name = self.held[lease.subscription_rid], lease.subscription_id
        if result is None:
            return
        self.rules.hold(held.token == lease.token, f"{name} was settled with the fence {lease.token} of a lost lease")
        self.rules.hold(held.until is not None, f"{name} was settled without a lease")
        held.cursor = max(held.cursor, end.delivered_to or 0)
        is_repeated = held.end is end  # the answer was lost, and the lease is kept
        held.end = end
        is_plain = self.world.in_flight == 1 and not is_repeated
        failures = _failures(held.failures, end.attempts) if is_plain else end.attempt_count
        held.exhausted = failures >= self.world.delivery_backoff.max_attempts or self._is_late(held, end)
        if held.exhausted:
            held.exhausted_at, held.exhausted_by = self.world.clock.seconds(), held.holder
        self._check_count(name, failures, held, end)
        self._follow_failures(held, end)
        held.failures = end.attempt_count
        held.until = end.keep_until if result.is_kept else None
        held.not_before = None if result.is_kept else end.retry_at
        if result.is_kept and result.events:
            self._check_next(held, result.events)

    def _is_late(self, held: Held, end: DeliveryEnd) -> bool:
        """Whether the lease is kept after a postponement, to write `error`: all attempts would have ended by now."""
        if end.attempts or end.keep_until is None or not end.attempt_count or held.failing_since is None:
            return False
        return self.world.clock.now() - held.failing_since > timedelta(seconds=_budget(self.world.delivery_backoff))

    def _follow_failures(self, held: Held, end: DeliveryEnd) -> None:
        if not end.attempt_count:
            held.failing_since = None
        elif held.failing_since is None:
            failed = [attempt.attempted_at for attempt in end.attempts if not attempt.succeeded]
            held.failing_since = min(failed, default=self.world.clock.now())

    def _check_count(self, name: str, failures: int, held: Held, end: DeliveryEnd) -> None:
        if not end.attempts or end.attempts[-1].succeeded or held.status != "active":
            return  # a change of status resets the count
        expected = (failures,)
        if self.world.in_flight > 1:  # several that fail together are one failure
            expected = tuple(range(1, failures + 1))
        self.rules.hold(end.attempt_count in expected, f"{name}: {failures} failures count as {end.attempt_count}")

    def _check_backoff(self, lease: Lease, end: DeliveryEnd) -> None:
        """The wait after a failure: the contract's, less at most a quarter; a refusal waits as after two more."""
        if end.retry_at is None or not end.attempts or end.attempts[-1].succeeded or not end.attempt_count:
            return
        last, backoff = end.attempts[-1], self.world.delivery_backoff
        status = last.http_status or 0
        steps = end.attempt_count - 1 + (REFUSED_STEPS if 400 <= status < 500 and status != 429 else 0)
        most = int(min(backoff.base_ms * backoff.factor**steps, backoff.max_ms)) / 1000
        wait = (end.retry_at - self.world.clock.now()).total_seconds()
        longest = max(most, 3.0 * (1 + JITTER)) if status == 429 else most
        is_right = most * (1 - JITTER) - 0.001 <= wait <= longest + 0.001
        self.rules.hold(is_right, f"{lease.subscription_id} waits {wait} s after failure {end.attempt_count}")

    def _check_cursors(self) -> None:
        for rid, cursor in self.world.deliveries._cursors.items():
            subscriber = self.world.subscribers[self.world.fhir.streams[rid].state.id]
            text = f"{subscriber.id}: the cursor {cursor.delivered} is ahead of the answer {subscriber.acknowledged}"
            self.rules.hold(cursor.delivered <= subscriber.acknowledged, text)
            held = self.held.get(rid)
            if held is not None:
                self.rules.hold(cursor.delivered == held.cursor, f"{subscriber.id}: the cursor is {cursor.delivered}")

    # -- notifications

    def notified(self, subscriber: Subscriber, notification: Notification) -> None:
        """In order: nothing is sent before all that comes earlier is acknowledged, or in flight."""
        last = subscriber.acknowledged + self.world.in_flight
        for event in notification.events:
            text = f"{subscriber.id} gets {event.number} before the answer to {subscriber.acknowledged + 1}"
            self.rules.hold(event.number <= last, text)
            earlier = [
                one.number for one in self.held_of(subscriber).events[: event.number - 1]
                if (one.resource_type, one.id) == (event.resource_type, event.id)
            ]  # fmt: skip
            is_ordered = subscriber.answered.issuperset(earlier)
            self.rules.hold(is_ordered, f"{subscriber.id} gets version {event.version_id} before an earlier one")

    def held_of(self, subscriber: Subscriber) -> Held:
        """The lease of a subscriber."""
        rid = next(rid for rid, one in self.world.fhir.streams.items() if one.state.id == subscriber.id)
        return self.held[rid]

    def missing(self) -> list[str]:
        """What has not come to rest: each active subscriber has every event, none is still requested."""
        found = []
        for stream in self.world.fhir.streams.values():
            subscriber = self.world.subscribers[stream.state.id]
            if stream.state.status == "requested":
                found.append(f"{subscriber.id} is still requested")
            if stream.state.status == "active" and subscriber.acknowledged < len(stream.events):
                found.append(f"{subscriber.id} has {subscriber.acknowledged} of {len(stream.events)} events")
            if stream.state.status in ("active", "error") and self._cursor_of(stream) > subscriber.acknowledged:
                found.append(f"{subscriber.id}: the cursor is ahead")
        return found

    def _cursor_of(self, stream: Any) -> int:
        cursor = self.world.deliveries._cursors.get(stream.state.rid)
        return 0 if cursor is None else cursor.delivered


def _budget(backoff: Backoff) -> float:
    """Seconds that all attempts take when each fails at once."""
    waits = [backoff.base_ms * backoff.factor**step for step in range(backoff.max_attempts - 1)]
    return sum(min(wait, backoff.max_ms) for wait in waits) / 1000


def _failures(before: int, attempts: Sequence[Attempt]) -> int:
    """Failures in a row after these attempts."""
    for attempt in attempts:
        before = 0 if attempt.succeeded else before + 1
    return before
