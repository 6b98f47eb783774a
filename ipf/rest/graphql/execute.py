"""Runs a GraphQL query on what is loaded: the data of the response and its errors.

Sources: https://hl7.org/fhir/R4/graphql.html, https://spec.graphql.org/October2021/#sec-Execution
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from graphql import GraphQLObjectType

from ipf.errors import Category, Problem
from ipf.fhir.fhirpath.errors import FhirPathError
from ipf.fhir.fhirpath.expression import Expression
from ipf.ports import Json
from ipf.rest.graphql.document import Query
from ipf.rest.graphql.loaded import Lacking, Loaded, connection_of, matches_of, search_of
from ipf.rest.graphql.plan import INDEX, Field, Plans
from ipf.rest.graphql.schema import CURSORS, REFERENCE, Reads
from ipf.rest.http.outcome import operation_outcome

MOST_VALUES = 300_000
MOST_ERRORS = 100
MOST_SECONDS = 10.0
"""Of processor time in all runs of a query: FHIRPath on every value can cost much."""
_TYPE_NAME = "__typename"
_COUNT, _OFFSET = "_count", "_offset"

Path = tuple[str | int, ...]


@dataclass(slots=True)
class _Output:
    """The values of one key of the response.  `many`: it is an array."""

    many: bool
    singleton: bool
    present: bool = False
    values: list[Any] = field(default_factory=list)

    def result(self) -> Any:
        """The value of the key; an object is made of its outputs at the end."""
        found = [_result(one) for one in self.values]
        if self.many and not self.singleton:
            return found if found or self.present else None
        return found[0] if len(found) == 1 else found or None


class _Object(dict[str, _Output]):
    """An object of the response, by key."""


def _result(value: Any) -> Any:
    return {key: one.result() for key, one in value.items()} if isinstance(value, _Object) else value


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a value stands.  `resource`: that contains it.  `many`: a flattened list is around it.  `suffix`: of names
    within a slice.  `flat`: within a flattened field, where what is absent is left out.  `path`: of errors.
    """

    resource: Json | None
    path: Path = ()
    many: bool = False
    suffix: str = ""
    flat: bool = False


class Execution:
    """One run of a query."""

    def __init__(self, query: Query, loaded: Loaded, plans: Plans, count: int, seconds: float | None = None) -> None:
        """`seconds`: of processor time that earlier runs of the query left; None: this is the first one."""
        self._query, self._loaded, self._plans, self._default_count = query, loaded, plans, count
        self.errors: list[Json] = []
        self.problems: list[Problem] = []
        self._values = 0
        self.seconds_left = MOST_SECONDS if seconds is None else seconds
        self._end = 0.0

    def run(self) -> Json:
        """The data as far as it is loaded; `loaded` notes what lacks.  Problem COSTLY, VALUE."""
        self._end = time.thread_time() + self.seconds_left  # the clock of the thread that runs it
        kind = self._query.schema.query_type
        assert kind is not None
        target = _Object()
        self._object(kind, {}, [self._query.operation], target, _Place(None))
        found: Json = _result(target)
        self.seconds_left = self._end - time.thread_time()
        return found

    def _object(self, kind: GraphQLObjectType, value: Json, nodes: Any, target: _Object, place: _Place) -> None:
        for one in self._plans.fields(kind, nodes):
            self._spend(1)
            at = replace(place, path=(*place.path, one.key))
            if one.name == _TYPE_NAME:
                self._add(target, one, at, kind.name)
                continue
            try:
                values = self._read(one, value, at)
            except Lacking:
                values = None
            except Problem as problem:
                if problem.category is Category.COSTLY:
                    raise
                self._note(problem, at)
                values = None
            self._write(one, values, target, at)

    def _write(self, one: Field, values: list[Any] | None, target: _Object, place: _Place) -> None:
        """Add the values of a field to the object, by its directives."""
        if not one.flatten and one.slice is None and (values is not None or not place.flat):
            self._output(target, one, place).present |= values is not None
        for index, value in enumerate(values or ()):
            self._spend(1)
            suffix = place.suffix + (self._suffix(one, value, index) if one.slice is not None else "")
            many = place.many or (one.is_list and not one.first)
            path = (*place.path, index) if one.is_list else place.path
            inner = _Place(_around(value, place.resource), path, many, suffix, True)
            if one.type is None:
                self._add(target, one, replace(place, suffix=suffix), value)
            elif value is None:
                self._add(target, one, place, None)
            else:
                self._structure(one, value, target, place, inner)
            if one.first:
                return

    def _structure(self, one: Field, value: Any, target: _Object, place: _Place, inner: _Place) -> None:
        if not isinstance(value, dict):  # what is stored does not have the form of its type
            return
        kind = one.type if isinstance(one.type, GraphQLObjectType) else None
        if kind is None:
            found = self._query.schema.type_map.get(str(value.get("resourceType")))
            kind = found if isinstance(found, GraphQLObjectType) else None
        if kind is None:
            return
        if one.flatten:
            self._object(kind, value, one.nodes, target, inner)
            return
        made = _Object()
        self._add(target, one, replace(place, suffix=inner.suffix), made)
        self._object(kind, value, one.nodes, made, _Place(inner.resource, inner.path))

    def _output(self, target: _Object, one: Field, place: _Place) -> _Output:
        key = one.key + place.suffix
        found = target.get(key)
        if found is None:
            found = target[key] = _Output(place.many or (one.is_list and not one.first), one.singleton)
        return found

    def _add(self, target: _Object, one: Field, place: _Place, value: Any) -> None:
        found = self._output(target, one, place)
        found.values.append(value)
        if found.singleton and len(found.values) > 1:
            raise Problem(Category.VALUE, f"{one.key} is a @singleton, and has more than one value", one.key)

    def _suffix(self, one: Field, value: Any, index: int) -> str:
        if one.slice == INDEX:
            return f".{index}"
        assert isinstance(one.slice, Expression)
        found = self._evaluated(one.slice, value, one)
        return "." + next(_texts(found[:1], one.name), "")

    def _evaluated(self, expression: Expression, value: Any, one: Field) -> list[Any]:
        self._spend(20)
        try:
            return expression.evaluate(value)
        except FhirPathError as refused:
            text = f"the FHIRPath of {one.name} cannot be evaluated: {refused}"
            raise Problem(Category.VALUE, text[:300], one.name) from refused

    def _spend(self, count: int) -> None:
        self._values += count
        if self._values > MOST_VALUES:
            raise Problem(Category.COSTLY, f"the response has more than {MOST_VALUES} values", "query")
        if time.thread_time() > self._end:
            raise Problem(Category.COSTLY, f"the query takes more than {MOST_SECONDS:g} seconds", "query")

    def _note(self, problem: Problem, place: _Place) -> None:
        self.problems.append(problem)
        if len(self.errors) < MOST_ERRORS:
            outcome = operation_outcome(problem)
            self.errors.append({"message": problem.text, "path": list(place.path), "extensions": {"resource": outcome}})

    # What fields read.

    def _read(self, one: Field, value: Json, place: _Place) -> list[Any] | None:
        """The values of a field; None when there is none.  Problem; Lacking."""
        if one.reads is Reads.MEMBER:
            return self._member(one, value)
        if one.reads is Reads.RESOURCE:
            return [self._loaded.read(f"{one.resource_type}/{one.arguments['id']}")]
        if one.reads is Reads.TARGET:
            return self._target(one, value, place)
        if one.reads is Reads.CONNECTION:
            return [connection_of(self._loaded.get((one.resource_type,), self._pairs(one, value, place)))]
        return self._listed(one, value, place)

    def _member(self, one: Field, value: Json) -> list[Any] | None:
        found = value.get(one.name)
        if found is None or not one.is_list:
            return None if found is None else [found]
        if not isinstance(found, list):
            found = [found]
        given = dict(one.arguments)
        first, count = _number(given.pop(_OFFSET, None), _OFFSET), _number(given.pop(_COUNT, None), _COUNT)
        if one.filter is not None:
            found = [each for each in found if each is not None and self._passes(one, each)]
        if given:
            found = [each for each in found if isinstance(each, dict) and _equals(each, given)]
        found = found[first or 0 :]
        return found if count is None else found[:count]

    def _passes(self, one: Field, value: Any) -> bool:
        assert one.filter is not None
        return self._evaluated(one.filter, value, one) == [True]

    def _target(self, one: Field, value: Json, place: _Place) -> list[Any] | None:
        reference = value.get("reference")
        if not isinstance(reference, str):
            return None
        try:
            found = _contained(reference, place.resource) if reference.startswith("#") else self._loaded.read(reference)
        except Problem:
            if one.arguments.get("optional"):
                return None
            raise
        wanted = one.arguments.get("type")
        return [found] if wanted in (None, found.get("resourceType")) else None

    def _listed(self, one: Field, value: Json, place: _Place) -> list[Any]:
        """All matches of a search; Problem COSTLY when they are too many and the query does not limit them."""
        pairs = self._pairs(one, value, place)
        is_limited = any(name == _COUNT for name, _ in pairs)
        if not is_limited:
            pairs.append((_COUNT, str(self._default_count)))
        bundle = self._loaded.get((one.resource_type,), pairs)
        if not is_limited and any(link["relation"] == "next" for link in bundle.get("link", ())):
            text = f"{one.name} has more than {self._default_count} matches: say _count, or read a connection"
            raise Problem(Category.COSTLY, text, one.key)
        return [entry["resource"] for entry in matches_of(bundle)]

    @staticmethod
    def _pairs(one: Field, value: Json, place: _Place) -> list[tuple[str, str]]:
        """The parameters of a search, with the reference to the resource around it."""
        given = dict(one.arguments)
        cursors = [given.pop(name) for name in CURSORS if name in given]
        if cursors:
            if given or len(cursors) > 1:
                raise Problem(Category.VALUE, "a cursor has the parameters of its search: give it alone", "_cursor")
            return search_of(str(cursors[0]))
        around = given.pop(REFERENCE, None)
        pairs = [(name, text) for name, sent in given.items() for text in _texts(sent, name)]
        if around is not None:
            if place.resource is not value:
                raise Problem(Category.VALUE, "nothing refers to a contained resource from outside", one.key)
            code = str(around).replace("_", "-")
            pairs.append((code, f"{value.get('resourceType')}/{value.get('id')}"))
        return pairs


def _around(value: Any, resource: Json | None) -> Json | None:
    """The resource in which `#id` is searched from a value: itself when it is one that no other contains."""
    is_resource = isinstance(value, dict) and "resourceType" in value
    return value if is_resource and (resource is None or value not in resource.get("contained", ())) else resource


def _contained(reference: str, resource: Json | None) -> Json:
    """`#id` within a resource; `#` is the resource itself."""
    if resource is not None:
        if reference == "#":
            return resource
        for one in resource.get("contained", ()):
            if one.get("id") == reference[1:]:
                found: Json = one
                return found
    raise Problem(Category.NOT_FOUND, "the resource contains no resource of this id")


def _equals(value: Json, given: dict[str, Any]) -> bool:
    return all(name in value and next(_texts(value[name], name), None) == str(wanted) for name, wanted in given.items())


def _texts(value: Any, name: str) -> Iterator[str]:
    """The values of an argument as in a URL."""
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, bool):
            yield "true" if one else "false"
        elif isinstance(one, list | dict) or one is None:
            raise Problem(Category.VALUE, f"{name} needs texts", name)
        else:
            yield str(one)


def _number(value: Any, name: str) -> int | None:
    if value is None:
        return None
    text = str(value)
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise Problem(Category.VALUE, f"{name} must be a number from 0", name)
    return int(text)
