"""Rules, compiled: sources become loops, targets become actions, dependents become calls.

A rule's closure runs its loops; for each item it runs its actions in the order written, then its dependents and nested
rules.  Variables live in places of the frame that were chosen here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ipf.errors import Category, Problem
from ipf.mapping.compile import Compiler, Unit
from ipf.mapping.conversions import as_text
from ipf.mapping.kinds import STRING, UNKNOWN, Kind
from ipf.mapping.lexer import FmlError
from ipf.mapping.model import Dependent, Group, Parameter, Place, Rule, Source
from ipf.mapping.run import Frame, Step
from ipf.mapping.scope import Act, Scope, Value, Variable, constant
from ipf.mapping.sources import LIST_MODES, Fetch, Items, compile_path
from ipf.mapping.target_actions import TargetCompiler

_LITERAL_KINDS = {
    "string": STRING,
    "boolean": Kind("fhir", "boolean"),
    "integer": Kind("fhir", "integer"),
    "decimal": Kind("fhir", "decimal"),
    "date": Kind("fhir", "date"),
    "dateTime": Kind("fhir", "dateTime"),
    "time": Kind("fhir", "time"),
}


def sequence(actions: Iterable[Act]) -> Act:
    """One function for several, without a loop where there are few."""
    every = tuple(actions)
    if len(every) == 1:
        return every[0]
    if len(every) == 2:
        return _pair(*every)
    if len(every) == 3:
        return _triple(*every)

    def run(frame: Frame) -> None:
        for action in every:
            action(frame)

    return run


def _pair(first: Act, second: Act) -> Act:
    def run(frame: Frame) -> None:
        first(frame)
        second(frame)

    return run


def _triple(first: Act, second: Act, third: Act) -> Act:
    def run(frame: Frame) -> None:
        first(frame)
        second(frame)
        third(frame)

    return run


class RuleCompiler:
    """Compiles the rules of one group of one map."""

    def __init__(self, compiler: Compiler, unit: Unit, group: Group) -> None:
        self.compiler = compiler
        self.unit = unit
        self.group = group
        self.models = compiler.environment.models

    def fail(self, text: str, place: Place) -> FmlError:
        """A mistake in the map."""
        return FmlError(text, self.unit.content.file, place)

    def rule(self, rule: Rule, outer: Scope) -> Act:
        """One rule as a function of the frame."""
        scope = outer.child()
        loops = [self._loop(source, rule, scope) for source in rule.sources]
        body = sequence(self._body(rule, scope, loops[0][1]))
        for fetch, variable in reversed(loops):
            if fetch is not None:
                body = _each(fetch, variable.slot, body)
        return self._noted(rule, body) if self.compiler.traced else body

    def _body(self, rule: Rule, scope: Scope, item: Variable) -> list[Act]:
        """What is done for each item."""
        targets = TargetCompiler(self, rule, scope)
        if rule.is_simple:
            return [targets.simple(rule.targets[0], item)]
        actions = [targets.action(target, position) for position, target in enumerate(rule.targets)]
        actions += [self.call(one, scope) for one in rule.dependents]
        actions += [self.rule(one, scope) for one in rule.rules]
        return actions + targets.closers

    def _noted(self, rule: Rule, body: Act) -> Act:
        step = Step(self.unit.content.url, self.group.name, rule.name, rule.place.line)

        def run(frame: Frame) -> None:
            frame[0].steps.append(step)
            body(frame)

        return run

    def variable(self, name: str, scope: Scope, place: Place) -> Variable:
        """A name in scope."""
        found = scope.names.get(name)
        if found is None:
            known = ", ".join(sorted(scope.names))
            raise self.fail(f"unknown variable '{name}' (in scope: {known})", place)
        return found

    # ---------------------------------------------------------------------------------------------- sources

    def _loop(self, source: Source, rule: Rule, scope: Scope) -> tuple[Fetch | None, Variable]:
        """How the items of a source are fetched, and the variable for each; no fetch = the context itself, once."""
        context = self.variable(source.context, scope, source.place)
        wanted = self.unit.kind(source.type, source.place, is_source=True) if source.type else None
        if not source.element:
            kind = wanted or context.kind
            fetch: Fetch | None = None
            if _is_conditional(source):
                fetch = _context_as_items(context.slot)
        else:
            walk, kind = compile_path(self.models, context.kind, source.element, wanted)
            fetch = _items(walk, context.slot)
        if source.default is not None or source.default_expression:
            kind = UNKNOWN
        if fetch is None:
            return None, scope.bind(source.variable, context.slot, kind, is_source=context.is_source)
        fetch = self._restricted(fetch, source, rule, scope, kind)
        return fetch, scope.declare(source.variable, kind, is_source=context.is_source)

    def _restricted(self, fetch: Fetch, source: Source, rule: Rule, scope: Scope, kind: Kind) -> Fetch:
        """Defaults, cardinality, where, check, log and list mode, in this order."""
        if source.default is not None:
            fetch = _with_default(fetch, source.default.value)
        elif source.default_expression:
            expression = self._expression(source.default_expression, source, scope, UNKNOWN)
            fetch = _with_computed_default(fetch, expression.first())
        if source.minimum is not None:
            most = None if source.maximum == "*" else int(source.maximum)
            fetch = _counted(fetch, source.minimum, most, self._place(rule, source))
        if source.condition:
            fetch = _filtered(fetch, self._expression(source.condition, source, scope, kind).test())
        if source.check:
            test = self._expression(source.check, source, scope, kind).test()
            fetch = _checked(fetch, test, self._place(rule, source))
        if source.log_message:
            fetch = _logged(fetch, self._expression(source.log_message, source, scope, kind).text())
        if source.list_mode == "only_one":
            return _counted(fetch, 0, 1, self._place(rule, source))
        return _picked(fetch, source.list_mode) if source.list_mode else fetch

    def _expression(self, text: str, source: Source, scope: Scope, kind: Kind) -> Any:
        return self.compiler.expression(self.unit, text, scope, kind, source.place, source.variable)

    def _place(self, rule: Rule, source: Source) -> str:
        """How a rule is named in a failure: map, group, rule and what it reads; never data."""
        path = f"{source.context}.{source.element}".rstrip(".").replace("_", "-")
        return f"{self.unit.content.name}.{self.group.name}.rule '{rule.name}' at {path}"

    # ------------------------------------------------------------------------------------------- parameters

    def value(self, parameter: Parameter, scope: Scope, place: Place) -> Value:
        """An argument, compiled."""
        if parameter.kind != "id":
            return constant(parameter.value, _LITERAL_KINDS.get(parameter.kind, STRING))
        name = str(parameter.value)
        for one in self.unit.content.constants:
            if one.name == name and name not in scope.names:
                return self._constant(one.expression, scope, place)
        variable = self.variable(name, scope, place)
        slot = variable.slot
        return Value(lambda frame: frame[slot], variable.kind, slot=slot, is_source=variable.is_source)

    def _constant(self, expression: str, scope: Scope, place: Place) -> Value:
        """A `let`: computed when the map is compiled, since it knows nothing of what is mapped."""
        first = self.compiler.expression(self.unit, expression, Scope(scope.layout), UNKNOWN, place).first()
        return constant(first([], None), UNKNOWN)

    def call(self, dependent: Dependent, scope: Scope) -> Act:
        """`then Group(a, b)`"""
        found = self.compiler.find_group(self.unit, dependent.name)
        if found is None:
            raise self.fail(f"no group '{dependent.name}' in this map or its imports", dependent.place)
        content, group = found
        wanted, given = len(group.inputs), len(dependent.parameters)
        if wanted != given:
            raise self.fail(f"group '{group.name}' takes {wanted} parameters, not {given}", dependent.place)
        values = [self.value(one, scope, dependent.place) for one in dependent.parameters]
        code = self.compiler.code(content, group, [one.kind for one in values])
        return invocation(code, values)


def invocation(code: Any, values: list[Value]) -> Act:
    """A call of a compiled group with these arguments: a new frame, and its rules on it."""
    if all(value.slot >= 0 for value in values):
        slots = [value.slot for value in values]
        if len(slots) == 2:
            return _call_with_two(code, *slots)

        def call(frame: Frame) -> None:
            callee = [frame[0], *[frame[slot] for slot in slots]]
            callee += [None] * (code.size - len(callee))
            for rule in code.rules:
                rule(callee)

        return call
    gets = [value.get for value in values]

    def call_with_values(frame: Frame) -> None:
        callee = [frame[0], *[get(frame) for get in gets]]
        callee += [None] * (code.size - len(callee))
        for rule in code.rules:
            rule(callee)

    return call_with_values


def _call_with_two(code: Any, first: int, second: int) -> Act:
    def call(frame: Frame) -> None:
        callee = [None] * code.size
        callee[0] = frame[0]
        callee[1] = frame[first]
        callee[2] = frame[second]
        for rule in code.rules:
            rule(callee)

    return call


def _each(fetch: Fetch, slot: int, body: Act) -> Act:
    def run(frame: Frame) -> None:
        for item in fetch(frame):
            frame[slot] = item
            body(frame)

    return run


def _is_conditional(source: Source) -> bool:
    return bool(source.condition or source.check or source.log_message or source.default or source.list_mode)


def _context_as_items(slot: int) -> Fetch:
    return lambda frame: (frame[slot],)


def _items(walk: Any, slot: int) -> Fetch:
    def fetch(frame: Frame) -> Items:
        items: Items = walk(frame[slot])
        return items

    return fetch


def _with_default(fetch: Fetch, value: Any) -> Fetch:
    default = (value,)
    return lambda frame: fetch(frame) or default


def _with_computed_default(fetch: Fetch, first: Any) -> Fetch:
    def run(frame: Frame) -> Items:
        found = fetch(frame)
        if found:
            return found
        value = first(frame, None)
        return () if value is None else (value,)

    return run


def _counted(fetch: Fetch, least: int, most: int | None, place: str) -> Fetch:
    wanted = f"{least}..{'*' if most is None else most}"

    def run(frame: Frame) -> Items:
        found = fetch(frame)
        if len(found) < least or most is not None and len(found) > most:
            raise Problem(Category.MAPPING, f"found {len(found)} times where {wanted} is asked for", place)
        return found

    return run


def _filtered(fetch: Fetch, test: Any) -> Fetch:
    return lambda frame: [item for item in fetch(frame) if test(frame, item)]


def _checked(fetch: Fetch, test: Any, place: str) -> Fetch:
    def run(frame: Frame) -> Items:
        found = fetch(frame)
        if not all(test(frame, item) for item in found):
            raise Problem(Category.MAPPING, "the check of this rule failed", place)
        return found

    return run


def _logged(fetch: Fetch, text: Any) -> Fetch:
    def run(frame: Frame) -> Items:
        found = fetch(frame)
        frame[0].logs += [said for item in found if (said := as_text(text(frame, item)))]
        return found

    return run


def _picked(fetch: Fetch, mode: str) -> Fetch:
    pick = LIST_MODES[mode]
    return lambda frame: pick(fetch(frame))
