"""The query of a GraphQL request: read, held against the limits and the schema.

Sources: https://hl7.org/fhir/R4/graphql.html, https://spec.graphql.org/October2021/
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from graphql import (
    ArgumentNode,
    DocumentNode,
    FieldNode,
    FragmentDefinitionNode,
    FragmentSpreadNode,
    GraphQLError,
    GraphQLSchema,
    InlineFragmentNode,
    NameNode,
    OperationDefinitionNode,
    OperationType,
    SelectionSetNode,
    StringValueNode,
    VariablesInAllowedPositionRule,
    get_variable_values,
    parse,
    specified_rules,
    validate,
)

from ipf.errors import Category, Issue, Problem
from ipf.fhir.model.json import loads
from ipf.ports import Request
from ipf.rest.graphql.schema import schema
from ipf.rest.http.exchange import media_type

MOST_TOKENS = 5000
MOST_FIELDS = 400
MOST_DEPTH = 20
_MOST_ERRORS = 10
_RULES = [rule for rule in specified_rules if rule is not VariablesInAllowedPositionRule]
"""Arguments are texts as in a URL: a variable of any scalar type fits."""
_OWN = frozenset({"query", "variables", "operationName"})


@dataclass(frozen=True, slots=True)
class Query:
    """A query that holds against the schema."""

    schema: GraphQLSchema
    operation: OperationDefinitionNode
    fragments: dict[str, FragmentDefinitionNode]
    variables: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Sent:
    """What a request contains: the text of the query, its variables, and which of its operations is meant."""

    text: str
    variables: Mapping[str, Any] = field(default_factory=dict)
    name: str | None = None


def sent(request: Request) -> Sent:
    """The query in the URL, in a JSON body, or as a body of `application/graphql`.  Problem VALUE, MEDIA_TYPE."""
    members: dict[str, Any] = {}
    for name, value in request.query:
        if name not in _OWN:
            raise Problem(Category.NOT_SUPPORTED, f"$graphql has no parameter {name[:60]}", name[:60])
        members[name] = value
    if request.method == "POST" and request.body:
        members |= _posted(request)
    text, variables, chosen = members.get("query"), members.get("variables") or {}, members.get("operationName")
    if not isinstance(text, str) or not text.strip():
        raise Problem(Category.REQUIRED, "$graphql needs a query", "query")
    if isinstance(variables, str):
        variables = loads(variables.encode())
    if not isinstance(variables, dict):
        raise Problem(Category.VALUE, "variables must be a JSON object", "variables")
    if chosen is not None and not isinstance(chosen, str):
        raise Problem(Category.VALUE, "operationName must be a text", "operationName")
    return Sent(text, variables, chosen or None)


def _posted(request: Request) -> dict[str, Any]:
    kind = media_type(request.headers.get("content-type") or "application/json")
    if kind == "application/graphql":
        try:
            return {"query": request.body.decode()}
        except UnicodeDecodeError as refused:
            raise Problem(Category.MALFORMED, "the query is not UTF-8", "query") from refused
    if kind not in ("application/json", "application/fhir+json"):
        raise Problem(Category.MEDIA_TYPE, f"send application/json or application/graphql, not {kind[:100]}")
    body = loads(request.body)
    if not isinstance(body, dict):
        raise Problem(Category.MALFORMED, "the body must be one JSON object")
    return {name: body[name] for name in _OWN & body.keys()}


def prepared(asked: Sent, instance: tuple[str, str] | None = None) -> Query:
    """The query of `asked`, of one resource (type, id) or of the system.

    Problem VALUE names the line and column of what the schema does not allow, COSTLY what is beyond a limit.
    """
    try:
        document = parse(asked.text, max_tokens=MOST_TOKENS)
    except GraphQLError as refused:
        raise _refused([refused]) from refused
    except RecursionError as refused:
        raise _costly(f"fields deeper than {MOST_DEPTH}") from refused
    operation = _operation(document, asked.name)
    if instance is not None:
        document, operation = _of_instance(document, operation, *instance)
    fragments = {one.name.value: one for one in document.definitions if isinstance(one, FragmentDefinitionNode)}
    _Size(fragments).check(document)
    known = schema()
    errors = validate(known, document, _RULES, max_errors=_MOST_ERRORS)
    if errors:
        raise _refused(errors)
    values = get_variable_values(known, operation.variable_definitions, dict(asked.variables), _MOST_ERRORS)
    if isinstance(values, list):
        names = ", ".join([str(one.nodes[0].variable.name.value) for one in values if one.nodes])  # type: ignore[attr-defined]
        raise Problem(Category.VALUE, f"these variables do not have the type that the query says: {names}", "variables")
    return Query(known, operation, fragments, values)


def _operation(document: DocumentNode, name: str | None) -> OperationDefinitionNode:
    found = [one for one in document.definitions if isinstance(one, OperationDefinitionNode)]
    named = [one for one in found if name is None or (one.name is not None and one.name.value == name)]
    if len(named) != 1:
        text = "the query has no operation of this name" if name else "operationName must say which operation is meant"
        raise Problem(Category.VALUE, text if found else "the query has no operation", "operationName")
    if named[0].operation is not OperationType.QUERY:
        text = f"$graphql reads only; a {named[0].operation.value} is not supported"
        raise Problem(Category.NOT_SUPPORTED, text, "query")
    return named[0]


def _of_instance(
    document: DocumentNode, operation: OperationDefinitionNode, resource_type: str, id: str
) -> tuple[DocumentNode, OperationDefinitionNode]:
    """The query of one resource as a query of the system: `{ name }` -> `{ Patient(id: "1") { name } }`."""
    asked = ArgumentNode(name=NameNode(value="id"), value=StringValueNode(value=id, block=False))
    inner = FieldNode(
        name=NameNode(value=resource_type), arguments=(asked,), directives=(), selection_set=operation.selection_set
    )
    outer = OperationDefinitionNode(
        operation=operation.operation,
        name=operation.name,
        variable_definitions=operation.variable_definitions,
        directives=operation.directives,
        selection_set=SelectionSetNode(selections=(inner,)),
    )
    others = tuple(one for one in document.definitions if isinstance(one, FragmentDefinitionNode))
    return DocumentNode(definitions=(outer, *others)), outer


class _Size:
    """Counts fields with those of the fragments that they use: fragments within fragments can multiply."""

    def __init__(self, fragments: Mapping[str, FragmentDefinitionNode]) -> None:
        self._fragments = fragments
        self._known: dict[str, tuple[int, int]] = {}
        self._open: set[str] = set()

    def check(self, document: DocumentNode) -> None:
        """Problem COSTLY for more fields, or deeper ones, than the limits."""
        for one in document.definitions:
            if isinstance(one, OperationDefinitionNode | FragmentDefinitionNode):
                count, depth = self._of(one.selection_set)
                if count > MOST_FIELDS:
                    raise _costly(f"more than {MOST_FIELDS} fields")
                if depth > MOST_DEPTH:
                    raise _costly(f"fields deeper than {MOST_DEPTH}")

    def _of(self, selected: SelectionSetNode | None, level: int = 0) -> tuple[int, int]:
        """The number of fields, and the depth."""
        if selected is None:
            return 0, 0
        if level > 4 * MOST_DEPTH:
            raise _costly(f"fields deeper than {MOST_DEPTH}")
        count = depth = 0
        for one in selected.selections:
            if isinstance(one, FieldNode):
                more, deep = self._of(one.selection_set, level + 1)
                more, deep = more + 1, deep + 1
            elif isinstance(one, InlineFragmentNode):
                more, deep = self._of(one.selection_set, level + 1)
            elif isinstance(one, FragmentSpreadNode):
                more, deep = self._of_fragment(one.name.value, level)
            count, depth = count + more, max(depth, deep)
        return count, depth

    def _of_fragment(self, name: str, level: int) -> tuple[int, int]:
        if name not in self._known:
            fragment = self._fragments.get(name)
            if fragment is None or name in self._open:  # the schema's rules refuse both
                return 0, 0
            self._open.add(name)
            self._known[name] = self._of(fragment.selection_set, level + 1)
            self._open.discard(name)
        return self._known[name]


def _costly(what: str) -> Problem:
    return Problem(Category.COSTLY, f"the query has {what}", "query")


def _refused(errors: list[GraphQLError]) -> Problem:
    issues = []
    for one in errors:
        place = f"query, line {one.locations[0].line}, column {one.locations[0].column}" if one.locations else "query"
        issues.append(Issue(one.message[:400], place, Category.VALUE))
    return Problem(Category.VALUE, issues[0].text, issues[0].place, issues=tuple(issues))
