"""The notifications of one lease in flight: a sliding window over notifications in order of number.

Arrives: the notifications of a batch, and the outcome of each.  Leaves: which one to send next, up to which number all
are acknowledged without a gap, and the first failure.

A window of 1 sends one notification at a time, in order of number.  A wider one sends the oldest unacknowledged
notification and up to `width - 1` after it, in order.  Two events of one resource are never in flight together, so the
versions of a resource arrive in order: "within one resource the highest `meta.versionId` wins" (interface specification
"Subscription notifications" 2).  After a failure nothing more is started.  Volatile: what is acknowledged behind a gap
is sent again.
"""

from __future__ import annotations

from collections.abc import Sequence

from twisted.internet.defer import Deferred

from ipf.pipeline.deliver.destinations import Postponed
from ipf.ports import Delivered, Event

Outcome = Delivered | Postponed
"""Of one notification."""


class Window:
    """The notifications of one batch, each of one or more events, by position."""

    def __init__(self, notifications: Sequence[Sequence[Event]], width: int) -> None:
        self.width = width
        self._notifications = notifications
        self._next = 0
        self._oldest = 0  # the first that is not acknowledged
        self._acknowledged: set[int] = set()
        self._resources: set[tuple[str, str]] = set()  # of the notifications in flight
        self._failures: dict[int, Outcome] = {}
        self._waiting: list[Deferred[None]] = []
        self._is_ended = False

    @property
    def is_acknowledged(self) -> bool:
        """Whether all notifications of the batch are acknowledged."""
        return self._oldest == len(self._notifications)

    @property
    def acknowledged_to(self) -> int | None:
        """The number of the last event before the first gap; None: no event of the batch."""
        events = self._notifications[self._oldest - 1] if self._oldest else ()
        return events[-1].number if events else None

    @property
    def failure(self) -> tuple[Sequence[Event], Outcome] | None:
        """The failed notification with the lowest number, and its outcome."""
        if not self._failures:
            return None
        position = min(self._failures)
        return self._notifications[position], self._failures[position]

    @property
    def retry_after(self) -> float | None:
        """The longest wait that a failed response asks for."""
        waits = (one.retry_after for one in self._failures.values() if isinstance(one, Delivered))
        return max((wait for wait in waits if wait is not None), default=None)

    async def take(self) -> tuple[int, Sequence[Event]] | None:
        """The next notification and its position, as soon as it may be sent; None when there is none to send."""
        while not self._is_ended and self._next < len(self._notifications):
            events = self._notifications[self._next]
            resources = _resources(events)
            if self._next < self._oldest + self.width and self._resources.isdisjoint(resources):
                self._resources |= resources
                self._next += 1
                return self._next - 1, events
            waiter: Deferred[None] = Deferred()
            self._waiting.append(waiter)
            await waiter
        return None

    def acknowledge(self, position: int) -> bool:
        """The notification was acknowledged; whether there is no gap before it."""
        self._acknowledged.add(position)
        before = self._oldest
        while self._oldest in self._acknowledged:
            self._oldest += 1
        self._resources -= _resources(self._notifications[position])
        self._wake()
        return self._oldest > before

    def fail(self, position: int, outcome: Outcome) -> None:
        """The notification was not acknowledged: nothing more is started."""
        self._failures[position] = outcome
        self.end()

    def end(self) -> None:
        """Start nothing more."""
        self._is_ended = True
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            waiter.callback(None)


def _resources(events: Sequence[Event]) -> set[tuple[str, str]]:
    return {(event.resource_type, event.id) for event in events}
