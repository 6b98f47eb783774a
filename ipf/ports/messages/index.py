"""The full-text index of messages, which lags behind the inbox."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol


class MessageIndex(Protocol):
    """The index as the indexing stage uses it."""

    async def index_next(self, pause: Callable[[], Awaitable[object]]) -> int:
        """Index the next messages in one transaction.  Returns their number; 0: none are due.

        `pause` is awaited between parts of the work, so that other work can run.
        """

    async def lag(self) -> int:
        """Number of assigned message ids that are not in the index yet."""
