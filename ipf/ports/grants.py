"""Whose grants a subscription's notifications are checked against."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ipf.ports.caller import Caller


class CreatorGrants(Protocol):
    """The callers who wrote each Subscription since it has its endpoint, each as its latest token said."""

    async def writers(self, tenant: str, subscription_id: str, version_id: int) -> Sequence[Caller] | None:
        """All within whose grants this version of it is told; no caller when no token was asked for: nothing limits it.

        None: it is at another version by now.
        """
