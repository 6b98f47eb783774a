"""A connection that is opened at its first use, once for all who wait for it, who then go on in their order."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

T = TypeVar("T")


class Opening(Generic[T]):
    """What `open` makes.  After a failure, or `drop`, the next use opens again."""

    def __init__(self, open: Callable[[], Coroutine[Deferred[Any], Any, T]]) -> None:
        self._open = open
        self._waiting: list[Deferred[T]] = []
        self.value: T | None = None

    async def get(self) -> T:
        """The connection.  Raises what `open` raises."""
        if self.value is not None:
            return self.value
        waiting: Deferred[T] = Deferred()
        self._waiting.append(waiting)
        if len(self._waiting) == 1:
            Deferred.fromCoroutine(self._open()).addBoth(self._on_opened)
        return await waiting

    def drop(self, value: T) -> None:
        """This connection is of no more use."""
        if self.value is value:
            self.value = None

    def _on_opened(self, result: T | Failure) -> None:
        """The value is set first: a message that comes later does not overtake those that waited."""
        waiting, self._waiting = self._waiting, []
        if not isinstance(result, Failure):
            self.value = result
        for one in waiting:
            if not one.called:  # else its time limit came first
                one.callback(result)  # a Failure goes to the errback
