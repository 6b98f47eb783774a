"""An answer of the FHIR surface as one piece of bytes, head and body.

What is the same for all answers of a second is written once for them.

Source: RFC 9110, RFC 9112.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from time import time
from typing import Any

from twisted.web.http import NO_BODY_CODES, RESPONSES, datetimeToString
from twisted.web.http_headers import Headers

from ipf.ports import Answer
from ipf.telemetry import correlation
from ipf.wire.http.limits import HSTS, REPLACED, SECURITY_HEADERS

_NONE: frozenset[str] = frozenset()
_CORRELATION = b"%b: " % correlation.HEADER.encode()


def written(
    answer: Answer,
    correlation_id: str,
    *,
    version: bytes = b"HTTP/1.1",
    is_head: bool = False,
    is_secure: bool = False,
    more: Iterable[tuple[bytes, Iterable[bytes]]] = (),
) -> bytes:
    """What goes out.  `more`: headers of the connection and of CORS; `is_head`: the request was a HEAD."""
    own: list[bytes] = []
    replaced = _NONE
    for name, text in answer.headers:
        key, replaces = _named(name)
        value = text.encode()
        if b"\n" in value or b"\r" in value:
            value = b" ".join(value.splitlines())
        own += (key, value, b"\r\n")
        if replaces:
            replaced |= {name.lower()}
    status, body = answer.status, answer.body
    parts = [_status(version, status)]
    parts += [b"%b: %b\r\n" % (name, value) for name, values in more for value in values]
    parts += (_common(int(time()), is_secure, replaced), _CORRELATION, correlation_id.encode(), b"\r\n", *own)
    if status in NO_BODY_CODES:
        parts.append(b"\r\n")
    else:
        kind = b"Content-Type: %b\r\n" % answer.content_type.encode("latin-1") if body else b""
        parts += (b"Content-Length: %d\r\n%b\r\n" % (len(body), kind), b"" if is_head else body)
    return b"".join(parts)


@lru_cache(maxsize=64)
def _status(version: bytes, status: int) -> bytes:
    return b"%b %d %b\r\n" % (version, status, RESPONSES.get(status, b"Unknown Status"))


@lru_cache(maxsize=16)
def _common(second: int, is_secure: bool, replaced: frozenset[str]) -> bytes:
    """What each answer of a second says, without what it says itself."""
    date: Any = datetimeToString
    found = [*SECURITY_HEADERS, *([HSTS] if is_secure else []), (b"Date", bytes(date(second)))]
    return b"".join(b"%b: %b\r\n" % one for one in found if one[0].decode().lower() not in replaced)


@lru_cache(maxsize=256)
def _named(name: str) -> tuple[bytes, bool]:
    """A name as Twisted writes it, and whether such a header replaces one of ours."""
    headers = Headers()
    headers.addRawHeader(name, b"")
    return next(iter(headers.getAllRawHeaders()))[0] + b": ", name.lower() in REPLACED
