"""The callers against whose grants the notifications of a Subscription are checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ipf.ports.caller import Caller


@dataclass(frozen=True, slots=True)
class Writer:
    """The creator of a Subscription: the caller that created it, or that replaced its criteria or channel.

    `since`: number of the newest event when it became the creator; later events are within its grants.  `owns`: it sent
    the secrets of the channel itself.
    """

    caller: Caller
    since: int = 0
    owns: bool = False


def callers_of(writers: Sequence[Writer]) -> tuple[tuple[Caller, ...], Caller | None]:
    """The callers, and the one of them that sent the secrets of the channel."""
    owners = [one.caller for one in writers if one.owns]
    return tuple(one.caller for one in writers), owners[0] if owners else None


class CreatorGrants(Protocol):
    """The creator of each Subscription.  There are several of one that several clients wrote before version 0.2.0."""

    async def writers(self, tenant: str, subscription_id: str, version_id: int) -> Sequence[Writer] | None:
        """The callers that limit the notifications of this version; empty when it was written without authentication.

        None: the Subscription has another version now.
        """
