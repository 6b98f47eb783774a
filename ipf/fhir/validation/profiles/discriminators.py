"""Compiles the discriminators of a slice into tests of values.

Source: https://hl7.org/fhir/R4/profiling.html#discriminator
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from ipf.fhir.profiles.rows import canonical
from ipf.fhir.validation.checks.values import value_test
from ipf.fhir.validation.findings import Json, Run
from ipf.fhir.validation.interfaces import SnapshotTree
from ipf.fhir.validation.profiles.objects import SlicedValue
from ipf.fhir.validation.profiles.slicing import Matches, at_path, every, exists, has_value, resource_is
from ipf.fhir.validation.tree import Node

_EXTENSION = re.compile(r"extension\(['\"]([^'\"]+)['\"]\)")
_STEP = re.compile(r"extension\([^)]*\)|[^.]+")


def discriminate(tree: SnapshotTree, node: Node, discriminators: Iterable[Json]) -> Matches:
    """The test that a value belongs to the slice `node`; without discriminators it cannot be decided."""
    tests = [_test(tree, node, one["type"], one["path"]) for one in discriminators]
    return every(tests) if tests else lambda item, run: None


def slices_by_name(tree: SnapshotTree, nodes: Iterable[Node]) -> dict[str, list[tuple[Node, Matches]]]:
    """The slices of these nodes by name, each with the test that a value belongs to it."""
    found: dict[str, list[tuple[Node, Matches]]] = {}
    for node in nodes:
        discriminators = node.element.get("slicing", {}).get("discriminator", ())
        for one in node.slices:
            found.setdefault(one.element["sliceName"], []).append((one, discriminate(tree, one, discriminators)))
    return found


def _test(tree: SnapshotTree, node: Node, kind: str, path: str) -> Matches:
    if path == "url" and node.types and node.types[0]["code"] == "Extension":
        return _by_url(node)
    of_type = node.types[0]["code"] if len(node.types) == 1 else None
    focus = node.element["path"] if of_type in ("BackboneElement", "Element") else of_type
    if kind == "type":
        return _by_type(tree, node, path, focus)
    if kind == "profile":
        return _by_profile(tree, node, path, focus)
    target = _target(tree, node, path)
    values = at_path(path, focus)
    if kind == "exists":
        return exists(values, target is None or target.most != 0)
    test = _value(tree, target) if target is not None else None
    return has_value(values, test) if test is not None else lambda item, run: None


def _by_url(node: Node) -> Matches:
    profiles = node.types[0].get("profile", ())
    url_node = node.children.get("url")
    fixed = url_node.value("fixed") if url_node is not None else None
    urls = {one.partition("|")[0] for one in profiles} | ({fixed[1]} if fixed is not None else set())
    return lambda item, run: type(item.value) is dict and any(item.value.get("url") == url for url in urls)


def _value(tree: SnapshotTree, node: Node) -> Callable[[Any], bool | None] | None:
    """The condition on a value: fixed, pattern, required binding, or conditions on the elements below."""
    test = value_test(node)
    if test is not None:
        return test
    below = [(name, inner) for name, child in node.children.items() if (inner := _value(tree, child)) is not None]
    if below:
        return _all_below(below)
    binding = node.element.get("binding", {})
    if binding.get("strength") == "required" and "valueSet" in binding:
        return _in_value_set(tree, binding["valueSet"])
    return None


def _all_below(below: list[tuple[str, Callable[[Any], bool | None]]]) -> Callable[[Any], bool | None]:
    def test(value: Any) -> bool | None:
        if type(value) is not dict:
            return False
        results: list[bool | None] = []
        for name, inner in below:
            found = value.get(name)
            several = found if type(found) is list else [] if found is None else [found]
            each = [inner(one) for one in several]
            results.append(True if True in each else None if None in each else False)
        return False if False in results else None if None in results else True

    return test


def _in_value_set(tree: SnapshotTree, url: str) -> Callable[[Any], bool | None]:
    terminology = tree.compiler.terminology

    def test(value: Any) -> bool | None:
        if type(value) is str:
            return terminology.contains(url, None, value)
        codings = value.get("coding", [value]) if type(value) is dict else []
        results = [
            terminology.contains(url, one.get("system"), one["code"])
            for one in (codings if type(codings) is list else ())
            if type(one) is dict and type(one.get("code")) is str and type(one.get("system", "")) is str
        ]
        return True if True in results else None if None in results else False

    return test


def _target(tree: SnapshotTree, node: Node, path: str) -> Node | None:
    """The node at a path below a slice; a missing child is looked up in the profile or the type of its parent."""
    current: Node | None = node
    home = tree
    for step in [] if path == "$this" else _STEP.findall(path):
        if current is None:
            return None
        if step.endswith("resolve()") or step.startswith("ofType("):
            continue
        found = _child(current, step)
        if found is None:
            inner = _tree_of_type(home, current)
            home, found = (inner, _child(inner.root, step)) if inner is not None else (home, None)
        current = found
    return current


def _child(node: Node, step: str) -> Node | None:
    extension = _EXTENSION.fullmatch(step)
    if extension is None:
        return node.children.get(step) or node.children.get(step + "[x]")
    parent = node.children.get("extension")
    for one in parent.slices if parent is not None else ():
        if any(profile.partition("|")[0] == extension[1] for each in one.types for profile in each.get("profile", ())):
            return one
    return None


def _tree_of_type(tree: SnapshotTree, node: Node) -> SnapshotTree | None:
    types = node.types
    if len(types) != 1:
        return None
    profiles = types[0].get("profile") or types[0].get("targetProfile") or [types[0]["code"]]
    return tree.compiler.tree(canonical(profiles[0]))


def _by_type(tree: SnapshotTree, node: Node, path: str, focus: str | None) -> Matches:
    target = _target(tree, node, path)
    resolves = path.endswith("resolve()")
    kinds: set[str] = set()
    for declared in target.types if target is not None else ():
        if resolves:
            kinds |= {tree.compiler.base_type(canonical(one)) or "" for one in declared.get("targetProfile", ())}
        else:
            kinds.add(declared["code"])
    if path == "$this" and node.name.endswith("[x]"):
        stem = node.name[:-3]
        names = {stem + kind[0].upper() + kind[1:] for kind in kinds}
        return lambda item, run: item.name in names
    if target is not None and target.name.endswith("[x]"):
        return _by_member(path, target.name[:-3], kinds, focus)
    return resource_is(at_path(path, focus), frozenset(kinds))


def _by_member(path: str, stem: str, kinds: set[str], focus: str | None) -> Matches:
    names = {stem + kind[0].upper() + kind[1:] for kind in kinds}
    head = path.rpartition(".")[0]
    parents = at_path(head, focus) if head else at_path("$this", focus)
    return lambda item, run: any(type(one) is dict and not names.isdisjoint(one) for one in parents(item, run))


def _by_profile(tree: SnapshotTree, node: Node, path: str, focus: str | None) -> Matches:
    target = _target(tree, node, path)
    profiles: list[str] = []
    for declared in target.types if target is not None else ():
        profiles += declared.get("targetProfile" if path.endswith("resolve()") else "profile", [])
    values = at_path(path, focus)

    def matches(item: SlicedValue, run: Run) -> bool | None:
        found = [one for one in values(item, run) if type(one) is dict]
        if not found:
            return None if type(item.value) is dict and "reference" in item.value else False
        results = [tree.compiler.validator.conforms(one, profile, run) for one in found for profile in profiles]
        return True if True in results else None if None in results or not results else False

    return matches
