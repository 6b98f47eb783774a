"""A feed that never gives up: stop-and-wait senders that reconnect and repeat, as interface engines do.

It keeps what it was promised: the control ids that were acknowledged `AA`, which the tests then look for.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.traffic.messages import END, VT
from tests.waiting import PATIENCE, breathe, until

_FOR_EVER = float("inf")
"""Senders never give up; what waits for their acknowledgements does."""


def admission(control_id: str, patient: str, phone: str) -> bytes:
    """A small ADT^A01 whose phone number differs each time, so that each one makes a new version of its patient."""
    return (
        VT
        + (
            f"MSH|^~\\&|FEED|GENERAL|IPF|IPF|20260102030405||ADT^A01^ADT_A01|{control_id}|P|2.5.1\r"
            "EVN|A01|20260102030405\r"
            f"PID|1||{patient}^^^GENERAL^MR||Hansen^Kari||19700315|F|||||{phone}^PRN^PH\r"
            f"PV1|1|I|W3^301^2^GENERAL||||D123^Solberg^Silje^^^Dr^^^NPI|||MED|||||||||V{patient}^^^GENERAL^VN\r"
        ).encode()
        + END
    )


class Answer(NamedTuple):
    """One attempt to send a message: when it began and ended (`time.monotonic`), its code or `lost`, its sender."""

    began: float
    ended: float
    code: str
    sender: int = 0


@dataclass
class Feed:
    """`senders` connections, each with patients of its own; `sent` and `accepted` map control ids to patients.

    Senders go on while fewer than `window` messages are on their way through the service, as `behind` says: the load is
    what the machine converts, however slow it is.  `rest` is awaited between two messages of a sender.  One that
    receives no answer within `answer_seconds` connects again and repeats.
    """

    port: int
    host: str = "127.0.0.1"
    answer_seconds: float = PATIENCE
    senders: int = 8
    patients_each: int = 5
    window: int = 40
    behind: Callable[[], int] = lambda: 0
    rest: Callable[[], Awaitable[object]] = breathe
    first_sender: int = 0
    accepted: dict[str, str] = field(default_factory=dict)
    sent: dict[str, str] = field(default_factory=dict)
    codes: Counter[str] = field(default_factory=Counter)
    answers: list[Answer] = field(default_factory=list)
    _stopping: bool = False
    _is_repeating: bool = False
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _connections: dict[int, tuple[asyncio.StreamReader, asyncio.StreamWriter]] = field(default_factory=dict)

    def start(self) -> None:
        """Begin to send."""
        self._tasks = [asyncio.create_task(self._send(self.first_sender + number)) for number in range(self.senders)]

    async def stop(self) -> None:
        """End each sender after the message in hand is acknowledged."""
        self._stopping = True
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*self._tasks)

    def abandon(self) -> None:
        """End each sender at once."""
        for task in self._tasks:
            task.cancel()

    def check(self) -> None:
        """Raise what ended a sender."""
        for task in self._tasks:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise error

    @contextlib.contextmanager
    def repeating(self) -> Iterator[None]:
        """Meanwhile senders that must wait repeat their last message: an outage is seen, and no message is added."""
        self._is_repeating = True
        try:
            yield
        finally:
            self._is_repeating = False

    @contextlib.contextmanager
    def wider(self, by: int = 100) -> Iterator[None]:
        """Meanwhile so many more may be on their way: for a service that takes messages and does not deliver them."""
        self.window += by
        try:
            yield
        finally:
            self.window -= by

    async def until(self, count: int, seconds: float = PATIENCE) -> None:
        """Wait for so many acknowledgements in all."""

        def enough() -> bool:
            self.check()
            return len(self.accepted) >= count

        try:
            await until(enough, seconds=seconds)
        except AssertionError:
            raise TimeoutError(f"{len(self.accepted)} of {count} messages were accepted; {self.codes}") from None

    async def more(self, count: int) -> None:
        """Wait for so many further acknowledgements."""
        await self.until(len(self.accepted) + count)

    async def refused(self, count: int = 1) -> None:
        """Wait for so many further answers `AE`."""
        wanted = self.codes["AE"] + count
        with self.repeating():
            await until(lambda: self.codes["AE"] >= wanted, f"{wanted} answers AE")

    async def _send(self, sender: int) -> None:
        last: tuple[str, bytes] | None = None
        for number in itertools.count():
            while not self._may_send():
                if self._is_repeating and last is not None:
                    await self._until_accepted(sender, *last)
                await self.rest()
            if self._stopping:
                return
            patient = f"S{sender}P{number % self.patients_each}"
            control_id = f"S{sender}N{number}"
            self.sent[control_id] = patient
            message = admission(control_id, patient, f"+47{sender:02}{number:06}")
            await self._until_accepted(sender, control_id, message)
            self.accepted[control_id] = patient
            last = control_id, message
            await self.rest()

    async def _until_accepted(self, sender: int, control_id: str, message: bytes) -> None:
        await until(lambda: self._accepted(sender, control_id, message), control_id, seconds=_FOR_EVER)

    def _may_send(self) -> bool:
        return self._stopping or self.behind() < self.window

    async def _accepted(self, sender: int, control_id: str, message: bytes) -> bool:
        """One attempt."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(self.answer_seconds):  # wait_for can swallow a cancellation (Python 3.11)
                code = await self._ask(sender, control_id, message)
        except (OSError, EOFError, TimeoutError):
            code = "lost"
        self.codes[code] += 1
        self.answers.append(Answer(began, time.monotonic(), code, sender))
        return code == "AA"

    async def _ask(self, sender: int, control_id: str, message: bytes) -> str:
        if sender not in self._connections:
            self._connections[sender] = await asyncio.open_connection(self.host, self.port)
        reader, writer = self._connections[sender]
        try:
            writer.write(message)
            answer = await reader.readuntil(END)
        except BaseException:
            del self._connections[sender]
            writer.close()
            raise
        fields = answer.partition(b"\rMSA|")[2].split(b"\r")[0].split(b"|")
        if fields[1].decode() != control_id:
            raise AssertionError(f"acknowledgement of {fields[1]!r}, expected {control_id}")
        return fields[0].decode()
