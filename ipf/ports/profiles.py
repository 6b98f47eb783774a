"""Vendor profiles as operators see them."""

from __future__ import annotations

from typing import Protocol

from ipf.ports.base import Json


class ProfileAdmin(Protocol):
    """What is loaded, checking an archive, and reading the folder again."""

    def describe(self) -> Json:
        """`{loaded[], skipped[]}`."""

    async def validate(self, archive: bytes) -> Json:
        """What an archive is, whether it could be loaded, and how its cases end; nothing is changed.

        Problem MALFORMED: it is no archive; TOO_LARGE.
        """

    async def reload(self) -> Json:
        """Read the folder again, in every process; what is then in use.  What is broken replaces nothing."""
