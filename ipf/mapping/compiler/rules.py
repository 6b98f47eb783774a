"""Compilation of rules: sources become loops, targets become actions, dependents become calls.

A rule runs its loops; for each item it runs its actions in the order written, then its dependents and nested rules.
Variables get their slots in the frame here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ipf.hl7.message import number_of
from ipf.mapping.compiler.context import GroupContext
from ipf.mapping.compiler.emit import Block, Writer, sequence, var
from ipf.mapping.compiler.fields import INITIAL, field_of, fields_of_sources
from ipf.mapping.compiler.kinds import TEXT, UNKNOWN, V2, Kind
from ipf.mapping.compiler.reading import NO_MARKS, RuleReads, first_field
from ipf.mapping.compiler.scope import Origin, Scope, Variable
from ipf.mapping.compiler.sources import loops
from ipf.mapping.compiler.sources.paths import Fetch, compile_steps
from ipf.mapping.compiler.sources.reads import Marks
from ipf.mapping.compiler.sources.usage import needs_node
from ipf.mapping.compiler.targets.actions import TargetCompiler
from ipf.mapping.language.model import Rule, Source
from ipf.mapping.runtime.budget import CHARACTERS_OF_A_STEP

Loop = Callable[[Block], Block]
"""Turns the body of a rule into a block that runs it for each item."""


@dataclass(frozen=True, slots=True)
class Found:
    """The items of a source: their loop (None = the context itself, once), the variable for each, and the variable
    of the source's context.

    `segment`: the slot of the segment whose field the loop takes; 0 = not known.
    """

    loop: Loop | None
    item: Variable
    context: Variable
    segment: int = 0


class RuleCompiler:
    """Compiles the rules of one group of one map."""

    def __init__(self, context: GroupContext) -> None:
        self.context = context
        self.unit = context.unit
        self.group = context.group
        self.models = context.models

    def rules(self, rules: Sequence[Rule], scope: Scope) -> list[Block]:
        """The rules of a group, the marks of the fields that they read, and what a call of the group costs."""
        marks = Marks(scope.layout.size)
        cost = loops.spend(1 + _steps(rules), self.context.position(), is_leaf=all(map(_is_leaf, rules)))
        return [cost, marks.write, *(self.rule(rule, scope, marks) for rule in rules)]

    def rule(self, rule: Rule, outer: Scope, marks: Marks) -> Block:
        """One rule as a block.  `marks`: of the body around it."""
        scope = outer.child(self._fields(rule, outer))
        if self.context.groups.traced:
            return self._traced_rule(rule, scope)
        found = [self._loop(source, rule, scope) for source in rule.sources]
        own = marks if all(one.loop is None for one in found) else Marks(scope.layout.size)
        reading = RuleReads(self.context, rule, marks, own)
        for source, one in zip(rule.sources, found, strict=True):
            reading.source(source, one.context, one.segment, one.item, scope)
        body = sequence(self._body(rule, scope, found[0].item, reading))
        if own is not marks:
            body = sequence((own.write, body))
        for one in reversed(found):
            if one.loop is not None:
                body = one.loop(body)
        return body

    def _fields(self, rule: Rule, outer: Scope) -> tuple[str, ...]:
        """The fields of the sources of a rule; marked where they do not replace what others have said."""
        fields = fields_of_sources(rule, outer)
        is_initial = f"{self.group.name}.{rule.name}" in self.unit.content.initial
        return (INITIAL, *(fields or outer.fields)) if is_initial else fields

    def _traced_rule(self, rule: Rule, scope: Scope) -> Block:
        """One rule as a block that records its start and each item in the trace."""
        at = self.context.position(rule)
        paths = [scope.layout.new_slot() for _ in rule.sources]
        step = scope.layout.new_slot()
        found = [self._traced_loop(one, rule, scope, path) for one, path in zip(rule.sources, paths, strict=True)]
        named = ", ".join(f"{var(path)}" for path in paths)

        def enter(writer: Writer) -> None:
            writer.line(f"{var(step)} = r.trace.enter({writer.constant(at)}, ({named},))")

        reading = RuleReads(self.context, rule, NO_MARKS, NO_MARKS)
        body = sequence([enter, *self._body(rule, scope, found[0][1], reading, step)])
        for loop, _ in reversed(found):
            body = loop(body)

        def write(writer: Writer) -> None:
            writer.line(f"r.trace.at = {writer.constant(at)}")
            body(writer)

        return write

    def _traced_loop(self, source: Source, rule: Rule, scope: Scope, path: int) -> tuple[Loop, Variable]:
        context = self.context.variable(source.context, scope, source.place)
        wanted = self.unit.kind(source.type, source.place, is_source=True) if source.type else None
        if source.element:
            self.context.check_path(context.kind, source)
            steps, kind = compile_steps(self.models, context.kind, source.element, wanted)
            fetch = loops.traced_items_of(steps, context.slot)
        else:
            fetch, kind = loops.context_as_items(context.slot), wanted or context.kind
        fetch, kind = self._restricted(fetch, source, rule, scope, kind)
        variable = scope.declare(
            source.variable,
            kind,
            is_source=context.is_source,
            is_json=not kind.is_text,
            origin=_origin(source, context),
            field=field_of(source, context),
        )
        cost = self._cost(source, rule)
        return lambda body: loops.each_traced(fetch, variable.slot, path, body, cost), variable

    def _body(self, rule: Rule, scope: Scope, item: Variable, reading: RuleReads, step: int = 0) -> list[Block]:
        """The actions for each item.  `step`: slot of the trace step, in a traced program."""
        targets = TargetCompiler(self.context, rule, scope, step)
        if rule.is_simple:
            return [targets.simple(rule.targets[0], item)]
        actions: list[Block] = []
        for position, target in enumerate(rule.targets):
            reading.target(target, scope)
            actions.append(targets.action(target, position))
        actions += [self.context.call(one, rule, scope) for one in rule.dependents]
        actions += [self.rule(one, scope, reading.own) for one in rule.rules]
        return actions + targets.flushes

    def _loop(self, source: Source, rule: Rule, scope: Scope) -> Found:
        """The loop of a source, and the variable for each item."""
        context = self.context.variable(source.context, scope, source.place)
        wanted = self.unit.kind(source.type, source.place, is_source=True) if source.type else None
        only_where = not _is_restricted(source) and not source.list_mode
        only_first = not _is_restricted(source) and source.list_mode == "first" and "." not in source.element
        if not source.element and only_where:
            kind = wanted or context.kind
            variable = scope.bind(
                source.variable,
                context.slot,
                kind,
                is_source=context.is_source,
                origin=context.origin,
                field=context.field,
            )
            if not source.condition:
                return Found(None, variable, context)
            test = self._expression(source.condition, source, scope, kind).test_source
            return Found(lambda body: loops.when(context.slot, test, body), variable, context)
        if context.kind.is_v2 and source.element and (only_where or only_first):
            return self._loop_over_children(rule, source, scope, context, wanted or V2)
        return self._general_loop(source, rule, scope, context, wanted)

    def _loop_over_children(self, rule: Rule, source: Source, scope: Scope, context: Variable, kind: Kind) -> Found:
        """`pid.PID_3.CX_1 as id where (...)`: a loop for each step; condition and variable are in the last."""
        *way, last = source.element.split(".")
        only_text = bool(number_of(last)) and not needs_node(rule, source, scope.names)
        kind = TEXT if only_text else kind
        test = self._expression(source.condition, source, scope, kind).test_source if source.condition else None
        variable = scope.declare(source.variable, kind, is_source=True, field=field_of(source, context))

        slots = [context.slot, *(scope.layout.new_slot() for _ in way)]

        only_first = source.list_mode == "first"
        found = loops.Children(slots[-1], last, variable.slot, only_text, test, only_first)
        cost, once = self._cost(source, rule), loops.spend(1, self.context.position(rule), is_leaf=True)

        def loop(body: Block) -> Block:
            body = loops.each_child(found, body, cost)
            for name, outer, inner in reversed(list(zip(way, slots, slots[1:], strict=False))):
                body = loops.each_child(loops.Children(outer, name, inner), body, once)
            return body

        return Found(loop, variable, context, slots[first_field(source.element)])

    def _general_loop(self, source: Source, rule: Rule, scope: Scope, context: Variable, wanted: Kind | None) -> Found:
        if source.element:
            self.context.check_path(context.kind, source)
            steps, kind = compile_steps(self.models, context.kind, source.element, wanted)
            fetch = loops.items_of([walk for _, walk in steps], context.slot)
        else:
            fetch, kind = loops.context_as_items(context.slot), wanted or context.kind
        fetch, kind = self._restricted(fetch, source, rule, scope, kind)
        variable = scope.declare(
            source.variable,
            kind,
            is_source=context.is_source,
            is_json=not kind.is_text,
            origin=_origin(source, context),
            field=field_of(source, context),
        )
        cost = self._cost(source, rule)
        return Found(lambda body: loops.each(fetch, variable.slot, body, cost), variable, context)

    def _cost(self, source: Source, rule: Rule) -> Block:
        """Counts the steps for one item of a source; those of the body belong to the last source."""
        if source is not rule.sources[-1]:
            return loops.spend(1, self.context.position(rule))
        return loops.spend(1 + _steps_of_body(rule), self.context.position(rule), is_leaf=_is_leaf(rule))

    def _restricted(self, fetch: Fetch, source: Source, rule: Rule, scope: Scope, kind: Kind) -> tuple[Fetch, Kind]:
        """Applies default, cardinality, where, check, log and list mode, in this order; returns also the resulting
        kind.
        """
        if source.default is not None or source.default_expression:
            kind = UNKNOWN
        if source.default is not None:
            fetch = loops.with_default(fetch, source.default.value)
        elif source.default_expression:
            expression = self._expression(source.default_expression, source, scope, UNKNOWN)
            fetch = loops.with_computed_default(fetch, expression.first())
        if source.minimum is not None:
            most = None if source.maximum == "*" else int(source.maximum)
            fetch = loops.with_cardinality(fetch, source.minimum, most, self._place(rule, source))
        if source.condition:
            fetch = loops.filtered(fetch, self._expression(source.condition, source, scope, kind).test())
        if source.check:
            test = self._expression(source.check, source, scope, kind).test()
            fetch = loops.checked(fetch, test, self._place(rule, source))
        if source.log_message:
            fetch = loops.logged(fetch, self._expression(source.log_message, source, scope, kind).text())
        if source.list_mode == "only_one":
            return loops.with_cardinality(fetch, 0, 1, self._place(rule, source)), kind
        return (loops.picked(fetch, source.list_mode) if source.list_mode else fetch), kind

    def _expression(self, text: str, source: Source, scope: Scope, kind: Kind) -> Any:
        origin = _origin(source, scope.names[source.context])
        return self.context.expression(text, scope, kind, source.place, source.variable, origin)

    def _place(self, rule: Rule, source: Source) -> str:
        """The rule in an error message: map, group, rule and source; never data."""
        path = f"{source.context}.{source.element}".rstrip(".").replace("_", "-")
        return f"{self.unit.content.name}.{self.group.name}.rule '{rule.name}' at {path}"


def _steps(rules: Sequence[Rule]) -> int:
    """Steps of these rules for one item, without those of the rules that loop, which count their own."""
    return sum(1 if any(map(_loops, one.sources)) else 1 + _steps_of_body(one) for one in rules)


def _steps_of_body(rule: Rule) -> int:
    texts = sum(len(str(part.value)) for one in rule.targets for part in one.parameters)
    return len(rule.targets) + len(rule.dependents) + texts // CHARACTERS_OF_A_STEP + _steps(rule.rules)


def _is_leaf(rule: Rule) -> bool:
    """Whether a rule neither loops inside its one loop nor calls a group, also not one chosen by type."""
    is_one = len(rule.sources) == 1 and not rule.dependents and not rule.is_simple
    return is_one and all(_is_leaf(one) and not _loops(one.sources[0]) for one in rule.rules)


def _loops(source: Source) -> bool:
    """Whether a rule runs for each item of a source; else once, or not at all."""
    return bool(source.element or source.list_mode) or _is_restricted(source)


def _origin(source: Source, context: Variable) -> Origin:
    """Where the items of a source are found: in an element of its context, or as the context itself."""
    if not source.element:
        return context.origin
    return (0, "") if "." in source.element else (context.slot, source.element)


def _is_restricted(source: Source) -> bool:
    """Whether the source has more than a condition and a list mode."""
    return bool(
        source.check
        or source.log_message
        or source.default is not None
        or source.default_expression
        or source.minimum is not None
    )
