"""One environment variable of the settings: its name, parser, default and meaning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Variable:
    """One environment variable: its name, the parser of its text, its meaning, and whether its value is a secret."""

    name: str
    parse: Callable[[str], Any]
    meaning: str
    secret: bool = False


def variable(name: str, parse: Callable[[str], T], default: T, meaning: str, *, secret: bool = False) -> T:
    """Declare one row of `Settings`."""
    declared: T = field(default=default, metadata={"variable": Variable(name, parse, meaning, secret)})
    return declared
