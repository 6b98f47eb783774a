"""A map and its imports, compiled to Python functions.

Each group is compiled once for each combination of argument kinds, so the type of every element in it is known.  Its
rules (`rules`) become blocks, and the blocks one function (`emit`); a call makes a frame.  Nothing is looked up by name
at run time, and nothing is copied: the cost of a run is linear in the size of the source and of the result.

A mistake in a map (an unknown name, an element that the type does not have, a missing ConceptMap) is an FmlError with
file, line and column at compile time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial
from itertools import chain
from typing import Any

from ipf.errors import Category, Problem
from ipf.hl7.message import Message
from ipf.hl7.structure import is_structure
from ipf.mapping.compiler.context import CompiledGroup, GroupContext
from ipf.mapping.compiler.emit import Block, function, place_of_failure, sequence
from ipf.mapping.compiler.groups import Environment, Groups, Unit, parts_of
from ipf.mapping.compiler.kinds import Kind
from ipf.mapping.compiler.rules import RuleCompiler
from ipf.mapping.compiler.scope import Layout, Scope
from ipf.mapping.compiler.v2_names import check_rules
from ipf.mapping.language.concepts import Overrides
from ipf.mapping.language.lexer import FmlError
from ipf.mapping.language.model import NOWHERE, Deleted, Group, StructureMap
from ipf.mapping.language.structuremap import digest
from ipf.mapping.runtime.budget import place_of, steps_for, too_nested
from ipf.mapping.runtime.run import Run
from ipf.mapping.runtime.trace import RulePosition, Trace
from ipf.mapping.runtime.unread import UnreadFields, reasons
from ipf.ports import Json

_DIGITS = 12
MOST_PARTS = 20_000
"""Of one map, in all variants of its groups: some seconds of compilation.  The packaged maps of the largest message
have 4,000 together."""
MOST_OPEN = 60
"""Groups that call one another in a row; the packaged maps have 14."""


class Compiler:
    """Compiles groups on demand, each once.  `traced`: the functions also record each rule that they run."""

    def __init__(
        self,
        maps: Iterable[StructureMap] | Mapping[str, StructureMap],
        environment: Environment,
        *,
        traced: bool = False,
    ) -> None:
        self.groups = Groups(maps, environment, traced=traced)
        self._open = 0
        self._parts: dict[str, int] = {}
        self._compiled: dict[tuple[str, str, tuple[Kind, ...], tuple[str, ...]], CompiledGroup] = {}

    def compile_group(
        self, content: StructureMap, group: Group, kinds: Sequence[Kind], fields: tuple[str, ...] = ()
    ) -> CompiledGroup:
        """The group compiled for arguments of these kinds.

        `fields`: the HL7 v2 field that each argument is inside of; only of groups that write into resources.
        """
        key = (content.url, group.name, tuple(kinds), fields)
        found = self._compiled.get(key)
        if found is None:
            before, parts = len(self._compiled), dict(self._parts)
            self._count(content, group)
            found = self._compiled[key] = CompiledGroup(group.name)
            self._open += 1
            try:
                self._fill(found, content, group, kinds, fields or ("",) * len(kinds))
            except BaseException:
                for unfinished in list(self._compiled)[before:]:  # they may call this one
                    del self._compiled[unfinished]
                self._parts = parts
                raise
            finally:
                self._open -= 1
        return found

    def _count(self, content: StructureMap, group: Group) -> None:
        """FmlError for a map that is too large: a group is compiled again for each combination of its arguments."""
        parts = self._parts[content.url] = self._parts.get(content.url, 0) + 1 + parts_of(group.rules)
        if parts > MOST_PARTS:
            text = f"the budget of {MOST_PARTS} compiled rules, sources, targets and calls of one map is used up"
            raise FmlError(f"{text}: divide it, or call '{group.name}' with fewer types", content.file, group.place)
        if self._open >= MOST_OPEN:
            text = f"the budget of {MOST_OPEN} groups that call one another in a row is used up"
            raise FmlError(text, content.file, group.place)

    def check_groups(self, content: StructureMap) -> None:
        """Compile the groups of a map that nothing has called yet, for arguments of their declared types."""
        called = {name for url, name, *_ in self._compiled if url == content.url}
        unit = self.groups.unit(content)
        for group in content.groups:
            if group.name not in called:
                kinds = [unit.kind(one.type, group.place, is_source=one.mode == "source") for one in group.inputs]
                self.compile_group(content, group, kinds)

    def _fill(
        self,
        code: CompiledGroup,
        content: StructureMap,
        group: Group,
        kinds: Sequence[Kind],
        fields: tuple[str, ...],
    ) -> None:
        layout = Layout()
        unit = self.groups.unit(content)
        arguments = list(zip(self.groups.parameter_kinds(unit, group, kinds), kinds, strict=True))
        slots = [layout.new_slot() for _ in arguments]
        rules: list[Block] = []
        for owner, part in self.groups.lineage(unit, group):
            scope = Scope(layout)
            known = self.groups.parameter_kinds(owner, part, kinds[: len(part.inputs)])
            for slot, parameter, kind, field in zip(slots, part.inputs, known, fields, strict=False):
                is_source = parameter.mode == "source"
                is_json = is_source and not kind.is_text
                scope.bind(parameter.name, slot, kind, is_source=is_source, is_json=is_json, field=field)
            context = GroupContext(self.groups, owner, part, self.compile_group)
            check_rules(part.rules, _v2_types(owner, part, scope), context.fail)
            compiler = RuleCompiler(context)
            rules += compiler.rules(part.rules, scope)
        code.run = function(sequence(rules), len(slots))


def _v2_types(unit: Unit, part: Group, scope: Scope) -> dict[str, str]:
    """HL7 v2 type of each name that the rules of a group begin with; empty for those of other models.

    A parameter without a type takes segments of several types, so only a message structure is passed on to it.
    """
    types = dict.fromkeys((one.name for one in unit.content.constants), "")
    for one in part.inputs:
        kind = scope.names[one.name].kind
        is_stated = kind.is_v2 and (bool(one.type) or is_structure(kind.name))
        types[one.name] = kind.name if is_stated else ""
    return types


def _deletions(declared: Iterable[Deleted]) -> Mapping[str, str]:
    found: dict[str, dict[str, None]] = {}
    for one in declared:
        found.setdefault(one.event, {})[one.field] = None
    return {event: " ".join(fields) for event, fields in found.items()}


class Program:
    """A compiled map.  Runs share no state.

    `unread`: finds the fields that a run did not read; it knows what this map and its imports ignore on purpose.
    Declarations in the map of another message type do not count.
    `moves`: the resource types that it moves from one Patient of a message to another (`/// moves = "Encounter"`).
    `deletions`: the fields that an event deletes (`A13`: `PV1-36 PV1-45`), by this map and its imports.
    """

    def __init__(self, compiler: Compiler, content: StructureMap) -> None:
        self.content = content
        self.moves = frozenset(content.meta("moves").replace(",", " ").split())
        self._compiler = compiler
        self._traced: Program | None = None
        if not content.groups:
            raise FmlError("has no group", content.file, NOWHERE)
        self.group = content.groups[0]
        unit = compiler.groups.unit(content)
        kinds = [unit.kind(one.type, self.group.place, is_source=one.mode == "source") for one in self.group.inputs]
        ignored = [part.ignored for part in unit.visible if part is content or not part.meta("types")]
        parts = partial(compiler.groups.components.of, content, self.group)
        self.unread = UnreadFields(reasons(chain.from_iterable(ignored)), parts)
        self.deletions = _deletions(chain.from_iterable(part.deleted for part in unit.visible))
        self._template = self._empty(unit, kinds)
        self._is_bundle = self._template.get("resourceType") == "Bundle"
        self._code = compiler.compile_group(content, self.group, kinds)

    @property
    def known_sources(self) -> Mapping[str, Mapping[str, frozenset[str]]]:
        """By resource type and element the fields that the compiled maps make it of."""
        return self._compiler.groups.known_sources

    @cached_property
    def version(self) -> str:
        """The version that the map states (`/// version`), or the start of its digest."""
        return self.content.meta("version") or digest(self.content)[:_DIGITS]

    def _empty(self, unit: Unit, kinds: Sequence[Kind]) -> Json:
        modes = [one.mode for one in self.group.inputs]
        if modes != ["source", "target"]:
            text = "the first group must have one source and one target"
            raise FmlError(text, self.content.file, self.group.place)
        return {"resourceType": kinds[1].name.partition(".")[0]} if unit.models.is_resource(kinds[1]) else {}

    def run(
        self, source: Any, key: bytes, *, trace: bool = False, overrides: Overrides | None = None, characters: int = 0
    ) -> tuple[Json, Run]:
        """Map `source`; returns the finished target and the state of the run.

        Problem MAPPING names rule and place; COSTLY: the run exceeds its budget (`runtime.budget`).  `key`: 1 to 64
        bytes that identify the source; uuids are derived from it.  `overrides`: code mappings of operators for this
        sender.  `characters`: the size of a source that is JSON.
        """
        if trace:
            return self._tracing().run_traced(source, key, overrides, characters)
        run = self._new_run(source, key, overrides, characters)
        target = dict(self._template)
        try:
            self._execute(source, target, run)
            run.finish(target)
        except Problem as problem:
            raise self._placed(problem) from problem
        except Exception as error:
            raise self._explain(source, key, error, characters) from error
        return target, run

    def _new_run(self, source: Any, key: bytes, overrides: Overrides | None, characters: int) -> Run:
        steps = steps_for(len(source.raw) if isinstance(source, Message) else characters)
        return Run(key, source, overrides=overrides, is_bundle=self._is_bundle, limit=steps, steps_left=steps)

    def _execute(self, source: Any, target: Json, run: Run) -> None:
        if run.trace is not None:
            run.trace.begin(source)
        self._code.call([run, source, target])

    def _tracing(self) -> Program:
        if self._traced is None:
            groups = self._compiler.groups
            compiler = Compiler(groups.maps, groups.environment, traced=True)
            self._traced = Program(compiler, self.content)
        return self._traced

    def run_traced(
        self, source: Any, key: bytes, overrides: Overrides | None = None, characters: int = 0
    ) -> tuple[Json, Run]:
        """As `run`, with `Run.trace` filled; `Trace.finish` adds the paths."""
        run = self._new_run(source, key, overrides, characters)
        run.trace = Trace()
        target = dict(self._template)
        try:
            self._execute(source, target, run)
            run.finish(target)
        except Problem as problem:
            raise self._placed(problem) from problem
        except Exception as error:
            raise self._problem(run, error) from error
        return target, run

    def _explain(self, source: Any, key: bytes, error: Exception, characters: int) -> Problem:
        """Run again with a trace after a failure, to name the rule.  The text holds no data of the message."""
        run = self._new_run(source, key, None, characters)
        run.trace = Trace()
        try:
            self._tracing()._execute(source, dict(self._template), run)
        except Problem as problem:
            return self._placed(problem)
        except Exception as again:
            error = again
        return self._problem(run, error)

    def _placed(self, problem: Problem) -> Problem:
        """A Problem of the budget with the rule that used it up; at the end of a run, the first group."""
        if problem.category is not Category.COSTLY or problem.place is not None:
            return problem
        at = place_of_failure(problem) or self._first_place()
        return Problem(problem.category, problem.text, place_of(at))

    def _first_place(self) -> RulePosition:
        place = self.group.place
        return RulePosition(self.content.url, self.content.file, self.group.name, "", place.line, place.column)

    def _problem(self, run: Run, error: Exception) -> Problem:
        """Names the rule that began last."""
        last = run.trace.at if run.trace is not None and run.trace.at is not None else None
        if last is None:
            last = self._first_place()
        if isinstance(error, RecursionError):
            return too_nested(last)
        return Problem(Category.MAPPING, f"{type(error).__name__} while mapping", place_of(last))
