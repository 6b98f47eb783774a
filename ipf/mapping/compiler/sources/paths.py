"""The source side of a rule: functions that find the elements of an item.

A step from an item to its element is chosen at compile time: HL7 v2 nodes have children, JSON objects have keys, and
items of unknown kind are inspected at run time.  Items are not copied; the cost is linear in their number.

Source: https://hl7.org/fhir/R5/mapping-language.html#7.7.0.7 (source cardinality, list modes, where, check, log).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any

from ipf.fhir.fhirpath.items.nodes import FhirNode
from ipf.mapping.compiler.kinds import UNKNOWN, V2, Kind, Member
from ipf.mapping.compiler.models import Models
from ipf.mapping.compiler.v2 import children
from ipf.mapping.runtime.run import Frame

Items = Sequence[Any]
Fetch = Callable[[Frame], Items]
Walk = Callable[[Any], Items]

_NO_ITEMS: tuple[Any, ...] = ()


def compile_path(models: Models, kind: Kind, path: str, wanted: Kind | None) -> tuple[Walk, Kind]:
    """`a.b.c` from an item of `kind`: a function that finds it, and the kind of the result.

    `wanted`: the type written in the map (`: Quantity`), which selects one of a choice of types or of resources.
    """
    steps, found = compile_steps(models, kind, path, wanted)
    walk = steps[0][1]
    for _, further in steps[1:]:
        walk = _join(walk, further)
    return walk, found


def compile_steps(models: Models, kind: Kind, path: str, wanted: Kind | None) -> tuple[list[tuple[str, Walk]], Kind]:
    """The same as names and functions, one for each step."""
    names = path.split(".")
    steps: list[tuple[str, Walk]] = []
    for index, name in enumerate(names, start=1):
        walk, kind = _step(models, kind, name, wanted if index == len(names) else None)
        steps.append((name, walk))
    return steps, kind


def _join(first: Walk, second: Walk) -> Walk:
    return lambda item: [inner for outer in first(item) for inner in second(outer)]


def _step(models: Models, kind: Kind, name: str, wanted: Kind | None) -> tuple[Walk, Kind]:
    if kind.is_v2:
        return children(name), wanted or V2
    member = models.member(kind, name)
    if member is not None:
        return _member(models, member, wanted)
    if name == "value" and models.is_primitive(kind):
        return _value, kind
    return _by_content(name, wanted), wanted or UNKNOWN


def _value(item: Any) -> Items:
    return _of_extended(item, "value") if type(item) is FhirNode else (item,)


def _member(models: Models, member: Member, wanted: Kind | None) -> tuple[Walk, Kind]:
    if member.is_choice and wanted is not None:
        return _property(member.keys.get(wanted.name, member.key)), wanted
    if member.is_choice:
        return _choice(tuple(member.keys.values())), UNKNOWN
    kind = member.kinds[0] if len(member.kinds) == 1 else UNKNOWN
    if wanted is not None and models.is_resource(wanted):
        return _resources(member.key, wanted.name), wanted
    if kind.name in ("Resource", "DomainResource"):
        kind = UNKNOWN
    return _property(member.key), kind


def _property(name: str) -> Walk:
    extension_key = "_" + name

    def walk(item: Any) -> Items:
        if type(item) is not dict:
            return _of_extended(item, name) if type(item) is FhirNode else _NO_ITEMS
        value = item.get(name)
        if extension_key in item:
            return _extended(value, item[extension_key])
        if value is None:
            return _NO_ITEMS
        return value if type(value) is list else (value,)

    return walk


def _extended(value: Any, extra: Any) -> Items:
    """A primitive, or a list of them, with id and extensions from `_name`."""
    values = value if type(value) is list else [] if value is None else [value]
    extras = extra if type(extra) is list else [extra]
    return [
        FhirNode(one, None, more) if type(more) is dict else one
        for one, more in zip_longest(values, extras)
        if one is not None or type(more) is dict
    ]


def _of_extended(item: FhirNode, name: str) -> Items:
    """An element of such a primitive."""
    if name == "value":
        return _NO_ITEMS if item.value is None else (item.value,)
    found = item.extra.get(name)
    return _NO_ITEMS if found is None else found if type(found) is list else (found,)


def _choice(names: tuple[str, ...]) -> Walk:
    walks = [(name, "_" + name, _property(name)) for name in names]

    def walk(item: Any) -> Items:
        for name, extension_key, find in walks:
            if name in item or extension_key in item:
                return find(item)
        return _NO_ITEMS

    return walk


def _resources(name: str, resource_type: str) -> Walk:
    plain = _property(name)
    return lambda item: [one for one in plain(item) if type(one) is dict and one.get("resourceType") == resource_type]


def _by_content(name: str, wanted: Kind | None) -> Walk:
    """An element of an item of unknown kind, found by its content at run time."""
    typed = name + wanted.name[:1].upper() + wanted.name[1:] if wanted is not None else ""
    plain, find_typed = _property(name), _property(typed)

    def walk(item: Any) -> Items:
        if type(item) is FhirNode:
            return _of_extended(item, name)
        if type(item) is dict:
            if typed and (typed in item or "_" + typed in item):
                return find_typed(item)
            found = plain(item)
            return found if found else _any_choice(item, name)
        if hasattr(item, "children"):
            nodes: Items = item.children(name)
            return nodes
        return (item,) if name == "value" and item is not None else _NO_ITEMS

    return walk


def _any_choice(item: dict[str, Any], name: str) -> Items:
    """`value` of an object with `valueQuantity`."""
    length = len(name)
    for key in item:
        plain = key.removeprefix("_")
        if len(plain) > length and plain.startswith(name) and plain[length].isupper():
            return _property(plain)(item)
    return _NO_ITEMS


def first(items: Items) -> Items:
    """List mode `first`."""
    return items[:1]


def last(items: Items) -> Items:
    """List mode `last`."""
    return items[-1:]


def not_first(items: Items) -> Items:
    """List mode `not_first`."""
    return items[1:]


def not_last(items: Items) -> Items:
    """List mode `not_last`."""
    return items[:-1]


LIST_MODES: dict[str, Callable[[Items], Items]] = {
    "first": first,
    "last": last,
    "not_first": not_first,
    "not_last": not_last,
}
"""`only_one` is a check of the compiler, since its failure names the rule."""
