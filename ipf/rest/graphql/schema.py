"""The GraphQL schema of the FHIR server, made from the definitions of R4.

It has a type for each resource, data type and backbone element, `X(id:)`, `XList` and `XConnection` for each resource
type, and in each resource the lists of what may refer to it.  A field tells in `extensions` what it reads.  It is made
at the first query, in 0.7 s and 20 MB; a change of the search parameters makes it anew.

Source: https://hl7.org/fhir/R4/graphql.html
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from threading import Lock
from typing import Any

from graphql import (
    DirectiveLocation,
    EnumValueNode,
    FloatValueNode,
    GraphQLArgument,
    GraphQLBoolean,
    GraphQLDirective,
    GraphQLError,
    GraphQLField,
    GraphQLFloat,
    GraphQLID,
    GraphQLInt,
    GraphQLInterfaceType,
    GraphQLList,
    GraphQLNonNull,
    GraphQLObjectType,
    GraphQLScalarType,
    GraphQLSchema,
    GraphQLString,
    IntValueNode,
    ValueNode,
    specified_directives,
    value_from_ast_untyped,
)

from ipf.fhir.model.definitions import Definitions, Element, definitions


class Reads(Enum):
    """What a field reads: a member of its object, a resource by id, a search, the target of a Reference."""

    MEMBER = "member"
    RESOURCE = "resource"
    LIST = "list"
    CONNECTION = "connection"
    TARGET = "target"


READS, TYPE, PATH = "reads", "type", "path"
"""Keys of `extensions`: of fields, the resource type that they read, the FHIR type of an object type."""
REFERENCE = "_reference"
CURSORS = ("_cursor", "cursor")
RESULTS = ("_count", "_sort", "_total", "_filter")
"""Arguments of a search that are no search parameters of a type."""
_INTERFACE = "Resource"
_SCALARS = {"boolean": GraphQLBoolean, "integer": GraphQLInt, "positiveInt": GraphQLInt, "unsignedInt": GraphQLInt,
            "decimal": GraphQLFloat, "id": GraphQLID, "string": GraphQLString}  # fmt: skip
_CONNECTION = {"count": GraphQLInt, "offset": GraphQLInt, "pagesize": GraphQLInt, "first": GraphQLID,
               "previous": GraphQLID, "next": GraphQLID, "last": GraphQLID}  # fmt: skip


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        raise GraphQLError("an argument is a text, a number or a boolean")
    return str(value)


def _literal(node: ValueNode, variables: dict[str, Any] | None = None) -> str:
    if isinstance(node, IntValueNode | FloatValueNode | EnumValueNode):
        return node.value  # as it is written: 1.10 is not 1.1, and a code needs no quotation marks
    return _text(value_from_ast_untyped(node, variables))


VALUE = GraphQLScalarType(
    "Value",
    description="A text, number, boolean or code, as it is in a URL.",
    parse_value=_text,
    parse_literal=_literal,
)
_ON_FIELD = [DirectiveLocation.FIELD]
DIRECTIVES = (
    *specified_directives,
    GraphQLDirective("flatten", _ON_FIELD, description="The members of the field stand in its place."),
    GraphQLDirective("first", _ON_FIELD, description="Only the first value."),
    GraphQLDirective("singleton", _ON_FIELD, description="One value, although the field is a list; more are an error."),
    GraphQLDirective(
        "slice",
        _ON_FIELD,
        {name: GraphQLArgument(GraphQLString) for name in ("path", "fhirpath")},
        description="The name of each value ends with the result of a FHIRPath expression.",
    ),
)


def type_name(path: str) -> str:
    """`Patient.contact` -> `PatientContact`."""
    return "".join([part[:1].upper() + part[1:] for part in path.split(".")])


class _Builder:
    """The types of one schema, each made at its first use."""

    def __init__(self, known: Definitions) -> None:
        self._known = known
        self._types: dict[str, Any] = {VALUE.name: VALUE}
        self._searches: dict[str, dict[str, GraphQLField]] = {}
        base = known.members(_INTERFACE)
        self._interface = GraphQLInterfaceType(_INTERFACE, lambda: dict(self._members(base)))
        self._types[_INTERFACE] = self._interface
        element = {"id": GraphQLField(GraphQLString), "extension": GraphQLField(GraphQLList(self.type("Extension")))}
        self._primitive = GraphQLObjectType("ElementBase", lambda: element, extensions={PATH: "Element"})

    def schema(self) -> GraphQLSchema:
        """The whole schema."""
        names = sorted(self._known.resource_types)
        fields = {}
        for name in names:
            reads = {READS: Reads.RESOURCE, TYPE: name}
            fields[name] = GraphQLField(self.type(name), {"id": _required()}, extensions=reads)
            fields |= self._search(name)
        query = GraphQLObjectType("Query", fields)
        types = [self.type(name) for name in names]
        return GraphQLSchema(query, types=types, directives=DIRECTIVES, assume_valid=True)

    def type(self, path: str) -> Any:
        """The GraphQL type of a FHIR type or backbone element."""
        if path in ("DomainResource", _INTERFACE):
            return self._types[_INTERFACE]
        name = path if path in self._known.primitive_types else type_name(path)
        found = self._types.get(name)
        if found is None:
            found = self._types[name] = self._made(path, name)
        return found

    def _made(self, path: str, name: str) -> Any:
        if path in self._known.primitive_types:
            return _SCALARS.get(path) or GraphQLScalarType(name)
        is_resource = path in self._known.resource_types
        return GraphQLObjectType(
            name,
            lambda: self._fields(path, is_resource),
            interfaces=[self._interface] if is_resource else [],
            extensions={PATH: path},
        )

    def _fields(self, path: str, is_resource: bool) -> dict[str, GraphQLField]:
        fields = dict(self._members(self._known.members(path)))
        if path == "Reference":
            asked = {"optional": GraphQLArgument(GraphQLBoolean, False), "type": GraphQLArgument(VALUE)}
            fields["resource"] = GraphQLField(self._interface, asked, extensions={READS: Reads.TARGET})
        if is_resource:
            fields["resourceType"] = GraphQLField(self.type("code"))
            for name in self._known.resource_types:
                codes = [code for code, one in self._known.search_parameters(name).items()
                         if one.type == "reference" and (not one.targets or path in one.targets)]  # fmt: skip
                if codes:
                    fields |= self._search(name, REFERENCE)
        return fields

    def _members(self, members: Any) -> Iterator[tuple[str, GraphQLField]]:
        one: Element
        for one in members.values():
            for kind in one.types:
                made, name = self.type(kind), one.json_name(kind)
                is_primitive = kind in self._known.primitive_types
                if not one.many:
                    yield name, GraphQLField(made)
                else:
                    yield name, GraphQLField(GraphQLList(made), self._filters(kind, is_primitive))
                if is_primitive and name != "id" and kind != "xhtml":
                    yield f"_{name}", GraphQLField(GraphQLList(self._primitive) if one.many else self._primitive)

    def _filters(self, kind: str, is_primitive: bool) -> dict[str, GraphQLArgument]:
        names = ["fhirpath", "_count", "_offset"]
        if not is_primitive:
            names += [
                one.json_name(name)
                for one in self._known.members(kind).values()
                for name in one.types
                if name in self._known.primitive_types
            ]
        return {name: GraphQLArgument(VALUE) for name in names}

    def _search(self, name: str, *required: str) -> dict[str, GraphQLField]:
        """`XList` and `XConnection` of a type; within a resource, what refers to it by the parameter `_reference`."""
        key = "".join((name, *required))
        found = self._searches.get(key)
        if found is None:
            codes = [*self._known.search_parameters(name), *RESULTS]
            asked = {one.replace("-", "_"): GraphQLArgument(GraphQLList(VALUE), out_name=one) for one in codes}
            asked |= {one: GraphQLArgument(GraphQLNonNull(VALUE)) for one in required}
            pages = {one: GraphQLArgument(VALUE) for one in CURSORS} if not required else {}
            made, connection = GraphQLList(self.type(name)), self._connection(name)
            found = self._searches[key] = {
                f"{name}List": GraphQLField(made, asked, extensions={READS: Reads.LIST, TYPE: name}),
                f"{name}Connection": GraphQLField(
                    connection, asked | pages, extensions={READS: Reads.CONNECTION, TYPE: name}
                ),
            }
        return found

    def _connection(self, name: str) -> GraphQLObjectType:
        full = f"{name}Connection"
        if full not in self._types:
            resource = GraphQLField(self.type(name))
            edge = {"mode": GraphQLField(GraphQLString), "score": GraphQLField(GraphQLFloat), "resource": resource}
            edges = GraphQLField(GraphQLList(GraphQLObjectType(f"{name}Edge", edge)))
            members = {one: GraphQLField(kind) for one, kind in _CONNECTION.items()}
            self._types[full] = GraphQLObjectType(full, members | {"edges": edges})
        made: GraphQLObjectType = self._types[full]
        return made


def _required() -> GraphQLArgument:
    return GraphQLArgument(GraphQLNonNull(VALUE))


_lock = Lock()
_made: list[tuple[int, GraphQLSchema]] = []


def schema() -> GraphQLSchema:
    """The schema with the search parameters of now.  The first call takes long: call it in a thread."""
    known = definitions()
    with _lock:  # requests in several threads make it once
        generation = known.generation
        if not _made or _made[0][0] != generation:
            _made[:] = [(generation, _Builder(known).schema())]
        return _made[0][1]
