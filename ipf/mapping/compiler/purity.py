"""Which groups are pure, and which of their parameters form the key of the result cache (`runtime.memo`).

A group is pure when it reads only its source parameters, and writes only its targets and new entries of the Bundle.
The analysis is conservative: random ids, clocks, positions in shared lists, and groups chosen by type make a group
impure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ipf.fhir.fhirpath import FhirPathError, parse
from ipf.fhir.fhirpath.language import ast
from ipf.hl7.message import number_of
from ipf.mapping.compiler.expressions.native import parts
from ipf.mapping.compiler.kinds import BUNDLE, Kind, Member
from ipf.mapping.compiler.models import Models
from ipf.mapping.language.model import Dependent, Group, Parameter, Rule, Source, StructureMap, Target
from ipf.mapping.runtime.memo import MemoPlan
from ipf.mapping.runtime.memo_keys import SharedTarget

FindGroup = Callable[[StructureMap, str], tuple[StructureMap, Group] | None]
"""A group by the name that a map calls it."""

EVERYTHING = -1
"""In `Pure.reads`: all children."""
ANYTHING = "*"
"""In `Pure.writes`: any element."""

_NOT_REPEATABLE = frozenset(("now", "today", "timeOfDay", "trace", "resolve"))
_REFERENCES = frozenset(("reference", "pointer"))
_FOCUS = frozenset(("context", "resource", "rootResource"))
_FEWEST_RULES = 4
"""Groups with fewer rules cost less than a lookup in the cache."""


@dataclass(slots=True)
class Pure:
    """Effects of a pure group, by parameter.

    `reads`: numbers of the children that it reads.  `writes`: names of the elements that it writes.  `referenced`:
    parameters to which it makes references.  `rules`: number of its rules, with those of the groups that it calls.
    """

    reads: list[set[int]]
    writes: list[set[str]]
    referenced: set[int] = field(default_factory=set)
    rules: int = 0


@dataclass(slots=True)
class Purity:
    """Analyses the groups of a set of maps, each once."""

    find_group: FindGroup
    _known: dict[tuple[str, str, tuple[int, ...]], Pure | None] = field(default_factory=dict)

    def of(self, content: StructureMap, group: Group, bundles: tuple[int, ...]) -> Pure | None:
        """The effects of a group; None when it is not pure.  `bundles`: parameters that are the Bundle."""
        key = (content.url, group.name, bundles)
        if key not in self._known:
            self._known[key] = None  # a recursive group is not pure
            self._known[key] = _GroupAnalysis(self, content, group, bundles).result()
        return self._known[key]


class _NotPureError(Exception):
    """Ends the analysis of a group."""


class _GroupAnalysis:
    """Collects the effects of one group."""

    def __init__(self, purity: Purity, content: StructureMap, group: Group, bundles: tuple[int, ...]) -> None:
        self.purity = purity
        self.content = content
        self.group = group
        self.numbers = {one.name: number for number, one in enumerate(group.inputs)}
        self.targets = {one.name for one in group.inputs if one.mode == "target"}
        self.bundles = {group.inputs[number].name for number in bundles}
        self.pure = Pure([set() for _ in group.inputs], [set() for _ in group.inputs])

    def result(self) -> Pure | None:
        """The effects; None when the group is not pure."""
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
        """A second name for a parameter would hide reads of it."""
        if source.context in self.bundles or source.variable in self.numbers:
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
        if target.variable in self.numbers or target.list_modes or target.list_rule_id or target.transform == "uuid":
            raise _NotPureError
        if target.context in self.targets and (target.element or target.variable):
            self.pure.writes[self.numbers[target.context]].add(target.element or ANYTHING)
        parameters = target.parameters
        if target.transform == "evaluate":
            self._expression(parse(str(parameters[-1].value)), "")
            parameters = parameters[:-1]
        for one in parameters:
            self._argument(one, target.transform)

    def _argument(self, parameter: Parameter, transform: str) -> None:
        name = str(parameter.value)
        if parameter.kind == "id" and name in self.targets:
            if transform not in _REFERENCES or name in self.bundles:
                raise _NotPureError
            self.pure.referenced.add(self.numbers[name])
            return
        if parameter.kind == "id":
            self._reads(name, 0)

    def _call(self, dependent: Dependent) -> None:
        found = self.purity.find_group(self.content, dependent.name)
        if found is None or len(found[1].inputs) != len(dependent.parameters):
            raise _NotPureError
        names = [str(one.value) if one.kind == "id" else "" for one in dependent.parameters]
        bundles = tuple(number for number, name in enumerate(names) if name in self.bundles)
        called = self.purity.of(*found, bundles)
        if called is None:
            raise _NotPureError
        self.pure.rules += called.rules
        for number, name in enumerate(names):
            if name in self.numbers:
                self.pure.reads[self.numbers[name]] |= called.reads[number]
                self.pure.writes[self.numbers[name]] |= called.writes[number]
                self.pure.referenced |= {self.numbers[name]} if number in called.referenced else set()

    def _expression(self, node: ast.Node, focus: str) -> None:
        """Add the reads of an expression.  `focus`: the parameter in focus, or an empty text."""
        for one, owner in _walk(node):
            if isinstance(one, ast.Function) and one.name in _NOT_REPEATABLE:
                raise _NotPureError
            if isinstance(one, ast.This) or (isinstance(one, ast.Variable) and one.name in _FOCUS):
                self._reads(focus, 0)
            if isinstance(one, ast.Function) and one.focus is None:
                self._reads(focus, 0)
            if isinstance(one, (ast.Member, ast.Variable)) and one.name in self.numbers:
                self._reads(one.name, number_of(owner.name) if owner is not None else 0)
            elif isinstance(one, ast.Member) and one.focus is None:
                self._reads(focus, number_of(one.name))

    def _reads(self, name: str, number: int) -> None:
        if name in self.bundles:
            raise _NotPureError
        if name in self.numbers:
            self.pure.reads[self.numbers[name]].add(number or EVERYTHING)


def _walk(node: ast.Node, owner: ast.Member | None = None) -> Iterator[tuple[ast.Node, ast.Member | None]]:
    """Every node of a tree, with the member step that follows it."""
    yield node, owner
    for one in parts(node):
        yield from _walk(one, node if isinstance(node, ast.Member) and node.focus is one else None)


class MemoPlanner:
    """Decides which groups are memoized, and by which parameters."""

    def __init__(self, models: Models, find_group: FindGroup) -> None:
        self._models = models
        self._purity = Purity(find_group)

    def plan(self, content: StructureMap, group: Group, kinds: Sequence[Kind], made: int = -1) -> MemoPlan | None:
        """The plan; None when the group is not pure, or trivial.

        `kinds`: of its parameters.  `made`: the number of the argument that its caller has just made, or -1.
        """
        inputs = list(enumerate(group.inputs))
        targets = [number for number, one in inputs if one.mode == "target"]
        bundles = [number for number in targets if kinds[number] == BUNDLE]
        if len(bundles) > 1 or not targets:
            return None
        pure = self._purity.of(content, group, tuple(bundles))
        if pure is None or pure.rules < _FEWEST_RULES or made in pure.referenced:
            return None
        others = [number for number in targets if number not in bundles and number != made]
        if any(pure.reads[number] or ANYTHING in pure.writes[number] for number in others):
            return None
        sources = tuple(
            (number + 1, None if EVERYTHING in pure.reads[number] else tuple(sorted(pure.reads[number])))
            for number, one in inputs
            if one.mode == "source"
        )
        shared = tuple(self._shared(number + 1, kinds[number], pure.writes[number]) for number in others)
        bundle = bundles[0] + 1 if bundles else 0
        return MemoPlan(sources, made + 1, bundle, shared, tuple(number + 1 for number in sorted(pure.referenced)))

    def _shared(self, slot: int, kind: Kind, names: Iterable[str]) -> SharedTarget:
        """Lists of structures only grow; all other elements must be absent."""
        exclusive: set[str] = set()
        lists: list[str] = []
        for name in sorted(names):
            member = self._models.member(kind, name)
            if member is not None and self._is_list_of_structures(member):
                lists.append(member.key)
            else:
                keys = [name] if member is None else [member.key, *member.keys.values()]
                exclusive.update(keys, ["_" + key for key in keys])
        return SharedTarget(slot, frozenset(exclusive), tuple(lists))

    def _is_list_of_structures(self, member: Member) -> bool:
        return member.many and bool(member.kinds) and not any(map(self._models.is_primitive, member.kinds))
