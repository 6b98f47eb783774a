"""The callers against whose grants the notifications of a Subscription are checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ipf.ports.caller import Caller


@dataclass(frozen=True, slots=True)
class Writer:
    """A caller that wrote a Subscription, with its latest grants.

    `since`: number of the newest event when it first did; later events are within its grants.  `owns`: it set the
    endpoint.
    """

    caller: Caller
    since: int = 0
    owns: bool = False


class CreatorGrants(Protocol):
    """The callers that wrote each Subscription since its endpoint last changed, each with its latest grants."""

    async def writers(self, tenant: str, subscription_id: str, version_id: int) -> Sequence[Writer] | None:
        """The callers that limit the notifications of this version; empty when it was written without authentication.

        None: the Subscription has another version now.
        """
