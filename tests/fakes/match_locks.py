"""Locks in memory that several transactions share or one has alone, as the advisory locks of PostgreSQL."""

from __future__ import annotations

from twisted.internet.defer import Deferred


class SharedLock:
    """One lock.  Whoever waits is served in order, so that sharers do not starve who wants it alone."""

    def __init__(self) -> None:
        self._holders = 0
        self._is_exclusive = False
        self._waiting: list[tuple[bool, Deferred[None]]] = []

    async def acquire(self, *, exclusive: bool) -> None:
        """Wait for it."""
        turn: Deferred[None] = Deferred()
        self._waiting.append((exclusive, turn))
        self._serve()
        await turn

    def release(self) -> None:
        """Give it back."""
        self._holders -= 1
        self._is_exclusive = False
        self._serve()

    def _serve(self) -> None:
        while self._waiting:
            exclusive, turn = self._waiting[0]
            if self._is_exclusive or (exclusive and self._holders):
                return
            del self._waiting[0]
            self._holders += 1
            self._is_exclusive = exclusive
            turn.callback(None)
