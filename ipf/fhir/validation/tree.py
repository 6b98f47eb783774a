"""The elements of a snapshot as a tree: children by name, slices under the sliced element.

Source: https://hl7.org/fhir/R4/elementdefinition.html#id
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
FHIR_TYPE = "http://hl7.org/fhir/StructureDefinition/structuredefinition-fhir-type"


@dataclass(slots=True)
class Node:
    """One element of a snapshot.  `name`: the last part of its path (`value[x]`); `slices` in order."""

    element: Json
    name: str
    children: dict[str, Node] = field(default_factory=dict)
    slices: list[Node] = field(default_factory=list)

    @property
    def id(self) -> str:
        """The element's id."""
        return str(self.element.get("id", self.element["path"]))

    @property
    def types(self) -> list[Json]:
        """The types: `code`, optionally `profile` and `targetProfile`."""
        return list(self.element.get("type", ()))

    @property
    def least(self) -> int:
        """The minimum cardinality."""
        return int(self.element.get("min", 0))

    @property
    def most(self) -> float:
        """The maximum cardinality, infinite for `*`."""
        most = self.element.get("max", "*")
        return float("inf") if most == "*" else int(most)

    def value(self, start: str) -> tuple[str, Any] | None:
        """`fixed[x]`, `pattern[x]` ... as (type, value)."""
        for name, value in self.element.items():
            if name.startswith(start) and name != start and name[len(start)].isupper():
                return name[len(start) :], value
        return None

    def descend(self, path: str) -> Node | None:
        """The node at a path of names below this one; the name of a choice may lack `[x]`."""
        node: Node | None = self
        for part in path.split("."):
            if node is not None:
                node = node.children.get(part) or node.children.get(part + "[x]")
        return node


def build(elements: Iterable[Json]) -> tuple[Node, dict[str, Node]]:
    """The root node, and all nodes by id.  ValueError for an empty snapshot."""
    nodes: dict[str, Node] = {}
    root: Node | None = None
    for element in elements:
        id = element["id"]
        node = nodes[id] = Node(element, element["path"].rpartition(".")[2])
        if root is None:
            root = node
            continue
        parent_id, dot, last = id.rpartition(".")
        sliced = nodes.get(f"{parent_id}{dot}{_unsliced(last)}") if ":" in last else None
        parent = nodes.get(parent_id)
        if sliced is not None:
            sliced.slices.append(node)
        elif parent is not None:
            parent.children[node.name] = node
    if root is None:
        raise ValueError("the snapshot has no elements")
    return root, nodes


def _unsliced(last: str) -> str:
    """The element or slice that a slice divides: `component` of `component:a`, `component:a` of `component:a/b`."""
    name, _, slices = last.partition(":")
    outer = slices.rpartition("/")[0]
    return f"{name}:{outer}" if outer else name


def type_name(declared: Json, node: Node) -> str:
    """The FHIR type name of a declared type; System.String becomes id, string or uri."""
    code = str(declared["code"])
    if not code.startswith("http://hl7.org/fhirpath/"):
        return code
    if node.element.get("base", {}).get("path") == "Resource.id" or node.element["path"] == "Resource.id":
        return "id"
    for extension in declared.get("extension", ()):
        if extension.get("url") == FHIR_TYPE:
            return str(extension.get("valueUrl", "string"))
    return "string"
