"""Activation: a Subscription that was accepted as `requested` becomes `active`, and its life ends when it is over.

What arrives: subscriptions in status `requested`, whose end has come, or that cannot be served any more, from the
delivery queue and the matching index.  What leaves: a new version of the Subscription, written by `set_status` in one
transaction with the service's own row.  A crash in between leaves the row as it was, and the next step takes it again.

A subscription that follows the guide is sent a handshake first, over its channel: an acknowledgement makes it
`active`, anything else `error`.  The others are activated without a call (decisions section 6).  A channel that this
server never sends over makes `error` with the reason.

The specification expects activation "within about a second": the writer of a Subscription rings the notifier, and the
poll
deadline of this stage's worker is one second.  Handshakes are sent side by side, so that one slow endpoint delays
nobody else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from ipf.errors import Problem, StoreUnreachable
from ipf.pipeline.worker import finished_within
from ipf.ports import HANDSHAKE, Attempt, Channel, Channels, Clock, Compose, DeliveryQueue, Lease

log = Logger()

BATCH = 100
LOOK_EVERY = timedelta(seconds=0.9)

# set_status(tenant, subscription id, status, error text or None): Problem when it cannot be written.
SetStatus = Callable[[str, str, str, str | None], Awaitable[None]]
Waiting = tuple[str, str]
"""(tenant, subscription id)"""


async def _none_unserved() -> Sequence[tuple[str, str, str]]:
    return ()


class Activate:
    """The stage; `step` moves up to `BATCH` subscriptions of each kind.

    `set_status` activates (or refuses) what is `requested`, `end` writes `off` or `error` in any other status.
    `unserved()`: (tenant, id, reason) of subscriptions that fire nothing although they should.
    """

    def __init__(
        self,
        queue: DeliveryQueue,
        set_status: SetStatus,
        channels: Channels | None = None,
        compose: Compose | None = None,
        now: Clock = lambda: datetime.now(UTC),
        end: SetStatus | None = None,
        unserved: Callable[[], Awaitable[Sequence[tuple[str, str, str]]]] = _none_unserved,
    ) -> None:
        self._queue = queue
        self._set_status = set_status
        self._channels = channels or {}
        self._compose = compose
        self._now = now
        self._end = end
        self._unserved = unserved
        self._refused: dict[Waiting, str] = {}
        self._looked: datetime | None = None
        self._stopping = False
        self._shaking: dict[Waiting, Deferred[None]] = {}

    async def step(self) -> bool:
        """True when at least one subscription was moved.  StoreUnreachable passes through."""
        moved = await self._finish() if self._end is not None and self._is_time() else 0
        waiting = await self._queue.requested(BATCH + len(self._shaking))
        self._refused = {each: self._refused[each] for each in waiting if each in self._refused}
        for each in waiting:
            if each not in self._shaking:
                moved += await self._activate(*each)
        return moved > 0

    async def stop(self, within_seconds: float, clock: IReactorTime) -> bool:
        """Wait for the handshakes under way; False when that took too long: they are repeated after the next start."""
        self._stopping = True
        return await finished_within(list(self._shaking.values()), within_seconds, clock)

    def _is_time(self) -> bool:
        """Once a second: the notifier rings with every write, and nothing here hurries that much."""
        now = self._now()
        if self._looked is not None and now - self._looked < LOOK_EVERY:
            return False
        self._looked = now
        return True

    async def _finish(self) -> int:
        """Those whose end has come, and those that cannot be served any more."""
        moved = 0
        for tenant, id in await self._queue.ended(BATCH):
            moved += await self._try(self._end, tenant, id, "off", None)
        for tenant, id, reason in await self._unserved():
            moved += await self._try(self._end, tenant, id, "error", f"it cannot be served any more: {reason}")
        return moved

    async def _activate(self, tenant: str, subscription_id: str) -> bool:
        """Whether it was moved; a handshake goes on by itself."""
        lease = await self._queue.peek(tenant, subscription_id) if self._compose is not None else None
        if lease is None or self._compose is None:
            return await self._try(self._set_status, tenant, subscription_id, "active", None)
        terms = self._compose.terms(lease.resource)
        channel = self._channels.get(terms.channel_type)
        reason = channel.unavailable if channel else f"this server has no channel {terms.channel_type}"
        if channel is None or reason is not None or not terms.needs_handshake:
            status = "active" if reason is None else "error"
            return await self._try(self._set_status, tenant, subscription_id, status, reason)
        work = Deferred.fromCoroutine(self._shake(lease, self._compose, channel))
        if not work.called:
            self._shaking[tenant, subscription_id] = work
            work.addBoth(self._shaken, (tenant, subscription_id))
        return bool(work.called)

    def _shaken(self, result: object, which: Waiting) -> None:
        self._shaking.pop(which, None)

    async def _shake(self, lease: Lease, compose: Compose, channel: Channel) -> None:
        """Send the handshake; the ledger says how it went.  While the store is away nothing changes: it is repeated."""
        try:
            notification = await compose.handshake(lease)
            attempted_at = self._now()
            delivered = await channel.send(notification)
            if self._stopping and not delivered.succeeded:
                return  # perhaps it is we who broke off
            reason = None if delivered.succeeded else delivered.error or f"HTTP status {delivered.http_status}"
            took = delivered.http_status, delivered.duration_ms, reason, notification.correlation_id
            attempt = Attempt(0, attempted_at, delivered.succeeded, *took, kind=HANDSHAKE)
            await self._queue.record(lease.tenant, lease.subscription_id, [attempt])
        except StoreUnreachable:
            return
        except Problem as problem:
            reason = f"none can be made: {problem.text}"
        which = lease.tenant, lease.subscription_id
        try:
            now = await self._queue.peek(*which)
            if now is None or now.resource.get("meta") != lease.resource.get("meta"):
                return  # it was written meanwhile, perhaps with another endpoint: it is asked anew
            if reason is None:
                await self._try(self._set_status, *which, "active", None)
            else:
                await self._try(self._set_status, *which, "error", f"the handshake failed: {reason}")
        except StoreUnreachable:
            return

    async def _try(
        self, set_status: SetStatus | None, tenant: str, subscription_id: str, status: str, error: str | None
    ) -> bool:
        if set_status is None:
            return False
        try:
            await set_status(tenant, subscription_id, status, error)
        except StoreUnreachable:
            raise
        except Problem as problem:
            # Deleted or changed meanwhile: it is looked at again in the next step if it still waits.
            if self._refused.get((tenant, subscription_id)) != str(problem):
                log.warn("Subscription/{id} was not activated: {problem}", id=subscription_id, problem=str(problem))
            self._refused[tenant, subscription_id] = str(problem)
            return False
        if error is None:
            log.info("Subscription/{id} is {status}", id=subscription_id, status=status)
        else:
            log.warn("Subscription/{id} is {status}: {reason}", id=subscription_id, status=status, reason=error)
        return True
