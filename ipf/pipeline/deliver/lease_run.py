"""One lease in progress: what its coroutine knows beyond the row.  Volatile: a crash leaves the row as it is."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from twisted.internet.defer import Deferred, DeferredList
from twisted.python.failure import Failure

from ipf.ports import Attempt, DeliveryEnd, Lease, Terms
from ipf.ports.audit.records import Audit


@dataclass(slots=True, eq=False)
class LeaseRun:
    """The state of one lease in progress.

    `sending`: when the requests in flight began, oldest first.  `width`: notifications that may be in flight.
    `delivered_to`, `attempts` and `audits` are not settled yet.  `is_over`: the lease is not held any more.
    """

    lease: Lease
    terms: Terms
    until: datetime
    started: float
    settled: float
    failing_since: datetime | None
    failures: int
    is_heartbeat: bool
    notification_count: int = 0
    sending: list[float] = field(default_factory=list)
    width: int = 1
    delivered_to: int | None = None
    attempts: list[Attempt] = field(default_factory=list)
    audits: list[Audit] = field(default_factory=list)
    is_settling: bool = False
    is_over: bool = False
    ended: bool = False

    def end(self, retry_at: datetime | None, failures: int, keep_until: datetime | None, more: int) -> DeliveryEnd:
        """What is to be settled; further attempts may come while it is written."""
        end = DeliveryEnd(
            self.delivered_to, tuple(self.attempts), retry_at, failures, keep_until, more, tuple(self.audits)
        )
        self.delivered_to = None
        self.attempts.clear()
        self.audits.clear()
        return end


async def all_ended(coroutines: Iterable[Coroutine[Deferred[Any], Any, object]]) -> None:
    """Run them concurrently until the last one has ended; raises what the first one raised."""
    running: list[Deferred[object]] = [Deferred.fromCoroutine(coroutine) for coroutine in coroutines]
    for _, result in await DeferredList(running, consumeErrors=True):
        if isinstance(result, Failure):
            result.raiseException()
