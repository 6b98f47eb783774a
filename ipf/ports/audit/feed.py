"""The feed of audit records to a log server outside: the records in order, how far they are sent, the stream."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol

from ipf.ports.audit.records import Audit


class FedRecord(NamedTuple):
    """A record at its place in the chain.  `audit` None: retention has removed it, or it is of another surface."""

    position: int
    audit: Audit | None


class AuditFeedStore(Protocol):
    """The records of all tenants in the order of the chain, and the position up to which they are sent."""

    async def hold(self, worker: str, seconds: float) -> int | None:
        """Take or renew the lease for `seconds` from now; 0 ends it.

        Returns the position up to which all is sent, or None when another process holds the lease.
        """

    async def after(self, position: int, surfaces: Sequence[str], limit: int) -> list[FedRecord]:
        """The next records, at most `limit`, in order."""

    async def advance(self, worker: str, position: int) -> bool:
        """Note that all up to `position` are sent; False when the lease is lost."""


class StreamLost(Exception):
    """The stream failed, or the receiver has not confirmed it.  The text is the reason."""


class LogStream(Protocol):
    """A connection to a log server."""

    async def send(self, frames: bytes) -> None:
        """Write; returns when the receiver has room for more.  StreamLost."""

    async def close(self) -> None:
        """End the stream; returns when the receiver has confirmed that it has read everything.  StreamLost."""

    def abort(self) -> None:
        """Drop the connection."""


OpenStream = Callable[[], Awaitable[LogStream]]
"""Connects.  StreamLost."""
