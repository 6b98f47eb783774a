"""Correlation ids: one UUID follows a message from the socket to the subscriber.

The wire form is the HTTP header `X-Correlation-Id`; in rows and log records the same value is `correlation_id`
(interface specification, "Correlation").  New ids are UUID version 7, so that rows and logs sort by time and the
index on `correlation_id` grows at its end.

The same 128 bits are the trace id of W3C Trace Context, so a trace needs no row of its own: a caller without
`X-Correlation-Id` whose `traceparent` is valid gives its trace id as correlation id, and what we send carries both
headers.  Where a caller sends both and they differ, `X-Correlation-Id` counts.

Source: RFC 9562 section 5.7, with the sub-millisecond fraction of section 6.2 method 3 in `rand_a`;
https://www.w3.org/TR/trace-context/.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random
from time import time_ns

HEADER = "X-Correlation-Id"
TRACEPARENT = "traceparent"

_UUID = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}")
# version, trace id, parent id, flags; a later version may have more behind it.
_PARENT = re.compile(r"(?!ff)([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?")
_NO_TRACE = "0" * 32
_NO_SPAN = "0" * 16
_random_bits = Random().getrandbits  # seeded by the operating system; an id is a name, not a secret
_flags = "00"  # whether spans of ours are recorded


def new_correlation_id() -> str:
    """A fresh UUID (version 7) in its text form; ids made later sort later, to about a quarter of a microsecond."""
    milliseconds, rest = divmod(time_ns(), 1_000_000)
    fraction = (rest << 12) // 1_000_000
    high = f"{milliseconds:012x}"
    low = f"{0x8000_0000_0000_0000 | _random_bits(62):016x}"
    return f"{high[:8]}-{high[8:]}-7{fraction:03x}-{low[:4]}-{low[4:]}"


def accept(header: str | bytes | None, traceparent: str | bytes | None = None) -> str:
    """The id that a caller sent, in lower case as it is stored; a fresh one when it is missing or no UUID."""
    if header:
        text = _text(header)
        if _UUID.fullmatch(text):
            return text.lower()
    if traceparent:
        match = _PARENT.fullmatch(_text(traceparent))
        if match and match[2] != _NO_TRACE and match[3] != _NO_SPAN and not (match[1] == "00" and match[4]):
            trace = match[2]
            return f"{trace[:8]}-{trace[8:12]}-{trace[12:16]}-{trace[16:20]}-{trace[20:]}"
    return new_correlation_id()


def of(header: Callable[[str], str | None]) -> str:
    """The id of a request; `header` gives the value of a header by its name."""
    return accept(header(HEADER), header(TRACEPARENT))


def traceparent(correlation_id: str, span_id: str = "") -> str | None:
    """The `traceparent` that goes out with a correlation id; None for the one UUID that is no trace id.

    `span_id`: of the span that sends; else that of the trace's first span here (`first_span`).
    """
    trace = correlation_id.replace("-", "")
    return None if trace == _NO_TRACE else f"00-{trace}-{span_id or first_span(correlation_id)}-{_flags}"


def first_span(correlation_id: str) -> str:
    """The span id of the receipt that began a trace here: known to every process that knows the correlation id."""
    span = correlation_id[19:23] + correlation_id[24:]
    return span if span != _NO_SPAN else "0" * 15 + "1"


def sampled() -> None:
    """From now on say to others that spans are recorded here."""
    global _flags
    _flags = "01"


def _text(header: str | bytes) -> str:
    return (header.decode("latin-1") if isinstance(header, bytes) else header).strip()
