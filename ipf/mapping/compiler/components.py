"""Which components and repetitions of each field the rules of a map read, for `runtime.unread`.

What arrives: a map and the groups that its rules call.  What leaves: for each field of a segment the numbers of the
components that some rule reads, and whether a rule reads every repetition.

This is an analysis of the map, not of a run: to mark each component that a run reads would cost more than a tenth of
the time of a message.  So a component counts as read when any rule of the map reads it, also when that rule did not
fire for this message; whether the field as a whole was read is known exactly (`sources.reads`).  A rule reads what it
copies, translates, compares or passes to a group that does; `exists()` and `empty()` read nothing.  A condition that
only asks whether a component has one of some values reads these values alone: any other one is a loss.  A field itself,
where a value is wanted, is its first component.  A code that a rule translates or compares with a literal is known, and
its text and its code system with it.  What the analysis cannot follow counts as read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from ipf.fhir.fhirpath import FhirPathError, parse
from ipf.fhir.fhirpath.language import ast
from ipf.hl7.message import number_of
from ipf.hl7.reads import EVERY_COMPONENT
from ipf.mapping.compiler.expressions.native import parts
from ipf.mapping.compiler.v2 import is_data_type, types_of
from ipf.mapping.language.model import Group, Rule, Source, StructureMap, Target
from ipf.mapping.runtime.unread import ReadPart, ReadParts

FindGroup = Callable[[StructureMap, str], tuple[StructureMap, Group] | None]
"""A group by the name that a map calls it."""

_ITSELF = frozenset(("where", "first", "last", "skip", "take", "tail", "single", "distinct", "trace", "ofType", "as"))
_ON_ITEMS = frozenset(("where", "select", "all", "exists", "repeat"))
_WITHOUT_VALUE = frozenset(("exists", "empty", "count", "hasValue"))
_EVERYTHING = frozenset(("children", "descendants"))
_ONE = frozenset(("first", "last", "single"))
_COMPARING = frozenset(("=", "~", "in", "!=", "!~"))
_CODED = frozenset(("CWE", "CE", "CNE", "CF", "IS", "ID"))
_EQUAL = frozenset(("=", "in"))
_SAME_SENSE = frozenset((*_ITSELF, "exists", "all", "allTrue"))
"""Functions that hold when a condition in them does."""
_CODE = -2
"""Among the numbers of components: a code that is known, and of a coded type its text and code system."""


Parts = set[int | tuple[int, str]]
"""Numbers of components; with a text, of one that is read if it has this value."""


@dataclass(frozen=True, slots=True)
class _Place:
    """What a name stands for.  `field`: segment and number.  `parameter`: of a group, not known what it stands for.

    `component`: 0 = the whole.  `every`: of every repetition.  None of both: a message, a group or a segment.
    `is_collection`: all repetitions at once, in an expression; as an operand it has one value.
    """

    field: tuple[str, int] | None = None
    parameter: int = -1
    component: int = 0
    every: bool = True
    is_collection: bool = False

    def below(self, name: str, *, every: bool, is_collection: bool = False) -> _Place:
        """A child."""
        number = number_of(name)
        if self.component:
            return self
        if number and not is_data_type(name) and self.field is None:
            own = name[: max(name.rfind("_"), name.rfind("."))], number
            return _Place(own, every=every, is_collection=is_collection)
        if number and (self.field is not None or self.parameter >= 0):
            return _Place(self.field, self.parameter, number, self.every, self.is_collection)
        return _Place() if self.field is None else self


@dataclass(slots=True)
class _Reads:
    """What the rules of a group read: of fields that they name, and of the parameters of the group.

    `repeated`: fields of which they read every repetition; `compared`: of which they compare every one with values.
    """

    fields: dict[tuple[str, int], Parts] = field(default_factory=dict)
    repeated: set[tuple[str, int]] = field(default_factory=set)
    compared: set[tuple[str, int]] = field(default_factory=set)
    parameters: dict[int, Parts] = field(default_factory=dict)

    def add(self, place: _Place, components: Iterable[int | tuple[int, str]]) -> None:
        """Components of a place that are read."""
        if place.field is not None:
            self.fields.setdefault(place.field, set()).update(components)
            if place.every and not place.is_collection:
                is_value = any(isinstance(one, int) for one in components)
                (self.repeated if is_value else self.compared).add(place.field)
        elif place.parameter >= 0:
            self.parameters.setdefault(place.parameter, set()).update(components)

    def add_called(self, called: _Reads, arguments: list[tuple[_Place, ...]]) -> None:
        """What a called group reads of its arguments, and of the fields that it names."""
        for one, components in called.fields.items():
            self.fields.setdefault(one, set()).update(components)
        self.repeated |= called.repeated
        self.compared |= called.compared
        for number, components in called.parameters.items():
            for place in arguments[number] if number < len(arguments) else ():
                self.add(place, _of_component(place.component, components) if place.component else components)


def _of_component(number: int, components: Parts) -> Parts:
    """What is read of a group's parameter that is a component."""
    return {number if type(one) is int else (number, one[1]) for one in components}  # type: ignore[index]


class Components:
    """Analyses the groups of a set of maps, each once."""

    def __init__(self, find_group: FindGroup) -> None:
        self._find_group = find_group
        self._known: dict[tuple[str, str], _Reads] = {}

    def of(self, content: StructureMap, group: Group) -> ReadParts:
        """What a map reads that begins with this group: by segment and number of the field."""
        found = self._reads(content, group)
        made: dict[str, dict[int, ReadPart]] = {}
        for (segment, number), components in found.fields.items():
            types = types_of(f"{segment}_{number}")
            whole = {one for one in components if isinstance(one, int)}
            coded = frozenset({1, 2, 3} if not types or types[0] in _CODED else {1})
            if _CODE in whole:
                whole |= coded
            values: dict[int, set[str]] = {}
            for one in components:
                if not isinstance(one, int) and one[0] not in whole:
                    values.setdefault(one[0], set()).add(one[1])
            compared = {one: frozenset(texts) for one, texts in values.items()}
            is_repeated = (segment, number) in (found.repeated if whole else found.repeated | found.compared)
            read = ReadPart(frozenset(whole) - {_CODE}, is_repeated, types, compared, coded)
            made.setdefault(segment, {})[number] = read
        return made

    def _reads(self, content: StructureMap, group: Group) -> _Reads:
        key = content.url, group.name
        found = self._known.get(key)
        if found is None:
            everything: dict[int, Parts] = {number: {EVERY_COMPONENT} for number in range(len(group.inputs))}
            self._known[key] = _Reads(parameters=everything)  # of a group that calls itself
            found = self._known[key] = self._analysed(content, group)
        return found

    def _analysed(self, content: StructureMap, group: Group) -> _Reads:
        reads = _Reads()
        names = {one.name: (_Place(parameter=number),) for number, one in enumerate(group.inputs)}
        if group.extends:
            self._call(content, group.extends, [names[one.name] for one in group.inputs], reads)
        for rule in group.rules:
            self._rule(content, rule, names, reads)
        return reads

    def _rule(self, content: StructureMap, rule: Rule, outer: Mapping[str, tuple[_Place, ...]], reads: _Reads) -> None:
        names = dict(outer)
        for source in rule.sources:
            places = _items(source, names)
            if source.variable:
                names[source.variable] = places
            _Expressions(names, reads, is_condition=True).read(source.condition, places)
            for text in (source.check, source.log_message, source.default_expression):
                _Expressions(names, reads).read(text, places)
            if rule.is_simple:
                _all(places, reads)
        for target in rule.targets:
            _target(target, names, reads)
        for one in rule.dependents:
            values = [names.get(str(value.value), ()) if value.kind == "id" else () for value in one.parameters]
            self._call(content, one.name, values, reads)
        for inner in rule.rules:
            self._rule(content, inner, names, reads)

    def _call(self, content: StructureMap, name: str, arguments: list[tuple[_Place, ...]], reads: _Reads) -> None:
        found = self._find_group(content, name)
        if found is None:
            for places in arguments:
                _all(places, reads)
        else:
            reads.add_called(self._reads(*found), arguments)


def _items(source: Source, names: Mapping[str, tuple[_Place, ...]]) -> tuple[_Place, ...]:
    """The items of a source."""
    places = names.get(source.context, ())
    every = source.list_mode not in ("first", "last", "only_one")
    for name in source.element.split(".") if source.element else ():
        places = tuple(one.below(name, every=every) for one in places)
    return places


def _target(target: Target, names: dict[str, tuple[_Place, ...]], reads: _Reads) -> None:
    parameters = target.parameters
    if target.transform == "evaluate" and parameters:
        focus = names.get(str(parameters[0].value), ()) if len(parameters) > 1 else ()
        _Expressions(names, reads).read(str(parameters[-1].value), focus)
    else:
        for number, one in enumerate(parameters):
            if one.kind == "id" and target.transform == "translate" and number == 0:
                _recognize(names.get(str(one.value), ()), reads)
            elif one.kind == "id":
                _use(names.get(str(one.value), ()), reads)
    if target.variable:
        names[target.variable] = ()


def _use(places: Iterable[_Place], reads: _Reads) -> None:
    """The value of something is read."""
    for place in places:
        reads.add(place, (place.component or 1,))


def _recognize(places: Iterable[_Place], reads: _Reads) -> None:
    """A code is translated, or compared with a literal."""
    for place in places:
        reads.add(place, (1, _CODE) if place.component < 2 else (place.component,))


def _all(places: Iterable[_Place], reads: _Reads) -> None:
    for place in places:
        reads.add(place, (place.component or EVERY_COMPONENT,))


class _Expressions:
    """What FHIRPath expressions read.

    `is_condition`: the value only says whether a rule fires.  Then a comparison that has to hold for this reads the
    values that it names, and any other comparison reads all.
    """

    def __init__(self, names: Mapping[str, tuple[_Place, ...]], reads: _Reads, *, is_condition: bool = False) -> None:
        self._names = names
        self._reads = reads
        self._has_to_hold = is_condition

    def read(self, text: str, focus: tuple[_Place, ...]) -> None:
        """An expression whose value is used."""
        if not text:
            return
        try:
            node = parse(text)
        except FhirPathError:  # the compiler reports it
            return
        _use(_each(self._places(node, focus)), self._reads)

    def _places(self, node: ast.Node, focus: tuple[_Place, ...]) -> tuple[_Place, ...]:
        """What an expression gives; what it reads on the way is recorded."""
        if isinstance(node, ast.This):
            return focus
        if isinstance(node, ast.Variable):
            return self._names.get(node.name, focus if node.name in ("context", "resource") else ())
        if isinstance(node, ast.Member):
            return self._member(node, focus)
        if isinstance(node, ast.Index):
            _use(self._places(node.index, focus), self._reads)
            return tuple(_once(one) for one in self._places(node.focus, focus))
        if isinstance(node, ast.Function):
            return self._function(node, focus)
        if isinstance(node, ast.Binary) and node.operator in _COMPARING and _is_literal(node.right):
            self._compared(node, self._places(node.left, focus))
            return ()
        is_both = isinstance(node, ast.Binary) and node.operator in ("and", "or")
        with self._inside(self._has_to_hold and is_both):
            for one in parts(node):
                _use(self._places(one, focus), self._reads)
        return ()

    def _compared(self, node: ast.Binary, places: tuple[_Place, ...]) -> None:
        texts = _texts(node.right)
        if not self._has_to_hold or node.operator not in _EQUAL or texts is None:
            _recognize(places, self._reads)
            return
        for place in places:
            self._reads.add(place, [(place.component or 1, one) for one in texts])

    @contextmanager
    def _inside(self, has_to_hold: bool) -> Iterator[None]:
        """Reads of an expression inside another one."""
        before, self._has_to_hold = self._has_to_hold, has_to_hold
        try:
            yield
        finally:
            self._has_to_hold = before

    def _member(self, node: ast.Member, focus: tuple[_Place, ...]) -> tuple[_Place, ...]:
        if node.focus is None and node.name in self._names:
            return self._names[node.name]
        owners = focus if node.focus is None else self._places(node.focus, focus)
        return tuple(one.below(node.name, every=True, is_collection=True) for one in owners)

    def _function(self, node: ast.Function, focus: tuple[_Place, ...]) -> tuple[_Place, ...]:
        with self._inside(self._has_to_hold and node.name in _SAME_SENSE):
            return self._function_of(node, focus)

    def _function_of(self, node: ast.Function, focus: tuple[_Place, ...]) -> tuple[_Place, ...]:
        places = focus if node.focus is None else self._places(node.focus, focus)
        inner = _each(places) if node.name in _ON_ITEMS else focus
        given = [self._places(one, inner) for one in node.args]
        if node.name == "select":
            return given[0] if given else ()
        for one in given:
            _use(_each(one), self._reads)
        if node.name in _WITHOUT_VALUE:
            return ()
        if node.name in _EVERYTHING:
            _all(places, self._reads)
        if node.name in _ITSELF:
            return tuple(map(_once, places)) if node.name in _ONE else places
        _use(_each(places), self._reads)
        return ()


def _is_literal(node: ast.Node) -> bool:
    if isinstance(node, ast.Binary):
        return _is_literal(node.left) and _is_literal(node.right)
    return isinstance(node, ast.Literal)


def _texts(node: ast.Node) -> list[str] | None:
    """The texts of a literal, or of several; None: one is no text."""
    if isinstance(node, ast.Binary):
        found = [_texts(node.left), _texts(node.right)]
        return None if None in found else [text for texts in found for text in texts or ()]
    return [node.value] if isinstance(node, ast.Literal) and isinstance(node.value, str) else None


def _each(places: Iterable[_Place]) -> tuple[_Place, ...]:
    """The places, one repetition after the other."""
    return tuple(replace(one, is_collection=False) if one.is_collection else one for one in places)


def _once(place: _Place) -> _Place:
    return _Place(place.field, place.parameter, place.component, every=False)
