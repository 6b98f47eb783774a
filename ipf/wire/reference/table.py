"""All operations of the operator API, and what is made of them: the OpenAPI documents and the search by path."""

from __future__ import annotations

import re
from functools import lru_cache

from ipf.ports import Answer, Json, Request
from ipf.wire.admin.audit import export, records
from ipf.wire.admin.audit import views as audit_views
from ipf.wire.admin.inbox import effects, ingest, jobs, rejects, unmapped, unread
from ipf.wire.admin.mapping import maps, profiles, workbench
from ipf.wire.admin.messages import ROUTES as MESSAGES
from ipf.wire.admin.patients import erasure, identity, merges
from ipf.wire.admin.route import AnyRoute, Route
from ipf.wire.admin.schemas import document
from ipf.wire.admin.systems import destinations, retention, sources, subscriptions, views
from ipf.wire.http.serving import JSON
from ipf.wire.observe import app as observe
from ipf.wire.observe import openapi as observe_document
from ipf.wire.reference import page


async def _described(given: bytes, _: Request, __: str) -> Answer:
    return Answer(200, given, (), JSON)


DOCUMENT_ROUTES: tuple[Route[bytes], ...] = (
    Route("GET", "/openapi.json", "openapi", "This document", _described, "Any", needs_token=False),
)
OBSERVE: tuple[AnyRoute, ...] = (*observe.ROUTES, *observe.DOCUMENT_ROUTES)
ADMIN: tuple[AnyRoute, ...] = (
    *MESSAGES, *ingest.ROUTES, *effects.ROUTES, *jobs.ROUTES, *maps.ROUTES, *workbench.ROUTES, *profiles.ROUTES,
    *unmapped.ROUTES, *unread.ROUTES, *rejects.ROUTES, *identity.ROUTES, *merges.ROUTES, *erasure.ROUTES,
    *subscriptions.ROUTES, *sources.ROUTES, *destinations.ROUTES, *retention.ROUTES, *views.ROUTES, *records.ROUTES,
    *export.ROUTES, *audit_views.ROUTES, *rejects.CONFIG_ROUTES, *page.ROUTES, *DOCUMENT_ROUTES,
)  # fmt: skip


def admin_document(version: str) -> Json:
    """The OpenAPI document of `/admin`; `version`: of the service."""
    return document.document(version, ADMIN)


def observe_api_document(version: str) -> Json:
    """The OpenAPI document of `/admin/observe`."""
    return observe_document.document(version, OBSERVE)


def route_for(method: str, path: str) -> AnyRoute | None:
    """The operation of a call; `path`: below `/admin`, without a query, encoded or not.  None: there is none."""
    wanted = "GET" if method == "HEAD" else method
    for route, pattern in _patterns():
        if route.method == wanted and pattern.fullmatch(path):
            return route
    return None


@lru_cache(maxsize=1)
def _patterns() -> tuple[tuple[AnyRoute, re.Pattern[str]], ...]:
    """The literal paths before those with a variable: `/messages/replay` is no message."""
    ordered = sorted([*ADMIN, *OBSERVE], key=lambda one: "{" in one.path)
    return tuple((one, re.compile(re.sub(r"\{\w+\}", "[^/]+", one.path))) for one in ordered)
