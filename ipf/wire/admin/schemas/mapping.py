"""Paths of the maps and of the workbench, for the OpenAPI document of the operator API."""

from __future__ import annotations

from ipf.wire.admin.schemas.base import COUNT, TEXT, Schema, object_of

_MAP = TEXT | {"description": "the text of a map"}


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
