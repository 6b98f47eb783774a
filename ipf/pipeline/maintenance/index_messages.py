"""Full-text indexing of messages, behind the inbox: no message waits for it.

What arrives: stored messages, in the order of id.  What leaves: index rows, by which `/admin/messages` finds them;
messages that are not indexed yet are read one by one by each search.
After a batch the stage rests three times as long as it worked, so that it takes at most a quarter of one core from the
converters; `index_lag` in the answer to a search says how far it is behind.  A crash loses one batch, which is done
again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ipf.ports import MessageIndex

_REST = 3.0


class IndexMessages:
    """The stage; `step` does one batch.  `pause(seconds)` waits; `now` is a clock in seconds."""

    def __init__(
        self, index: MessageIndex, pause: Callable[[float], Awaitable[object]], now: Callable[[], float]
    ) -> None:
        self._index = index
        self._pause = pause
        self._now = now

    async def step(self) -> bool:
        """True when a batch was done.  StoreUnreachable passes through."""
        began = self._now()
        if not await self._index.index_next(lambda: self._pause(0)):
            return False
        await self._pause(_REST * (self._now() - began))
        return True
