"""A YAML file as a tree that knows its lines: texts, lists and maps, each with its JSON pointer and line.

A scalar is its text as it was written, so that a version of `1.10` stays one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scalar:
    """A text; `is_null`: nothing, `~` or `null` was written."""

    text: str
    pointer: str
    line: int
    is_null: bool = False


@dataclass(frozen=True, slots=True)
class Sequence:
    """A list."""

    items: tuple[Node, ...]
    pointer: str
    line: int


@dataclass(frozen=True, slots=True)
class Mapping:
    """Keys, which are texts, in their order."""

    items: dict[str, Node]
    lines: dict[str, int]
    pointer: str
    line: int


Node = Scalar | Sequence | Mapping


def texts(node: Node) -> Iterator[Scalar]:
    """The texts of a list; of a text itself."""
    if isinstance(node, Scalar):
        yield node
    elif isinstance(node, Sequence):
        yield from (one for one in node.items if isinstance(one, Scalar))
