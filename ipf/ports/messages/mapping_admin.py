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


class MapWorkbench(Protocol):
    """Trials of maps that are not installed, which store nothing; and installing them."""

    async def source(self, canonical: str) -> Json:
        """The text of an installed map, as it was written if that is known.  Problem NOT_FOUND."""

    async def install(self, text: str) -> Json:
        """Install a map from its text, in every process.  Problem: it does not compile with all others."""

    async def remove(self, canonical: str) -> Json:
        """Remove a map that was installed over HTTP; the one that it replaced is used again.  Problem NOT_FOUND."""

    async def attempt(self, text: str | None, raw: bytes | None, message_id: int | None) -> Json:
        """The result and trace of a map (None: the installed one) for a message, or the mistake with its place."""

    async def compare(self, text: str, message_type: str, limit: int) -> Json:
        """How its results for the newest messages of a type differ from those of the installed map."""
