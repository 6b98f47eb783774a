"""Activation: a Subscription that was accepted as `requested` becomes `active`.

What arrives: ids of subscriptions in status `requested`, from the delivery queue.  What leaves: the status `active`,
written by `set_status` as a new version of the Subscription, in one transaction with the service's own row.  Legacy
subscriptions are activated without a call to the endpoint (decisions section 6).  A crash in between leaves the row
`requested`, and the next step takes it again.

The specification expects activation "within about a second": the writer of a Subscription rings the bell, and the poll
deadline of this stage's worker is one second.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from twisted.logger import Logger

from ipf.errors import Problem, StoreUnreachable
from ipf.ports import DeliveryQueue

log = Logger()

BATCH = 100

# set_status(tenant, subscription id, status, error text or None): Problem when it cannot be written.
SetStatus = Callable[[str, str, str, str | None], Awaitable[None]]


class Activate:
    """The stage; `step` activates up to `BATCH` subscriptions."""

    def __init__(self, queue: DeliveryQueue, set_status: SetStatus) -> None:
        self._queue = queue
        self._set_status = set_status
        self._refused: dict[tuple[str, str], str] = {}

    async def step(self) -> bool:
        """True when at least one subscription was activated.  StoreUnreachable passes through."""
        activated = 0
        waiting = await self._queue.requested(BATCH)
        self._refused = {each: self._refused[each] for each in waiting if each in self._refused}
        for tenant, subscription_id in waiting:
            activated += await self._activate(tenant, subscription_id)
        return activated > 0

    async def _activate(self, tenant: str, subscription_id: str) -> bool:
        try:
            await self._set_status(tenant, subscription_id, "active", None)
        except StoreUnreachable:
            raise
        except Problem as problem:
            # Deleted or changed meanwhile: it is looked at again in the next step if it still waits.
            if self._refused.get((tenant, subscription_id)) != str(problem):
                log.warn("Subscription/{id} was not activated: {problem}", id=subscription_id, problem=str(problem))
            self._refused[tenant, subscription_id] = str(problem)
            return False
        log.info("Subscription/{id} is active", id=subscription_id)
        return True
