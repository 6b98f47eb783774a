"""Paths of polled sources and of destinations, for the OpenAPI document of the operator API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Schema = dict[str, Any]

_NAME: Schema = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
_VERBS = {
    "retry": "Send dead letters again",
    "skip": "Give up a message that holds back others",
    "pause": "Send nothing until it is resumed",
    "resume": "Send again",
}


def paths(operation: Callable[..., Schema]) -> Schema:
    """All of them.  `operation`: makes one, as `openapi` does."""
    return {
        "/admin/sources": {"get": operation("sources", "Polled sources: how far each feed has been read", "Any", [])},
        "/admin/sources/poll": {"post": operation("pollSource", "Poll a feed at once", "Any", [], "404")},
        "/admin/sources/rewind": {"post": operation("rewindSource", "Poll a feed again from a time", "Any", [], "404")},
        "/admin/destinations": {"get": operation("destinations", "Destinations of forwarded messages", "Any", [])},
        "/admin/destinations/{id}/messages": {
            "get": operation("forwarded", "What a destination was sent, oldest first", "Any", [_NAME])
        },
        **{
            f"/admin/destinations/{{id}}/{verb}": {"post": operation(f"{verb}Destination", text, "Any", [_NAME], "404")}
            for verb, text in _VERBS.items()
        },
    }
