"""Messages of a vendor profile: what is mapped instead of what was stored, by which maps, and what the audit adds.

What arrives: a stored message.  What leaves: where it belongs, from whoever knows profiles (`Vendors`), and the Bundle
that its maps made.  A library without profiles has `vendors` None, and a message costs nothing more than that look.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from ipf.mapping.language.concepts import Overrides
from ipf.mapping.library.maps import Library, Result
from ipf.ports import Claimed, Mapped, Mapper


def transform(library: Library, message: Claimed, overrides: Overrides | None) -> Mapped:
    """A message with the maps of its profile, or with the general ones."""
    placed = None if library.vendors is None else library.vendors.place(message)
    if placed is None:
        return library.transform(message, overrides)
    mapped = (placed.library or library).transform(placed.message, overrides)
    return mapped if placed.origin is None else replace(mapped, origin=placed.origin)


def explain(library: Library, message: Claimed, overrides: Overrides | None) -> Result:
    """The same with a trace."""
    placed = None if library.vendors is None else library.vendors.place(message)
    if placed is None:
        return library.explain(message, overrides, trace=True)
    return (placed.library or library).explain(placed.message, overrides, trace=True)


class ProfiledMapper:
    """`ports.Mapper`: types that a profile maps are mapped here, all others by a mapping service elsewhere."""

    def __init__(
        self,
        elsewhere: Mapper,
        library: Callable[[], Library],
        answers: Callable[[Claimed], Awaitable[Overrides | None]],
    ) -> None:
        self._elsewhere = elsewhere
        self._library = library
        self._answers = answers

    def has_map(self, message_type: str) -> bool:
        """See `Mapper.has_map`."""
        return self._elsewhere.has_map(message_type)

    async def transform(self, message: Claimed) -> Mapped:
        """See `Mapper.transform`."""
        vendors = self._library().vendors
        placed = None if vendors is None else vendors.place(message)
        if placed is None:
            return await self._elsewhere.transform(message)
        if placed.library is not None:
            mapped = placed.library.transform(placed.message, await self._answers(message))
        else:
            mapped = await self._elsewhere.transform(placed.message)
        return replace(mapped, origin=placed.origin)


_: type[Mapper] = ProfiledMapper
