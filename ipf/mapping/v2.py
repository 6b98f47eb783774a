"""Looking into HL7 v2 nodes without making nodes: for what is asked most, whether a numbered part is there.

The answers are those of `children(name)`; a test holds them together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ipf.hl7.message import NULL, Component, Field, Segment, number_of

Present = Callable[[Any], bool]


def presence(name: str) -> Present:
    """Whether a node has a child of this name that is neither empty nor null."""
    number = number_of(name)
    if not number:
        return lambda node: bool(node.children(name))
    before = number - 1

    def present(node: Any) -> bool:
        kind = type(node)
        if kind is Field or kind is Component:
            parts = node.parts
            if number > len(parts):
                return False
            raw: str = parts[before]
            return raw != "" and raw != NULL
        if kind is Segment:
            fields = node.fields
            if number >= len(fields) or not fields[number]:
                return False
        return bool(node.children(name))

    return present
