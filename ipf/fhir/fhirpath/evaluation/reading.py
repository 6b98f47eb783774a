"""Reading elements from JSON by the definitions: the steps of a path.

The data may be invalid: a list where one item belongs, null in a list, a text where an object belongs.  Each reader
gives what is there; what does not have the form of its type becomes a FhirNode, which has no elements.
Source: https://hl7.org/fhir/R4/json.html
"""

from __future__ import annotations

from collections.abc import Mapping

from ipf.fhir.fhirpath.evaluation.code import Code, Run, itself, nothing
from ipf.fhir.fhirpath.evaluation.context import FEW, Context
from ipf.fhir.fhirpath.items.model import RESOURCE_ROOTS, Model
from ipf.fhir.fhirpath.items.nodes import (
    SCALARS,
    FhirNode,
    Items,
    append_choice,
    append_typed,
    member,
    resource_type,
    wrapped,
)


def path(source: Code, names: tuple[str, ...], model: Model) -> Code:
    """`source.name.name`.

    From where the type depends on the data (resources, choices of types), the rest is compiled for each type.
    """
    for at, name in enumerate(names):
        kind, rest = source.kind, names[at + 1 :]
        if kind in RESOURCE_ROOTS:
            return Code(_by_resource(source.run, names[at:], model), pure=source.pure)
        step = None if kind is None or model.is_primitive(kind) else model.step(kind, name)
        if step is not None and step.choices:
            return Code(_by_choice(source.run, step.choices, rest, model), pure=source.pure)
        if step is not None and step.type is not None:
            source = typed(source, step.key, step.type, model)
        elif kind is not None and model.is_primitive(kind):
            source = _of_primitive(source.run, name, kind)
        else:
            source = _untyped(source.nodes(), name, model)
    return source


def typed(source: Code, key: str, kind: str, model: Model) -> Code:
    """The property `key`, of type `kind`, of JSON objects."""
    read = _primitives if model.is_primitive(kind) else _objects
    return Code(read(source.run, key, kind), kind, pure=source.pure)


def _untyped(source: Run, name: str, model: Model) -> Code:
    return Code(lambda context, this: _counted_member(context, source(context, this), name, model))


def _counted_member(context: Context, items: Items, name: str, model: Model) -> Items:
    """`member`; reading an item counts once, and each item found."""
    context.spend_on_items(items)
    return context.spend_on_items(member(items, name, model))


def _objects(source: Run, key: str, kind: str) -> Run:
    at_focus = source is itself

    def run(context: Context, this: Items) -> Items:
        found: Items = []
        items = this if at_focus else source(context, this)
        for each in items:
            value = each.get(key)
            if value is None:
                continue
            if type(value) is dict:
                found.append(value)
            elif type(value) is list:
                for one in value:
                    if type(one) is dict:
                        found.append(one)
                    elif one is not None:
                        found.append(FhirNode(one, kind))
            else:
                found.append(FhirNode(value, kind))
        if len(items) > FEW or len(found) > FEW:
            context.spend(max(len(items), len(found)))
        return found

    return run


def _primitives(source: Run, key: str, kind: str) -> Run:
    sibling, at_focus = "_" + key, source is itself

    def run(context: Context, this: Items) -> Items:
        found: Items = []
        items = this if at_focus else source(context, this)
        for each in items:
            value = each.get(key)
            if sibling in each:
                append_typed(found, value, each[sibling], kind)
            elif type(value) in SCALARS:
                found.append(value)
            elif type(value) is list:
                for one in value:
                    if type(one) in SCALARS:
                        found.append(one)
                    elif one is not None:
                        found.append(FhirNode(one, kind))
            elif value is not None:
                found.append(FhirNode(value, kind))
        if len(items) > FEW or len(found) > FEW:
            context.spend(max(len(items), len(found)))
        return found

    return run


def _by_choice(source: Run, choices: Mapping[str, str], rest: tuple[str, ...], model: Model) -> Run:
    """An element with a choice of types, and what follows it for each type."""
    readers: dict[str, Run] = {}
    at_focus = source is itself

    def reader(key: str) -> Run:
        found = readers[key] = path(typed(Code(itself), key, choices[key], model), rest, model).nodes()
        return found

    def run(context: Context, this: Items) -> Items:
        found: Items = []
        for each in context.spend_on_items(this if at_focus else source(context, this)):
            if type(each) is not dict:
                continue
            if not rest:
                append_choice(found, each, choices)
            else:
                for key in each:
                    if key in choices:
                        found += (readers.get(key) or reader(key))(context, [each])
                    elif key < "a" and key[:1] == "_" and key[1:] in choices and key[1:] not in each:
                        found += (readers.get(key[1:]) or reader(key[1:]))(context, [each])
        return context.spend_on_items(found)

    return run


def _by_resource(source: Run, names: tuple[str, ...], model: Model) -> Run:
    """A path from resources of any type, for each type."""
    readers: dict[str, Run] = {}

    def run(context: Context, this: Items) -> Items:
        found: Items = []
        for each in context.spend_on_items(source(context, this)):
            kind = resource_type(each) if type(each) is dict else None
            if kind is not None and model.is_resource(kind):
                if kind not in readers:
                    readers[kind] = path(Code(itself, kind), names, model).nodes()
                found += readers[kind](context, [each])
            else:
                found += _members(wrapped([each], "Resource"), names, model)
        return context.spend_on_items(found)

    return run


def _members(items: Items, names: tuple[str, ...], model: Model) -> Items:
    for name in names:
        items = member(items, name, model)
    return items


def _values(items: Items) -> Items:
    """Primitives without id and extensions; those that have no value are left out."""
    values = [one.value if type(one) is FhirNode else one for one in items]
    return [one for one in values if type(one) in SCALARS]


def _of_primitive(source: Run, name: str, primitive: str) -> Code:
    """`value`, `id` and `extension` of a primitive."""
    if name == "value":
        return Code(lambda context, this: _values(context.spend_on_items(source(context, this))), primitive)
    if name not in ("id", "extension"):
        return Code(nothing)
    kind = "string" if name == "id" else "Extension"

    def run(context: Context, this: Items) -> Items:
        found: Items = []
        for each in context.spend_on_items(source(context, this)):
            if type(each) is FhirNode and type(each.extra) is dict:
                append_typed(found, each.extra.get(name), None, kind)
        return found

    return Code(run, kind)
