"""Cross-origin resource sharing: what the pages of named origins may read.  `origin.py` says what they may change.

CORS is off.  With origins named, their pages may use what they have a token for; cookies and other ambient credentials
are never allowed.

Source: https://fetch.spec.whatwg.org/#http-cors-protocol
"""

from __future__ import annotations

_METHODS = b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
_EXPOSED = (
    b"Location, Content-Location, ETag, Last-Modified, X-Correlation-Id, X-Request-Id, WWW-Authenticate, "
    b"Retry-After, X-Progress, X-IPF-LSN, Preference-Applied"
)
_ACCEPTED = (
    b"Authorization, Content-Type, Content-Encoding, Accept, Prefer, If-Match, If-None-Match, If-None-Exist, "
    b"If-Modified-Since, Cache-Control, X-Correlation-Id, X-Request-Id, X-IPF-LSN, X-Provenance"
)
_PREFLIGHT_SECONDS = b"600"


def cors_headers(origins: tuple[str, ...], origin: str, is_preflight: bool) -> list[tuple[bytes, bytes]]:
    """The headers that let the page of an origin read the answer; none for an origin that is not named."""
    if "*" not in origins and origin not in origins:
        return []
    found = [(b"Access-Control-Allow-Origin", b"*" if "*" in origins else origin.encode("latin-1"))]
    if not is_preflight:
        return [*found, (b"Access-Control-Expose-Headers", _EXPOSED)]
    return [
        *found,
        (b"Access-Control-Allow-Methods", _METHODS),
        (b"Access-Control-Allow-Headers", _ACCEPTED),
        (b"Access-Control-Max-Age", _PREFLIGHT_SECONDS),
    ]
