"""Access to the operator API: the admin token, and a second token that may only read.

Tokens are compared in constant time and never logged.

Source: interface specification "Admin API".
"""

from __future__ import annotations

from hashlib import sha256
from hmac import compare_digest

from ipf.errors import Category, Problem
from ipf.ports import Request

OPEN_PATHS = frozenset({("admin", "observe", "openapi.json"), ("admin", "openapi.json")})
_READS = frozenset({"GET", "HEAD"})


class AdminAccess:
    """The two tokens.  Without `token` every request is admitted."""

    def __init__(self, token: str | None, read_token: str | None = None) -> None:
        self._token = _digest(_as_received(token)) if token else None
        self._read_token = _digest(_as_received(read_token)) if token and read_token else None

    def check(self, request: Request) -> None:
        """Problem UNAUTHORIZED, or FORBIDDEN for a change with the read-only token."""
        if self._token is None or request.path in OPEN_PATHS:
            return
        agent = self.agent(request)
        if not agent:
            raise Problem(Category.UNAUTHORIZED, "a valid admin token is required")
        if agent != "admin" and request.method not in _READS:
            raise Problem(Category.FORBIDDEN, "this token may only read")

    def agent(self, request: Request) -> str:
        """`admin` or `admin-read` by the token that was sent; "" for any other, and when no token is required."""
        if self._token is None:
            return ""
        scheme, _, given = request.headers.get("authorization", "").strip().partition(" ")
        sent = _digest(given.strip())
        is_full, is_reading = compare_digest(sent, self._token), compare_digest(sent, self._read_token or b"")
        if scheme.lower() != "bearer":
            return ""
        return "admin" if is_full else "admin-read" if is_reading else ""


def _as_received(token: str) -> str:
    """The token as `Request.headers` holds it: the bytes of the header as Latin-1."""
    return token.encode("utf-8", "surrogateescape").decode("latin-1")


def _digest(token: str) -> bytes:
    """Of equal length for all tokens, so that the comparison does not reveal the length of the right one."""
    return sha256(token.encode("utf-8", "surrogatepass")).digest()
