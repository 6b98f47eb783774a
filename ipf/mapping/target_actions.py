"""Targets of a rule, compiled to actions: make an element, compute a value and store it, or name what is there.

A value is brought to the type of the element when the map is compiled: text of an HL7 v2 node becomes a date, a number
or a boolean where the definitions ask for one; text where a Reference is asked for becomes its `reference`.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ipf.mapping.conversions import as_text
from ipf.mapping.kinds import STRING, UNKNOWN, Kind, Member, fhir
from ipf.mapping.model import Dependent, Parameter, Place, Rule, Target
from ipf.mapping.run import Frame
from ipf.mapping.scope import NOTHING, Act, Get, Scope, Value, Variable
from ipf.mapping.targets import Make, Store, list_placer, maker, sharer, storer
from ipf.mapping.transforms import REFERENCE_TEXT, Context, compile_transform, converted

if TYPE_CHECKING:
    from ipf.mapping.lexer import FmlError
    from ipf.mapping.rules import RuleCompiler

_JSON_KINDS = {str: STRING, bool: fhir("boolean"), int: fhir("integer")}
_ALREADY = {"boolean": (bool,), "integer": (int,), "positiveInt": (int,), "unsignedInt": (int,), "decimal": (int, Decimal)}


class TargetCompiler:
    """Compiles the targets of one rule.  `closers` are run when the rule is done with an item."""

    def __init__(self, rules: RuleCompiler, rule: Rule, scope: Scope) -> None:
        self.rules = rules
        self.models = rules.models
        self.rule = rule
        self.scope = scope
        self.closers: list[Act] = []

    def fail(self, text: str, place: Place) -> FmlError:
        """A mistake in the map."""
        return self.rules.fail(text, place)

    def action(self, target: Target, position: int) -> Act:
        """One target as a function of the frame."""
        if not target.context:
            return self._assign(target, self._transformed(target))
        context = self.rules.variable(target.context, self.scope, target.place)
        if not target.element:
            return self._name_context(target, context)
        member = self._member(context, target)
        if target.transform in ("", "create"):
            return self._create(target, context, member, position)
        return self._store(target, context, member, self._transformed(target), position)

    def _name_context(self, target: Target, context: Variable) -> Act:
        """`-> tgt`, `-> tgt as x`"""
        if target.transform:
            raise self.fail("a variable cannot be assigned to: name an element", target.place)
        if target.variable:
            self.scope.bind(target.variable, context.slot, context.kind, is_source=context.is_source)
        return _nothing

    def _assign(self, target: Target, value: Value) -> Act:
        """`-> transform(...) as x`: a value without a place."""
        variable = self.scope.declare(target.variable, value.kind, is_source=True)
        slot, get = variable.slot, value.get

        def act(frame: Frame) -> None:
            frame[slot] = get(frame)

        return act

    def _member(self, context: Variable, target: Target) -> Member | None:
        """The element that is written; None when the model of its owner is not known."""
        kind = context.kind
        if self.models.is_primitive(kind) and target.element == "value":
            return Member("value", False, (kind,), {})
        if self.models.is_primitive(kind):
            kind = fhir("Element")
        member = self.models.member(kind, target.element)
        if member is None and self.models.is_modelled(kind):
            raise self.fail(f"{kind.name} has no element '{target.element}'", target.place)
        return member

    # ------------------------------------------------------------------------------------------- making

    def _create(self, target: Target, context: Variable, member: Member | None, position: int) -> Act:
        """`tgt.x as y`, `tgt.x = create('T') as y`"""
        kind = self._created_kind(target, member)
        if self.models.is_primitive(kind):
            return self._create_primitive(target, context, member, kind)
        make = maker(self.models, member, target.element, kind, context.slot)
        if target.list_rule_id:
            make = sharer(make, target.list_rule_id, context.slot)
        elif member is not None and member.many and target.list_modes[:1] in (("first",), ("last",)):
            make = _placed_maker(member, target.list_modes[0], context.slot)
        slot = self.scope.declare(target.variable, kind, is_source=False).slot
        return _keep(make, slot)

    def _created_kind(self, target: Target, member: Member | None) -> Kind:
        if target.parameters:
            parameter = target.parameters[0]
            if parameter.kind != "string":
                raise self.fail("create takes the name of a type, in quotes", target.place)
            kind = self.rules.unit.kind(str(parameter.value), target.place, is_source=False)
            self._must_allow(member, kind, target)
            return kind
        if member is None:
            return UNKNOWN
        if len(member.kinds) > 1:
            raise self.fail(f"'{target.element}' may have several types: say which with create('Type')", target.place)
        return member.kinds[0] if member.kinds else UNKNOWN

    def _must_allow(self, member: Member | None, kind: Kind, target: Target) -> None:
        """A type that the element cannot have is a mistake in the map."""
        if member is None or kind.model != "fhir":
            return
        names = {one.name for one in member.kinds}
        abstract = names & {"Resource", "DomainResource", "Element", "BackboneElement", "Any"}
        inner = any("." in name for name in names)
        if kind.name not in names and not abstract and not inner:
            raise self.fail(f"'{target.element}' cannot be {kind.name}: it is {' or '.join(sorted(names))}", target.place)

    def _create_primitive(self, target: Target, context: Variable, member: Member | None, kind: Kind) -> Act:
        """A primitive with a name: kept aside as an object with `value` and `extension` until the rule is done."""
        slot = self.scope.declare(target.variable, kind, is_source=False).slot
        self._close_primitive(target, context, member, kind, slot)

        def act(frame: Frame) -> None:
            frame[slot] = {}

        return act

    def _close_primitive(
        self, target: Target, context: Variable, member: Member | None, kind: Kind, slot: int
    ) -> None:
        key = target.element if member is None else member.keys.get(kind.name, member.key)
        store = storer(member, target.element, kind)
        many = member is not None and member.many
        self.closers.append(_primitive_closer(context.slot, slot, key, store, many=many))

    # ------------------------------------------------------------------------------------------ storing

    def _transformed(self, target: Target) -> Value:
        """The value of a target's transform."""
        if target.transform == "evaluate":
            return self._evaluated(target)
        values = [self.rules.value(one, self.scope, target.place) for one in target.parameters]
        context = Context(
            self.models,
            self.rules.unit.tables,
            self.rules.compiler.conversions,
            lambda text: self.fail(f"{target.transform}: {text}", target.place),
        )
        return compile_transform(context, target.transform, values)

    def _evaluated(self, target: Target) -> Value:
        """`(expression)`, or `evaluate(focus, expression)`"""
        if not target.parameters:
            raise self.fail("evaluate takes an expression", target.place)
        item, focus = UNKNOWN, 0
        if len(target.parameters) > 1:
            value = self.rules.value(target.parameters[0], self.scope, target.place)
            item, focus = value.kind, value.slot
        text = str(target.parameters[-1].value)
        expression = self.rules.compiler.expression(self.rules.unit, text, self.scope, item, target.place)
        if expression.is_text:
            compute, kind = expression.text(), STRING
        else:
            compute, kind = expression.first(), UNKNOWN
        if not focus:
            return Value(lambda frame: compute(frame, None), kind)
        return Value(lambda frame: compute(frame, frame[focus]), kind)

    def _store(self, target: Target, context: Variable, member: Member | None, value: Value, position: int) -> Act:
        """`tgt.x = value`, with or without `as y`"""
        kind = self._stored_kind(target, member, value)
        get = self._coerced(target, value, kind) if member is not None else _plain(value)
        if target.variable and self.models.is_primitive(kind) and self._is_opened(target.variable, position):
            return self._store_primitive(target, context, member, kind, get)
        store = storer(member, target.element, kind)
        if member is not None and member.many and target.list_modes[:1] in (("first",), ("last",)):
            act = _place(list_placer(member, target.list_modes[0]), context.slot, get)
        elif value.kind == REFERENCE_TEXT and value.slot >= 0:
            act = _store_reference(store, context.slot, value, kind, "reference" if member is None else member.key)
        elif value.constant is not NOTHING:
            act = _store_constant(store, context.slot, get([]))
        else:
            act = _store_computed(store, context.slot, get)
        return self._named(target, context, kind, get, act)

    def _named(self, target: Target, context: Variable, kind: Kind, get: Get, act: Act) -> Act:
        """`tgt.x = value as y`: y is the value."""
        if not target.variable:
            return act
        slot = self.scope.declare(target.variable, kind, is_source=self.models.is_primitive(kind)).slot

        def act_and_name(frame: Frame) -> None:
            act(frame)
            frame[slot] = get(frame)

        return act_and_name if self.models.is_primitive(kind) else self._store_and_keep(target, context, kind, get, slot)

    def _store_and_keep(self, target: Target, context: Variable, kind: Kind, get: Get, slot: int) -> Act:
        """A structure made by a transform (`cc(...) as y`), to which more is added."""
        member = self._member(context, target)
        store, parent = storer(member, target.element, kind), context.slot

        def act(frame: Frame) -> None:
            value = get(frame)
            frame[slot] = {} if value is None else value
            if value is not None:
                store(frame[parent], value)

        return act

    def _store_primitive(self, target: Target, context: Variable, member: Member | None, kind: Kind, get: Get) -> Act:
        """A primitive that gets extensions: `name.family = f as family then { ... family.extension as e ... }`."""
        slot = self.scope.declare(target.variable, kind, is_source=False).slot
        self._close_primitive(target, context, member, kind, slot)

        def act(frame: Frame) -> None:
            value = get(frame)
            frame[slot] = {} if value is None else {"value": value}

        return act

    def _is_opened(self, name: str, position: int) -> bool:
        """Whether something is put into the variable: by a later target, a nested rule or a group it is passed to."""
        return any(one.context == name for one in self.rule.targets[position + 1 :]) or _opens(
            self.rule.rules, self.rule.dependents, name
        )

    def _stored_kind(self, target: Target, member: Member | None, value: Value) -> Kind:
        """The type that the element gets."""
        given = STRING if value.kind == REFERENCE_TEXT else value.kind
        if member is None or not member.kinds:
            return given
        if len(member.kinds) == 1:
            kind = member.kinds[0]
            return given if kind.name in ("Resource", "Element") and given.is_known else kind
        if given in member.kinds:
            return given
        literal = _JSON_KINDS.get(type(value.constant))
        if literal in member.kinds and literal is not None:
            return literal
        if value.kind == REFERENCE_TEXT and fhir("Reference") in member.kinds:
            return fhir("Reference")
        names = ", ".join(one.name for one in member.kinds[:8])
        raise self.fail(f"'{target.element}' may be {names}: say which, e.g. with cast(x, 'string')", target.place)

    def _coerced(self, target: Target, value: Value, kind: Kind) -> Get:
        """A closure for the value as the type of the element."""
        if self.models.is_primitive(kind):
            return self._primitive(target, value, kind)
        if value.kind.is_v2 or self.models.is_primitive(value.kind) or value.kind == REFERENCE_TEXT:
            if kind.name == "Reference":
                text = _plain(value)
                return lambda frame: {"reference": found} if (found := text(frame)) else None
            raise self.fail(
                f"'{target.element}' is a {kind.name}: call a group for it, or use a transform that makes one", target.place
            )
        if value.kind == fhir("Coding") and kind == fhir("CodeableConcept"):
            coding = value.get
            return lambda frame: {"coding": [found]} if (found := coding(frame)) else None
        if value.kind.model == "fhir" and value.kind.name != kind.name and kind.model == "fhir" and "." not in kind.name:
            raise self.fail(f"'{target.element}' is a {kind.name}, not a {value.kind.name}", target.place)
        return value.get

    def _primitive(self, target: Target, value: Value, kind: Kind) -> Get:
        convert = self.rules.compiler.conversions.get(kind.name)
        if convert is None or value.kind == kind or value.kind == REFERENCE_TEXT:
            return value.get
        if value.constant is not NOTHING:
            return self._literal(target, value, kind, convert)
        if value.kind.model == "fhir" and not self.models.is_primitive(value.kind):
            raise self.fail(f"'{target.element}' is a {kind.name}, not a {value.kind.name}", target.place)
        get = converted(value, kind.name, convert)
        already = _ALREADY.get(kind.name)
        if value.kind.is_v2 or value.kind == STRING or already is None:
            return get
        plain = value.get

        def keep_or_convert(frame: Frame) -> Any:
            found = plain(frame)
            return found if type(found) in already else get(frame)

        return keep_or_convert

    def _literal(self, target: Target, value: Value, kind: Kind, convert: Callable[[str], Any]) -> Get:
        result = convert(as_text(value.constant) or "")
        if result is None:
            raise self.fail(f"{value.constant!r} is no {kind.name}", target.place)
        return lambda frame: result

    # ------------------------------------------------------------------------------------- simple rules

    def simple(self, target: Target, item: Variable) -> Act:
        """`src.a -> tgt.b`: by the default group of the two types, else a copy."""
        context = self.rules.variable(target.context, self.scope, target.place)
        member = self._member(context, target)
        compiler, unit = self.rules.compiler, self.rules.unit
        for kind in self._simple_kinds(member, item):
            found = compiler.typed_group(unit, item.kind, kind)
            if found is not None:
                return self._simple_call(target, context, member, kind, item, found)
        copy = Target(
            target.context,
            target.element,
            transform="copy",
            parameters=(Parameter("id", self.rule.sources[0].variable),),
            list_modes=target.list_modes,
            place=target.place,
        )
        return self.action(copy, 0)

    def _simple_kinds(self, member: Member | None, item: Variable) -> list[Kind]:
        if not item.kind.is_known:
            return []
        if member is None:
            return [UNKNOWN]
        same = [kind for kind in member.kinds if kind.name == item.kind.name]
        return same + [kind for kind in member.kinds if kind not in same]

    def _simple_call(
        self, target: Target, context: Variable, member: Member | None, kind: Kind, item: Variable, found: Any
    ) -> Act:
        from ipf.mapping.rules import invocation

        content, group = found
        made = self.scope.declare("", kind, is_source=False)
        if self.models.is_primitive(kind):
            self._close_primitive(target, context, member, kind, made.slot)
            close = self.closers.pop()
            begin: Act = _new_object(made.slot)
        else:
            begin, close = _keep(maker(self.models, member, target.element, kind, context.slot), made.slot), _nothing
        code = self.rules.compiler.code(content, group, [item.kind, kind])
        values = [Value(lambda frame: None, one.kind, slot=one.slot) for one in (item, made)]
        call = invocation(code, values)

        def act(frame: Frame) -> None:
            begin(frame)
            call(frame)
            close(frame)

        return act


def _opens(rules: tuple[Rule, ...], dependents: tuple[Dependent, ...], name: str) -> bool:
    passed = Parameter("id", name)
    if any(passed in one.parameters for one in dependents):
        return True
    return any(
        any(target.context == name for target in rule.targets) or _opens(rule.rules, rule.dependents, name)
        for rule in rules
    )


def _nothing(frame: Frame) -> None:
    """An action that does nothing."""


def _new_object(slot: int) -> Act:
    def act(frame: Frame) -> None:
        frame[slot] = {}

    return act


def _keep(make: Make, slot: int) -> Act:
    def act(frame: Frame) -> None:
        frame[slot] = make(frame)

    return act


def _placed_maker(member: Member, mode: str, parent: int) -> Make:
    place = list_placer(member, mode)

    def make(frame: Frame) -> dict[str, Any]:
        made: dict[str, Any] = {}
        place(frame, frame[parent], made)
        frame[0].created.append((frame[parent], member.key, made))
        return made

    return make


def _plain(value: Value) -> Get:
    """The value as JSON: an HL7 v2 node as its text."""
    get = value.get
    if not value.kind.is_v2:
        return lambda frame: found if type(found := get(frame)) in (dict, list, bool, int) else _json(found)
    return lambda frame: get(frame).text


def _json(value: Any) -> Any:
    return value if isinstance(value, (Decimal, float)) else as_text(value)


def _place(place: Any, parent: int, get: Get) -> Act:
    def act(frame: Frame) -> None:
        value = get(frame)
        if value is not None:
            place(frame, frame[parent], value)

    return act


def _store_constant(store: Store, parent: int, value: Any) -> Act:
    def act(frame: Frame) -> None:
        store(frame[parent], value)

    return act


def _store_computed(store: Store, parent: int, get: Get) -> Act:
    def act(frame: Frame) -> None:
        value = get(frame)
        if value is not None:
            store(frame[parent], value)

    return act


def _store_reference(store: Store, parent: int, value: Value, kind: Kind, key: str) -> Act:
    """A reference to a resource of this run, remembered so that it can be rewritten or dropped with its resource."""
    get, resource, whole = value.get, value.slot, kind.name == "Reference"

    def act(frame: Frame) -> None:
        text = get(frame)
        if text is None:
            return
        owner = frame[parent]
        holder = {"reference": text} if whole else owner
        store(owner, holder if whole else text)
        if type(frame[resource]) is dict:
            frame[0].references.append((holder, "reference" if whole else key, frame[resource]))
        else:
            frame[0].loose_references = True
        if whole:
            frame[0].created.append((owner, key, holder))

    return act


def _primitive_closer(parent: int, slot: int, key: str, store: Store, *, many: bool) -> Act:
    """Put a primitive that was kept aside where it belongs, its extensions beside it under `_key`."""
    beside = "_" + key

    def close(frame: Frame) -> None:
        held, owner = frame[slot], frame[parent]
        value = held.pop("value", None)
        if value is None and not held:
            return
        if not many:
            if value is not None:
                store(owner, value)
            if held:
                owner[beside] = held
                frame[0].created.append((owner, beside, held))
            return
        values = owner.setdefault(key, [])
        values.append(value)
        if held:
            extras = owner.setdefault(beside, [])
            extras.extend([None] * (len(values) - len(extras) - 1))
            extras.append(held)

    return close
