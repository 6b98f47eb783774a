"""What small values are made of again and again, remembered: codes, names, days, systems.

A `Memo` is a dict that makes what it does not have, so that finding costs no call.  It is bounded twice: long keys are
not kept, and a full memo begins anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
LONGEST = 100


class Memo(dict[Any, T]):
    """`memo[key]` is `make(key)`, remembered when the key is short; TypeError for a key that cannot be one."""

    __slots__ = ("_limit", "_make")

    def __init__(self, make: Callable[[Any], T], limit: int = 8192) -> None:
        super().__init__()
        self._make = make
        self._limit = limit

    def __missing__(self, key: Any) -> T:
        made = self._make(key)
        if _length(key) < LONGEST:
            if len(self) >= self._limit:
                self.clear()
            self[key] = made
        return made


def _length(key: Any) -> int:
    if type(key) is tuple:
        return sum(map(_length, key))
    return len(key) if type(key) is str else 0
