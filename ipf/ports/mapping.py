"""Mapping as the engine sees it, and the notifier that wakes stages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ipf.ports.base import Json
from ipf.ports.entries import Entry, Link
from ipf.ports.inbox import Claimed, UnmappedCode


@dataclass(slots=True)
class Origin:
    """What a vendor profile adds to the audit record of a message.

    `agent_system`: the system that it came from, as the profile names it; `source_system`: as the message does.
    `details`: names and texts of source fields.
    """

    agent_system: str
    source_system: str
    details: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class Mapped:
    """A transaction Bundle, which map made it, and the codes that no table had.

    `made`: the Bundle, or what makes it when it is asked for: who stores the entries needs no Bundle.  `references`:
    every reference to an entry of it, so that nobody has to look for them (an object that was merged away may be among
    them); None = not known, they must be looked for.  `origin`: of a message of a vendor profile.  `entries`: those of
    the Bundle, when whoever made it knows them; None = they must be read.
    """

    made: Json | Callable[[], Json]
    map_url: str
    unmapped: tuple[UnmappedCode, ...] = ()
    references: list[Link] | None = None
    origin: Origin | None = None
    entries: tuple[Entry, ...] | None = None

    @property
    def bundle(self) -> Json:
        """The Bundle; made before its entries are stored, since their references are completed in place then."""
        return self.made() if callable(self.made) else self.made


class Mapper(Protocol):
    """Chooses the StructureMap for a message type and runs it.  Problem UNMAPPED, MAPPING or UPSTREAM."""

    def has_map(self, message_type: str) -> bool:
        """Whether a map for this type is installed (True when that cannot be known: a remote service)."""

    async def transform(self, message: Claimed) -> Mapped:
        """Message bytes to transaction Bundle."""


class Notifier(Protocol):
    """Wakes workers, in this and in other processes.  A lost notification delays work by one poll interval."""

    def notify(self, name: str) -> None:
        """Announce work; returns at once, several notifications may become one."""

    def subscribe(self, name: str, wake: Callable[[], None]) -> None:
        """Call `wake` at each notification of `name`."""
