"""The callers against whose grants the notifications of a Subscription are checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ipf.ports.caller import Caller


class CreatorGrants(Protocol):
    """The callers that wrote each Subscription since its endpoint last changed, each with its latest grants."""

    async def writers(self, tenant: str, subscription_id: str, version_id: int) -> Sequence[Caller] | None:
        """The callers that limit the notifications of this version; empty when it was written without authentication.

        None: the Subscription has another version now.
        """
