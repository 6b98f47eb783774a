"""Targets of a rule, compiled to blocks: make an element, compute a value and store it, or bind a name."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from operator import itemgetter

from ipf.errors import Category, Problem
from ipf.mapping.compiler.context import GroupContext, call_block, is_of_resource
from ipf.mapping.compiler.emit import FRAME, Block, Writer, act, function, nothing, sequence, var
from ipf.mapping.compiler.fields import INITIAL, fields_named
from ipf.mapping.compiler.kinds import STRING, UNKNOWN, Kind, Member, fhir
from ipf.mapping.compiler.models import Models, member_of_choice
from ipf.mapping.compiler.scope import Scope, Variable
from ipf.mapping.compiler.targets.blocks import (
    buffer_primitive,
    insert_value,
    inserting_maker,
    make_into,
    make_shared,
    new_object,
    note_segments,
    primitive_flusher,
    put_and_bind,
    put_reference,
    put_with,
    put_with_extensions,
    traced_translation,
)
from ipf.mapping.compiler.targets.runtime_types import RuntimeTypes, typed_putter
from ipf.mapping.compiler.targets.storing import (
    TargetElement,
    element_maker,
    make_element,
    merging_store,
    put,
    put_constant,
    reusing_maker,
    target_element,
)
from ipf.mapping.compiler.targets.values import TypeConversion, TypedValue
from ipf.mapping.compiler.transforms import REFERENCE_TEXT, Context, compile_transform
from ipf.mapping.compiler.v2 import types_of
from ipf.mapping.compiler.values import NOTHING, Value, value_source
from ipf.mapping.language.lexer import FmlError
from ipf.mapping.language.model import Dependent, Group, Parameter, Place, Rule, StructureMap, Target
from ipf.mapping.runtime.run import Frame, Get

ENTRY, PERIOD = fhir("Bundle.entry"), fhir("Period")
SINGLE = (("single",), ("collate",))
"""List modes (R5, R4) that continue with the first item of the list."""


class TargetCompiler:
    """Compiles the targets of one rule.  `flushes` run after the rule is done with an item.

    `step`: slot of the trace step in a traced program, else 0.
    """

    def __init__(self, context: GroupContext, rule: Rule, scope: Scope, step: int = 0) -> None:
        self.context = context
        self.models: Models = context.models
        self.rule = rule
        self.scope = scope
        self.flushes: list[Block] = []
        self._step = step

    def fail(self, text: str, place: Place) -> FmlError:
        """A mistake in the map."""
        return self.context.fail(text, place)

    def action(self, target: Target, position: int) -> Block:
        """One target as a block."""
        if not target.context:
            return self._assign(target, self._transformed(target))
        context = self.context.variable(target.context, self.scope, target.place)
        if not target.element:
            return self._bind_context(target, context)
        member = self._member(context, target)
        flushes = len(self.flushes)
        if target.transform in ("", "create"):
            block = self._create(target, context, member)
        else:
            block = self._store(target, context, member, self._transformed(target), position)
        self.flushes[flushes:] = [self._traced(one, target, context, member) for one in self.flushes[flushes:]]
        return self._traced(block, target, context, member)

    def _traced(self, block: Block, target: Target, context: Variable, member: Member | None) -> Block:
        """In a traced program: the block, followed by a record of the elements that it has produced."""
        if not self._step:
            return block
        names = [target.element] if member is None else list(member.keys.values()) or [member.key]
        keys = tuple(names + ["_" + name for name in names])
        mark, owner, step = self.scope.layout.new_slot(), f"{var(context.slot)}", self._step
        made = target.transform in ("", "create") and not self.rule.is_simple

        def write(writer: Writer) -> None:
            writer.line(f"{var(mark)} = r.trace.mark({owner}, {writer.constant(keys)})")
            block(writer)
            writer.line(f"r.trace.produced({var(step)}, {owner}, {var(mark)}, {made})")

        return write

    def _bind_context(self, target: Target, context: Variable) -> Block:
        """`-> tgt`, `-> tgt as x`"""
        if target.transform:
            raise self.fail("a variable cannot be assigned to: name an element", target.place)
        if target.variable:
            self.scope.bind(target.variable, context.slot, context.kind, is_source=context.is_source)
        return nothing

    def _assign(self, target: Target, value: Value) -> Block:
        """`-> transform(...) as x`: a value without an element."""
        slot = self.scope.declare(target.variable, value.kind, is_source=True).slot
        return lambda writer: writer.line(f"{var(slot)} = {value_source(writer, value)}")

    def _member(self, context: Variable, target: Target) -> Member | None:
        """The written element; None when the model of its owner is unknown."""
        if context.is_source:
            raise self.fail(f"'{target.context}' belongs to the source: it cannot be written", target.place)
        kind = context.kind
        if context.choice:
            return member_of_choice(self.models, context.choice, target.element)
        if self.models.is_primitive(kind):
            if target.element == "value":
                return Member("value", False, (kind,), {})
            kind = fhir("Element")
        member = self.models.member(kind, target.element)
        if member is None and self.models.is_modelled(kind):
            raise self.fail(f"{kind.name} has no element '{target.element}'", target.place)
        return member

    def _create(self, target: Target, context: Variable, member: Member | None) -> Block:
        """`tgt.x as y`, `tgt.x = create('T') as y`"""
        kind = self._created_kind(target, member)
        element = self._named(target_element(member, target.element, kind, context.slot), target, context, member)
        slot = self.scope.declare(target.variable, kind, is_source=False).slot
        if self.models.is_primitive(kind):
            self.flushes.append(act(primitive_flusher(element, slot)))
            return new_object(slot)
        is_part, mode = not target.parameters, target.list_modes[:1]
        if target.list_rule_id:
            make = make_element(self.models, element, kind, slot, is_part=is_part)
            return make_shared(make, target.list_rule_id, context.slot, slot)
        if element.many and mode in (("first",), ("last",)):
            return make_into(inserting_maker(element, target.list_modes[0]), slot)
        if mode in SINGLE and (element.many or element.is_open):
            return make_into(reusing_maker(element_maker(self.models, element, kind, is_part=is_part), element), slot)
        made = make_element(self.models, element, kind, slot, is_part=is_part)
        if context.kind == ENTRY:
            return sequence((made, note_segments(self.scope, slot)))
        return sequence((self._only_one(target, element), made)) if mode == ("only_one",) else made

    def _only_one(self, target: Target, element: TargetElement) -> Block:
        """`only_one`: the rule fails for a second item."""
        key, parent = element.key, element.parent
        where = f"{self.context.unit.content.name}.{self.context.group.name}.rule '{self.rule.name}'"

        def check(frame: Frame) -> None:
            if frame[parent].get(key):
                raise Problem(Category.MAPPING, f"more than one {target.element} where one is allowed", where)

        return act(check)

    def _created_kind(self, target: Target, member: Member | None) -> Kind:
        if target.parameters:
            parameter = target.parameters[0]
            if parameter.kind != "string":
                raise self.fail("create takes the name of a type, in quotes", target.place)
            kind = self.context.unit.kind(str(parameter.value), target.place, is_source=False)
            self._check_allowed(member, kind, target)
            return kind
        if member is None:
            return UNKNOWN
        if len(member.kinds) > 1:
            raise self.fail(f"'{target.element}' may have several types: say which with create('Type')", target.place)
        return member.kinds[0] if member.kinds else UNKNOWN

    def _check_allowed(self, member: Member | None, kind: Kind, target: Target) -> None:
        """A type that the element does not allow is a mistake in the map."""
        if member is None or kind.model != "fhir":
            return
        names = {one.name for one in member.kinds}
        abstract = names & {"Resource", "DomainResource", "Element", "BackboneElement", "Any"}
        inner = any("." in name for name in names)
        if kind.name not in names and not abstract and not inner:
            wanted = " or ".join(sorted(names))
            raise self.fail(f"'{target.element}' cannot be {kind.name}: it is {wanted}", target.place)

    def _transformed(self, target: Target) -> Value:
        """The value of a target's transform."""
        if target.transform == "evaluate":
            return self._evaluated(target)
        if target.transform == "create":
            raise self.fail("create makes an element: write 'tgt.element = create(...)'", target.place)
        values = [self.context.value(one, self.scope, target.place) for one in target.parameters]
        context = Context(
            self.models,
            self.context.unit.tables,
            self.context.groups.conversions,
            lambda text: self.fail(f"{target.transform}: {text}", target.place),
        )
        value = compile_transform(context, target.transform, values)
        if self._step and target.transform == "translate":
            return traced_translation(value, values, self._step)
        return value

    def _evaluated(self, target: Target) -> Value:
        """`(expression)`, or `evaluate(focus, expression)`"""
        if not target.parameters:
            raise self.fail("evaluate takes an expression", target.place)
        item, focus, origin = UNKNOWN, 0, (0, "")
        if len(target.parameters) > 1:
            value = self.context.value(target.parameters[0], self.scope, target.place)
            item, focus = value.kind, value.slot
            variable = self.scope.names.get(str(target.parameters[0].value))
            origin = variable.origin if value.is_variable and variable is not None else origin
        text = str(target.parameters[-1].value)
        expression = self.context.expression(text, self.scope, item, target.place, origin=origin)
        written = f"{var(focus)}" if focus else "None"
        if expression.is_text:
            text_of = expression.text()
            get: Get = lambda frame: text_of(frame, frame[focus] if focus else None)  # noqa: E731
            return Value(get, STRING, write=lambda writer: expression.text_source(writer, written))
        first = expression.first()
        return Value(lambda frame: first(frame, frame[focus] if focus else None), UNKNOWN)

    def _store(self, target: Target, context: Variable, member: Member | None, value: Value, position: int) -> Block:
        """`tgt.x = value`, with or without `as y`"""
        if member is not None and len(member.kinds) > 1 and value.kind == UNKNOWN and value.constant is NOTHING:
            return self._store_typed(target, context, member, value)
        conversion = self._conversion(target)
        kind = conversion.kind(member, value)
        typed = conversion.apply(member, value, kind)
        element = self._named(target_element(member, target.element, kind, context.slot), target, context, member)
        if value.kind == REFERENCE_TEXT:
            is_source = self.models.is_primitive(kind)
            slot = self.scope.declare(target.variable, kind, is_source=is_source).slot if target.variable else 0
            mode = target.list_modes[0] if target.list_modes else ""
            return put_reference(element, value, slot, whole=kind.name == "Reference", mode=mode)
        if target.variable:
            return self._store_and_name(target, element, kind, typed, position)
        if element.many and target.list_modes[:1] in (("first",), ("last",)):
            return insert_value(element, target.list_modes[0], typed)
        if element.many and target.list_modes[:1] in SINGLE:
            return put_with(merging_store(element), element, typed)
        if typed.value.constant is not NOTHING:
            known = typed.value.constant
            self.context.groups.defaults.setdefault(element.path, []).append(known)
            return nothing if known is None else put_constant(element, known)
        if self._may_be_extended(value):
            return act(put_with_extensions(element, value.slot, function(put(element, typed))))
        return put(element, typed)

    def _named(self, element: TargetElement, target: Target, context: Variable, member: Member | None) -> TargetElement:
        """With its path in a resource, the literals that rules write there, and its name for text in a choice.

        Data types have none: what replaces what in them is how one field becomes an element (a namespace that a
        universal ID replaces), not a loss.
        """
        if element.is_open:
            types = RuntimeTypes(self.models, self.context.groups.conversions)
            return replace(element, choose=types.in_choice)
        element = replace(element, source=self._source(context))
        if context.kind.model != "fhir" or not self.models.is_resource(fhir(context.kind.name.partition(".")[0])):
            return element
        path = f"{context.kind.name}.{target.element}"
        self._note_known(context.kind.name, element)
        text_key = member.keys.get("string", "") if member is not None and member.is_choice else ""
        defaults = self.context.groups.defaults.setdefault(path, [])
        return replace(element, path=path, defaults=defaults, text_key=text_key)

    def _source(self, context: Variable) -> str:
        """The HL7 v2 fields that a value of a resource, or of a period in it, is made of; empty: not known."""
        if context.kind != PERIOD and not is_of_resource(self.models, context.kind):
            return ""
        fields = self.scope.fields or self._fields_named
        return " ".join(fields)

    def _note_known(self, owner: str, element: TargetElement) -> None:
        """Keep the fields that maps make an element of (`Encounter`, `hospitalization.admitSource`)."""
        if element.source:
            resource_type, _, inner = f"{owner}.{element.key}".partition(".")
            known = self.context.groups.known_sources.setdefault(resource_type, {})
            fields = element.source.removeprefix(INITIAL).split()
            known[inner] = known.get(inner, frozenset()).union(fields)

    @cached_property
    def _fields_named(self) -> tuple[str, ...]:
        find = self.context.groups.find_group
        return fields_named(self.rule, lambda one: find(self.context.unit, one.name, one.place))

    def _store_typed(self, target: Target, context: Variable, member: Member, value: Value) -> Block:
        """A value whose type is known only at run time, or a structure of another type."""
        types = RuntimeTypes(self.models, self.context.groups.conversions)
        parameter = target.parameters[0] if target.parameters else None
        source = self.scope.names.get(str(parameter.value)) if parameter is not None and value.is_variable else None
        origin = source.origin if source is not None else (0, "")
        stated = value.kind.name.rpartition("/")[2]
        where, is_named = (stated, origin), bool(target.variable)
        put = typed_putter(types, member, target.element, context.slot, value.get, where, is_named=is_named)
        slot = self.scope.declare_choice(target.variable, member.kinds).slot if target.variable else 0
        named = f"{var(slot)} = " if slot else ""
        return lambda writer: writer.line(f"{named}{writer.constant(put)}({FRAME})")

    def _may_be_extended(self, value: Value) -> bool:
        """Whether a value may be a primitive of a JSON source, with extensions to copy."""
        if not value.is_variable or not value.is_source or value.kind.is_text:
            return False
        return not value.kind.is_known or self.models.is_primitive(value.kind)

    def _conversion(self, target: Target) -> TypeConversion:
        conversions = self.context.groups.conversions
        return TypeConversion(self.models, conversions, target, lambda text: self.fail(text, target.place))

    def _store_and_name(
        self, target: Target, element: TargetElement, kind: Kind, typed: TypedValue, position: int
    ) -> Block:
        """`tgt.x = value as y`: a structure or a primitive that later targets extend, or only the value again."""
        is_primitive = self.models.is_primitive(kind)
        if is_primitive and self._is_extended(target.variable, position):
            slot = self.scope.declare(target.variable, kind, is_source=False).slot
            self.flushes.append(act(primitive_flusher(element, slot)))
            return buffer_primitive(slot, typed)
        slot = self.scope.declare(target.variable, kind, is_source=is_primitive).slot
        is_open = not is_primitive and not self.models.is_modelled(kind)
        return put_and_bind(element, slot, typed, absent="None" if is_primitive else "{}", is_open=is_open)

    def _is_extended(self, name: str, position: int) -> bool:
        """Whether a later target, a nested rule or a called group writes into the variable."""
        return any(one.context == name for one in self.rule.targets[position + 1 :]) or _is_extended_in(
            self.rule.rules, self.rule.dependents, name
        )

    def simple(self, target: Target, item: Variable) -> Block:
        """`src.a -> tgt.b`: by the default group of the two types, else a copy."""
        context = self.context.variable(target.context, self.scope, target.place)
        member = self._member(context, target)
        for given in self._source_kinds(item):
            for kind in _simple_kinds(member, given):
                found = self.context.groups.typed_group(self.context.unit, given, kind)
                if found is not None:
                    call = self._simple_call(
                        target_element(member, target.element, kind, context.slot), kind, item, *found
                    )
                    return self._traced(call, target, context, member)
        copy = Target(
            target.context,
            target.element,
            transform="copy",
            parameters=(Parameter("id", self.rule.sources[0].variable),),
            list_modes=target.list_modes,
            place=target.place,
        )
        if member is not None and self._is_copied_by_name(member, item, target):
            value = self.context.value(copy.parameters[0], self.scope, target.place)
            return self._traced(self._store_typed(copy, context, member, value), target, context, member)
        return self.action(copy, 0)

    def _is_copied_by_name(self, member: Member, item: Variable, target: Target) -> bool:
        """Whether a structure may become one of another type."""
        if item.kind.is_text or target.list_modes or item.kind in member.kinds or self.models.is_primitive(item.kind):
            return False
        if len(member.kinds) != 1:
            return bool(member.kinds)
        return self.models.is_modelled(member.kinds[0]) or member.kinds[0].name == "Reference"

    def _source_kinds(self, item: Variable) -> list[Kind]:
        """Possible kinds of the source: a field of HL7 v2 by its data type, unless the map states one."""
        if not item.kind.is_v2 or item.kind.name:
            return [item.kind]
        last = self.rule.sources[0].element.rpartition(".")[2]
        return [Kind("v2", name) for name in types_of(last)]

    def _simple_call(
        self, element: TargetElement, kind: Kind, item: Variable, content: StructureMap, group: Group
    ) -> Block:
        made = self.scope.declare("", kind, is_source=False)
        if self.models.is_primitive(kind):
            begin, close = new_object(made.slot), act(primitive_flusher(element, made.slot))
        else:
            begin, close = make_element(self.models, element, kind, made.slot), nothing
        code = self.context.compile_group(content, group, [item.kind, kind], ())
        values = [Value(itemgetter(one.slot), one.kind, slot=one.slot, is_variable=True) for one in (item, made)]
        return sequence((begin, call_block(code, values, self.context.position(self.rule)), close))


def _simple_kinds(member: Member | None, given: Kind) -> list[Kind]:
    """Possible types of the target, that of the source first."""
    if not given.is_known:
        return []
    if member is None:
        return [UNKNOWN]
    same = [kind for kind in member.kinds if kind.name == given.name]
    return same + [kind for kind in member.kinds if kind not in same]


def _is_extended_in(rules: tuple[Rule, ...], dependents: tuple[Dependent, ...], name: str) -> bool:
    passed = Parameter("id", name)
    if any(passed in one.parameters for one in dependents):
        return True
    return any(
        any(target.context == name for target in rule.targets) or _is_extended_in(rule.rules, rule.dependents, name)
        for rule in rules
    )
