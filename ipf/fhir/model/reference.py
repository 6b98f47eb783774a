"""Parsing of reference texts: `Patient/1`, `http://other/fhir/Patient/1/_history/2`, `urn:uuid:...`, `#inner`.

Source: https://hl7.org/fhir/R4/references.html#literal
"""

from __future__ import annotations

from dataclasses import dataclass

from ipf.fhir.model.definitions import definitions


@dataclass(frozen=True, slots=True)
class Literal:
    """A reference by type and id.  `base`: the base url (`http://other/fhir`), "" when it is relative."""

    base: str
    resource_type: str
    id: str
    version: str | None = None

    def __str__(self) -> str:
        """The reference without its version."""
        local = f"{self.resource_type}/{self.id}"
        return f"{self.base}/{local}" if self.base else local


def parse_reference(text: str) -> Literal | None:
    """The parsed reference; None for a URN, a contained resource, a search, or any other URL."""
    parts = text.split("/")
    version = None
    if len(parts) > 3 and parts[-2] == "_history":
        version = parts[-1]
        del parts[-2:]
    if len(parts) < 2 or not parts[-1] or parts[-2] not in definitions().resource_types or "?" in parts[-1]:
        return None
    base = "/".join(parts[:-2])
    if len(parts) > 2 and "://" not in base:
        return None
    return Literal(base, parts[-2], parts[-1], version)


def indexed_form(text: str) -> str | None:
    """The index form of a reference: without version; None for a contained resource (`#inner`)."""
    if text.startswith("#") or not text:
        return None
    if "/_history/" in text:
        literal = parse_reference(text)
        return text if literal is None else str(literal)
    return text


def referenced_type(reference: dict[str, object]) -> str | None:
    """The target type of a Reference (parsed JSON): from its text, else from its `type` element."""
    text = reference.get("reference")
    if type(text) is str and text[:1] != "#":
        literal = parse_reference(text)
        if literal is not None:
            return literal.resource_type
    declared = reference.get("type")
    return declared if type(declared) is str else None
