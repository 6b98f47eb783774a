"""The other layout of a manifest, in that of the interface specification.

What arrives: the tree of `manifest.yaml`.  What leaves: the same tree with the keys of the specification; each change
is a note with the pointer and line of the original.  Both layouts may be mixed in one manifest; a value that is
stated in both places is an error.

| other layout | specification |
|---|---|
| `profile.fhirVersions`, `profile.hl7Versions` | `profile.vendor.fhirVersions`, `.hl7Versions` |
| `hl7Versions: [v2.5]` | `[2.5]` |
| `ingest[].config: {...}` | its keys in the item |
| `facilityResolver: acme-msh-4-facility` | `msh-4` |
| `audit.enrichments[]: pv1.7`, `pv1.3.4` | `PV1-7`, `PV1-3.4` |

Folders as `tests` are resolved by `case_files`, since that needs the files of the archive.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from ipf.vendor_profiles.archive import MANIFEST
from ipf.vendor_profiles.findings import Findings
from ipf.vendor_profiles.source_fields import resolver_of
from ipf.vendor_profiles.yaml_tree import Mapping, Node, Scalar, Sequence

_VERSIONS = ("fhirVersions", "hl7Versions")
_NAMED_FIELD = re.compile(r"(?:.*[-._])?(msh[-._]?[3-6])(?:[-._].*)?", re.IGNORECASE)
_DOTTED_FIELD = re.compile(r"([A-Za-z][A-Za-z0-9]{2})\.([1-9][0-9]?)(?:\.([1-9][0-9]?))?")
_VERSION = re.compile(r"[vV](\d.*)")


def in_contract_layout(root: Node, findings: Findings) -> Node:
    """The manifest with the keys of the specification; mistakes of other kinds stay for the parser."""
    if not isinstance(root, Mapping):
        return root
    layout = _Layout(findings)
    changes = {
        "profile": layout.profile,
        "ingest": lambda node: _each(node, layout.ingest_item),
        "audit": layout.audit,
    }
    items = {name: changes[name](node) if name in changes else node for name, node in root.items.items()}
    return replace(root, items=items)


class _Layout:
    """The changes, with their notes."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings

    def profile(self, node: Node) -> Node:
        """Versions belong to the vendor's product."""
        vendor = node.items.get("vendor") if isinstance(node, Mapping) else None
        if not isinstance(node, Mapping) or not isinstance(vendor, Mapping):
            return node
        moved = {name: one for name, one in node.items.items() if name in _VERSIONS}
        vendor = self._merged(vendor, moved, node, "profile.vendor")
        versions = vendor.items.get("hl7Versions")
        if versions is not None:
            vendor = replace(vendor, items=vendor.items | {"hl7Versions": _each(versions, self._version)})
        kept = {name: one for name, one in node.items.items() if name not in moved}
        return replace(node, items=kept | {"vendor": vendor})

    def ingest_item(self, node: Node) -> Node:
        """`config` holds the keys of the item; the resolver is a field of MSH."""
        if not isinstance(node, Mapping):
            return node
        config = node.items.get("config")
        if isinstance(config, Mapping):
            kept = replace(node, items={name: one for name, one in node.items.items() if name != "config"})
            node = self._merged(kept, config.items, config, "the item itself")
        resolver = node.items.get("facilityResolver")
        if isinstance(resolver, Scalar):
            node = replace(node, items=node.items | {"facilityResolver": self._resolver(resolver)})
        return node

    def audit(self, node: Node) -> Node:
        """Source fields are written `PV1-7`."""
        listed = node.items.get("enrichments") if isinstance(node, Mapping) else None
        if not isinstance(node, Mapping) or listed is None:
            return node
        return replace(node, items=node.items | {"enrichments": _each(listed, self._enrichment)})

    def _enrichment(self, node: Node) -> Node:
        if not isinstance(node, Mapping):
            return node
        return replace(node, items={name: self._field(one) for name, one in node.items.items()})

    def _field(self, node: Node) -> Node:
        found = _DOTTED_FIELD.fullmatch(node.text.strip()) if isinstance(node, Scalar) else None
        if not isinstance(node, Scalar) or found is None:
            return node
        field = f"{found[1].upper()}-{found[2]}" + (f".{found[3]}" if found[3] else "")
        return self._replaced(node, field)

    def _resolver(self, node: Scalar) -> Scalar:
        if resolver_of(node.text) == node.text.strip():
            return node
        plain = resolver_of(node.text)
        named = None if plain is not None else _NAMED_FIELD.fullmatch(node.text.strip())
        known = plain if named is None else resolver_of(named[1])
        return node if known is None else self._replaced(node, known)

    def _version(self, node: Node) -> Node:
        found = _VERSION.fullmatch(node.text.strip()) if isinstance(node, Scalar) else None
        return self._replaced(node, found[1]) if isinstance(node, Scalar) and found is not None else node

    def _merged(self, into: Mapping, moved: dict[str, Node], place: Mapping, target: str) -> Mapping:
        """The keys in another place.  A key that is in both is an error, and the one in place stays."""
        for name, node in moved.items():
            line = place.lines.get(name, node.line)
            if name in into.items:
                self._findings.error(MANIFEST, node.pointer, f"is stated in {target} as well", line)
            else:
                self._findings.note(MANIFEST, node.pointer, f"is read as a key of {target}", line)
        lines = {name: place.lines.get(name, 0) for name in moved}
        return replace(into, items=moved | into.items, lines=lines | into.lines)

    def _replaced(self, node: Scalar, text: str) -> Scalar:
        self._findings.note(MANIFEST, node.pointer, f"{node.text} is read as {text}", node.line)
        return replace(node, text=text)


def _each(node: Node, change: Callable[[Node], Node]) -> Node:
    return replace(node, items=tuple(change(one) for one in node.items)) if isinstance(node, Sequence) else node
