"""The fields of a selection on one type, with arguments and directives read: the same for every value of that type.

Sources: https://hl7.org/fhir/R4/graphql.html#list, #flattening
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from graphql import (
    FieldNode,
    GraphQLError,
    GraphQLList,
    GraphQLObjectType,
    get_argument_values,
    get_directive_values,
    get_named_type,
)
from graphql.execution.collect_fields import collect_sub_fields

from ipf.errors import Category, Problem
from ipf.fhir.fhirpath.errors import FhirPathError
from ipf.fhir.fhirpath.expression import Expression, compile
from ipf.rest.graphql.document import Query
from ipf.rest.graphql.schema import DIRECTIVES, PATH, READS, TYPE, Reads

_DIRECTIVES = {one.name: one for one in DIRECTIVES}
_TYPE_NAME = "__typename"
INDEX = "$index"


@dataclass(frozen=True, slots=True)
class Field:
    """One field: its key in the response, what it reads, its directives.

    `type`: a GraphQL object or interface type, None for scalars; `nodes`: of its selection.  `resource_type`: that it
    reads.  `filter`, `slice`: FHIRPath; `slice` is `$index` or an Expression.
    """

    key: str
    name: str
    reads: Reads
    is_list: bool
    type: Any
    nodes: tuple[FieldNode, ...]
    resource_type: str
    arguments: dict[str, Any]
    flatten: bool
    first: bool
    singleton: bool
    filter: Expression | None
    slice: Expression | str | None


class Plans:
    """The fields by selection and type, read once a query."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._known: dict[tuple[str, tuple[int, ...]], list[Field]] = {}

    def fields(self, kind: GraphQLObjectType, nodes: Sequence[Any]) -> list[Field]:
        """The fields that these nodes select on this type."""
        key = kind.name, tuple(map(id, nodes))
        found = self._known.get(key)
        if found is None:
            try:
                found = self._known[key] = list(self._selected(kind, nodes))
            except GraphQLError as refused:  # null from a variable, where it is not allowed
                raise Problem(Category.VALUE, refused.message[:400], "query") from refused
        return found

    def _selected(self, kind: GraphQLObjectType, nodes: Sequence[Any]) -> Iterator[Field]:
        query = self._query
        selected = collect_sub_fields(query.schema, query.fragments, query.variables, kind, list(nodes))
        return (self._field(kind, name, same) for name, same in selected.items())

    def _field(self, kind: GraphQLObjectType, key: str, nodes: list[FieldNode]) -> Field:
        name = nodes[0].name.value
        directives = {one: self._directive(one, nodes[0]) for one in ("flatten", "first", "singleton", "slice")}
        if name.startswith("__") and name != _TYPE_NAME:
            text = f"{name} is not supported: the schema is that of FHIR R4 with all search parameters of this server"
            raise Problem(Category.NOT_SUPPORTED, text, "query")
        definition = kind.fields.get(name)
        given = get_argument_values(definition, nodes[0], self._query.variables) if definition else {}
        named = get_named_type(definition.type) if definition else None
        extensions = definition.extensions if definition else {}
        is_object = nodes[0].selection_set is not None
        if directives["flatten"] is not None and not is_object:
            raise Problem(Category.VALUE, f"@flatten on {name}, which has no members", name)
        path = (getattr(named, "extensions", None) or {}).get(PATH)
        return Field(
            key=key,
            name=name,
            reads=extensions.get(READS, Reads.MEMBER),
            is_list=definition is not None and isinstance(definition.type, GraphQLList),
            type=named if is_object else None,
            nodes=tuple(nodes),
            resource_type=extensions.get(TYPE, ""),
            arguments={one: value for one, value in given.items() if one != "fhirpath"},
            flatten=directives["flatten"] is not None,
            first=directives["first"] is not None,
            singleton=directives["singleton"] is not None,
            filter=_compiled(given.get("fhirpath"), path, name),
            slice=_slice(directives["slice"], path, name),
        )

    def _directive(self, name: str, node: FieldNode) -> dict[str, Any] | None:
        return get_directive_values(_DIRECTIVES[name], node, self._query.variables)


def _slice(given: dict[str, Any] | None, path: str | None, name: str) -> Expression | str | None:
    if given is None:
        return None
    text = given.get("path") or given.get("fhirpath")
    if not text:
        raise Problem(Category.REQUIRED, "@slice needs a path", name)
    return INDEX if text == INDEX else _compiled(text, path, name)


def _compiled(text: Any, path: str | None, name: str) -> Expression | None:
    if text is None:
        return None
    try:
        return compile(str(text), base_type=path)
    except FhirPathError as refused:
        raise Problem(Category.VALUE, f"the FHIRPath of {name} cannot be read: {refused}"[:400], name) from refused
