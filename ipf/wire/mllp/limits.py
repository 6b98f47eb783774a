"""Limits of one MLLP listener: sizes, counts and times.  `protocol.py` describes the effect of each limit."""

from __future__ import annotations

from dataclasses import dataclass

from ipf.hl7.framing import DEFAULT_LIMIT


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes are in bytes, times in seconds.

    `message`: largest frame.  `discard`: bytes of an oversized frame that are read to find its end.  `junk`: bytes
    outside of frames, of one connection.  `memory`: unfinished frames of all connections.  `outstanding`: messages of
    one connection without an answer.  `frame_timeout`: pause within a frame.  `frame_total`: duration of a frame.
    `idle`: pause between frames; None = no limit, since senders keep connections open for days.
    """

    message: int = DEFAULT_LIMIT
    discard: int = 8 * DEFAULT_LIMIT
    junk: int = 64 * 1024
    memory: int = 256 * 1024 * 1024
    outstanding: int = 64
    connections: int = 5000
    frame_timeout: float = 30.0
    frame_total: float = 300.0
    idle: float | None = None
