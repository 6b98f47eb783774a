"""Reports failing topics in the `error` of their Subscriptions, and withdraws the report when the topic has changed.

Input: the failures that matching recorded in this process, and the index of subscriptions.  Output: new versions of the
Subscriptions, with an unchanged status.  Crash: reports that were not written are lost; the next failure reports again.

Every process that writes resources runs this stage, since matching happens where resources are written.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from twisted.logger import Logger

from ipf.errors import Problem, StoreUnreachable

log = Logger()

BATCH = 100

# report(tenant, subscription id, error text or None): False when the Subscription is not active yet.
Report = Callable[[str, str, str | None], Awaitable[bool]]


class ReportTopicFailures:
    """The stage; `step` writes up to `BATCH` Subscriptions.

    `pending(limit)`: (tenant, id, error text) to report.  `reported(tenant, id)`: it need not be reported again,
    `postponed(tenant, id)`: it is not active yet.  `outdated()`: (tenant, id) of Subscriptions whose error is about an
    earlier version of the topic.
    """

    def __init__(
        self,
        pending: Callable[[int], Sequence[tuple[str, str, str]]],
        reported: Callable[[str, str], None],
        postponed: Callable[[str, str], None],
        report: Report,
        outdated: Callable[[], Sequence[tuple[str, str]]],
    ) -> None:
        self._pending = pending
        self._reported = reported
        self._postponed = postponed
        self._report = report
        self._outdated = outdated

    async def step(self) -> bool:
        """False: the worker waits for its interval; failures are frequent when there are any.  StoreUnreachable."""
        for tenant, id, text in self._pending(BATCH):
            settle = self._reported if await self._write(tenant, id, text) else self._postponed
            settle(tenant, id)
        for tenant, id in self._outdated()[:BATCH]:
            await self._write(tenant, id, None)
        return False

    async def _write(self, tenant: str, id: str, error: str | None) -> bool:
        try:
            return await self._report(tenant, id, error)
        except StoreUnreachable:
            raise
        except Problem as problem:  # it was deleted, or is being changed: its next failure is reported
            log.info("Subscription/{id}: its topic was not reported: {problem}", id=id, problem=str(problem))
            return True
