"""The mapping service in the admin API."""

from __future__ import annotations

from typing import Protocol

from ipf.ports.base import Json


class MappingAdmin(Protocol):
    """Installed maps, their reload, and the mapping trace of stored messages."""

    async def describe(self) -> Json:
        """The maps in use, by message type and by canonical."""

    async def reload(self) -> Json:
        """Reload all maps and packages in every process.  Returns `describe()`.

        Problem INVALID names file and line of an error; nothing changes then.
        """

    async def trace(self, message_id: int) -> Json:
        """Map a stored message with a trace; stores nothing.  Problem NOT_FOUND, or the Problem of the mapping."""
