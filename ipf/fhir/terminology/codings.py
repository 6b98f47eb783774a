"""The codes in a resource, with their systems."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Coded = tuple[str, str]
"""(system, code)"""


def coded_in(value: Any) -> Iterator[Coded]:
    """Every `system` and `code` that stand beside each other: Codings and Quantities, at any depth."""
    pending = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, list | tuple):
            pending += one
        elif isinstance(one, dict):
            system, code = one.get("system"), one.get("code")
            if isinstance(system, str) and isinstance(code, str):
                yield system, code
            pending += [each for each in one.values() if isinstance(each, dict | list | tuple)]
