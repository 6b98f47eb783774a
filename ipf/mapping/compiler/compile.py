"""A map and its imports, compiled to Python functions.

Each group is compiled once for each combination of argument kinds that it is called with, so that inside it every
element's type is known; its rules (`rules`) become blocks, and the blocks one function (`emit`); a call makes a frame.
Nothing is looked up by name at run time, and nothing is copied: the cost of a run is linear in what it visits.

What is wrong with a map (an unknown name, an element that the type does not have, a missing ConceptMap) is an FmlError
with file, line and column when it is compiled, not when the five-thousandth message meets it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache, partial
from typing import Any

from ipf.errors import Category, Problem
from ipf.fhir.fhirpath import Host
from ipf.mapping.compiler.calls import Code
from ipf.mapping.compiler.conversions import Convert, Offset, conversions
from ipf.mapping.compiler.emit import Block, function, sequence
from ipf.mapping.compiler.expressions import Expression
from ipf.mapping.compiler.kinds import ABSTRACT, UNKNOWN, Kind, Models, fhir
from ipf.mapping.compiler.purity import ANYTHING, EVERYTHING, Purity
from ipf.mapping.language.concepts import ConceptTables, Overrides
from ipf.mapping.language.lexer import FmlError
from ipf.mapping.language.model import NOWHERE, Group, Place, StructureMap
from ipf.mapping.runtime.memo import Memory, Plan
from ipf.mapping.runtime.memo_keys import Shared
from ipf.mapping.runtime.run import Run
from ipf.mapping.runtime.scope import Layout, Scope
from ipf.mapping.runtime.trace import At, Trace
from ipf.ports import Json

BUNDLE = fhir("Bundle")
_WORTH_IT = 4
"""Rules that a group must have for its results to be remembered."""


@dataclass(frozen=True, slots=True)
class Environment:
    """All that maps are compiled against.  `offset`: zone of source times that name none (`conversions.Offset`).

    `host`: what FHIRPath in maps may ask for beyond its data: value sets (`memberOf`), profiles, other resources.
    """

    models: Models = field(default_factory=Models)
    tables: ConceptTables = field(default_factory=ConceptTables)
    offset: Offset = "Z"
    host: Host = field(default_factory=Host)


class Unit:
    """One map among the maps that it may refer to: resolves names of groups and types."""

    def __init__(
        self,
        content: StructureMap,
        maps: Mapping[str, StructureMap],
        environment: Environment,
        matching: Callable[[str], Sequence[str]],
    ) -> None:
        self.content = content
        self.models = environment.models
        self.tables = environment.tables
        if content.concept_tables:
            self.tables = environment.tables.with_local(content.concept_tables)
        self.visible = list(_visible(content, maps, matching))
        self._aliases = {one.alias: one.url for one in content.structures if one.alias}
        self._names = {one.url.rpartition("/")[2].rpartition(":")[2]: one.url for one in content.structures}

    def kind(self, name: str, place: Place, *, is_source: bool) -> Kind:
        """The kind that a type name means in this map."""
        if not name:
            return UNKNOWN
        url = self._aliases.get(name) or self._names.get(name)
        if url is not None:
            return self.models.kind_of_url(url)
        found = self.models.kind_of_name(name)
        if found is not None:
            return found
        if is_source:
            return Kind("v2", name)
        raise FmlError(f"unknown type '{name}': declare it with 'uses'", self.content.file, place)


def _visible(
    content: StructureMap, maps: Mapping[str, StructureMap], matching: Callable[[str], Sequence[str]]
) -> Iterable[StructureMap]:
    """The map itself, then its imports in order, then theirs; each once."""
    seen: dict[str, StructureMap] = {content.url: content}
    queue = [content]
    while queue:
        current = queue.pop(0)
        for pattern in current.imports:
            for url in matching(pattern):
                if url not in seen:
                    seen[url] = maps[url]
                    queue.append(maps[url])
    return seen.values()


def _matching(maps: Mapping[str, StructureMap], pattern: str) -> list[str]:
    if "*" in pattern:
        return [url for url in maps if fnmatchcase(url, pattern.replace("[", "[[]").replace("?", "[?]"))]
    plain = pattern.partition("|")[0]
    return [plain] if plain in maps else []


class Compiler:
    """Compiles groups on demand and remembers them.  `traced`: closures also note each rule that they run."""

    def __init__(
        self,
        maps: Iterable[StructureMap] | Mapping[str, StructureMap],
        environment: Environment,
        *,
        traced: bool = False,
    ) -> None:
        self.maps = maps if isinstance(maps, Mapping) else {one.url: one for one in maps}
        self.environment = environment
        self.conversions: Mapping[str, Convert] = conversions(environment.offset)
        self.traced = traced
        self._matching = cache(partial(_matching, self.maps))  # all maps import the same few patterns
        self._units: dict[str, Unit] = {}
        self._codes: dict[tuple[str, str, tuple[Kind, ...]], Code] = {}
        self._groups: dict[str, dict[str, tuple[StructureMap, Group]]] = {}
        self._found: dict[tuple[str, str], tuple[StructureMap, Group] | None] = {}
        self._purity = Purity(lambda content, name: self.find_group(self.unit(content), name))
        self.memory = Memory()

    def unit(self, content: StructureMap) -> Unit:
        """The map with its names resolved."""
        found = self._units.get(content.url)
        if found is None:
            found = self._units[content.url] = Unit(content, self.maps, self.environment, self._matching)
        return found

    def find_group(self, unit: Unit, name: str) -> tuple[StructureMap, Group] | None:
        """A group by name: of the map itself, then of the maps that it sees."""
        key = (unit.content.url, name)
        if key not in self._found:  # few of the names that a map sees are asked for: no table of all of them
            groups = (self._own(content).get(name) for content in unit.visible)
            self._found[key] = next(filter(None, groups), None)
        return self._found[key]

    def _own(self, content: StructureMap) -> Mapping[str, tuple[StructureMap, Group]]:
        """The groups of one map by name; of two with one name the first."""
        found = self._groups.get(content.url)
        if found is None:
            found = self._groups[content.url] = {one.name: (content, one) for one in reversed(content.groups)}
        return found

    def typed_group(self, unit: Unit, source: Kind, target: Kind) -> tuple[StructureMap, Group] | None:
        """The default group for a pair of types (`<<types>>`, `<<type+>>`)."""
        for content in unit.visible:
            other = self.unit(content)
            for group in content.groups:
                if group.type_mode != "none" and len(group.inputs) > 1 and _fits(other, group, source, target):
                    return content, group
        return None

    def code(self, content: StructureMap, group: Group, kinds: Sequence[Kind]) -> Code:
        """The group compiled for arguments of these kinds."""
        key = (content.url, group.name, tuple(kinds))
        found = self._codes.get(key)
        if found is None:
            found = self._codes[key] = Code(group.name)
            self._fill(found, content, group, kinds)
        return found

    def _fill(self, code: Code, content: StructureMap, group: Group, kinds: Sequence[Kind]) -> None:
        from ipf.mapping.compiler.rules import RuleCompiler

        layout = Layout()
        unit = self.unit(content)
        arguments = list(zip(self._parameters(unit, group, kinds), kinds, strict=True))
        slots = [layout.place() for _ in arguments]
        rules: list[Block] = []
        for owner, part in self._lineage(unit, group):
            scope = Scope(layout)
            known = self._parameters(owner, part, kinds[: len(part.inputs)])
            for slot, parameter, kind in zip(slots, part.inputs, known, strict=False):
                is_source = parameter.mode == "source"
                scope.bind(parameter.name, slot, kind, is_source=is_source, is_json=is_source and not kind.is_text)
            compiler = RuleCompiler(self, owner, part)
            rules += [compiler.rule(rule, scope) for rule in part.rules]
        code.run = function(sequence(rules), len(slots))

    def plan(self, content: StructureMap, group: Group, kinds: Sequence[Kind], made: int = -1) -> Plan | None:
        """How results of a group can be remembered: it is pure, and not trivial.

        `kinds`: of its arguments.  `made`: the number of the one that its caller has just made for it, or -1.
        """
        unit, inputs = self.unit(content), list(enumerate(group.inputs))
        kinds = self._parameters(unit, group, kinds)
        targets = [place for place, one in inputs if one.mode == "target"]
        bundles = [place for place in targets if kinds[place] == BUNDLE]
        if self.traced or len(bundles) > 1 or not targets:
            return None
        pure = self._purity.of(content, group, tuple(bundles))
        if pure is None or pure.rules < _WORTH_IT or made in pure.referred:
            return None
        others = [place for place in targets if place not in bundles and place != made]
        if any(pure.reads[place] or ANYTHING in pure.writes[place] for place in others):
            return None
        sources = tuple(
            (place + 1, None if EVERYTHING in pure.reads[place] else tuple(sorted(pure.reads[place])))
            for place, one in inputs
            if one.mode == "source"
        )
        shared = tuple(self._shared(place + 1, kinds[place], pure.writes[place]) for place in others)
        bundle = bundles[0] + 1 if bundles else 0
        return Plan(sources, made + 1, bundle, shared, tuple(place + 1 for place in sorted(pure.referred)))

    def _shared(self, place: int, kind: Kind, names: Iterable[str]) -> Shared:
        """How a group adds to what is there: lists of structures only grow; all else must not be there yet."""
        models = self.environment.models
        alone: set[str] = set()
        lists: list[str] = []
        for name in sorted(names):
            member = models.member(kind, name)
            if member is not None and member.many and member.kinds and not any(map(models.is_primitive, member.kinds)):
                lists.append(member.key)
            else:
                keys = [name] if member is None else [member.key, *member.keys.values()]
                alone.update(keys, ["_" + key for key in keys])
        return Shared(place, frozenset(alone), tuple(lists))

    def _parameters(self, unit: Unit, group: Group, kinds: Sequence[Kind]) -> list[Kind]:
        """Kind of each parameter: what is passed, unless what is declared says more."""
        declared = [unit.kind(one.type, group.place, is_source=one.mode == "source") for one in group.inputs]
        return [_more_exact(given, wanted) for given, wanted in zip(kinds, declared, strict=False)]

    def _lineage(self, unit: Unit, group: Group) -> list[tuple[Unit, Group]]:
        """The groups that this one extends, the most general first, then itself."""
        line = [(unit, group)]
        while line[0][1].extends:
            owner, part = line[0]
            found = self.find_group(owner, part.extends)
            if found is None:
                raise FmlError(f"no group '{part.extends}' in this map or its imports", owner.content.file, part.place)
            if any(found[1] is one for _, one in line):
                raise FmlError(f"group '{part.extends}' extends itself", owner.content.file, part.place)
            line.insert(0, (self.unit(found[0]), found[1]))
        return line

    def expression(self, unit: Unit, text: str, scope: Scope, item: Kind, place: Place, focus: str = "") -> Expression:
        """A FHIRPath text of a map."""

        def fail(problem: str) -> FmlError:
            return FmlError(f"in a FHIRPath expression: {problem}", unit.content.file, place)

        return Expression.read(text, scope, item, focus, fail, self.environment.host)


def _more_exact(given: Kind, declared: Kind) -> Kind:
    if not given.is_known:
        return declared if declared.is_known else given
    return declared if given.name in ABSTRACT and declared.is_known else given


def _fits(unit: Unit, group: Group, source: Kind, target: Kind) -> bool:
    first, second = group.inputs[0], group.inputs[1]
    if first.mode != "source" or second.mode != "target" or not first.type or not second.type:
        return False
    wanted = unit.kind(first.type, NOWHERE, is_source=True), unit.kind(second.type, NOWHERE, is_source=False)
    if wanted == (source, target):
        return True
    return group.type_mode == "type-and-types" and wanted[0] == source and not target.is_known


class Program:
    """A compiled map.  Pure: runs do not touch each other, and may be repeated."""

    def __init__(self, compiler: Compiler, content: StructureMap) -> None:
        self.content = content
        self._compiler = compiler
        self._traced: Program | None = None
        if not content.groups:
            raise FmlError("has no group", content.file, NOWHERE)
        self.group = content.groups[0]
        unit = compiler.unit(content)
        kinds = [unit.kind(one.type, self.group.place, is_source=one.mode == "source") for one in self.group.inputs]
        self._template = self._empty(unit, kinds)
        self._code = compiler.code(content, self.group, kinds)

    def _empty(self, unit: Unit, kinds: Sequence[Kind]) -> Json:
        modes = [one.mode for one in self.group.inputs]
        if modes != ["source", "target"]:
            text = "the first group must have one source and one target"
            raise FmlError(text, self.content.file, self.group.place)
        return {"resourceType": kinds[1].name.partition(".")[0]} if unit.models.is_resource(kinds[1]) else {}

    def run(
        self, source: Any, key: bytes, *, trace: bool = False, overrides: Overrides | None = None
    ) -> tuple[Json, Run]:
        """Map `source`; the finished target and the state of the run.  Problem MAPPING names rule and place.

        `key`: 1 to 64 bytes that identify the source; uuids are made from it.  `overrides`: answers of operators for
        codes of this sender.
        """
        if trace:
            return self._tracing().run_traced(source, key, overrides)
        run = Run(key, overrides=overrides)
        target = dict(self._template)
        try:
            self._execute(source, target, run)
        except Problem:
            raise
        except Exception as error:
            raise self._explain(source, key, error) from error
        run.finish(target)
        return target, run

    def _execute(self, source: Any, target: Json, run: Run) -> None:
        if run.trace is not None:
            run.trace.begin(source)
        self._code.call([run, source, target])

    def _tracing(self) -> Program:
        if self._traced is None:
            compiler = Compiler(self._compiler.maps, self._compiler.environment, traced=True)
            self._traced = Program(compiler, self.content)
        return self._traced

    def run_traced(self, source: Any, key: bytes, overrides: Overrides | None = None) -> tuple[Json, Run]:
        """As `run`, with `Run.trace` filled; its `finish` gives the elements their paths."""
        run = Run(key, trace=Trace(), overrides=overrides)
        target = dict(self._template)
        try:
            self._execute(source, target, run)
        except Problem:
            raise
        except Exception as error:
            raise self._problem(run, error) from error
        run.finish(target)
        return target, run

    def _explain(self, source: Any, key: bytes, error: Exception) -> Problem:
        """A closure failed on this data: run again with a trace, to name the rule.  No data gets into the text."""
        run = Run(key, trace=Trace())
        try:
            self._tracing()._execute(source, dict(self._template), run)
        except Problem as problem:
            return problem
        except Exception as again:
            error = again
        return self._problem(run, error)

    def _problem(self, run: Run, error: Exception) -> Problem:
        """Names the rule that was begun last."""
        last = run.trace.at if run.trace is not None and run.trace.at is not None else None
        if last is None:
            last = At(self.content.url, self.content.file, self.group.name, "", 0, 0)
        place = f"{last.group}.rule '{last.rule}' ({last.map_url}, line {last.line})"
        return Problem(Category.MAPPING, f"{type(error).__name__} while mapping", place)
