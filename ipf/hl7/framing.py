"""MLLP framing: chunks of bytes in, whole messages out.  No socket, no clock.

A frame is `VT message FS CR` (0x0B ... 0x1C 0x0D).  :class:`Framer` takes the chunks of a stream and returns
events.  Work is linear in the bytes: each chunk is scanned once.  An unfinished frame is held once, up to the limit.

Deviations of senders:

* CR, LF, space, tab and NUL between frames are ignored.  Other bytes there are counted and reported as :class:`Junk`.
* FS that is not followed by CR is content (HAPI and Mirth wait for the pair too).  A cut may fall between the two.
* VT inside a frame is content, as in HAPI and Mirth, with one exception: VT followed by `MSH` begins a new frame.  As
  content it would mix two patients in one message.  The part before it is reported as :class:`Unfinished`.
* A frame above the limit is discarded up to its end block, and reported as :class:`Oversize`.  The next frame is read
  as usual.

Source: HL7 Transport Specification: MLLP, release 1 and 2
(https://www.hl7.org/documentcenter/public/wg/inm/mllp_transport_specification.PDF).
"""

from __future__ import annotations

from dataclasses import dataclass

START = b"\x0b"
END = b"\x1c\r"
DEFAULT_LIMIT = 16 * 1024 * 1024
KEPT_HEAD = 64 * 1024

_FS = b"\x1c"
_RESTART = b"\x0bMSH"
_FILLERS = b"\r\n \t\x00"


@dataclass(frozen=True, slots=True)
class Oversize:
    """A frame above the limit, at its end.  `head`: its first bytes; `size`: bytes between VT and FS."""

    head: bytes
    size: int


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A frame that its sender abandoned."""

    head: bytes
    size: int


@dataclass(frozen=True, slots=True)
class Junk:
    """Bytes outside any frame.  `head`: the first of them; `size`: their number, without fillers."""

    head: bytes
    size: int


Event = bytes | Oversize | Unfinished | Junk
"""`bytes` is a whole message, without its framing."""


def frame(message: bytes) -> bytes:
    """The message in its MLLP frame."""
    return b"\x0b" + message + b"\x1c\r"


class Framer:
    """Splits the byte stream of a connection into messages.  `limit`: maximum size of a message in bytes."""

    __slots__ = ("_buffer", "_cut_end", "_dropped", "_inside", "_junk", "_junk_size", "limit")

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self.limit = limit
        self._inside = False
        self._buffer = bytearray()
        self._dropped = 0  # bytes of an oversized frame that were not kept
        self._cut_end = False  # the last byte fed was FS inside a frame
        self._junk = bytearray()
        self._junk_size = 0

    @property
    def inside(self) -> bool:
        """Whether a frame is unfinished."""
        return self._inside

    @property
    def pending(self) -> int:
        """Bytes of the unfinished frame, with those discarded."""
        return len(self._buffer) + self._dropped

    @property
    def held(self) -> int:
        """Bytes held in memory for the unfinished frame."""
        return len(self._buffer)

    @property
    def junk_size(self) -> int:
        """Bytes outside frames that are not reported yet."""
        return self._junk_size

    def feed(self, chunk: bytes) -> list[Event]:
        """Events of this chunk, in order of arrival."""
        if not self._inside and not self._junk_size and chunk[:1] == START:
            end = len(chunk) - 2  # the usual chunk is one frame; a search for a single byte is faster than for a pair
            whole = chunk.find(_FS) == end and chunk[-1:] == b"\r" and chunk.find(START, 1) < 0
            if whole and 0 < end <= self.limit + 1:
                return [chunk[1:end]]
        events: list[Event] = []
        position = 0
        while position < len(chunk):
            step = self._content if self._inside else self._outside
            position = step(chunk, position, events)
        return events

    def finish(self) -> list[Event]:
        """The events for the rest of the stream, when the connection ends."""
        events: list[Event] = []
        self._report_junk(events)
        if self._inside:
            events.append(Unfinished(bytes(self._buffer[:KEPT_HEAD]), self.pending))
        self._begin(inside=False)
        return events

    def _begin(self, *, inside: bool) -> None:
        self._inside = inside
        self._buffer = bytearray()
        self._dropped = 0
        self._cut_end = False

    def _outside(self, chunk: bytes, position: int, events: list[Event]) -> int:
        """Skip to the next VT; returns the next offset."""
        start = chunk.find(START, position)
        between = chunk[position : start if start >= 0 else len(chunk)].translate(None, _FILLERS)
        if between:
            self._junk_size += len(between)
            self._junk += between[: max(0, KEPT_HEAD - len(self._junk))]
        if start < 0:
            return len(chunk)
        self._report_junk(events)
        self._begin(inside=True)
        return start + 1

    def _report_junk(self, events: list[Event]) -> None:
        if self._junk_size:
            events.append(Junk(bytes(self._junk), self._junk_size))
            self._junk = bytearray()
            self._junk_size = 0

    def _content(self, chunk: bytes, position: int, events: list[Event]) -> int:
        """Take content up to the end block, or all of it; returns the next offset."""
        if self._cut_end and chunk[position : position + 1] == b"\r":
            if self._dropped:
                self._dropped -= 1  # the FS was counted, not held
            else:
                del self._buffer[-1]
            self._end(events)
            return position + 1
        end = chunk.find(END, position)
        stop = end if end >= 0 else len(chunk)
        self._keep(chunk, position, stop)
        if end >= 0:
            self._end(events)
            return end + 2
        self._cut_end = chunk[-1:] == b"\x1c"
        return stop

    def _keep(self, chunk: bytes, position: int, stop: int) -> None:
        if not self._dropped and len(self._buffer) + stop - position <= self.limit + self._allowance(chunk, stop):
            self._buffer += chunk[position:stop] if position or stop < len(chunk) else chunk
            return
        if not self._dropped:
            self._dropped = len(self._buffer)
            self._buffer = self._buffer[:KEPT_HEAD]
            self._dropped -= len(self._buffer)
        room = max(0, KEPT_HEAD - len(self._buffer))
        kept = chunk[position : min(stop, position + room)]
        self._buffer += kept
        self._dropped += stop - position - len(kept)

    def _allowance(self, chunk: bytes, stop: int) -> int:
        """One byte above the limit may be held until the byte after an FS is known."""
        return 1 if stop == len(chunk) and chunk[-1:] == b"\x1c" else 0

    def _end(self, events: list[Event]) -> None:
        if self._dropped or len(self._buffer) > self.limit:
            events.append(Oversize(bytes(self._buffer[:KEPT_HEAD]), self.pending))
        else:
            content = bytes(self._buffer)
            restart = content.rfind(_RESTART)
            if restart >= 0:
                events.append(Unfinished(content[: min(restart, KEPT_HEAD)], restart))
                content = content[restart + 1 :]
            events.append(content)
        self._begin(inside=False)
