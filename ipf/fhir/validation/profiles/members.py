"""Adds the children of a snapshot node to an object schema as JSON members: choices by type, lists, slices."""

from __future__ import annotations

from ipf.fhir.validation.checks.primitives import PRIMITIVES
from ipf.fhir.validation.findings import Check, Json
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
    for declared in node.types or [{"code": "BackboneElement"}]:
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
    own = next((one for one in node.types if one["code"] == declared["code"]), declared)
    return tree.value(node, own)


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


def _slicer(tree: SnapshotTree, node: Node, hosts: frozenset[str], element_path: str) -> Slicer:
    slicing = node.element.get("slicing", {})
    declared = (node.types or [{"code": "BackboneElement"}])[0]
    unsliced = Node(node.element, node.name, node.children)
    other = _check(tree, unsliced, declared, hosts)
    slices = []
    for one in node.slices:
        own = (one.types or [declared])[0]
        matches = discriminate(tree, one, slicing.get("discriminator", ()))
        slices.append(Slice(one.element["sliceName"], one.least, one.most, matches, _check(tree, one, own, hosts)))
    return slicer(slices, other, slicing.get("rules", "open"), slicing.get("ordered", False), element_path)
