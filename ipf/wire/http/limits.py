"""Limits of an HTTP listener, the security headers of its answers, and packed bodies.

A body with `Content-Encoding: gzip` is unpacked up to the limit of a body, so a small request cannot become a huge one;
any other encoding is answered 415.  No answer may be cached, framed, or read as another type of content than it states.

Source: RFC 9110 section 8.4.1; https://cheatsheetseries.owasp.org/cheatsheets/REST_Security_Cheat_Sheet.html
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

from ipf.errors import Category, Problem
from ipf.wire.http.origin import OwnNames

_GZIP = 16 + zlib.MAX_WBITS

SECURITY_HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"X-Content-Type-Options", b"nosniff"),
    (b"Cache-Control", b"no-store"),
    (b"Content-Security-Policy", b"sandbox; default-src 'none'; frame-ancestors 'none'"),
    (b"Referrer-Policy", b"same-origin"),  # no-referrer makes browsers send `Origin: null` with forms
)
SINGLE_HEADERS = frozenset(name.lower().decode() for name, _ in SECURITY_HEADERS)
"""An answer has one of each: its own value replaces the value above."""
HSTS = (b"Strict-Transport-Security", b"max-age=31536000")


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Limits of one HTTP listener.

    `header_bytes`: of one request; `seconds`: until a request is complete; `names`: hosts and origins of the requests
    that are answered; `connections`: at once, of all clients together.
    """

    header_bytes: int = 64 * 1024
    seconds: float = 120.0
    names: OwnNames = field(default_factory=OwnNames)
    connections: int = 10_000


def unpacked(encoding: str, body: bytes, limit: int) -> bytes:
    """A body without its Content-Encoding.  Problem MEDIA_TYPE, VALUE, or TOO_LARGE as soon as it exceeds the limit."""
    word = encoding.strip().lower()
    if word in ("", "identity"):
        return body
    if word not in ("gzip", "x-gzip"):
        raise Problem(Category.MEDIA_TYPE, "this server takes bodies as they are, or with Content-Encoding: gzip")
    unpacker = zlib.decompressobj(_GZIP)
    try:
        whole = unpacker.decompress(body, limit + 1)
    except zlib.error:
        raise Problem(Category.VALUE, "the body is no valid gzip") from None
    if len(whole) > limit:
        raise Problem(Category.TOO_LARGE, "the unpacked body is larger than this server accepts")
    if not unpacker.eof or unpacker.unused_data:
        raise Problem(Category.VALUE, "the body is no complete gzip, or something follows it")
    return whole
