"""The OpenAPI 3.1 document of the observability API.

It is served at `/admin/observe/openapi.json` without authentication.  A test validates it, and holds every answer of
the API against it.

Source: https://spec.openapis.org/oas/v3.1.0; interface specification "Versioning".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ipf.ports import Status
from ipf.ports.identity import AnswerKind, ConflictKind, ConflictStatus
from ipf.wire.admin.route import AnyRoute
from ipf.wire.admin.schemas.document import paths_of
from ipf.wire.observe.interfaces import KINDS
from ipf.wire.observe.observe import SCHEMA_VERSION

Schema = dict[str, Any]

_STATES = [status.value for status in Status]
_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_TIME: Schema = {"type": "string", "format": "date-time"}
_REFUSALS = {
    "401": "the admin token is missing or wrong",
    "413": "the body is too large",
    "500": "the request could not be completed; the log says why",
    "503": "the store cannot be reached",
}
_SOME_REFUSALS = {"400": "a parameter cannot be used", "404": "no row carries this id"}
_UUID: Schema = {"type": "string", "format": "uuid"}


def document(version: str, routes: Sequence[AnyRoute]) -> Schema:
    """The whole document; `version`: of the service; `routes`: all operations."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "ipf observability API",
            "version": SCHEMA_VERSION,
            "description": "Read only. Every body carries schema_version (MAJOR.MINOR): a new field raises MINOR, a "
            "field that goes or changes its meaning raises MAJOR. Times are UTC.",
            "x-service-version": version,
        },
        "servers": [{"url": "/"}],
        "security": [{"adminToken": []}],
        "paths": paths_of(routes, _responses),
        "components": {
            "securitySchemes": {
                "adminToken": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "IPF_ADMIN_AUTH_TOKEN; not asked for while none is configured",
                }
            },
            "headers": {
                "X-Correlation-Id": {"description": "As the caller sent it, else a fresh one", "schema": _UUID}
            },
            "schemas": _schemas(),
        },
    }


def _responses(route: AnyRoute) -> Schema:
    found = {"200": _response(route.summary, {"type": "object"} if route.returns is None else _ref(route.returns))}
    if not route.needs_token:
        return found
    for status in sorted({*route.refusals, *_REFUSALS}):
        found[status] = _response(_REFUSALS.get(status) or _SOME_REFUSALS[status], _ref("Error"))
    found["401"]["headers"]["WWW-Authenticate"] = {"schema": {"const": "Bearer"}}
    return found


def _response(description: str, schema: Schema) -> Schema:
    headers = {"X-Correlation-Id": {"$ref": "#/components/headers/X-Correlation-Id"}}
    return {"description": description, "headers": headers, "content": {"application/json": {"schema": schema}}}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(description: str, **members: Schema) -> Schema:
    """An object with required members; a later minor version may add others."""
    return {"type": "object", "description": description, "properties": members, "required": list(members)}


def _body(description: str, **members: Schema) -> Schema:
    return _object(description, schema_version={"type": "string", "pattern": r"^1\.[0-9]+$"}, **members)


def _list(schema: Schema) -> Schema:
    return {"type": "array", "items": schema}


def _or_null(schema: Schema) -> Schema:
    if "$ref" in schema or isinstance(schema.get("type"), list):
        return {"anyOf": [schema, {"type": "null"}]}
    return {**schema, "type": [schema["type"], "null"]}


def _state(description: str, **members: Schema) -> Schema:
    detail = _or_null({"type": "object", "description": "figures, or `error` when it is DOWN"})
    return _object(description, **members, status={"type": "string", "enum": ["UP", "DOWN"]}, detail=detail)


def _schemas() -> Schema:
    modes = {"auth_enabled": {"type": "boolean"}, "validation_mode": _TEXT, "channel_security_mode": _TEXT}
    toggles = _object("What is switched on", **modes, multitenancy_mode=_TEXT)
    queue = _object("Messages in each state; null while the store is away",
                    **{state.lower(): _or_null(_COUNT) for state in _STATES})  # fmt: skip
    bucket = _object("One hour or day", bucket_start=_TIME, counts=_object("Messages by state",
                     **dict.fromkeys(_STATES, _COUNT)))  # fmt: skip
    return {
        "Error": _body("A refusal", error=_TEXT, message=_TEXT),
        "System": _body(
            "The service as it is now",
            service=_TEXT, version=_TEXT, uptime_seconds={"type": "number", "minimum": 0}, feature_toggles=toggles,
            components=_list(_state("A part that is needed", name=_TEXT)),
            downstream={"type": "object", "additionalProperties": _state("A part elsewhere; it takes nothing down")},
            queue=queue,
        ),
        "Live": _body(
            "The service at this second",
            uptime_seconds={"type": "number", "minimum": 0}, queue=queue, oldest_waiting_at=_or_null(_TIME),
            components={"type": "object", "additionalProperties": {"enum": ["UP", "DOWN"]}},
            newest=_list(_object("A message", **_message(), tenant=_TEXT)),
        ),
        "Interfaces": _body(
            "The senders", total=_COUNT, silent=_COUNT, first_minute=_TIME, items=_list(_interface()),
            is_exact={"type": "boolean", "description": "false: a backlog is longer than what is counted"},
        ),
        "Throughput": _body("Counts", window=_TEXT, bucket_width={"enum": ["hour", "day"]}, buckets=_list(bucket)),
        "Message": _object("A stored message", **_message()),
        "DeadLetters": _body("Dead letters", total=_COUNT, limit=_COUNT, items=_list(_ref("Message"))),
        "Trace": _body(
            "The way of one correlation id",
            correlation_id=_UUID, truncated={"type": "boolean"}, messages=_list(_traced_message()),
            resources=_list(_resource()), events=_list(_event()), deliveries=_list(_delivery()),
            identity_conflicts=_list(_conflict()),
        ),
    }  # fmt: skip


def _message() -> dict[str, Schema]:
    return {
        "id": _COUNT, "received_at": _TIME, "source_protocol": _TEXT, "source_system": _TEXT, "source_id": _TEXT,
        "message_type": _TEXT, "status": {"type": "string", "enum": _STATES}, "attempt_count": _COUNT,
        "last_attempt_at": _or_null(_TIME), "last_error": _or_null(_TEXT), "delivered_at": _or_null(_TIME),
        "correlation_id": _UUID, "permanent": {"type": "boolean"},
    }  # fmt: skip


def _interface() -> Schema:
    share = {"type": "number", "minimum": 0}
    return _object(
        "A sender", source_system=_TEXT, tenant=_TEXT, listener=_or_null(_TEXT),
        kind={"enum": [*KINDS, None]}, first_seen=_TIME, last_seen=_TIME,
        silent_seconds=_COUNT, expected_seconds=_or_null(_COUNT), expected_by={"enum": ["setting", "learnt", None]},
        is_silent={"type": "boolean"}, per_minute={"type": "number", "minimum": 0}, minutes=_list(_COUNT),
        received_24h=_COUNT, errors_24h=_COUNT, error_share=_or_null(share), waiting=_COUNT,
        oldest_waiting_at=_or_null(_TIME), needs_attention={"type": "boolean"},
    )  # fmt: skip


def _traced_message() -> Schema:
    transform = _object("What converted it", map_url=_TEXT, version=_or_null(_TEXT),
                        duration_ms=_or_null({"type": "number", "minimum": 0}), rules_path=_TEXT)  # fmt: skip
    return _object(
        "A message, or a further conversion of one", **_message(), next_attempt_at=_or_null(_TIME), listener=_TEXT,
        original_id=_or_null(_COUNT), passed_through=_or_null(_TEXT), transform=_or_null(transform),
    )  # fmt: skip


def _resource() -> Schema:
    return _object("A version that was written", tenant=_TEXT, resource_type=_TEXT, id=_TEXT, version_id=_COUNT,
                   action={"enum": ["create", "update", "delete"]}, written_at=_TIME)  # fmt: skip


def _event() -> Schema:
    return _object("A numbered event of a subscription", subscription_id=_TEXT, event_number=_COUNT,
                   resource_type=_TEXT, id=_TEXT, version_id=_COUNT, occurred_at=_TIME)  # fmt: skip


def _conflict() -> Schema:
    kinds = [kind.value for kind in ConflictKind]
    return _object("A match that was not made, and its answer", id=_COUNT, message_id=_COUNT,
                   conversion_id=_or_null(_COUNT), status={"enum": [status.value for status in ConflictStatus]},
                   kind={"enum": kinds}, resource_type=_TEXT, place=_or_null(_TEXT), candidates=_list(_TEXT),
                   what_to_do=_TEXT, detected_at=_TIME, answer={"enum": [*map(str, AnswerKind), None]},
                   target=_or_null(_TEXT), answered_by=_or_null(_TEXT), answered_at=_or_null(_TIME),
                   path=_TEXT)  # fmt: skip


def _delivery() -> Schema:
    return _object("An attempt to notify", subscription_id=_TEXT, event_number=_COUNT, to_event_number=_COUNT,
                   kind=_TEXT, attempted_at=_TIME, outcome={"enum": ["success", "failure"]},
                   http_status=_or_null({"type": "integer"}), duration_ms=_COUNT, error=_or_null(_TEXT))  # fmt: skip
