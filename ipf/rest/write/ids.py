"""Server-assigned ids: UUID version 7, in order of creation, so that B-tree indexes grow at their end.

Source: RFC 9562 section 5.7
"""

from __future__ import annotations

import os
from datetime import datetime
from functools import lru_cache

_BATCH = 256
_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
_random: list[str] = []  # twenty hexadecimal digits each, read from the system in batches


def new_id(now: datetime) -> str:
    """A new logical id: 48 bits of milliseconds, the rest random."""
    try:
        digits = _random.pop()
    except IndexError:
        digits = _refill()
    return f"{_time_prefix(now)}{digits[:3]}-{_VARIANT[digits[3]]}{digits[4:7]}-{digits[7:19]}"


@lru_cache(maxsize=16)
def _time_prefix(now: datetime) -> str:
    """Time and version digits, shared by all ids of one transaction."""
    text = f"{int(now.timestamp() * 1000) & 0xFFFF_FFFF_FFFF:012x}"
    return f"{text[:8]}-{text[8:]}-7"


def _refill() -> str:
    """One random value, after adding a batch to `_random`."""
    text = os.urandom(10 * (_BATCH + 1)).hex()
    _random.extend([text[start : start + 20] for start in range(20, len(text), 20)])
    return text[:20]


os.register_at_fork(after_in_child=_random.clear)
