"""Kinds: the static types of values in maps, and their elements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of one model; unknown when both are empty."""

    model: str
    name: str

    @property
    def is_v2(self) -> bool:
        """A node of an HL7 v2 message."""
        return self.model == "v2"

    @property
    def is_text(self) -> bool:
        """A node of an HL7 v2 message, or only its text."""
        return self.model in ("v2", "text")

    @property
    def is_known(self) -> bool:
        """Whether its elements can be resolved."""
        return bool(self.model) and bool(self.name)


UNKNOWN = Kind("", "")
V2 = Kind("v2", "")
TEXT = Kind("text", "")
"""Text of an HL7 v2 node, where a map uses nothing but the text."""


def fhir(name: str) -> Kind:
    """A FHIR R4 type or type path."""
    return Kind("fhir", name)


STRING = fhir("string")
BUNDLE = fhir("Bundle")


@dataclass(frozen=True, slots=True)
class Member:
    """One element of a kind.

    `keys`: JSON name by kind, for a choice of types; else empty, and `key` is the name.  `kinds`: possible types.
    """

    key: str
    many: bool
    kinds: tuple[Kind, ...]
    keys: Mapping[str, str]

    @property
    def is_choice(self) -> bool:
        """Whether its JSON name depends on the type of its value."""
        return bool(self.keys)
