"""What one MLLP listener bears: sizes, counts and times, each with a default that is safe for any sender.

What happens at each bound is told in `mllp.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from ipf.hl7.framing import DEFAULT_LIMIT


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one listener; sizes in bytes, times in seconds.

    `message`: largest frame.  `discard`: how far an oversized frame is read to find its end.  `junk`: bytes outside of
    frames on one connection.  `memory`: unfinished frames of all connections together.  `outstanding`: messages of one
    connection that are not answered yet.  `frame_timeout`: silence within a frame; `frame_total`: one frame, from first
    byte to last.  `idle`: silence between frames, None = no limit, since senders keep connections open for days.
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
