"""Which groups give the same result whenever they are given the same: what `memo` may remember.

A group is pure when all that it reads comes from its source parameters, and all that it makes goes into its target or
into new entries of the Bundle.  The answer may err towards "not pure", never the other way: random ids, clocks, places
in a list that others share, and groups that are chosen by type are not followed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ipf.fhir.fhirpath import FhirPathError, ast, parse
from ipf.hl7.message import number_of
from ipf.mapping.compiler.native import parts
from ipf.mapping.language.model import Dependent, Group, Parameter, Rule, Source, StructureMap, Target

Find = Callable[[StructureMap, str], tuple[StructureMap, Group] | None]
"""A group by the name that a map calls it."""

EVERYTHING = -1
"""Among the numbers of the children that are read: all of them."""
ANYTHING = "*"
"""Among the names of elements that are written: there may be others."""

_NOT_REPEATABLE = frozenset(("now", "today", "timeOfDay", "trace", "resolve"))
_REFERENCES = frozenset(("reference", "pointer"))
_FOCUS = frozenset(("context", "resource", "rootResource"))


@dataclass(slots=True)
class Pure:
    """What a pure group needs to be known by.  `reads`: by parameter, numbers of the children of it that matter.

    `writes`: by parameter, names of its elements that are written.  `referred`: parameters that references are made to.
    `rules`: how many rules it has, with those of the groups that it calls.
    """

    reads: list[set[int]]
    writes: list[set[str]]
    referred: set[int] = field(default_factory=set)
    rules: int = 0


@dataclass(slots=True)
class Purity:
    """Answers for the groups of a set of maps; each group is looked at once."""

    find: Find
    _known: dict[tuple[str, str, tuple[int, ...]], Pure | None] = field(default_factory=dict)

    def of(self, content: StructureMap, group: Group, bundles: tuple[int, ...]) -> Pure | None:
        """What is known of a group, None when it is not pure.  `bundles`: which parameters are the Bundle."""
        key = (content.url, group.name, bundles)
        if key not in self._known:
            self._known[key] = None  # a group that calls itself is not pure
            self._known[key] = _Look(self, content, group, bundles).result()
        return self._known[key]


class _NotPureError(Exception):
    """What ends a look at a group."""


class _Look:
    """One look at one group."""

    def __init__(self, purity: Purity, content: StructureMap, group: Group, bundles: tuple[int, ...]) -> None:
        self.purity = purity
        self.content = content
        self.group = group
        self.places = {one.name: place for place, one in enumerate(group.inputs)}
        self.targets = {one.name for one in group.inputs if one.mode == "target"}
        self.bundles = {group.inputs[place].name for place in bundles}
        self.pure = Pure([set() for _ in group.inputs], [set() for _ in group.inputs])

    def result(self) -> Pure | None:
        """What is known of the group."""
        if self.group.extends:
            return None
        try:
            for rule in self.group.rules:
                self._rule(rule)
        except (_NotPureError, FhirPathError):
            return None
        return self.pure

    def _rule(self, rule: Rule) -> None:
        if rule.is_simple:
            raise _NotPureError
        self.pure.rules += 1
        for source in rule.sources:
            self._source(source)
        for target in rule.targets:
            self._target(target)
        for dependent in rule.dependents:
            self._call(dependent)
        for inner in rule.rules:
            self._rule(inner)

    def _source(self, source: Source) -> None:
        """A parameter has one name only, so that all reading of it is seen."""
        if source.context in self.bundles or source.variable in self.places:
            raise _NotPureError
        if source.element:
            self._reads(source.context, number_of(source.element.partition(".")[0]))
        elif source.variable:
            self._reads(source.context, 0)
        focus = "" if source.element else source.context
        for text in (source.condition, source.check, source.log_message, source.default_expression):
            if text:
                self._expression(parse(text), focus)

    def _target(self, target: Target) -> None:
        makes_entry = target.element == "entry" and target.transform in ("", "create")
        if target.context in self.bundles and not makes_entry:
            raise _NotPureError
        if target.variable in self.places or target.list_modes or target.list_rule_id or target.transform == "uuid":
            raise _NotPureError
        if target.context in self.targets and (target.element or target.variable):
            self.pure.writes[self.places[target.context]].add(target.element or ANYTHING)
        parameters = target.parameters
        if target.transform == "evaluate":
            self._expression(parse(str(parameters[-1].value)), "")
            parameters = parameters[:-1]
        for one in parameters:
            self._mention(one, target.transform)

    def _mention(self, parameter: Parameter, transform: str) -> None:
        name = str(parameter.value)
        if parameter.kind == "id" and name in self.targets:
            if transform not in _REFERENCES or name in self.bundles:
                raise _NotPureError
            self.pure.referred.add(self.places[name])
            return
        if parameter.kind == "id":
            self._reads(name, 0)

    def _call(self, dependent: Dependent) -> None:
        found = self.purity.find(self.content, dependent.name)
        if found is None or len(found[1].inputs) != len(dependent.parameters):
            raise _NotPureError
        names = [str(one.value) if one.kind == "id" else "" for one in dependent.parameters]
        bundles = tuple(place for place, name in enumerate(names) if name in self.bundles)
        called = self.purity.of(*found, bundles)
        if called is None:
            raise _NotPureError
        self.pure.rules += called.rules
        for place, name in enumerate(names):
            if name in self.places:
                self.pure.reads[self.places[name]] |= called.reads[place]
                self.pure.writes[self.places[name]] |= called.writes[place]
                self.pure.referred |= {self.places[name]} if place in called.referred else set()

    def _expression(self, node: ast.Node, focus: str) -> None:
        """What an expression reads; `focus`: the parameter that bare names are elements of, if it is one."""
        for one, owner in _walk(node):
            if isinstance(one, ast.Function) and one.name in _NOT_REPEATABLE:
                raise _NotPureError
            if isinstance(one, ast.This) or (isinstance(one, ast.Variable) and one.name in _FOCUS):
                self._reads(focus, 0)
            if isinstance(one, ast.Function) and one.focus is None:
                self._reads(focus, 0)
            if isinstance(one, (ast.Member, ast.Variable)) and one.name in self.places:
                self._reads(one.name, number_of(owner.name) if owner is not None else 0)
            elif isinstance(one, ast.Member) and one.focus is None:
                self._reads(focus, number_of(one.name))

    def _reads(self, name: str, number: int) -> None:
        if name in self.bundles:
            raise _NotPureError
        if name in self.places:
            self.pure.reads[self.places[name]].add(number or EVERYTHING)


def _walk(node: ast.Node, owner: ast.Member | None = None) -> Iterator[tuple[ast.Node, ast.Member | None]]:
    """Every node of a tree, with the step that is taken from it."""
    yield node, owner
    for one in parts(node):
        yield from _walk(one, node if isinstance(node, ast.Member) and node.focus is one else None)
