"""Where the frames of an MLLP listener go: the interface between this package and the receive stage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ipf.hl7.framing import Junk, Oversize, Unfinished

SendAck = Callable[[bytes | None], None]
"""Sends the acknowledgement, without framing; None = none is due."""


class FrameReceiver(Protocol):
    """Receives the frames of a listener; implemented by `ListenerReceiver` of `pipeline/receive/receive.py`.

    `send_ack` is called once for each frame, in any order.
    """

    @property
    def full(self) -> bool:
        """Whether reading must pause."""

    def when_room(self, resume: Callable[[], None]) -> None:
        """Call `resume` once when reading may continue."""

    def receive(self, frame: bytes, peer: str, source: object, send_ack: SendAck) -> None:
        """Store one message.  Messages of one `source` are stored in the order of the calls."""

    def oversize(self, event: Oversize, peer: str, send_ack: SendAck) -> None:
        """Refuse a frame above the limit."""

    def lost(self, event: Unfinished | Junk, peer: str, reason: str) -> None:
        """Store bytes that are no complete frame; they are not answered."""
