"""Correlation ids: one UUID follows a message from the socket to the subscriber.

The HTTP header is `X-Correlation-Id`; the field of rows and log records is `correlation_id` (interface specification,
"Correlation").  New ids are UUID version 7: they sort by time, and the index on `correlation_id` grows at its end.

The correlation id is also the trace id of W3C Trace Context.  A request without `X-Correlation-Id` and with a valid
`traceparent` is correlated by its trace id.  `X-Correlation-Id` takes precedence over `traceparent`.  Outbound requests
have both headers.

`X-Request-Id` names one request and its answer.  A client may choose it: at most 128 visible ASCII characters.  Without
one, the answer has the correlation id there.

Source: RFC 9562 section 5.7, with the sub-millisecond fraction of section 6.2 method 3 in `rand_a`;
https://hl7.org/fhir/R4/http.html#custom;
https://www.w3.org/TR/trace-context/.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random
from time import time_ns

HEADER = "X-Correlation-Id"
REQUEST_ID = "X-Request-Id"
TRACEPARENT = "traceparent"

_UUID = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}")
# version, trace id, parent id, flags; a later version may have more fields.
_PARENT = re.compile(r"(?!ff)([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?")
_REQUEST_ID = re.compile(r"[!-~]{1,128}")
_NO_TRACE = "0" * 32
_NO_SPAN = "0" * 16
_random_bits = Random().getrandbits  # seeded by the operating system; ids are not secrets
_flags = "00"  # "01": spans are recorded here


def new_correlation_id() -> str:
    """A new UUID (version 7) as text; ids sort by creation time, to about a quarter of a microsecond."""
    milliseconds, rest = divmod(time_ns(), 1_000_000)
    fraction = (rest << 12) // 1_000_000
    high = f"{milliseconds:012x}"
    low = f"{0x8000_0000_0000_0000 | _random_bits(62):016x}"
    return f"{high[:8]}-{high[8:]}-7{fraction:03x}-{low[:4]}-{low[4:]}"


def accept(header: str | bytes | None, traceparent: str | bytes | None = None) -> str:
    """The correlation id of a request, in lower case; a new one when it is missing or not a UUID."""
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
    """The correlation id of a request; `header` returns the value of a header by name."""
    return accept(header(HEADER), header(TRACEPARENT))


def request_id_of(header: Callable[[str], str | None]) -> str:
    """X-Request-Id as the client sent it; "" when it is missing or malformed."""
    text = (header(REQUEST_ID) or "").strip()
    return text if _REQUEST_ID.fullmatch(text) else ""


def traceparent(correlation_id: str, span_id: str = "") -> str | None:
    """The `traceparent` of an outbound request; None for the nil UUID, which is no trace id.

    `span_id`: of the sending span; the default is `first_span`.
    """
    trace = correlation_id.replace("-", "")
    return None if trace == _NO_TRACE else f"00-{trace}-{span_id or first_span(correlation_id)}-{_flags}"


def first_span(correlation_id: str) -> str:
    """The span id of the root span of this service: every process derives it from the correlation id."""
    span = correlation_id[19:23] + correlation_id[24:]
    return span if span != _NO_SPAN else "0" * 15 + "1"


def sampled() -> None:
    """Set the sampled flag of outbound `traceparent` headers."""
    global _flags
    _flags = "01"


def _text(header: str | bytes) -> str:
    return (header.decode("latin-1") if isinstance(header, bytes) else header).strip()
