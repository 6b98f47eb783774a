"""The mapper of messages, and the notifier that wakes stages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ipf.ports.base import Json
from ipf.ports.messages.inbox import Claimed, UnmappedCode
from ipf.ports.queries.entries import Entry, Link


@dataclass(slots=True)
class Origin:
    """Source details of a message for its audit record, from a vendor profile.

    `agent_system`: name of the sending system in the profile.  `source_system`: its name in the message.  `details`:
    names and texts of source fields.
    """

    agent_system: str
    source_system: str
    details: tuple[tuple[str, str], ...] = ()


UNREAD, DECLARED, DROPPED, INVALID = "unread", "declared", "dropped", "invalid"
"""Kinds of `UnreadField`."""


class UnreadField(NamedTuple):
    """A field of a message that is not in its result, or an element of the result that is not valid.

    `kind`: UNREAD (no rule read it), DECLARED (no rule read it, on purpose: `reason` with map and line), DROPPED (a
    rule's result did not reach the Bundle), or INVALID (validation found an error: `reason` with rule, map and field).
    `path`: `PV1-40`, `ZPI` (a whole segment), or `ServiceRequest.code`.
    """

    kind: str
    path: str
    reason: str = ""


@dataclass(slots=True)
class Mapped:
    """A transaction Bundle, the map that produced it, and the unmapped codes.

    `made`: the Bundle, or a function that builds it (storing `entries` needs no Bundle).  `references`: all references
    to entries of the Bundle, possibly including objects that were merged away; None = unknown.  `origin`: source
    details from a vendor profile.  `entries`: the entries of the Bundle; None = read them from the Bundle.  `unread`:
    computes the fields of the message that are not in the Bundle, each path once; a remote mapper knows of none.
    `keeps_omitted`: the entries are read from the Bundle, and an update keeps what a resource of it lacks (an HL7 v2
    message of which no fields were recorded).
    `map_version`: version of the map, or the start of its digest; empty for a remote mapper.
    """

    made: Json | Callable[[], Json]
    map_url: str
    unmapped: tuple[UnmappedCode, ...] = ()
    references: list[Link] | None = None
    origin: Origin | None = None
    entries: tuple[Entry, ...] | None = None
    unread: Callable[[], tuple[UnreadField, ...]] = tuple
    map_version: str = ""
    keeps_omitted: bool = False

    @property
    def canonical(self) -> str:
        """The map with its version: `url|version`; the url of a remote mapper's map."""
        return f"{self.map_url}|{self.map_version}" if self.map_version else self.map_url

    @property
    def bundle(self) -> Json:
        """The Bundle.  Read it before storing the entries: storing resolves their references in place."""
        return self.made() if callable(self.made) else self.made


def map_and_version(canonical: str) -> tuple[str, str | None]:
    """The url and the version of `url|version`."""
    url, _, version = canonical.partition("|")
    return url, version or None


class Mapper(Protocol):
    """Chooses the StructureMap for a message type and runs it.  Problem UNMAPPED, MAPPING or UPSTREAM."""

    def has_map(self, message_type: str) -> bool:
        """Whether a map for this type is installed.  A remote service returns True."""

    async def transform(self, message: Claimed) -> Mapped:
        """Map the message to a transaction Bundle."""


class Notifier(Protocol):
    """Wakes workers, in this and in other processes.  A lost notification delays work by one poll interval."""

    def notify(self, name: str) -> None:
        """Announce work; returns at once.  Notifications may be merged."""

    def subscribe(self, name: str, wake: Callable[[], None]) -> None:
        """Call `wake` at each notification of `name`."""
