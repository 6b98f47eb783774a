"""A clock for code that also has sockets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet import reactor
from twisted.internet.task import Clock


class ClockWithSockets(Clock):
    """Time moves by `advance` only; sockets are those of the reactor."""

    def __getattr__(self, name: str) -> Any:
        return getattr(reactor, name)

    def callLater(self, when: float, what: Callable[..., object], *args: Any, **kw: Any) -> Any:
        """The reactor's when it is due at once."""
        place: Any = reactor if when == 0 else super()
        return place.callLater(when, what, *args, **kw)
