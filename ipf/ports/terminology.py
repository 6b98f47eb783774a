"""The terminology of searches: `:in`, `:not-in`, `:above` and `:below` on tokens."""

from __future__ import annotations

from typing import Protocol


class Terminology(Protocol):
    """Sets of codes.  Problem: unknown value set, or too many codes."""

    async def expand(self, tenant: str, url: str) -> frozenset[tuple[str, str]]:
        """(system, code) of all members of the value set with this canonical URL."""

    async def related(self, tenant: str, system: str, code: str, relation: str) -> frozenset[str]:
        """The code and its ancestors (`relation` `above`) or descendants (`below`)."""
