"""The command `send`: sends files of HL7 v2 messages over MLLP, with progress and rates.

Each connection is an MLLPClient of python-hl7 in a thread of its own, and waits for the acknowledgement of a message
before it sends the next.
"""

from __future__ import annotations

import re
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Any

import click
from hl7.client import MLLPClient
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from twisted.internet.threads import deferToThread

from ipf.cli.api import Api, Refused
from ipf.cli.output import Output

Register = Callable[[Callable[..., Any]], Callable[..., None]]

_START = re.compile(rb"(?:^|[\r\n\x0b])(?=MSH[^A-Za-z0-9\s])")
ACCEPTED = frozenset(("AA", "CA"))


def register(cli: click.Group, command: Register) -> None:
    """Put the command of this module under `cli`."""
    work = command(send)
    for decorate in (
        click.option("--seconds", default=60.0, show_default=True, help="Timeout of an acknowledgement."),
        click.option("--fresh-ids", is_flag=True, help="Give every message a new control id."),
        click.option("--repeat", default=1, show_default=True, help="Send all messages this many times."),
        click.option("--connections", default=1, show_default=True, help="Number of connections."),
        click.option("--to", "target", default="127.0.0.1:2575", show_default=True, help="HOST:PORT of the listener."),
        click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, allow_dash=True)),
    ):
        work = decorate(work)
    cli.command("send")(work)


@dataclass(slots=True)
class Tally:
    """The acknowledgements received.  Shared by the sending threads."""

    codes: Counter[str] = field(default_factory=Counter)
    refusals: list[dict[str, str]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)

    def add(self, code: str, text: str, control_id: str, seconds: float) -> None:
        """Count one acknowledgement."""
        with self.lock:
            self.codes[code] += 1
            self.seconds.append(seconds)
            if code not in ACCEPTED:
                self.refusals.append({"control_id": control_id, "code": code, "text": text})


async def send(
    api: Api,
    output: Output,
    files: tuple[str, ...],
    target: str,
    connections: int,
    repeat: int,
    fresh_ids: bool,
    seconds: float,
) -> bool:
    """Send files of HL7 v2 messages; each message begins with MSH.  `-` is standard input."""
    host, _, port = target.rpartition(":")
    if not host or not port.isdecimal():
        raise Refused(f"{target} is not HOST:PORT")
    found = {name: list(split(_read(name))) for name in files}
    without = [name for name, held in found.items() if not held]
    messages = [message for name in files for message in found[name]] * repeat
    if not messages:
        raise Refused("the files have no MSH segment")
    queue: SimpleQueue[bytes] = SimpleQueue()
    for message in messages:
        queue.put(with_control_id(message) if fresh_ids else message)
    tally = Tally()
    began = time.perf_counter()
    with _progress(output, len(messages)) as advance:
        workers = [
            deferToThread(_work, host, int(port), seconds, queue, tally, advance)
            for _ in range(max(1, min(connections, len(messages))))
        ]
        failures = [failure for worker in workers if (failure := await worker)]
    for name in without:
        output.error(f"{name} has no MSH segment, so it holds no message")
    return _report(output, tally, len(messages), time.perf_counter() - began, failures) and not without


def split(content: bytes) -> Iterator[bytes]:
    """The messages of a file, framed or not, with any line ends.  Segments of the results end with CR."""
    text = content.replace(b"\x1c", b"").replace(b"\r\n", b"\r").replace(b"\n", b"\r")
    for part in _START.split(text):
        message = part.strip(b"\r\x0b ")
        if message.startswith(b"MSH"):
            yield message + b"\r"


def with_control_id(message: bytes) -> bytes:
    """The message with a fresh MSH-10."""
    end = message.find(b"\r")
    separator = message[3:4]
    fields = message[:end].split(separator)
    fields += [b""] * (10 - len(fields))
    fields[9] = uuid.uuid4().hex[:20].encode()
    return separator.join(fields) + message[end:]


def _work(
    host: str, port: int, seconds: float, queue: SimpleQueue[bytes], tally: Tally, advance: Callable[[], None]
) -> str:
    """One connection: messages from the queue until it is empty; why it ended early, else nothing."""
    try:
        client = MLLPClient(host, port)
        client.socket.settimeout(seconds)
        with client:
            while True:
                message = queue.get_nowait()
                began = time.perf_counter()
                answer = client.send_message(message)
                tally.add(*_read_answer(answer), time.perf_counter() - began)
                advance()
    except Empty:
        return ""
    except OSError as error:
        return f"{host}:{port}: {error.strerror or error}"


def _read_answer(answer: bytes) -> tuple[str, str, str]:
    """Code, text and control id of an acknowledgement."""
    code, text, control_id = "none", "", ""
    for segment in answer.strip(b"\x0b\x1c\r").split(b"\r"):
        fields = segment.decode(errors="replace").split("|")
        if fields[0] == "MSA":
            code, control_id = [*fields[1:3], "", ""][:2]
        elif fields[0] == "ERR":
            text = [*fields, *[""] * 9][8]
    return code, text, control_id


def _read(name: str) -> bytes:
    return sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()


class _progress:
    """A progress bar on a terminal; without a terminal, nothing."""

    def __init__(self, output: Output, total: int) -> None:
        columns = (TextColumn("sending"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        hidden = output.as_json or not output.errors.is_terminal
        self._progress = Progress(*columns, console=output.errors, transient=True, disable=hidden)
        self._task = self._progress.add_task("send", total=total)

    def __enter__(self) -> Callable[[], None]:
        self._progress.start()
        return lambda: self._progress.advance(self._task)

    def __exit__(self, *failure: object) -> None:
        self._progress.stop()


def _report(output: Output, tally: Tally, wanted: int, seconds: float, failures: list[str]) -> bool:
    answered = sorted(tally.seconds)
    result = {
        "sent": wanted,
        "answered": len(answered),
        "codes": dict(tally.codes),
        "seconds": round(seconds, 3),
        "per_second": round(len(answered) / seconds, 1) if seconds else None,
        "p50_ms": _share(answered, 0.5),
        "p99_ms": _share(answered, 0.99),
        "refusals": tally.refusals[:100],
        "failures": failures,
    }
    if not output.data(result):
        output.record({name: value for name, value in result.items() if name not in ("refusals", "failures") or value})
    for failure in sorted(set(failures)):
        output.error(failure, "is the listener there? See --to.")
    return len(answered) == wanted and set(tally.codes) <= ACCEPTED


def _share(ordered: list[float], share: float) -> float | None:
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1000, 2) if ordered else None
