"""The OpenAPI 3.1 document of the operator API, served at `/admin/openapi.json` without a token.

A test validates it, holds the answers of the API against it, and compares its paths with those that are served.
`/admin/observe` has a document of its own.

Source: https://spec.openapis.org/oas/v3.1.0; interface specification "Message administration", "Limits", "Errors".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ipf.wire.admin.route import ERROR, AnyRoute, query
from ipf.wire.admin.schemas import audit, base, erasure, identity, mapping, profiles, systems
from ipf.wire.admin.schemas.base import Schema, ref

_WINDOW = (
    query("limit", {"type": "integer"}, "default 50, clamped to 1..500"),
    query("offset", {"type": "integer"}, "default 0; negative becomes 0; rounded down to a multiple of limit"),
)
_REFUSALS = {
    "400": "a value cannot be used",
    "401": "the admin token is missing or wrong",
    "403": "this token may only read",
    "404": "there is nothing with this id",
    "413": "the body is too large",
    "422": "it was understood and cannot be done; the message says why",
    "500": "the request could not be completed; the log says why",
    "503": "the store cannot be reached",
}


def document(version: str, routes: Sequence[AnyRoute]) -> Schema:
    """The whole document; `version`: of the service; `routes`: all operations."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "ipf admin API",
            "version": version,
            "description": "Messages, subscriptions, codes and maps for operators. Fields may be added; times are UTC.",
        },
        "servers": [{"url": "/"}],
        "security": [{"adminToken": []}],
        "paths": paths_of(routes, _responses),
        "components": {
            "securitySchemes": {"adminToken": {"type": "http", "scheme": "bearer"}},
            "schemas": base.schemas()
            | profiles.schemas()
            | systems.schemas()
            | audit.schemas()
            | identity.schemas()
            | mapping.schemas()
            | erasure.schemas(),
        },
    }


def paths_of(routes: Sequence[AnyRoute], responses: Callable[[AnyRoute], Schema]) -> Schema:
    """The operations by path and method.  `responses`: those of an operation, by status."""
    found: Schema = {}
    for route in routes:
        made: Schema = {"operationId": route.name, "summary": route.summary, "responses": responses(route)}
        parameters = [*_variable(route), *route.parameters, *(_WINDOW if route.is_page else ())]
        made |= {"parameters": parameters} if parameters else {}
        made |= {"requestBody": _body(route)} if route.body or route.sends else {}
        made |= {} if route.needs_token else {"security": []}
        found.setdefault(f"/admin{route.path}", {})[route.method.lower()] = made
    return found


def _variable(route: AnyRoute) -> list[Schema]:
    name = route.variable_name
    return [] if name is None else [{"name": name, "in": "path", "required": True, "schema": route.variable}]


def _body(route: AnyRoute) -> Schema:
    if route.sends is not None:
        media, schema = route.sends
        return {"required": True, "content": {media: {"schema": schema}}}
    return {"content": {"application/json": {"schema": ref(route.body or "")}}}


def _responses(route: AnyRoute) -> Schema:
    found: Schema = {}
    if route.answers is not None:
        media, schema = route.answers
        found["200"] = {"description": route.summary, "content": {media: {"schema": schema}}}
    elif route.returns is not None:
        found[route.status] = response(route.summary, ref(route.returns))
    elif not route.statuses:
        found["204"] = {"description": "done"}
    for status, (text, body) in route.statuses.items():
        found[status] = response(text, body)
    missing = {"404"} if route.is_page and route.variable_name is not None else set()
    for refusal in sorted({"400", "401", "403", "413", "500", "503", *route.refusals, *missing}):
        found[refusal] = response(_REFUSALS.get(refusal, "it cannot be done"), ref(ERROR))
    if route.conflict:
        found["409"] = response(route.conflict, ref(route.conflict_body))
    return found


def response(description: str, schema: Schema) -> Schema:
    """An answer with a body in JSON."""
    return {"description": description, "content": {"application/json": {"schema": schema}}}
