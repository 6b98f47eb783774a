"""Compiles profiles into closures: the tree of a snapshot in, one check of a JSON value out.

A type or profile is compiled on first use and cached.  Elements without children of their own use the check of their
type, so that HumanName is compiled once.  Elements that a profile constrains have a schema of their own.

Source: https://hl7.org/fhir/R4/profiling.html
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from ipf.fhir.model.definitions import definitions
from ipf.fhir.profiles.library import Structures
from ipf.fhir.profiles.rows import canonical
from ipf.fhir.profiles.snapshot import SnapshotError
from ipf.fhir.terminology import Terminology
from ipf.fhir.validation.checks.bindings import binding_checks
from ipf.fhir.validation.checks.extensions import extension_check
from ipf.fhir.validation.checks.invariants import invariant
from ipf.fhir.validation.checks.primitives import PRIMITIVES
from ipf.fhir.validation.checks.references import reference_check
from ipf.fhir.validation.checks.repairs import primitive_meant
from ipf.fhir.validation.checks.type_rules import text_rules, type_rules
from ipf.fhir.validation.checks.values import value_checks
from ipf.fhir.validation.findings import Check, Json, Run
from ipf.fhir.validation.interfaces import ResourceValidator
from ipf.fhir.validation.profiles.discriminators import slices_by_name
from ipf.fhir.validation.profiles.members import add_member, merged_types
from ipf.fhir.validation.profiles.objects import ObjectSchema, object_check
from ipf.fhir.validation.profiles.slicing import Matches
from ipf.fhir.validation.tree import Node, build, type_name

_RESOURCES = frozenset(("Resource", "DomainResource"))


class Compiler:
    """All compiled types and profiles of one validator."""

    def __init__(self, structures: Structures, terminology: Terminology, validator: ResourceValidator) -> None:
        self.structures = structures
        self.terminology = terminology
        self.validator = validator
        self._profiles: dict[str, Check | None] = {}
        self._trees: dict[str, Tree | None] = {}
        self._sibling_checks: dict[str, Check] = {}
        self._base_types: dict[str, str | None] = {}

    def profile(self, url: str) -> Check | None:
        """The check of a type or profile; None when it is unknown or its snapshot cannot be generated."""
        if url not in self._profiles:
            tree = self.tree(url)
            self._profiles[url] = tree.check() if tree is not None else None
        return self._profiles[url]

    def lazily(self, url: str) -> Check:
        """As `profile`, compiled on first use.  An unknown profile is reported as a finding."""
        found: list[Check | None] = []

        def check(value: Any, extra: Any, location: str, run: Run) -> None:
            if not found:
                found.append(self.profile(url))
            compiled = found[0]
            if compiled is not None:
                compiled(value, extra, location, run)
            else:
                run.note("not-supported", f"not checked: the profile {url} is unknown to this server", location)

        return check

    def tree(self, url: str) -> Tree | None:
        """The snapshot of a type or profile as a tree."""
        if url not in self._trees:
            try:
                elements = self.structures.snapshot(url)
                self._trees[url] = Tree(self, url, elements) if elements else None
            except (SnapshotError, ValueError):
                self._trees[url] = None
        return self._trees[url]

    def base_type(self, profile: str) -> str | None:
        """The type that a profile constrains; None for an unknown profile."""
        if profile not in self._base_types:
            definition = self.structures.get(profile)
            self._base_types[profile] = definition["type"] if definition is not None else None
        return self._base_types[profile]

    def sibling_check(self, kind: str) -> Check:
        """The check of the sibling property `_name` of a primitive of this type, compiled on first use."""

        def check(value: Any, extra: Any, location: str, run: Run) -> None:
            compiled = self._sibling_checks.get(kind)
            if compiled is None:
                compiled = self._sibling_checks[kind] = self._compile_sibling_check(kind)
            compiled(value, extra, location, run)

        return check

    def _compile_sibling_check(self, kind: str) -> Check:
        tree = self.tree(canonical("Element"))
        if tree is None:
            raise RuntimeError("the type Element is missing from the tables")
        return object_check(tree.schema(tree.root, f"_{kind}", frozenset((kind, "Element"))))

    def extension(self, modifier: bool, hosts: frozenset[str]) -> Check:
        """The check of extensions without a profile."""
        base = self.lazily(canonical("Extension"))
        return extension_check(base, self.structures.get, self.profile, modifier, hosts)


class Tree:
    """The snapshot of one type or profile, for compilation and for discriminators."""

    def __init__(self, compiler: Compiler, url: str, elements: list[Json]) -> None:
        self.compiler = compiler
        self.url = url
        self.root, self.nodes = build(elements)
        self.type = str(self.root.element["path"])
        self._contents: dict[str, Check] = {}

    @cached_property
    def slices(self) -> dict[str, list[tuple[Node, Matches]]]:
        """All slices by name, for `slice()` of FHIRPath."""
        return slices_by_name(self, self.nodes.values())

    def check(self) -> Check:
        """The check of a value of this type or profile."""
        hosts = frozenset((self.type, *_ancestors(self.type)))
        if self.type in PRIMITIVES:
            return self.primitive(self.root, self.type)
        schema = self.schema(self.root, self.type, hosts)
        schema.checks += value_checks(self.root)
        return object_check(schema)

    def schema(self, node: Node, kind: str, hosts: frozenset[str]) -> ObjectSchema:
        """The schema of an object at this node, with its invariants."""
        schema = ObjectSchema(node.element["path"] if "." in node.element["path"] else self.type)
        schema.resource = kind in definitions().resource_types
        for child in node.children.values():
            add_member(self, schema, child, hosts)
        schema.checks += type_rules(kind, self.compiler.terminology)
        schema.checks += self.invariants(node, kind, inherited=False)
        return schema

    def invariants(self, node: Node, kind: str, inherited: bool) -> list[Check]:
        """The checks of a node's constraints.  `inherited`: without those of its type, which the type's check has."""
        rules = {one["key"]: one for one in self.compiler.structures.rules(canonical(kind))}
        own = {one["key"]: one for one in node.element.get("constraint", ())}
        chosen = {key: one for key, one in own.items() if key not in rules} if inherited else {**rules, **own}
        path = node.element["path"] if kind in ("BackboneElement", "Element") else kind
        found = (invariant(one, path, self.compiler.validator.host) for one in chosen.values())
        return [one for one in found if one is not None]

    def value(self, node: Node, declared: Json) -> Check:
        """The check of one value of a node that has this type."""
        kind = type_name(declared, node)
        if kind in PRIMITIVES:
            return self.primitive(node, kind)
        if "contentReference" in node.element and not node.children:
            return self.content(node)
        checks = [*value_checks(node), *self.bound(node, kind)]
        if kind == "Reference":
            checks.append(
                reference_check(
                    declared.get("targetProfile", ()), self.compiler.base_type, self.compiler.validator.conforms
                )
            )
        profiles = [canonical(one) for one in declared.get("profile", ())]
        if kind in _RESOURCES:
            return self.resource(profiles, (), checks)
        if kind in definitions().resource_types:
            inner = [_of_type(kind, self.schema(node, kind, self.hosts(node, kind)))] if node.children else []
            return self.resource(profiles or [canonical(kind)], inner, checks)
        if node.children:
            schema = self.schema(node, kind, self.hosts(node, kind))
            schema.checks += checks
            return _all_checks(object_check(schema), [self.any_profile(profiles, kind)] if profiles else ())
        base = self.any_profile(profiles, kind) if profiles else self.typed(node, kind)
        return _all_checks(base, [*checks, *self.invariants(node, kind, inherited=True)])

    def typed(self, node: Node, kind: str) -> Check:
        """The check of a type without profiles."""
        if kind == "Extension":
            modifier = node.name == "modifierExtension"
            parent = node.element["path"].rpartition(".")[0]
            return self.compiler.extension(modifier, frozenset((parent, *_ancestors(parent))))
        return self.lazily(canonical(kind))

    def lazily(self, url: str) -> Check:
        """The check of another type or profile."""
        return self.compiler.lazily(url)

    def any_profile(self, profiles: Sequence[str], kind: str) -> Check:
        """The check that a value of a type conforms to at least one of the profiles."""
        if len(profiles) == 1:
            return self.lazily(profiles[0])
        base = self.lazily(canonical(kind))

        def check(value: Any, extra: Any, location: str, run: Run) -> None:
            chosen = self.fitting(value, profiles, run) if type(value) is dict else None
            (base if chosen is None else self.lazily(chosen))(value, extra, location, run)

        return check

    def fitting(self, value: Json, profiles: Sequence[str], run: Run) -> str | None:
        """The first of the profiles that a value conforms to, else one that is unknown, else the first of its type."""
        conforms, kind = self.compiler.validator.conforms, value.get("resourceType")
        possible = [one for one in profiles if type(kind) is not str or self._may_be(kind, one)]
        results = {one: conforms(value, one, run) for one in possible}
        for wanted in (True, None, False):
            for one, result in results.items():
                if result is wanted:
                    return one
        return None

    def _may_be(self, kind: str, profile: str) -> bool:
        """Whether a resource of this type may conform to a profile; of an unknown profile it may."""
        of_type = self.compiler.base_type(profile)
        return of_type is None or definitions().is_a(kind, of_type)

    def resource(self, profiles: Sequence[str], inner: Sequence[Check], checks: Sequence[Check]) -> Check:
        """The check of a nested resource against its type and the profiles, of which one has to fit.

        `inner`: rules of this profile for its elements; `checks`: for the element that it is.
        """
        validate_nested = self.compiler.validator.validate_nested

        def check(value: Any, extra: Any, location: str, run: Run) -> None:
            chosen = profiles
            if len(profiles) > 1 and type(value) is dict:
                found = self.fitting(value, profiles, run)
                chosen = () if found is None else (found,)
                if found is None:
                    kinds = sorted({str(self.compiler.base_type(one)) for one in profiles})
                    run.error("structure", f"a resource of type {' or '.join(kinds)} is expected", location)
            validate_nested(value, location, run, chosen, inner)
            for one in checks:
                one(value, extra, location, run)

        return check

    def content(self, node: Node) -> Check:
        """The check of the element that a content reference names, compiled on first use."""
        target = node.element["contentReference"].rpartition("#")[2]
        found = self._contents

        def check(value: Any, extra: Any, location: str, run: Run) -> None:
            compiled = found.get(target)
            if compiled is None:
                other = self.nodes[target]
                compiled = found[target] = self.value(other, merged_types(other)[0])
            compiled(value, extra, location, run)

        return check

    def primitive(self, node: Node, kind: str) -> Check:
        """The check of a primitive and of its sibling property `_name`."""
        check_form = PRIMITIVES[kind]
        sibling = self.compiler.sibling_check(kind)
        if "extension" in node.children and node is not self.root:
            sibling = object_check(self.schema(node, "Element", self.hosts(node, kind)))
        checks = [*value_checks(node), *self.bound(node, kind), *self.invariants(node, kind, inherited=False)]
        checks += [*type_rules(kind, self.compiler.terminology), *text_rules(kind)]
        requires_sibling = any(child.least for name, child in node.children.items() if name != "value")
        if requires_sibling:
            checks.append(_require_sibling(sibling))

        def check(value: Any, extra: Any, location: str, run: Run) -> None:
            if value is not None:
                error = check_form(value)
                if error is not None:
                    run.error("invalid", error, location, lambda: primitive_meant(kind, value))
                    return
            elif type(extra) is not dict or not extra.get("extension"):
                run.error("invariant", "ele-1: an element must have a value or children", location)
                return
            if extra is not None:
                sibling(extra, None, location, run)
            for one in checks:
                one(value, extra, location, run)

        return check

    def bound(self, node: Node, kind: str) -> list[Check]:
        """The checks of a node's binding."""
        declared = node.element.get("binding")
        return binding_checks(declared, kind, self.compiler.terminology) if declared else []

    def hosts(self, node: Node, kind: str) -> frozenset[str]:
        """The names of an element in extension contexts: its path, its base path, its types."""
        base = node.element.get("base", {}).get("path", "")
        return frozenset(
            one.removesuffix("[x]") for one in (node.element["path"], base, kind, *_ancestors(kind)) if one
        )


def _ancestors(kind: str) -> list[str]:
    found: list[str] = []
    base = definitions().base(kind)
    while base is not None:
        found.append(base)
        base = definitions().base(base)
    return found


def _all_checks(base: Check, more: Sequence[Check]) -> Check:
    """A check that runs all of these checks in order."""
    if not more:
        return base
    if len(more) == 1:
        (only,) = more

        def both(value: Any, extra: Any, location: str, run: Run) -> None:
            base(value, extra, location, run)
            only(value, extra, location, run)

        return both

    def check(value: Any, extra: Any, location: str, run: Run) -> None:
        base(value, extra, location, run)
        for one in more:
            one(value, extra, location, run)

    return check


def _of_type(kind: str, schema: ObjectSchema) -> Check:
    """The check of a resource by a schema of its type; another type is reported elsewhere."""
    of_schema = object_check(schema)

    def check(value: Any, extra: Any, location: str, run: Run) -> None:
        if value.get("resourceType") == kind:
            of_schema(value, extra, location, run)

    return check


def _require_sibling(sibling: Check) -> Check:
    """The check of a primitive that must have an extension because a profile requires one."""

    def check(value: Any, extra: Any, location: str, run: Run) -> None:
        if extra is None:
            sibling({"id": "-"}, None, location, run)

    return check
