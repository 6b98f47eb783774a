"""The rights of roles on the operator API: one table for the pages of the console and for `/api/admin`.

A row is an operation of the API.  `View` looks it up for each call of a page, the proxy for each call of a script, so a
page never lets a role do what the proxy refuses, or the other way round.  What the table does not have is refused.  A
masked role sees no patient data (IPF_UI_MASK): it neither runs maps on stored messages nor searches by what is masked.

A test compares the table with the OpenAPI documents, and walks over all operations, pages and roles.
Source: docs/reference/console.md "Sign-in and roles"; docs/reference/admin-api.md "Masking".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

from ipf.console.people.sessions import Role


class WhenMasked(Enum):
    """Whether a role without patient data may use an operation."""

    YES = "yes"
    PAGE = "page"
    """Through a page alone, which writes the body: a body of a script may search by what is masked."""
    NO = "no"


class Right(NamedTuple):
    """Who may use an operation."""

    method: str
    path: str
    role: Role
    masked: WhenMasked = WhenMasked.YES


_VIEWED = (
    "messages", "messages/{id}", "messages/{id}/effects", "messages/{id}/conversions", "messages/{id}/trace",
    "dead-letters/errors", "jobs", "jobs/{id}", "unmapped-codes", "unmapped-codes/{id}", "code-overrides", "mapping",
    "mapping/source", "identity-conflicts", "identity-conflicts/{id}", "unread-fields", "subscriptions/health",
    "subscriptions/{id}/health", "subscriptions/{id}/history", "subscriptions/{id}/resource", "api/profiles", "views",
    "rejects", "config", "audit", "openapi.json", "observe/system", "observe/throughput", "observe/live",
    "observe/interfaces", "observe/dlq", "observe/openapi.json",
)  # fmt: skip
_UNMASKED = (
    "code-overrides/{id}", "conversions", "identity-answers", "erasures", "rejects/{id}", "audit/heads", "audit/export",
    "sources", "destinations", "destinations/{id}/messages", "retention", "docs", "observe/trace/{correlationId}",
)  # fmt: skip
RIGHTS = (
    *(Right("GET", path, Role.VIEWER) for path in _VIEWED),
    *(Right("GET", path, Role.VIEWER, WhenMasked.NO) for path in _UNMASKED),
    Right("POST", "audit/views", Role.VIEWER, WhenMasked.PAGE),
    Right("POST", "views", Role.VIEWER, WhenMasked.PAGE),
    Right("DELETE", "views/{id}", Role.VIEWER),
    Right("POST", "mapping/try", Role.VIEWER, WhenMasked.NO),
    Right("POST", "mapping/compare", Role.VIEWER, WhenMasked.NO),
    Right("POST", "ingest", Role.OPERATOR, WhenMasked.PAGE),
    Right("POST", "messages/{id}/retry", Role.OPERATOR),
    Right("DELETE", "messages/{id}", Role.OPERATOR),
    Right("POST", "messages/replay", Role.OPERATOR, WhenMasked.PAGE),
    Right("POST", "dead-letters/retry", Role.OPERATOR, WhenMasked.PAGE),
    Right("POST", "dead-letters/discard", Role.OPERATOR, WhenMasked.PAGE),
    Right("POST", "jobs/{id}/cancel", Role.OPERATOR),
    Right("POST", "unmapped-codes/{id}/map", Role.OPERATOR, WhenMasked.PAGE),
    Right("POST", "unmapped-codes/{id}/requeue", Role.OPERATOR),
    Right("DELETE", "code-overrides/{id}", Role.OPERATOR, WhenMasked.NO),
    Right("POST", "conversions/{id}/retry", Role.OPERATOR, WhenMasked.NO),
    Right("DELETE", "conversions/{id}", Role.OPERATOR, WhenMasked.NO),
    Right("POST", "identity-conflicts/{id}/answer", Role.OPERATOR, WhenMasked.PAGE),
    Right("DELETE", "identity-answers/{id}", Role.OPERATOR, WhenMasked.NO),
    Right("POST", "patient-merges", Role.OPERATOR, WhenMasked.NO),
    Right("POST", "patient-merges/undo", Role.OPERATOR, WhenMasked.NO),
    Right("DELETE", "unread-fields", Role.OPERATOR),
    Right("DELETE", "unread-fields/{id}", Role.OPERATOR),
    Right("DELETE", "rejects/{id}", Role.OPERATOR, WhenMasked.NO),
    Right("PATCH", "subscriptions/{id}/status", Role.OPERATOR),
    Right("POST", "subscriptions/{id}/test", Role.OPERATOR),
    Right("POST", "sources/poll", Role.OPERATOR, WhenMasked.NO),
    Right("POST", "destinations/{id}/retry", Role.OPERATOR, WhenMasked.NO),
    Right("POST", "destinations/{id}/pause", Role.OPERATOR, WhenMasked.NO),
    Right("POST", "destinations/{id}/resume", Role.OPERATOR, WhenMasked.NO),
    Right("POST", "api/profiles/validate", Role.OPERATOR, WhenMasked.PAGE),
    Right("POST", "sources/rewind", Role.ADMIN, WhenMasked.NO),
    Right("POST", "destinations/{id}/skip", Role.ADMIN, WhenMasked.NO),
    Right("POST", "api/profiles/install", Role.ADMIN, WhenMasked.PAGE),
    Right("POST", "api/profiles/rollback", Role.ADMIN, WhenMasked.PAGE),
    Right("POST", "api/profiles/reload", Role.ADMIN, WhenMasked.PAGE),
    Right("POST", "mapping/install", Role.ADMIN, WhenMasked.PAGE),
    Right("POST", "mapping/remove", Role.ADMIN, WhenMasked.PAGE),
    Right("POST", "mapping/reload", Role.ADMIN, WhenMasked.PAGE),
    Right("POST", "patients/{id}/forget", Role.ADMIN, WhenMasked.NO),
    Right("POST", "retention", Role.ADMIN, WhenMasked.NO),
)
"""Every operation of the API, by its path below `/admin`."""


def right_for(method: str, path: str) -> Right | None:
    """The row of a call; `path`: below `/admin`, without a query, encoded or not.  None: nobody may call it."""
    wanted = "GET" if method == "HEAD" else method
    for right, pattern in _patterns():
        if right.method == wanted and pattern.fullmatch(path):
            return right
    return None


@lru_cache(maxsize=1)
def _patterns() -> tuple[tuple[Right, re.Pattern[str]], ...]:
    return tuple(_made())


def _made() -> Iterator[tuple[Right, re.Pattern[str]]]:
    """The literal paths before those with a variable: `messages/replay` is no message."""
    for right in sorted(RIGHTS, key=lambda one: "{" in one.path):
        yield right, re.compile(re.sub(r"\{\w+\}", "[^/]+", right.path))
