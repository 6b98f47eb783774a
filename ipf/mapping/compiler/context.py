"""Names and calls in the rules of one group: variables, arguments, expressions, and calls of other groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter

from ipf.mapping.compiler.elements import ElementNames
from ipf.mapping.compiler.emit import Block, Writer
from ipf.mapping.compiler.expressions.expression import Expression
from ipf.mapping.compiler.groups import Groups, Unit
from ipf.mapping.compiler.kinds import BUNDLE, STRING, UNKNOWN, Kind, fhir
from ipf.mapping.compiler.models import Models
from ipf.mapping.compiler.scope import Origin, Scope, Variable
from ipf.mapping.compiler.values import Value, constant, value_source
from ipf.mapping.language.lexer import FmlError
from ipf.mapping.language.model import Dependent, Group, Parameter, Place, Rule, Source, StructureMap
from ipf.mapping.runtime.budget import DEPTH
from ipf.mapping.runtime.run import Act, Frame
from ipf.mapping.runtime.trace import RulePosition

_LITERAL_KINDS = {
    "string": STRING,
    "boolean": Kind("fhir", "boolean"),
    "integer": Kind("fhir", "integer"),
    "decimal": Kind("fhir", "decimal"),
    "date": Kind("fhir", "date"),
    "dateTime": Kind("fhir", "dateTime"),
    "time": Kind("fhir", "time"),
}

_MAKING = ("", "create")


@dataclass(slots=True)
class CompiledGroup:
    """A compiled group.  `run` is set last, since groups may call each other recursively."""

    name: str
    run: Act | None = None

    def call(self, frame: Frame) -> None:
        """Run it on a frame that holds the Run and the arguments."""
        if self.run is not None:
            self.run(frame)


CompileGroup = Callable[[StructureMap, Group, Sequence[Kind], tuple[str, ...]], CompiledGroup]


def call_block(code: CompiledGroup, values: Sequence[Value], at: RulePosition) -> Block:
    """A call of a compiled group with these arguments, on a new frame.  `at`: the rule that calls it."""

    def write(writer: Writer) -> None:
        frame = ["r", *(value_source(writer, value) for value in values)]
        if code.run is None:  # still being compiled: the group calls itself, so that the depth is counted
            writer.line("r.depth += 1")
            writer.line(f"if r.depth > {DEPTH}: r.too_deep({writer.constant(at)})")
            writer.line(f"{writer.constant(code)}.call([{', '.join(frame)}])")
            writer.line("r.depth -= 1")
            return
        writer.line(f"{writer.constant(code.run)}([{', '.join(frame)}])")

    return write


class GroupContext:
    """The group and the map whose rules are compiled, and access to the other groups.

    `compile_group`: compiles a group that a rule calls.
    """

    def __init__(self, groups: Groups, unit: Unit, group: Group, compile_group: CompileGroup) -> None:
        self.groups = groups
        self.unit = unit
        self.group = group
        self.models = groups.environment.models
        self.compile_group = compile_group

    def fail(self, text: str, place: Place) -> FmlError:
        """A mistake in the map."""
        return FmlError(text, self.unit.content.file, place)

    def position(self, rule: Rule | None = None) -> RulePosition:
        """A rule of the group, or the group itself, for errors and traces."""
        content, name = self.unit.content, "" if rule is None else rule.name
        place = self.group.place if rule is None else rule.place
        return RulePosition(content.url, content.file, self.group.name, name, place.line, place.column)

    def variable(self, name: str, scope: Scope, place: Place) -> Variable:
        """A name in scope."""
        found = scope.names.get(name)
        if found is None:
            known = ", ".join(sorted(scope.names))
            raise self.fail(f"unknown variable '{name}' (in scope: {known})", place)
        return found

    def expression(
        self, text: str, scope: Scope, item: Kind, place: Place, focus: str = "", origin: Origin = (0, "")
    ) -> Expression:
        """A FHIRPath text of the map.  `item`: kind of the item in focus.  `focus`: the variable that names it.

        `origin`: slot and element of the object in which the item is found.
        """

        def fail(problem: str) -> FmlError:
            return self.fail(f"in a FHIRPath expression: {problem}", place)

        at = replace(self.position(), line=place.line, column=place.column)
        found = Expression.read(text, scope, item, focus, fail, self.groups.environment.host, origin, at)
        ElementNames(self.models, fail).check_expression(found.node, item, scope.names)
        return found

    def check_path(self, kind: Kind, source: Source) -> None:
        """Check the elements that a source names.  `kind`: of its context."""
        ElementNames(self.models, lambda text: self.fail(text, source.place)).check_path(kind, source.element)

    def value(self, parameter: Parameter, scope: Scope, place: Place) -> Value:
        """A compiled argument."""
        if parameter.kind != "id":
            return constant(parameter.value, _LITERAL_KINDS.get(parameter.kind, STRING))
        name = str(parameter.value)
        for one in self.unit.content.constants:
            if one.name == name and name not in scope.names:
                return self._constant(one.expression, scope, place)
        variable = self.variable(name, scope, place)
        slot = variable.slot
        return Value(itemgetter(slot), variable.kind, slot=slot, is_source=variable.is_source, is_variable=True)

    def _constant(self, expression: str, scope: Scope, place: Place) -> Value:
        """A `let`, evaluated at compile time: it cannot depend on the source."""
        first = self.expression(expression, Scope(scope.layout), UNKNOWN, place).first()
        return constant(first([], None), UNKNOWN)

    def call(self, dependent: Dependent, rule: Rule, scope: Scope) -> Block:
        """`then Group(a, b)`"""
        found = self.groups.find_group(self.unit, dependent.name, dependent.place)
        if found is None:
            raise self.fail(f"no group '{dependent.name}' in this map or its imports", dependent.place)
        content, group = found
        wanted, given = len(group.inputs), len(dependent.parameters)
        if wanted != given:
            raise self.fail(f"group '{group.name}' takes {wanted} parameters, not {given}", dependent.place)
        values = [self.value(one, scope, dependent.place) for one in dependent.parameters]
        code = self.compile_group(content, group, [one.kind for one in values], self._fields(dependent, group, scope))
        return call_block(code, values, self.position(rule))

    def _fields(self, dependent: Dependent, group: Group, scope: Scope) -> tuple[str, ...]:
        """The HL7 v2 field of each argument, where the group writes into a resource; else nothing."""
        names = [str(one.value) if one.kind == "id" else "" for one in dependent.parameters]
        given = [scope.names.get(name) for name in names]
        targets = [one for one, part in zip(given, group.inputs, strict=True) if one and part.mode == "target"]
        if not any(is_of_resource(self.models, one.kind) for one in targets):
            return ()
        fields = tuple(
            one.field if one and part.mode == "source" else "" for one, part in zip(given, group.inputs, strict=True)
        )
        return fields if any(fields) else ()


def is_of_resource(models: Models, kind: Kind) -> bool:
    """Whether a target is a resource of a Bundle, or an element of it that has elements of its own."""
    root = kind.name.partition(".")[0]
    return kind.model == "fhir" and root != BUNDLE.name and models.is_resource(fhir(root))
