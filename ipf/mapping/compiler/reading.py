"""The fields that one rule reads, from its sources, conditions and targets (`sources.reads` has the meaning)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ipf.fhir.fhirpath.language import ast
from ipf.hl7.message import number_of
from ipf.mapping.compiler.context import GroupContext
from ipf.mapping.compiler.expressions.expression import FOCUS, Expression
from ipf.mapping.compiler.kinds import UNKNOWN
from ipf.mapping.compiler.scope import Scope, Variable
from ipf.mapping.compiler.sources.paths import Walk, compile_path
from ipf.mapping.compiler.sources.reads import Find, Marks, Read, evaluated, held, variables
from ipf.mapping.language.model import Rule, Source, Target

NO_MARKS = Marks(0)
"""For traced programs, which mark nothing; nobody writes these."""


class RuleReads:
    """Collects the marks of one rule.  `around`: of the body that the rule is in; `own`: of its own body."""

    def __init__(self, context: GroupContext, rule: Rule, around: Marks, own: Marks) -> None:
        self.own = own
        self._context = context
        self._rule = rule
        self._around = around
        self._is_traced = context.groups.traced

    def source(self, source: Source, context: Variable, segment: int, item: Variable, scope: Scope) -> None:
        """A source, whose items are in `item`.  `segment`: slot of the segment that the loop goes through, or 0."""
        names = source.element.split(".") if source.element else []
        place = first_field(source.element)
        if names and number_of(names[place]):
            if place == 0:
                self._marks(source, context).add(context.slot, names[0])
            elif segment:
                self.own.add(segment, names[place])
            else:
                walk, _ = compile_path(self._context.models, context.kind, ".".join(names[:place]), None)
                self.own.add_found(_walked(walk, context.slot), number_of(names[place]))
        if source.condition:
            expression = self._context.expression(source.condition, scope, item.kind, source.place, source.variable)
            self._add(held(expression.node), expression, scope, item.slot)

    def _marks(self, source: Source, context: Variable) -> Marks:
        """The body around a rule that fires whenever the field has a value; else its own."""
        is_certain = (
            len(self._rule.sources) == 1
            and "." not in source.element
            and not source.condition
            and source.list_mode in ("", "first", "last")
        )
        return self._around if is_certain and 0 < context.slot < self._around.limit else self.own

    def target(self, target: Target, scope: Scope) -> None:
        """A target, before it is compiled; `scope`: the variables so far."""
        if self._is_traced or target.transform != "evaluate" or not target.parameters:
            return
        item, slot = UNKNOWN, 0
        if len(target.parameters) > 1:
            value = self._context.value(target.parameters[0], scope, target.place)
            item, slot = value.kind, value.slot
        expression = self._context.expression(str(target.parameters[-1].value), scope, item, target.place)
        self._add(evaluated(expression.node), expression, scope, max(slot, 0))

    def _add(self, reads: Iterable[Read], expression: Expression, scope: Scope, item: int) -> None:
        """`item`: slot of the item in focus, or 0."""
        slots = {name: variable.slot for name, variable in scope.names.items() if variable.is_source}
        slots[FOCUS] = item
        limit = self.own.limit
        for owner, number in sorted(reads, key=repr):
            names = list(variables(owner))
            if any(not 0 < slots.get(name, 0) < limit for name in names):
                continue
            if owner is None or (len(names) == 1 and owner == ast.Variable(names[0])):
                self.own.add_number(slots[names[0]], number)
            else:
                self.own.add_found(_evaluated(owner, expression, slots), number)


def first_field(element: str) -> int:
    """The number of the first step of a path that is a field; of the last step when none is."""
    names = element.split(".")
    return next((place for place, name in enumerate(names) if number_of(name)), len(names) - 1)


def _walked(walk: Walk, slot: int) -> Find:
    return lambda frame: walk(frame[slot])


def _evaluated(owner: ast.Node, expression: Expression, slots: dict[str, int]) -> Find:
    """The segments that an expression gives."""
    item = slots[FOCUS]
    evaluate = replace(expression, node=owner).evaluate()
    return lambda frame: evaluate(frame, frame[item] if item else None)
