"""OpenAPI 3.1 documents as lists that a template shows: operations by group, schemas as rows of members.

What arrives: documents of this service, as JSON.  What leaves: frozen values.  Only what these documents use is read.

Source: https://spec.openapis.org/oas/v3.1.0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Json = Mapping[str, Any]

_METHODS = ("get", "post", "put", "patch", "delete")
_DEEPEST = 6


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a type: words, and the anchor of the schema that they name; "" for none."""

    text: str
    anchor: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """A parameter, or a member of an object.  `place`: where a parameter stands (query, path)."""

    name: str
    type: tuple[Part, ...]
    required: bool
    description: str
    place: str = ""


@dataclass(frozen=True, slots=True)
class Body:
    """A request body, or a response.  `status`: "" for a request; `kind`: the media type, "" without a body."""

    status: str
    kind: str
    description: str
    type: tuple[Part, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path."""

    method: str
    path: str
    anchor: str
    summary: str
    open: bool
    parameters: tuple[Row, ...]
    requests: tuple[Body, ...]
    responses: tuple[Body, ...]


@dataclass(frozen=True, slots=True)
class Schema:
    """A named schema."""

    name: str
    anchor: str
    description: str
    type: tuple[Part, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Reference:
    """One document.  `groups`: operations by the first segment of their paths below /admin."""

    title: str
    anchor: str
    description: str
    groups: tuple[tuple[str, tuple[Operation, ...]], ...]
    schemas: tuple[Schema, ...]


def reference_of(document: Json, anchor: str) -> Reference:
    """A document for a template.  `anchor`: starts every anchor of it, so that several fit on one page."""
    reader = _Reader(document, anchor)
    info = document["info"]
    groups: dict[str, list[Operation]] = {}
    for path, operations in document["paths"].items():
        group = path.removeprefix("/admin/").removeprefix("api/").partition("/")[0]
        for method in filter(operations.__contains__, _METHODS):
            groups.setdefault(group, []).append(reader.operation(method, path, operations[method]))
    listed = tuple((name, tuple(found)) for name, found in sorted(groups.items()))
    return Reference(info["title"], anchor, info.get("description", ""), listed, tuple(reader.schemas()))


class _Reader:
    def __init__(self, document: Json, anchor: str) -> None:
        self._components: Json = document.get("components", {})
        self._anchor = anchor

    def operation(self, method: str, path: str, found: Json) -> Operation:
        content = found.get("requestBody", {}).get("content", {})
        requests = [self._body("", kind, "", one.get("schema", {})) for kind, one in content.items()]
        responses = [body for status, one in sorted(found["responses"].items()) for body in self._response(status, one)]
        parameters = [self._parameter(one) for one in found.get("parameters", ())]
        return Operation(
            method.upper(), path, f"{self._anchor}-{found['operationId']}", found.get("summary", ""),
            found.get("security") == [], tuple(parameters), tuple(requests), tuple(responses),
        )  # fmt: skip

    def schemas(self) -> Iterator[Schema]:
        for name, schema in sorted(self._components.get("schemas", {}).items()):
            rows = tuple(self._rows(schema))
            yield Schema(name, self._of_schema(name), schema.get("description", ""), self._type(schema), rows)

    def _parameter(self, found: Json) -> Row:
        described = found.get("description", "")
        return Row(found["name"], self._type(found["schema"]), found.get("required", False), described, found["in"])

    def _response(self, status: str, found: Json) -> Iterator[Body]:
        content = found.get("content", {})
        if not content:
            yield Body(status, "", found["description"], (), ())
        for kind, one in content.items():
            yield self._body(status, kind, found["description"], one.get("schema", {}))

    def _body(self, status: str, kind: str, description: str, schema: Json) -> Body:
        return Body(status, kind, description, self._type(schema), tuple(self._rows(schema)))

    def _rows(self, schema: Json, prefix: str = "", depth: int = 0) -> Iterator[Row]:
        """The members of an object, those of objects in it after it: `items[].id`."""
        required = schema.get("required", ())
        for name, member in schema.get("properties", {}).items():
            path = f"{prefix}{name}"
            yield Row(path, self._type(member), name in required, member.get("description", ""))
            inner, suffix = member, "."
            if member.get("type") == "array":
                inner, suffix = member.get("items", {}), "[]."
            if depth < _DEEPEST:
                for one in (inner, *inner.get("oneOf", ()), *inner.get("anyOf", ())):
                    yield from self._rows(one, path + suffix, depth + 1)

    def _type(self, schema: Json) -> tuple[Part, ...]:
        """The type in words: `array of Message`, `string (date-time) or null`."""
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            return (Part(name, self._of_schema(name)),)
        choices = schema.get("oneOf") or schema.get("anyOf")
        if choices:
            parts: list[Part] = []
            for one in choices:
                parts += ([Part(" or ")] if parts else []) + list(self._type(one))
            return tuple(parts)
        if schema.get("type") == "array":
            return (Part("array of "), *self._type(schema.get("items", {})))
        return (Part(_words(schema)),)

    def _of_schema(self, name: str) -> str:
        return f"{self._anchor}-schema-{name}"


def _words(schema: Json) -> str:
    """A type that refers to nothing."""
    for key in ("enum", "const"):
        if key in schema:
            values = schema[key] if key == "enum" else [schema[key]]
            return " | ".join("null" if one is None else str(one) for one in values)
    types = schema.get("type", "any")
    text = " or ".join(types) if isinstance(types, list) else str(types)
    if "format" in schema:
        text += f" ({schema['format']})"
    if "default" in schema:
        text += f", default {schema['default']}"
    return text
