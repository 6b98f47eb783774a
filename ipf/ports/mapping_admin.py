"""The mapping service as operators see it."""

from __future__ import annotations

from typing import Protocol

from ipf.ports.base import Json


class MappingAdmin(Protocol):
    """What is installed, reading it again, and how a stored message came to be what it is."""

    async def describe(self) -> Json:
        """The maps in use, by message type and by canonical."""

    async def reload(self) -> Json:
        """Read all maps and packages again, in every process; what is then in use.  Problem INVALID: something is
        broken (file and line are named), and nothing has changed."""

    async def trace(self, message_id: int) -> Json:
        """Map a stored message again with a trace; nothing is stored.  Problem NOT_FOUND, or why it fails."""
