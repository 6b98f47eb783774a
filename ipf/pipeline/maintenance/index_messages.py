"""Indexing the words of messages, behind the inbox: nothing on the way of a message waits for it.

What arrives: messages that were stored, in the order of id.  What leaves: index rows, by which `/admin/messages` finds
them; messages that are not indexed yet are found by looking at them.
The stage rests three times as long as it worked, so that it takes at most a quarter of one core from the converters;
how far it is behind is what `index_lag` of a search says.  A kill loses one batch, which is done again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ipf.ports import MessageIndex

_REST = 3.0
_TIDY_EVERY = 300  # steps that found nothing


class IndexMessages:
    """The stage; `step` does one batch.  `pause(seconds)` waits; `now` is a clock in seconds."""

    def __init__(
        self, index: MessageIndex, pause: Callable[[float], Awaitable[object]], now: Callable[[], float]
    ) -> None:
        self._index = index
        self._pause = pause
        self._now = now
        self._idle = 0

    async def step(self) -> bool:
        """True when a batch was done.  StoreUnreachable passes through."""
        began = self._now()
        worked = await self._index.work(lambda: self._pause(0))
        if worked:
            self._idle = 0
            await self._pause(_REST * (self._now() - began))
            return True
        self._idle += 1
        if self._idle % _TIDY_EVERY == 0:
            await self._index.tidy()
        return False
