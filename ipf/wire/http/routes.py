"""The route of a request, as one of a bounded set of names: the label of the HTTP metrics.

Ids, names of resource types and other text of the client are replaced by placeholders.  Requests that nothing serves
(404, 405) are `other`, so that a client that tries paths creates no series.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

OTHER = "other"
MAX_ROUTES = 200

_TYPE = re.compile(r"[A-Z][A-Za-z]{1,60}")
_OPERATION = re.compile(r"\$[a-z][a-z-]{1,40}")
_NOT_SERVED = (404, 405)
_known: set[str] = set()
_WORDS = frozenset((
    "fhir", "mapping", "admin", "actuator", "websocket", "health", "liveness", "readiness", "prometheus", "metrics",
    "metadata", "_history", "_search", ".well-known", "smart-configuration", "content", "reindex", "export",
))  # fmt: skip
"""Literal segments of the paths that no table of operations has."""


def note_route(web: Any, template: str) -> None:
    """Remember the path of the operation that a request has reached, from the table of operations."""
    web.route = template


def noted_route(web: Any) -> str:
    """The path that `note_route` remembers; "" for a request that has reached no operation of a table."""
    return str(getattr(web, "route", ""))


def route_of_request(web: Any) -> str:
    """The route of a request that has been answered: that of the table, or the one that its path shows."""
    if web.code in _NOT_SERVED:
        return OTHER
    segments = [*(web.prepath or ()), *(web.postpath or ())] or web.path.split(b"/")
    return noted_route(web) or route_of(segments, web.code)


def route_of(path: Sequence[bytes], status: int) -> str:
    """The route for the segments of a path that was answered with `status`: `/fhir/{type}/{id}`, `/admin/messages`."""
    if status in _NOT_SERVED:
        return OTHER
    route = "/" + "/".join([_shown(segment) for segment in path[:6] if segment])
    if route not in _known:
        if len(_known) >= MAX_ROUTES:
            return OTHER
        _known.add(route)
    return route


def template(path: Sequence[str]) -> str:
    """The segments of a path for a log line: as `route_of`, with the names of operations."""
    return "/" + "/".join([one if _OPERATION.fullmatch(one) else _shown(one.encode()) for one in path[:8] if one])


def _shown(segment: bytes) -> str:
    text = segment.decode("latin-1")
    if text in _WORDS:
        return text
    if text.startswith("$"):
        return "{operation}"
    return "{type}" if _TYPE.fullmatch(text) else "{id}"
