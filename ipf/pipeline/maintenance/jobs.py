"""Jobs on many messages: replay, retry, discard, batch by batch, beside the daily work.

What arrives: rows of `admin_jobs`.  What leaves: messages that are due again, further conversions, removed dead
letters, and how far the job got, all in the transaction of the batch.  Between two batches the stage rests, so that a
job does no more messages a second than it was given.
What survives a kill: all batches that were committed; the job goes on behind them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ipf.ports import MessageAdmin, Notifier

BATCH = 200


class Jobs:
    """The stage; `step` does one batch.  `pause(seconds)` waits."""

    def __init__(self, desk: MessageAdmin, notifier: Notifier, pause: Callable[[float], Awaitable[object]]) -> None:
        self._desk = desk
        self._notifier = notifier
        self._pause = pause

    async def step(self) -> bool:
        """True when a batch was done.  StoreUnreachable passes through."""
        done = await self._desk.work(BATCH)
        if done is None:
            return False
        count, per_second = done
        if count:
            self._notifier.notify("inbox")
            await self._pause(count / per_second)
        return True
