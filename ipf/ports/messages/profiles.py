"""Vendor profiles in the admin API."""

from __future__ import annotations

from typing import Protocol

from ipf.ports.base import Json


class ProfileAdmin(Protocol):
    """Loaded profiles, validation of an archive, and reload of the folder."""

    def describe(self) -> Json:
        """`{loaded[], skipped[]}`."""

    async def validate(self, archive: bytes) -> Json:
        """The content of an archive, whether it can be loaded, and the results of its test cases; changes nothing.

        Problem MALFORMED: not an archive; TOO_LARGE.
        """

    async def reload(self) -> Json:
        """Reload the folder in every process; returns `describe()`.  Invalid archives do not replace loaded ones."""

    async def install(self, file: str, archive: bytes) -> Json:
        """Put an archive into the folder and use it; returns `describe()`.

        An archive that cannot be used changes nothing: the answer is then that of `validate`, with `valid` false.
        Problem VALUE: the name; UNAVAILABLE: the folder cannot be written.
        """

    async def roll_back(self, file: str) -> Json:
        """Use the archive that was there before; returns `describe()`, or as `install`.  Problem NOT_FOUND."""
