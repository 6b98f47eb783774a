"""The client of python-hl7 with the modes of acknowledgement, for the command `send`.

What arrives: messages of files.  What leaves: an `Outcome` for each that was sent.  A message is sent when the one
before it has the acknowledgement that its sender asks for: always one in original mode; in enhanced mode (MSH-15,
MSH-16) also none, or one on error only.  A later application acknowledgement is assigned by MSA-2.

Source: HL7 v2.9 section 2.9, table 0155; https://python-hl7.readthedocs.io/en/latest/mllp_send.html
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

import hl7
from hl7.client import MLLPClient

from ipf.hl7.ack import acknowledgement_code

_END = b"\x1c\r"


@dataclass(frozen=True, slots=True)
class Item:
    """A message, and its place: the `number`-th of a file, from 1."""

    file: str
    number: int
    message: bytes

    def field(self, number: int) -> str:
        """A field of MSH."""
        fields = self.message.partition(b"\r")[0].split(self.message[3:4])
        return fields[number - 1].decode(errors="replace") if number <= len(fields) else ""

    def __str__(self) -> str:
        return f"{self.file} message {self.number} (MSH-10 {self.field(10) or 'empty'})"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a message.  `code`: MSA-1, empty without an acknowledgement.

    `good`: True = accepted, False = refused, None = not known.  `late`: a further acknowledgement of the same message.
    """

    item: Item
    code: str
    text: str
    good: bool | None
    seconds: float
    late: bool = False


class MllpSender(MLLPClient):  # type: ignore[misc]  # python-hl7 has no types
    """A connection.  `seconds`: timeout of an acknowledgement; `quiet`: of one that comes only in one case."""

    def __init__(self, host: str, port: int, seconds: float, quiet: float, tell: Callable[[Outcome], None]) -> None:
        self.socket = socket.create_connection((host, port), seconds)  # python-hl7 has no timeout and no IPv6
        self._seconds = seconds
        self._quiet = quiet
        self._tell = tell
        self._buffer = b""
        self._is_closed = False
        self._sent: dict[str, Item] = {}

    def deliver(self, item: Item) -> None:
        """Send a message, and tell its outcome.  OSError: it has none, and the connection cannot be used any more."""
        began = time.perf_counter()
        self.socket.settimeout(self._seconds)
        self.send_message(item.message)
        self._sent[item.field(10)] = item
        good, bad = (acknowledgement_code(item.field(15), item.field(16), code) for code in ("AA", "AE"))
        if good is None and bad is None:
            self._tell(Outcome(item, "", "", True, 0.0))
            return
        is_certain = good is not None and bad is not None
        answer = self._answer_to(item, self._seconds if is_certain else self._quiet)
        took = time.perf_counter() - began
        if answer is not None:
            self._tell(Outcome(item, *answer, _is_good(answer[0]), took))
        elif self._is_closed:
            raise ConnectionError("the receiver closed the connection")
        elif is_certain:
            raise TimeoutError(f"no acknowledgement within {self._seconds:g} s")
        else:  # silence is the other case
            self._tell(Outcome(item, "", "no acknowledgement", good is None, took))

    def send(self, data: bytes) -> bytes:
        """Send frames.  python-hl7 sends what fits into the socket, and takes what is read first for the answer."""
        self.socket.sendall(data)
        return b""

    def finish(self) -> None:
        """Send no more, and read further acknowledgements until the receiver closes, or is quiet.

        OSError: the connection was lost before.
        """
        self.socket.shutdown(socket.SHUT_WR)
        while not self._is_closed and (answer := self._read(self._quiet)) is not None:
            self._assign(answer)

    def _answer_to(self, item: Item, seconds: float) -> tuple[str, str] | None:
        """Code and text of the acknowledgement of a message; None: there is none in time."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            answer = self._read(left)
            if answer is None:
                return None
            code, text, control_id = answer
            if control_id == item.field(10) or control_id not in self._sent:
                return code, text
            self._assign(answer)
        return None

    def _assign(self, answer: tuple[str, str, str]) -> None:
        """A further acknowledgement, of a message that was sent before."""
        code, text, control_id = answer
        item = self._sent.get(control_id)
        if item is not None:
            self._tell(Outcome(item, code, text, _is_good(code), 0.0, late=True))

    def _read(self, seconds: float) -> tuple[str, str, str] | None:
        """Code, text and control id of the next acknowledgement; None: none arrived in time, or before the end."""
        while _END not in self._buffer:
            self.socket.settimeout(max(seconds, 0.001))
            try:
                chunk = self.socket.recv(65536)
            except TimeoutError:
                return None
            if not chunk:
                self._is_closed = True
                return None
            self._buffer += chunk
        answer, _, self._buffer = self._buffer.partition(_END)
        return read_answer(answer)


def read_answer(answer: bytes) -> tuple[str, str, str]:
    """Code, text and control id of an acknowledgement; `none` and what arrived when it is no HL7 v2."""
    text = answer.strip(b"\x0b\x1c\r").decode(errors="replace")
    try:
        message = hl7.parse(text)
    except Exception:  # of many kinds, and none is python-hl7's own
        return "none", text[:100], ""
    found = {str(segment[0]): [*map(str, segment), *[""] * 9] for segment in message}
    acknowledged = found.get("MSA", ["", "none", "", ""])
    return acknowledged[1], found.get("ERR", [""] * 9)[8] or acknowledged[3], acknowledged[2]


def _is_good(code: str) -> bool:
    return code in ("AA", "CA")
