"""Websockets: the clients of this process, and the hub that sends them notifications."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from ipf.ports.base import DEFAULT_TENANT, Json
from ipf.ports.caller import OPEN, Caller


@dataclass(frozen=True, slots=True)
class Session:
    """The identity of a websocket client.  `may_read`: whether it may read this Subscription, checked at each event.

    `until`: expiry of its token; None = never.  `caller`: its grants limit the notifications.  `refusal`: why it
    can bind no Subscription by id.
    """

    tenant: str = DEFAULT_TENANT
    may_read: Callable[[Json], bool] = lambda subscription: True
    until: datetime | None = None
    caller: Caller = OPEN
    refusal: str | None = None


@dataclass(frozen=True, slots=True)
class TokenBinding:
    """The result of a binding token: ids of the requested and of the bound Subscriptions."""

    session: Session
    requested: Sequence[str]
    bound: Sequence[str]


@dataclass(frozen=True, slots=True)
class BindingAttempt:
    """An attempt to bind, for the audit trail.  `what`: description; `status`: the equivalent HTTP status.

    `subscriptions`: ids from the client, or from its binding token.
    """

    session: Session
    what: str
    subscriptions: Sequence[str]
    status: int
    address: str
    correlation_id: str
    began: datetime


AuditBinding = Callable[[BindingAttempt], None]

Authenticate = Callable[[str | None], Awaitable[Session]]
"""The session of a bearer token (None when the client sent none).  Problem UNAUTHORIZED when access is denied."""


class WebsocketClient(Protocol):
    """One connected client.  Sending never blocks."""

    def send(self, texts: Sequence[bytes]) -> bool:
        """Send text messages; False when the client has disconnected, or was disconnected because it does not read."""

    def end(self, reason: str) -> None:
        """Close the connection in an orderly way."""


class WebsocketHub(Protocol):
    """Binds clients to subscriptions and sends them notifications of later events."""

    async def bind(self, client: WebsocketClient, session: Session, subscription_id: str) -> None:
        """Bind by id: `ping` at each event.  Problem when there is no such subscription for this client."""

    async def bind_with_token(self, client: WebsocketClient, token: str) -> TokenBinding:
        """Bind all subscriptions of a token: a handshake, then notification Bundles.

        Problem UNAUTHORIZED when the token is unknown or expired.
        """

    def leave(self, client: WebsocketClient) -> None:
        """Remove a disconnected client."""
