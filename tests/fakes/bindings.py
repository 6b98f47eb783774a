"""Websocket tokens in memory; held by `tests/contracts/bindings.py`."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import UTC, datetime

from ipf.ports import OPEN, Binding, BindingTokens, Caller, Clock


class MemoryBindingTokens:
    """`ports.BindingTokens` without a database."""

    def __init__(self, clock: Clock = lambda: datetime.now(UTC)) -> None:
        self._clock = clock
        self._bindings: dict[str, Binding] = {}

    async def issue(self, tenant: str, subscription_ids: Sequence[str], until: datetime, caller: Caller = OPEN) -> str:
        """See `ports.BindingTokens.issue`."""
        token = secrets.token_urlsafe(32)
        self._bindings[token] = Binding(tenant, tuple(subscription_ids), until, caller)
        return token

    async def redeem(self, token: str) -> Binding | None:
        """See `ports.BindingTokens.redeem`."""
        binding = self._bindings.get(token)
        return binding if binding is not None and binding.until > self._clock() else None


_: type[BindingTokens] = MemoryBindingTokens
