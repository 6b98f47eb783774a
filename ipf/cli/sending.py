"""The command `send`: sends files of HL7 v2 messages over MLLP, with progress and rates.

Each connection (`mllp_sender.py`) has a thread of its own, and waits for the acknowledgement of a message before it
sends the next.  The report names file, number and MSH-10 of every message that was not accepted.
"""

from __future__ import annotations

import codecs
import re
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock

import click
from twisted.internet.threads import deferToThread

from ipf.cli.api import Api, Refused
from ipf.cli.mllp_sender import Item, MllpSender, Outcome
from ipf.cli.output import Output
from ipf.cli.running import action, options

_START = re.compile(rb"(?:^|[\r\n\x0b])(?=MSH[^A-Za-z0-9\s])")
_BATCH = re.compile(rb"(\r(FHS|BHS|BTS|FTS)[^A-Za-z0-9\s][^\r]*|\r)+$")
_SHOWN = 100


def register(messages: click.Group) -> None:
    """Put the command under `messages`."""
    wait = "Seconds to wait for one sent on error only (MSH-15 ER)."
    decorate = options(
        click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, allow_dash=True)),
        click.option("--to", "target", default="127.0.0.1:2575", show_default=True, help="HOST:PORT of the listener."),
        click.option("--connections", default=1, show_default=True, help="Number of connections."),
        click.option("--repeat", default=1, show_default=True, help="Send all messages this many times."),
        click.option("--fresh-ids", is_flag=True, help="Give every message a new control id."),
        click.option("--seconds", "--timeout", "seconds", default=60.0, show_default=True,
                     help="Timeout of an acknowledgement."),
        click.option("--quiet", default=1.0, show_default=True, help=wait),
        click.option("--each", is_flag=True, help="Print each acknowledgement."),
    )  # fmt: skip
    messages.command("send")(decorate(action(send)))


@dataclass(slots=True)
class Tally:
    """What became of the messages.  Shared by the sending threads."""

    codes: Counter[str] = field(default_factory=Counter)
    accepted: int = 0
    unasked: int = 0
    refused: list[Outcome] = field(default_factory=list)
    unanswered: list[tuple[Item, str]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)

    def add(self, outcome: Outcome) -> None:
        """Count the outcome of one message, or a further acknowledgement of it."""
        with self.lock:
            if outcome.code:
                self.codes[outcome.code] += 1
            if outcome.code and not outcome.late:
                self.seconds.append(outcome.seconds)
            if not outcome.good:
                self.refused.append(outcome)
            elif not outcome.late:
                self.accepted += 1
                self.unasked += not outcome.code


async def send(
    api: Api,
    output: Output,
    files: tuple[str, ...],
    target: str,
    connections: int,
    repeat: int,
    fresh_ids: bool,
    seconds: float,
    quiet: float = 1.0,
    each: bool = False,
) -> bool:
    """Send files of HL7 v2 messages; `-` is standard input.

    Each message begins with MSH.  Goes on after a refusal (AE, AR, CE, CR), and ends with a connection that is lost.  A
    message without an acknowledgement in time may be stored.  In enhanced mode (MSH-15, MSH-16) it waits for what the
    message asks for.
    """
    host, _, port = target.rpartition(":")
    if not host or not port.isdecimal():
        raise Refused(f"{target} is not HOST:PORT")
    found = {name: list(split(_read(name))) for name in dict.fromkeys(files)}
    without = [name for name, held in found.items() if not held]
    items = [Item(name, number, one) for name in files for number, one in enumerate(found[name], 1)] * repeat
    if not items:
        raise Refused("the files have no MSH segment")
    queue: SimpleQueue[Item] = SimpleQueue()
    for item in items:
        queue.put(replace(item, message=with_control_id(item.message)) if fresh_ids else item)
    tally = Tally()
    began = time.perf_counter()
    sent = count(1)
    with output.waiting.bar("sending", len(items)) as update:

        def tell(outcome: Outcome) -> None:
            tally.add(outcome)
            if each:
                output.say(f"{outcome.item}: {outcome.code or 'sent'} {outcome.text}".rstrip())
            if not outcome.late:
                update(next(sent))

        def work() -> None:
            _work(lambda: MllpSender(host.strip("[]"), int(port), seconds, quiet, tell), target, queue, tally)

        for worker in [deferToThread(work) for _ in range(max(1, min(connections, len(items))))]:
            await worker
    for name in without:
        output.error(f"{name} has no MSH segment, so it holds no message")
    return _report(output, tally, _left(queue), len(items), time.perf_counter() - began) and not without


def split(content: bytes) -> Iterator[bytes]:
    """The messages of a file, framed or not, with any line ends.  Segments of the results end with CR.

    Headers and trailers of files and batches (FHS, BHS, BTS, FTS) are left out.
    """
    text = content.removeprefix(codecs.BOM_UTF8).replace(b"\x1c", b"").replace(b"\r\n", b"\r").replace(b"\n", b"\r")
    for part in _START.split(text):
        message = _BATCH.sub(b"", part.strip(b"\r\x0b "))
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


def _work(connect: Callable[[], MllpSender], target: str, queue: SimpleQueue[Item], tally: Tally) -> None:
    """One connection: messages from the queue until it is empty, or the connection is lost."""
    item = None
    try:
        with connect() as sender:
            while (item := _next(queue)) is not None:
                sender.deliver(item)
            sender.finish()
    except OSError as error:
        reason = f"{target}: {error.strerror or error}"
        with tally.lock:
            tally.failures.append(reason)
            if item is not None:
                tally.unanswered.append((item, reason))


def _next(queue: SimpleQueue[Item]) -> Item | None:
    try:
        return queue.get_nowait()
    except Empty:
        return None


def _left(queue: SimpleQueue[Item]) -> list[Item]:
    return list(iter(partial(_next, queue), None))


def _read(name: str) -> bytes:
    return sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()


def _report(output: Output, tally: Tally, not_sent: list[Item], wanted: int, seconds: float) -> bool:
    answered = sorted(tally.seconds)
    result = {
        "sent": wanted - len(not_sent),
        "answered": len(answered),
        "codes": dict(tally.codes),
        "without_acknowledgement": tally.unasked,
        "seconds": round(seconds, 3),
        "per_second": round(len(answered) / seconds, 1) if seconds else None,
        "p50_ms": _share(answered, 0.5),
        "p99_ms": _share(answered, 0.99),
        "refusals": [_place(one.item) | {"code": one.code, "text": one.text} for one in tally.refused[:_SHOWN]],
        "unanswered": [_place(item) | {"text": reason} for item, reason in tally.unanswered[:_SHOWN]],
        "not_sent": len(not_sent),
        "first_not_sent": _place(not_sent[0]) if not_sent else None,
        "failures": sorted(set(tally.failures)),
    }
    if not output.data(result):
        shown = ("sent", "answered", "codes", "without_acknowledgement", "not_sent")
        figures = ("seconds", "per_second", "p50_ms", "p99_ms") if answered else ()
        output.record({name: result[name] for name in (*shown, *figures) if result[name] or name in shown[:2]})
        _explain(output, tally, not_sent)
    lost = bool(tally.failures) and tally.unasked > 0  # whether what nobody acknowledges has arrived is not known
    return tally.accepted == wanted and not tally.refused and not lost


def _explain(output: Output, tally: Tally, not_sent: list[Item]) -> None:
    """Name each message that was not accepted."""
    for one in tally.refused[:_SHOWN]:
        output.error(f"{one.item}: {one.code} {one.text}".rstrip())
    if len(tally.refused) > _SHOWN:
        output.error(f"{len(tally.refused) - _SHOWN} more were refused")
    for item, reason in tally.unanswered[:_SHOWN]:
        output.error(f"{item}: sent without an acknowledgement, it may be stored ({reason})")
    if not_sent:
        output.error(f"{len(not_sent)} messages were not sent, from {not_sent[0]} on")
    if tally.failures:
        output.error("; ".join(sorted(set(tally.failures))), "is the listener there? See --to.")


def _place(item: Item) -> dict[str, str | int]:
    return {"file": item.file, "number": item.number, "control_id": item.field(10)}


def _share(ordered: list[float], share: float) -> float | None:
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1000, 2) if ordered else None
