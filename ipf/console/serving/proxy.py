"""`/api/admin/...`: every call of the admin API for scripts of the pages and of signed-in people.

The path, query and body go to `/admin/...` of the engine with the admin token.  A path that could leave `/admin`,
encoded or not, is refused before anything is sent.  Reads need a viewer; other methods an operator; maps, profiles,
retention and the erasure of a patient an admin.

Source: interface specification "Operator UI".
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from ipf.console.masking.answers import Mask, Masked, admin_mask
from ipf.console.people.sessions import Role
from ipf.errors import Category, Problem
from ipf.ports import Request

_OF_ONE_ROW = ("/retry", "/cancel", "/status", "/requeue")
"""Ends of paths that change one row, which the path names."""
_OF_ADMINS = frozenset(("api", "reload", "forget", "retention", "audit", "config", "install", "remove"))
PASSED = ("content-disposition", "retry-after", "etag", "x-correlation-id")


def admin_path(segments: Sequence[str]) -> str:
    """The path at the engine of the decoded segments behind `/api/admin`.  Problem VALUE for one that leaves it."""
    for segment in segments:
        if segment in ("", ".", "..") or any(character in segment for character in "/\\\0\r\n%?#;"):
            raise Problem(Category.VALUE, "the path must stay below /api/admin")
    return "/admin/" + "/".join(quote(segment, safe="$:@,=+*!'()-._~") for segment in segments)


def proxy_mask(request: Request, path: str) -> Mask:
    """What becomes of an answer for a role without patient data.  Problem FORBIDDEN for what it may not ask.

    A change may search by its body, so only changes to one row are let through.
    """
    if request.method not in ("GET", "HEAD") and not path.endswith(_OF_ONE_ROW):
        raise Problem(Category.FORBIDDEN, "your role sees no patient data; use the pages of the console")
    try:
        return admin_mask(path, [name for name, value in request.query if value.strip()])
    except Masked as masked:
        raise Problem(Category.FORBIDDEN, f"your role sees no patient data: {masked}") from None


def role_for(method: str, segments: Sequence[str]) -> Role:
    """The role that a call needs."""
    if method in ("GET", "HEAD"):
        return Role.VIEWER
    return Role.OPERATOR if _OF_ADMINS.isdisjoint(segments) else Role.ADMIN
