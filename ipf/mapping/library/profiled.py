"""Mapping with vendor profiles: quirks are applied first, then the maps of the profile or the general maps.

What arrives: a stored message.  What leaves: its Bundle, with the origin that the profile adds to the audit record.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from ipf.mapping.bundle.substance import check_bundle
from ipf.mapping.language.concepts import Overrides
from ipf.mapping.library import polled
from ipf.mapping.library.maps import Library, MappingResult, ProfiledMessage
from ipf.mapping.runtime.zone import zone_of_sender
from ipf.ports import Claimed, Mapped, Mapper


def transform(library: Library, message: Claimed, overrides: Overrides | None) -> Mapped:
    """Map a message with the maps of its profile, or with the general ones."""
    profiled = _profiled(library, message)
    if message.is_json:
        return polled.transform(library, profiled, message, overrides)
    if profiled is None:
        return library.transform(message, overrides)
    with zone_of_sender(profiled.zone):
        mapped = (profiled.library or library).transform(profiled.message, overrides)
    return mapped if profiled.origin is None else replace(mapped, origin=profiled.origin)


def explain(library: Library, message: Claimed, overrides: Overrides | None) -> MappingResult:
    """The same with a trace."""
    profiled = _profiled(library, message)
    if message.is_json:
        return polled.explain(library, profiled, message, overrides, trace=True)
    if profiled is None:
        return library.explain(message, overrides, trace=True)
    with zone_of_sender(profiled.zone):
        return (profiled.library or library).explain(profiled.message, overrides, trace=True)


def _profiled(library: Library, message: Claimed) -> ProfiledMessage | None:
    return None if library.vendor_profiles is None else library.vendor_profiles.apply(message)


class ProfiledMapper:
    """`ports.Mapper`: maps in this process the types that a profile has a map for, and all others with `remote`."""

    def __init__(
        self,
        remote: Mapper,
        library: Callable[[], Library],
        overrides: Callable[[Claimed], Awaitable[Overrides | None]],
    ) -> None:
        self._remote = remote
        self._library = library
        self._overrides = overrides

    def has_map(self, message_type: str) -> bool:
        """See `Mapper.has_map`."""
        return self._remote.has_map(message_type)

    async def transform(self, message: Claimed) -> Mapped:
        """See `Mapper.transform`."""
        library = self._library()
        profiled = _profiled(library, message)
        if message.is_json:
            return polled.transform(library, profiled, message, await self._overrides(message))
        if profiled is None:
            return _checked(await self._remote.transform(message), message, library)
        if profiled.library is not None:
            overrides = await self._overrides(message)
            with zone_of_sender(profiled.zone):
                mapped = profiled.library.transform(profiled.message, overrides)
        else:
            mapped = _checked(await self._remote.transform(profiled.message), profiled.message, library)
        return replace(mapped, origin=profiled.origin)


def _checked(mapped: Mapped, message: Claimed, library: Library) -> Mapped:
    """The Bundle of a mapping service: it stores something of what the message is about (else Problem REQUIRED), and an
    update keeps what it lacks, unless the sender sends snapshots.
    """
    check_bundle(mapped.bundle)
    table = library.environment.identity
    return replace(mapped, keeps_omitted=not table.sends_snapshots(message.source_system, message.message_type))


_: type[Mapper] = ProfiledMapper
