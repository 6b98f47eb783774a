"""A YAML file as a tree of texts, lists and maps, each with its JSON pointer and line.

A scalar keeps its text, so the version `1.10` is not a number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scalar:
    """A text; `is_null`: empty, `~` or `null`."""

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
    """Keys (texts) and values, in order."""

    items: dict[str, Node]
    lines: dict[str, int]
    pointer: str
    line: int


Node = Scalar | Sequence | Mapping


def texts(node: Node) -> Iterator[Scalar]:
    """The texts of a list, or a single text."""
    if isinstance(node, Scalar):
        yield node
    elif isinstance(node, Sequence):
        yield from (one for one in node.items if isinstance(one, Scalar))
