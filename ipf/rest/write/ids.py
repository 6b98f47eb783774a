"""Ids that the server gives: UUID version 7, so that ids made later sort later and b-trees grow at their end.

Source: RFC 9562 section 5.7
"""

from __future__ import annotations

import os
from datetime import datetime
from functools import lru_cache

_AT_ONCE = 256
_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
_random: list[str] = []  # twenty hexadecimal digits each; the system is asked for many at once


def new_id(now: datetime) -> str:
    """A fresh logical id: 48 bits of milliseconds, the rest random."""
    try:
        digits = _random.pop()
    except IndexError:
        digits = _filled()
    return f"{_beginning(now)}{digits[:3]}-{_VARIANT[digits[3]]}{digits[4:7]}-{digits[7:19]}"


@lru_cache(maxsize=16)
def _beginning(now: datetime) -> str:
    """The time and the version, which all ids of one transaction share."""
    text = f"{int(now.timestamp() * 1000) & 0xFFFF_FFFF_FFFF:012x}"
    return f"{text[:8]}-{text[8:]}-7"


def _filled() -> str:
    """One more, after as many as are asked for at once were put by."""
    text = os.urandom(10 * (_AT_ONCE + 1)).hex()
    _random.extend([text[start : start + 20] for start in range(20, len(text), 20)])
    return text[:20]


os.register_at_fork(after_in_child=_random.clear)
