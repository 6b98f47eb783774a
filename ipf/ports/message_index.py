"""The full-text index of messages, written behind the inbox."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol


class MessageIndex(Protocol):
    """What the indexing stage works on."""

    async def index_next(self, pause: Callable[[], Awaitable[object]]) -> int:
        """Index the next messages in one transaction.  Returns how many; 0: none are due.

        `pause` is awaited between parts of the work, so that it does not hold up others.
        """

    async def lag(self) -> int:
        """How many ids were drawn that are not in the index yet."""
