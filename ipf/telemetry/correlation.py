"""Correlation ids: one UUID follows a message from the socket to the subscriber.

The wire form is the HTTP header `X-Correlation-Id`; in rows and log records the same value is `correlation_id`
(interface specification, "Correlation").  New ids are UUID version 7, so that rows and logs sort by time and the
index on `correlation_id` grows at its end.

Source: RFC 9562 section 5.7, with the sub-millisecond fraction of section 6.2 method 3 in `rand_a`.
"""

from __future__ import annotations

import re
from random import Random
from time import time_ns

HEADER = "X-Correlation-Id"

_UUID = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}")
_random_bits = Random().getrandbits  # seeded by the operating system; an id is a name, not a secret


def new_correlation_id() -> str:
    """A fresh UUID (version 7) in its text form; ids made later sort later, to about a quarter of a microsecond."""
    milliseconds, rest = divmod(time_ns(), 1_000_000)
    fraction = (rest << 12) // 1_000_000
    high = f"{milliseconds:012x}"
    low = f"{0x8000_0000_0000_0000 | _random_bits(62):016x}"
    return f"{high[:8]}-{high[8:]}-7{fraction:03x}-{low[:4]}-{low[4:]}"


def accept(header: str | bytes | None) -> str:
    """The id that a caller sent, in lower case as it is stored; a fresh one when it is missing or no UUID."""
    if header:
        text = header.decode("latin-1") if isinstance(header, bytes) else header
        text = text.strip()
        if _UUID.fullmatch(text):
            return text.lower()
    return new_correlation_id()
