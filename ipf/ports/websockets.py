"""Websockets: clients that came to this process, and the hub that tells them what happens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from ipf.ports.base import DEFAULT_TENANT, Json
from ipf.ports.caller import OPEN, Caller


@dataclass(frozen=True, slots=True)
class Session:
    """Who a websocket client is.  `may`: whether it may be told what this Subscription fires, asked at each telling.

    `until`: end of its token; None = none.  `caller`: within whose grants it is told.
    """

    tenant: str = DEFAULT_TENANT
    may: Callable[[Json], bool] = lambda subscription: True
    until: datetime | None = None
    caller: Caller = OPEN


@dataclass(frozen=True, slots=True)
class TokenBinding:
    """What a binding token has bound: `asked` are the Subscriptions that it names, `found` those that are bound."""

    session: Session
    asked: Sequence[str]
    found: Sequence[str]


@dataclass(frozen=True, slots=True)
class SocketNote:
    """An attempt to listen, for the audit trail.  `what`: in words; `status`: as HTTP would have answered.

    `subscriptions`: ids as the client gave them, or as its binding token names them.
    """

    session: Session
    what: str
    subscriptions: Sequence[str]
    status: int
    address: str
    correlation_id: str
    began: datetime


NoteBinding = Callable[[SocketNote], None]

Authenticate = Callable[[str | None], Awaitable[Session]]
"""A bearer token, or None when the client brought none, to who it is.  Problem UNAUTHORIZED when it may not come in."""


class SocketClient(Protocol):
    """One connected client.  What it is told is never waited for."""

    def tell(self, texts: Sequence[bytes]) -> bool:
        """Send these text messages; False when it is gone, or was cut off because it does not read."""

    def end(self, reason: str) -> None:
        """Close the connection in an orderly way."""


class SocketHub(Protocol):
    """Binds clients to subscriptions and tells them of events from then on."""

    async def bind(self, client: SocketClient, session: Session, subscription_id: str) -> None:
        """`ping` at each event.  Problem when there is no such subscription, or it is not for this client."""

    async def bind_with_token(self, client: SocketClient, token: str) -> TokenBinding:
        """Notification Bundles of every subscription of a binding token, a handshake first.

        Problem UNAUTHORIZED: the token is unknown or has expired.
        """

    def leave(self, client: SocketClient) -> None:
        """The client is gone."""
