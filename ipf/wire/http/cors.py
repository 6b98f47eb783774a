"""What web pages may do here: cross-origin resource sharing, and changes that pages of other sites try to make.

CORS is off.  With origins named, their pages may use what they have a token for; cookies and other ambient credentials
are never allowed.

Source: https://fetch.spec.whatwg.org/#http-cors-protocol; https://www.w3.org/TR/fetch-metadata/#sec-fetch-site-header
"""

from __future__ import annotations

from twisted.web.http_headers import Headers

_METHODS = b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
_EXPOSED = (
    b"Location, Content-Location, ETag, Last-Modified, X-Correlation-Id, X-Request-Id, WWW-Authenticate, "
    b"Retry-After, X-Progress"
)
_ACCEPTED = (
    b"Authorization, Content-Type, Content-Encoding, Accept, Prefer, If-Match, If-None-Match, If-None-Exist, "
    b"If-Modified-Since, X-Correlation-Id, X-Request-Id"
)
_PREFLIGHT_SECONDS = b"600"


def is_cross_site(headers: Headers, origins: tuple[str, ...]) -> bool:
    """Whether a browser sends this for a page of another site that is not named in `origins`.

    Without CORS such a page cannot read the answer, but where no token is required it could change data by a form.
    """
    if b"cross-site" not in headers.getRawHeaders(b"sec-fetch-site", ()):
        return False
    return not ({"*", *(one.decode("latin-1") for one in headers.getRawHeaders(b"origin", ()))} & {*origins})


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
