"""`/api/admin/...`: every call of the admin API for scripts of the pages and of signed-in people.

The path, query and body go to `/admin/...` of the engine with the admin token.  A path that could leave `/admin`,
encoded or not, is refused before anything is sent; so is what the table of operations (`ipf.wire.reference.table`)
does not have.

Source: interface specification "Operator UI".
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from ipf.console.masking.answers import Mask, Masked, admin_mask
from ipf.errors import Category, Problem
from ipf.ports import Request
from ipf.wire.admin.route import AnyRoute, Role, WhenMasked
from ipf.wire.reference.table import route_for

PASSED = ("content-disposition", "retry-after", "etag", "x-correlation-id")


def admin_path(segments: Sequence[str]) -> str:
    """The path at the engine of the decoded segments behind `/api/admin`.  Problem VALUE for one that leaves it."""
    for segment in segments:
        if segment in ("", ".", "..") or any(character in segment for character in "/\\\0\r\n%?#;"):
            raise Problem(Category.VALUE, "the path must stay below /api/admin")
    return "/admin/" + "/".join(quote(segment, safe="$:@,=+*!'()-._~") for segment in segments)


def proxy_mask(request: Request, path: str, right: AnyRoute) -> Mask:
    """What becomes of an answer for a role without patient data.  Problem FORBIDDEN for what it may not ask."""
    if right.masked is not WhenMasked.YES:
        raise Problem(Category.FORBIDDEN, "your role sees no patient data; use the pages of the console")
    try:
        return admin_mask(path, [name for name, value in request.query if value.strip()])
    except Masked as masked:
        raise Problem(Category.FORBIDDEN, f"your role sees no patient data: {masked}") from None


def right_of(method: str, path: str, role: Role) -> AnyRoute:
    """The right to a call.  Problem NOT_FOUND when the table does not have it, FORBIDDEN for another role."""
    right = route_for(method, path.removeprefix("/admin"))
    if right is None:
        raise Problem(Category.NOT_FOUND, "the operator API has no such operation")
    if role < right.role:
        raise Problem(Category.FORBIDDEN, "your role does not allow this")
    return right
