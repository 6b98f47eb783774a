"""Whose grants a subscription's notifications are checked against."""

from __future__ import annotations

from typing import Protocol

from ipf.ports.caller import Caller


class CreatorGrants(Protocol):
    """The caller who wrote each Subscription last, as its token said then."""

    async def creator(self, tenant: str, subscription_id: str) -> Caller | None:
        """The caller; None when no token was asked for: nothing limits its notifications."""
