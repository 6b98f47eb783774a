"""Access to the operator API: the admin token, and a second token that may only read.

Tokens are compared in constant time and never logged.  Whoever holds the full token may name the person for whom he
asks in the header X-Ipf-Actor, as the operator console does; without tokens, whoever asks from this machine may.  From
anybody else the header is ignored.

Source: interface specification "Admin API", "Operator UI".
"""

from __future__ import annotations

from hashlib import sha256
from hmac import compare_digest
from urllib.parse import unquote

from ipf.errors import Category, Problem
from ipf.ports import Request
from ipf.ports.caller import Caller
from ipf.security.audit.rules import LONGEST_NAME, clean
from ipf.wire.http.origin import is_loopback

OPEN_PATHS = frozenset({("admin", "observe", "openapi.json"), ("admin", "openapi.json")})
PERSON = "x-ipf-actor"
"""The header with the person for whom a holder of the full token asks: UTF-8, percent-encoded."""
_READS = frozenset({"GET", "HEAD"})
_LONGEST_ENCODED = 12 * LONGEST_NAME  # four bytes for a character, three characters for a byte


class AdminAccess:
    """The two tokens.  Without `token` every request is admitted."""

    def __init__(self, token: str | None, read_token: str | None = None) -> None:
        self._token = _digest(_as_received(token)) if token else None
        self._read_token = _digest(_as_received(read_token)) if token and read_token else None

    def check(self, request: Request) -> Caller:
        """Who asks.  Problem UNAUTHORIZED, or FORBIDDEN for a change with the read-only token."""
        caller = self.caller(request)
        if self._token is None or request.path in OPEN_PATHS:
            return caller
        if not caller.subject:
            raise Problem(Category.UNAUTHORIZED, "a valid admin token is required")
        if caller.subject != "admin" and request.method not in _READS:
            raise Problem(Category.FORBIDDEN, "this token may only read")
        return caller

    def caller(self, request: Request) -> Caller:
        """Who asks, also when he is refused: `subject` is that of `agent`, `user` the person whom he may name."""
        agent = self.agent(request)
        may_name = agent == "admin" if self._token is not None else is_loopback(request.address)
        given = unquote(request.headers.get(PERSON, "")[:_LONGEST_ENCODED]) if may_name else ""
        return Caller(subject=agent, user=clean(given).strip() or None)

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


def author_of(request: Request, default: str) -> str:
    """Whom a change names as its author: the person who asks, else `default`."""
    return request.caller.user or default


def _as_received(token: str) -> str:
    """The token as `Request.headers` holds it: the bytes of the header as Latin-1."""
    return token.encode("utf-8", "surrogateescape").decode("latin-1")


def _digest(token: str) -> bytes:
    """Of equal length for all tokens, so that the comparison does not reveal the length of the right one."""
    return sha256(token.encode("utf-8", "surrogatepass")).digest()
