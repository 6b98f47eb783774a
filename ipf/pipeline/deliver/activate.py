"""Activation: a `requested` Subscription becomes `active`; a Subscription past its end becomes `off`.

Input: subscriptions with status `requested`, past their `end`, or no longer servable, from the delivery queue and the
matching index.  Output: a new version of the Subscription, written by `set_status` in one transaction with the
service's own row.  Crash: the row is unchanged, and the next step takes it again.

A subscription that follows the guide gets a handshake over its channel first: an acknowledgement makes it `active`.  A
handshake that fails is repeated with growing pauses for 30 seconds (`handshake.py`); then the status is `error`.
`Subscription.error` says how often it has failed, during the 30 seconds and at the end.  Each attempt is in the ledger.
Other subscriptions are activated without a request (decisions section 6), so are those of a channel over which nothing
is ever sent (email without a mail server).  A channel that this server does not support makes the status
`error` with the reason.

The specification expects activation "within about a second": writing a Subscription notifies this stage, and its
worker polls every second.  Handshakes run concurrently, so that a slow endpoint does not delay others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from ipf.errors import Problem, StoreUnreachable
from ipf.pipeline.deliver.handshake import ACTIVATION_SECONDS, pause_after, shake_hands
from ipf.pipeline.equal_failures import reason_of
from ipf.pipeline.worker import Sleep, finished_within
from ipf.ports import Channel, Channels, Clock, Compose, DeliveryQueue, Lease
from ipf.subscriptions.criteria import end_of
from ipf.subscriptions.status import REQUESTED

log = Logger()

BATCH = 100
CHECK_INTERVAL = timedelta(seconds=0.9)
LEAST_TIME_LIMIT_SECONDS = 1.0
LONGEST_UNSEEN_CHANGE_SECONDS = 1.0
"""A Subscription that is changed between two handshakes gets the new one within a second."""
MOST_LOOKS_A_SECOND = 100
"""Looks at the Subscriptions between handshakes: with more of them each is seen later."""

# set_status(tenant, subscription id, status, error text or None, version or None): Problem when it cannot be written.
# Nothing is written when the Subscription has another version: it was requested again, or changed.
SetStatus = Callable[[str, str, str, str | None, str | None], Awaitable[None]]
SubscriptionKey = tuple[str, str]
"""(tenant, subscription id)"""


async def _no_unserved() -> Sequence[tuple[str, str, str, str]]:
    return ()


class _Stopped(Exception):
    """The handshakes with one Subscription end without a result: it was changed, or the service stops."""


class Activate:
    """The stage; `step` changes the status of up to `BATCH` subscriptions of each kind.

    `set_status` writes `active` or `error` for a `requested` subscription, `end` writes `off` or `error` in any status.
    `unserved()`: (tenant, id, version, reason) of subscriptions that cannot fire.  `never_sent`: channel types over
    which nothing is sent.  `clock`: of the pauses between handshakes; None = one handshake decides.
    """

    def __init__(
        self,
        queue: DeliveryQueue,
        set_status: SetStatus,
        channels: Channels | None = None,
        compose: Compose | None = None,
        now: Clock = lambda: datetime.now(UTC),
        end: SetStatus | None = None,
        unserved: Callable[[], Awaitable[Sequence[tuple[str, str, str, str]]]] = _no_unserved,
        never_sent: frozenset[str] = frozenset(),
        clock: IReactorTime | None = None,
    ) -> None:
        self._queue = queue
        self._set_status = set_status
        self._channels = channels or {}
        self._compose = compose
        self._now = now
        self._end = end
        self._unserved = unserved
        self._never_sent = never_sent
        self._clock = clock
        self._pauses: list[Sleep] = []
        self._logged_refusals: dict[SubscriptionKey, str] = {}
        self._last_check: datetime | None = None
        self._stopping = False
        self._handshakes: dict[SubscriptionKey, Deferred[None]] = {}

    async def step(self) -> bool:
        """True when the status of at least one subscription was changed.  Raises StoreUnreachable."""
        moved = await self._end_subscriptions() if self._end is not None and self._is_check_due() else 0
        waiting = await self._queue.requested(BATCH + len(self._handshakes))
        self._logged_refusals = {
            subscription: self._logged_refusals[subscription]
            for subscription in waiting
            if subscription in self._logged_refusals
        }
        for subscription in waiting:
            if subscription not in self._handshakes:
                moved += await self._activated(subscription)
        return moved > 0

    async def _activated(self, subscription: SubscriptionKey) -> bool:
        """`_activate`; what nobody foresaw ends in the status `error`, and the next Subscription is taken."""
        try:
            return await self._activate(*subscription)
        except (StoreUnreachable, CancelledError):
            raise
        except Exception as error:
            log.failure("Subscription/{id} could not be activated", id=subscription[1])
            return await self._change_status(self._set_status, *subscription, "error", reason_of(error))

    async def stop(self, within_seconds: float, clock: IReactorTime) -> bool:
        """Wait for running handshakes; False on timeout: they are repeated after the next start."""
        self._stopping = True
        for pause in self._pauses:
            pause.end()
        return await finished_within(list(self._handshakes.values()), within_seconds, clock)

    def _is_check_due(self) -> bool:
        """True once a second, since every write notifies this stage."""
        now = self._now()
        if self._last_check is not None and now - self._last_check < CHECK_INTERVAL:
            return False
        self._last_check = now
        return True

    async def _end_subscriptions(self) -> int:
        """Change the status of subscriptions past their end, and of those that can no longer be served."""
        moved = 0
        for tenant, id in await self._queue.ended(BATCH):
            lease = await self._queue.peek(tenant, id)
            end = None if lease is None else end_of(lease.resource)
            if lease is not None and end is not None and end <= self._now():
                moved += await self._change_status(self._end, tenant, id, "off", None, lease.version_id)
        for tenant, id, version_id, reason in await self._unserved():
            text = f"it cannot be served any more: {reason}"
            moved += await self._change_status(self._end, tenant, id, "error", text, version_id or None)
        return moved

    async def _activate(self, tenant: str, subscription_id: str) -> bool:
        """Whether the status was changed; a handshake continues in the background."""
        lease = await self._queue.peek(tenant, subscription_id) if self._compose is not None else None
        if lease is None or self._compose is None:
            return await self._change_status(self._set_status, tenant, subscription_id, "active", None)
        terms = self._compose.terms(lease.resource)
        if terms.channel_type in self._never_sent:
            return await self._change_status(self._set_status, tenant, subscription_id, "active", None)
        channel = self._channels.get(terms.channel_type)
        reason = channel.unavailable if channel else f"this server has no channel {terms.channel_type}"
        if channel is None or reason is not None or not terms.needs_handshake:
            status = "active" if reason is None else "error"
            named = tenant, subscription_id
            return await self._change_status(self._set_status, *named, status, reason, lease.version_id)
        work = Deferred.fromCoroutine(self._handshake(lease, self._compose, channel))
        if not work.called:
            self._handshakes[tenant, subscription_id] = work
            work.addBoth(self._handshake_done, (tenant, subscription_id))
        return bool(work.called)

    def _handshake_done(self, result: object, subscription: SubscriptionKey) -> None:
        self._handshakes.pop(subscription, None)

    async def _handshake(self, lease: Lease, compose: Compose, channel: Channel) -> None:
        """Shake hands and set the status.  It begins anew when the store was unreachable."""
        try:
            lease, reason = await self._reason_to_refuse(lease, compose, channel)
            subscription = lease.tenant, lease.subscription_id
            if await self._is_unchanged(lease):
                status = "active" if reason is None else "error"
                await self._change_status(self._set_status, *subscription, status, reason, lease.version_id)
        except (StoreUnreachable, _Stopped):
            return

    async def _reason_to_refuse(self, lease: Lease, compose: Compose, channel: Channel) -> tuple[Lease, str | None]:
        """Why the endpoint cannot be activated; None: it acknowledged a handshake.  Each one is in the ledger.

        The Subscription comes back as the last failure left it.
        """
        began, failures = self._seconds(), 0
        while True:
            left = max(ACTIVATION_SECONDS - (self._seconds() - began), LEAST_TIME_LIMIT_SECONDS)
            try:
                attempt, retry_after = await shake_hands(lease, compose, channel, self._now, left)
            except StoreUnreachable:
                raise
            except Problem as problem:
                return lease, f"it cannot be composed: {problem.text}"
            except CancelledError:
                raise
            except Exception as error:
                log.failure("the handshake for Subscription/{id} failed", id=lease.subscription_id)
                return lease, f"the handshake failed: {reason_of(error)}"
            if self._stopping and not attempt.succeeded:
                raise _Stopped  # the stop may have cancelled the request
            failures += 1
            elapsed = self._seconds() - began
            pause = None if attempt.succeeded else pause_after(failures, elapsed, retry_after)
            if pause is not None and self._clock is not None:
                text = f"{attempt.error} (handshake {failures}, the next in {round(pause, 1):g} s)"
                await self._queue.record(lease.tenant, lease.subscription_id, [replace(attempt, error=text)])
                lease = await self._failed_so_far(lease, failures, attempt.error)
                await self._wait(lease, pause)
                continue
            await self._queue.record(lease.tenant, lease.subscription_id, [attempt])
            if attempt.succeeded:
                return lease, None
            times = "" if failures == 1 else f" {failures} times in {elapsed:.0f} s"
            return lease, f"the handshake failed{times}: {attempt.error}"

    async def _failed_so_far(self, lease: Lease, failures: int, error: str | None) -> Lease:
        """Say in the Subscription, which stays `requested`, how often its handshake has failed; the new version.

        _Stopped: it was changed by somebody else.
        """
        tenant, id = lease.tenant, lease.subscription_id
        times = "once" if failures == 1 else f"{failures} times"
        text = f"the handshake failed {times} and is repeated for {ACTIVATION_SECONDS:.0f} s: {error}"
        await self._change_status(self._set_status, tenant, id, REQUESTED, text, lease.version_id)
        current = await self._queue.peek(tenant, id)
        if current is None or not (_is_same_version(current, lease) or _differs_in_error(current, lease, text)):
            raise _Stopped
        return current

    async def _wait(self, lease: Lease, seconds: float) -> None:
        """Wait until the next handshake.  _Stopped: the Subscription was changed, perhaps its endpoint, or the stop."""
        while self._clock is not None:
            if self._stopping or not await self._is_unchanged(lease):
                raise _Stopped
            if seconds <= 0:
                return
            unseen = max(LONGEST_UNSEEN_CHANGE_SECONDS, len(self._handshakes) / MOST_LOOKS_A_SECOND)
            pause = Sleep(self._clock, min(seconds, unseen))
            self._pauses.append(pause)
            await pause.finished
            self._pauses.remove(pause)
            seconds -= unseen

    async def _is_unchanged(self, lease: Lease) -> bool:
        """Whether the Subscription is what it was; otherwise a new handshake follows."""
        current = await self._queue.peek(lease.tenant, lease.subscription_id)
        return current is not None and _is_same_version(current, lease)

    def _seconds(self) -> float:
        return 0.0 if self._clock is None else self._clock.seconds()

    async def _change_status(
        self,
        set_status: SetStatus | None,
        tenant: str,
        subscription_id: str,
        status: str,
        error: str | None,
        version_id: str | None = None,
    ) -> bool:
        if set_status is None:
            return False
        try:
            await set_status(tenant, subscription_id, status, error, version_id)
        except StoreUnreachable:
            raise
        except CancelledError:
            raise
        except Exception as failed:
            # Deleted or changed in the meantime: the next step takes it again if it is still requested.
            problem = reason_of(failed)
            is_new = self._logged_refusals.get((tenant, subscription_id)) != problem
            self._logged_refusals[tenant, subscription_id] = problem
            if is_new and isinstance(failed, Problem):
                log.warn("Subscription/{id} was not activated: {problem}", id=subscription_id, problem=problem)
            elif is_new:
                log.failure("Subscription/{id} was not activated", id=subscription_id)
            return False
        if error is None:
            log.info("Subscription/{id} is {status}", id=subscription_id, status=status)
        else:
            log.warn("Subscription/{id} is {status}: {reason}", id=subscription_id, status=status, reason=error)
        return True


def _is_same_version(current: Lease, lease: Lease) -> bool:
    return bool(current.resource.get("meta") == lease.resource.get("meta"))


def _differs_in_error(current: Lease, lease: Lease, error: str) -> bool:
    """Whether this error is the only difference.  A client that writes the Subscription removes it."""
    wanted = {**lease.resource, "error": error, "meta": current.resource.get("meta")}
    return current.resource == wanted
