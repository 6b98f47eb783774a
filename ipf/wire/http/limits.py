"""Limits of an HTTP listener, the security headers of its answers, and packed bodies.

A body with `Content-Encoding: gzip` or `zstd` is unpacked up to the limit of a body, so a small request cannot become a
huge one; any other encoding is answered 415.  No answer may be cached, framed, or read as another type of content than
it states.

Source: RFC 9110 section 8.4.1; RFC 9659 (window of zstd); https://cheatsheetseries.owasp.org/cheatsheets/REST_Security_Cheat_Sheet.html
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field

import zstandard

from ipf.errors import Category, Problem
from ipf.wire.http.origin import OwnNames

_GZIP = 16 + zlib.MAX_WBITS
_ZSTD_WINDOW = 8 * 1024 * 1024
_PIECE = 256 * 1024

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
    unpack = _UNPACKERS.get(word)
    if unpack is None:
        text = "this server takes bodies as they are, or with Content-Encoding: gzip or zstd"
        raise Problem(Category.MEDIA_TYPE, text)
    return unpack(body, limit)


def _from_gzip(body: bytes, limit: int) -> bytes:
    unpacker = zlib.decompressobj(_GZIP)
    try:
        whole = unpacker.decompress(body, limit + 1)
    except zlib.error:
        raise Problem(Category.VALUE, "the body is no valid gzip") from None
    if len(whole) > limit:
        raise _too_large()
    if not unpacker.eof or unpacker.unused_data:
        raise Problem(Category.VALUE, "the body is no complete gzip, or something follows it")
    return whole


def _from_zstd(body: bytes, limit: int) -> bytes:
    """Read in pieces first: only a reader has a bound, and only the other interface tells a body that is cut off."""
    packed = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
    try:
        with packed.stream_reader(body) as reader:
            size = 0
            while piece := reader.read(_PIECE):
                size += len(piece)
                if size > limit:
                    raise _too_large()
        unpacker = packed.decompressobj()
        whole = unpacker.decompress(body)
    except zstandard.ZstdError:
        raise Problem(Category.VALUE, "the body is no valid zstd, or its window is larger than 8 MiB") from None
    if not unpacker.eof or unpacker.unused_data:
        raise Problem(Category.VALUE, "the body is no complete zstd, or something follows it")
    return whole


def _too_large() -> Problem:
    return Problem(Category.TOO_LARGE, "the unpacked body is larger than this server accepts")


_UNPACKERS: dict[str, Callable[[bytes, int], bytes]] = {
    "gzip": _from_gzip,
    "x-gzip": _from_gzip,
    "zstd": _from_zstd,
}
