"""Paths of the maps and of the workbench, for the OpenAPI document of the operator API."""

from __future__ import annotations

from collections.abc import Callable

from ipf.wire.admin.schemas.base import COUNT, TEXT, Schema, object_of

_MAP = TEXT | {"description": "the text of a map"}


def paths(operation: Callable[..., Schema]) -> Schema:
    """All of them.  `operation`: makes one, as `document` does."""
    url = {"name": "url", "in": "query", "required": True, "description": "canonical of the map", "schema": TEXT}
    return {
        "/admin/mapping": {"get": operation("describeMapping", "Maps in use", "Any", [])},
        "/admin/mapping/reload": {"post": operation("reloadMapping", "Read the maps again", "Any", [], "422")},
        "/admin/mapping/source": {"get": operation("mapSource", "The text of a map", "Any", [url], "404")},
        "/admin/mapping/try": {
            "post": operation("tryMap", "What a map makes of a message", "Any", [], "404", body="MapTrialRequest")
        },
        "/admin/mapping/compare": {
            "post": operation(
                "compareMap", "A map against the installed one, on stored messages", "Any", [], body="MapCompareRequest"
            )
        },
        "/admin/mapping/install": {
            "post": operation("installMap", "Install a map", "Any", [], "422", body="MapInstallRequest")
        },
        "/admin/mapping/remove": {
            "post": operation("removeMap", "Remove an installed map", "Any", [], "404", body="MapRemoveRequest")
        },
    }  # fmt: skip


def schemas() -> Schema:
    """The bodies of requests by name."""
    trial = object_of(
        map=_MAP | {"description": "the text of a map; without it the installed one runs"},
        message=TEXT | {"description": "an HL7 v2 message"},
        message_id=COUNT | {"description": "a stored message instead"},
    )
    limit = {"type": "integer", "minimum": 1, "default": 50, "description": "newest messages of the type to compare"}
    return {
        "MapTrialRequest": trial | {"required": []},
        "MapCompareRequest": object_of(map=_MAP, message_type=TEXT, limit=limit)
        | {"required": ["map", "message_type"]},
        "MapInstallRequest": object_of(map=_MAP),
        "MapRemoveRequest": object_of(url=TEXT | {"description": "canonical of the map"}),
    }
