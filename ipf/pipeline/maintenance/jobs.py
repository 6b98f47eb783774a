"""Jobs on many messages: replay, retry and discard, in batches.

What arrives: rows of `admin_jobs`.  What leaves: messages that are due again, further conversions, removed dead
letters, and the progress of the job, all in the transaction of the batch.  The stage rests between batches, so that a
job keeps to its rate of messages per second.  What survives a crash: all committed batches; the job continues after
them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ipf.ports import MessageAdmin, Notifier

BATCH = 200


class Jobs:
    """The stage; `step` does one batch.  `pause(seconds)` waits."""

    def __init__(self, admin: MessageAdmin, notifier: Notifier, pause: Callable[[float], Awaitable[object]]) -> None:
        self._admin = admin
        self._notifier = notifier
        self._pause = pause

    async def step(self) -> bool:
        """True when a batch was done.  StoreUnreachable passes through."""
        done = await self._admin.run_batch(BATCH)
        if done is None:
            return False
        count, per_second = done
        if count:
            self._notifier.notify("inbox")
            await self._pause(count / per_second)
        return True
