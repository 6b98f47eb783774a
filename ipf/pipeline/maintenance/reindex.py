"""Reindexing: resources that are older than a search parameter get its index entries, in batches.

What arrives: rows of `reindex_jobs`, written with the SearchParameter that needs them.  What leaves: index entries, and
the progress of the job.  A batch is small, because it locks the rows of its resources.  Between batches the stage rests
as long as the batch took, so that it uses at most half of one connection.  A crash loses one batch, which is repeated.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from twisted.logger import Logger

from ipf.ports import ReindexQueue

log = Logger()

BATCH = 200

Refresh = Callable[[], Awaitable[object]]
Pause = Callable[[float], Awaitable[object]]
Now = Callable[[], float]


class Reindex:
    """The stage; `step` does one batch.  `refresh`: loads the current search parameters.

    `pause(seconds)` waits; `now` is a clock in seconds for measuring.
    """

    def __init__(self, queue: ReindexQueue, refresh: Refresh, pause: Pause, now: Now) -> None:
        self._queue = queue
        self._refresh = refresh
        self._pause = pause
        self._now = now
        self._working = False

    async def step(self) -> bool:
        """True when a batch was done.  StoreUnreachable passes through."""
        began = self._now()
        worked = await self._queue.is_open()
        if worked:
            await self._refresh()
            worked = await self._queue.run_batch(BATCH)
        if worked != self._working:
            log.info("event=reindex state={state}", event="reindex", state="working" if worked else "idle")
            self._working = worked
        if worked:
            await self._pause(self._now() - began)
        return worked
