"""The index of words inside messages, which is written behind the inbox."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol


class MessageIndex(Protocol):
    """What the indexing stage works on."""

    async def work(self, pause: Callable[[], Awaitable[object]]) -> int:
        """Index the next messages, those of a chunk of ids, in one transaction; how many.  0: none are due.

        `pause` is awaited between parts of the work, so that it does not hold up others.
        """

    async def tidy(self) -> int:
        """Remove words of chunks that have no message any more; how many chunks."""

    async def lag(self) -> int:
        """How many ids were drawn that are not in the index yet."""
