"""Nodes of the manifest to values; a mistake becomes a finding with JSON pointer and line."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ipf.vendor_profiles.archive import MANIFEST
from ipf.vendor_profiles.findings import Findings
from ipf.vendor_profiles.yaml_tree import Mapping, Node, Scalar, Sequence, texts


class Parser:
    """Nodes to values; a mistake becomes a finding, and the value a harmless default."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings

    def error(self, node: Node, message: str) -> None:
        self._findings.error(MANIFEST, node.pointer, message, node.line)

    def warning(self, node: Node, message: str) -> None:
        self._findings.warning(MANIFEST, node.pointer, message, node.line)

    def known(self, node: Mapping, names: tuple[str, ...]) -> None:
        for name, value in node.items.items():
            if name not in names:
                message = f"is not a known key here; known are {', '.join(names)}"
                self._findings.error(MANIFEST, value.pointer, message, node.lines[name])

    def required(self, node: Mapping, name: str) -> Node | None:
        found = node.items.get(name)
        if found is None:
            self._findings.error(MANIFEST, f"{node.pointer}/{name}", "is missing", node.line)
        return found

    def mapping(self, node: Node | None) -> Mapping | None:
        if node is not None and not isinstance(node, Mapping):
            self.error(node, "must be a map")
            return None
        return node

    def mappings(self, node: Node | None) -> Iterator[Mapping]:
        """The maps of a list."""
        if isinstance(node, Sequence):
            for one in node.items:
                found = self.mapping(one)
                if found is not None:
                    yield found
        elif node is not None and not (isinstance(node, Scalar) and node.is_null):
            self.error(node, "must be a list")

    def text(self, node: Node | None) -> str:
        if node is None:
            return ""
        if not isinstance(node, Scalar) or node.is_null or not node.text.strip():
            self.error(node, "must be a text")
            return ""
        return node.text.strip()

    def texts(self, node: Node | None) -> tuple[str, ...]:
        if node is None:
            return ()
        if isinstance(node, Mapping):
            self.error(node, "must be a list of texts")
            return ()
        return tuple(self.text(one) for one in texts(node))

    def matching(self, node: Node | None, pattern: re.Pattern[str], expected: str) -> str:
        found = self.text(node)
        if node is not None and found and not pattern.fullmatch(found):
            self.error(node, f"expected {expected}")
        return found
