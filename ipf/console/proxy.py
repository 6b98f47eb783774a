"""`/api/admin/...`: every call of the admin API for scripts of the pages and of signed-in people.

The path, query and body go to `/admin/...` of the engine with the admin token.  A path that could leave `/admin`,
encoded or not, is refused before anything is sent.  Reads need a viewer; other methods an operator; maps, profiles,
retention and the erasure of a patient an admin.

Source: interface specification "Operator UI".
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from ipf.console.sessions import Role
from ipf.errors import Category, Problem

_OF_ADMINS = frozenset(("api", "reload", "forget", "retention", "audit", "config"))
PASSED = ("content-disposition", "retry-after", "etag", "x-correlation-id")


def admin_path(segments: Sequence[str]) -> str:
    """The path at the engine of the decoded segments behind `/api/admin`.  Problem VALUE for one that leaves it."""
    for segment in segments:
        if segment in ("", ".", "..") or any(character in segment for character in "/\\\0\r\n%?#;"):
            raise Problem(Category.VALUE, "the path must stay below /api/admin")
    return "/admin/" + "/".join(quote(segment, safe="$:@,=+*!'()-._~") for segment in segments)


def role_for(method: str, segments: Sequence[str]) -> Role:
    """The role that a call needs."""
    if method in ("GET", "HEAD"):
        return Role.VIEWER
    return Role.OPERATOR if _OF_ADMINS.isdisjoint(segments) else Role.ADMIN
