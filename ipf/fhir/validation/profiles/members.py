"""Adds the children of a snapshot node to an object schema as JSON members: choices by type, lists, slices."""

from __future__ import annotations

from typing import Any

from ipf.fhir.profiles.rows import canonical
from ipf.fhir.validation.checks.primitives import PRIMITIVES
from ipf.fhir.validation.findings import Check, Json, Run
from ipf.fhir.validation.interfaces import SnapshotTree
from ipf.fhir.validation.profiles.discriminators import discriminate
from ipf.fhir.validation.profiles.objects import Member, ObjectSchema, Slicer
from ipf.fhir.validation.profiles.slicing import Slice, slicer
from ipf.fhir.validation.tree import Node, type_name

_MEMBERS_OF_PRIMITIVES = frozenset(("value",))


def add_member(tree: SnapshotTree, schema: ObjectSchema, node: Node, hosts: frozenset[str]) -> None:
    """Add one element to a schema, under each of its JSON names."""
    stem = node.name.removesuffix("[x]")
    if stem in _MEMBERS_OF_PRIMITIVES and stem == node.name and _is_primitive(tree, node):
        return
    choice = stem != node.name
    by_type = _slices_by_type(node) if choice else {}
    by_value = bool(node.slices) and not by_type
    many = _is_list(node)
    names: list[str] = []
    for declared in merged_types(node):
        kind = type_name(declared, node)
        name = stem + kind[0].upper() + kind[1:] if choice else stem
        slice_node = by_type.get(kind)
        if slice_node is None and by_type and node.element.get("slicing", {}).get("rules") == "closed":
            continue
        check = None if by_value else _check(tree, slice_node or node, declared, hosts)
        schema.members[name] = Member(check, many, f"{stem}.ofType({kind})" if choice else stem, kind in PRIMITIVES)
        names.append(name)
        if slice_node is not None and slice_node.least:
            schema.required.append(((name,), f"{schema.title}.{stem} as {kind}", slice_node.least))
    _add_limits(schema, node, tuple(names), many or choice)
    if by_value:
        schema.sliced.append((tuple(names), _slicer(tree, node, hosts, f"{schema.title}.{stem}")))


def merged_types(node: Node) -> list[Json]:
    """The types of a node, one for each JSON name: a value has to fit one of the declarations of its name.

    A code that is declared several times becomes one with all profiles and targets; none means any.  Several resource
    types of one element become Resource with the profiles of all, a type alone being its own profile.
    """
    by_code: dict[str, list[Json]] = {}
    for declared in node.types or [{"code": "BackboneElement"}]:
        by_code.setdefault(declared["code"], []).append(declared)
    if len(by_code) > 1 and not node.name.endswith("[x]"):
        every = [_with_own_profile(one) for many in by_code.values() for one in many]
        return [_merged([{**one, "code": "Resource"} for one in every])]
    return [_merged(many) for many in by_code.values()]


def _with_own_profile(declared: Json) -> Json:
    if declared.get("profile") or declared["code"] in ("Resource", "DomainResource"):
        return declared
    return {**declared, "profile": [canonical(declared["code"])]}


def _merged(many: list[Json]) -> Json:
    found = dict(many[0])
    for name in ("profile", "targetProfile"):
        lists = [one.get(name) or [] for one in many]
        if len(many) > 1 and name in found:
            found[name] = list(dict.fromkeys(each for one in lists for each in one)) if all(lists) else []
    return found


def _add_limits(schema: ObjectSchema, node: Node, names: tuple[str, ...], several: bool) -> None:
    element_path = f"{schema.title}.{node.name}"
    if node.least:
        schema.required.append((names, element_path, node.least))
    most = min(node.most, 1.0) if node.name.endswith("[x]") else node.most
    if most == 0 or (several and most != float("inf")):
        schema.limited.append((names, element_path, int(most)))


def _is_list(node: Node) -> bool:
    most = node.element.get("base", {}).get("max", node.element.get("max", "1"))
    return most not in ("0", "1")


def _is_primitive(tree: SnapshotTree, node: Node) -> bool:
    """Whether this is the `value` of a primitive, which JSON does not show."""
    owner = node.element.get("base", {}).get("path", node.element["path"]).partition(".")[0]
    return tree.type in PRIMITIVES or owner in PRIMITIVES


def _check(tree: SnapshotTree, node: Node, declared: Json, hosts: frozenset[str]) -> Check:
    plain = not (node.slices or node.children or declared.get("profile"))
    if plain and declared["code"] == "Extension":
        return tree.compiler.extension(node.name == "modifierExtension", hosts)
    own = next((one for one in merged_types(node) if one["code"] == declared["code"]), declared)
    return tree.value(node, own)


def _checked_already(value: Any, extra: Any, location: str, run: Run) -> None:
    """Nothing."""


def _slices_by_type(node: Node) -> dict[str, Node]:
    """The slices of a choice by type, when the only discriminator is the type."""
    discriminators = node.element.get("slicing", {}).get("discriminator", ())
    if not node.slices or not all((one["type"], one["path"]) == ("type", "$this") for one in discriminators):
        return {}
    found: dict[str, Node] = {}
    for one in node.slices:
        for declared in one.types:
            found.setdefault(declared["code"], one)
    return found


def _slicer(
    tree: SnapshotTree, node: Node, hosts: frozenset[str], element_path: str, outer: Json | None = None
) -> Slicer:
    """The slicer of an element, or of a slice in the slicing `outer`, whose values were checked already."""
    slicing = node.element.get("slicing") or {"discriminator": (outer or {}).get("discriminator", ())}
    declared = merged_types(node)[0]
    unsliced = Node(node.element, node.name, node.children)
    other = _check(tree, unsliced, declared, hosts) if outer is None else _checked_already
    slices = []
    for one in node.slices:
        own, name = merged_types(one)[0] if one.types else declared, one.element["sliceName"]
        matches = discriminate(tree, one, slicing.get("discriminator", ()))
        inner = _slicer(tree, one, hosts, element_path, slicing) if one.slices else None
        slices.append(Slice(name, one.least, one.most, matches, _check(tree, one, own, hosts), inner))
    return slicer(slices, other, slicing.get("rules", "open"), slicing.get("ordered", False), element_path)
