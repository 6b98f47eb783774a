"""Feeds for every kind of source at once, each of which keeps what it was promised.

MLLP, HL7 over HTTP, files and batches, a FHIR server that is polled (a second instance), a vendor's REST API that is
polled; behind the engine a receiver of forwarded messages and a stream of notifications.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import itertools
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ipf.ports.messages.sources import FHIR_REST, NATIVE_API
from tests.faults.feed import Feed, admission
from tests.flows.athena import Practice
from tests.flows.polled import CREDENTIALS, PATIENTS, entry, patient, profiles, result
from tests.service_process import ServiceProcess
from tests.waiting import PATIENCE, until

KIND = {"Content-Type": "application/hl7-v2"}
IN_A_FILE = 10
PRACTICE_PATIENTS = 12
BACKLOG = 40
AHEAD = 8  # changes of the practice
FOR_EVER = float("inf")
"""Feeds never give up; what waits for them does."""
_STORED = (
    "SELECT source_protocol, count(*), count(*) FILTER (WHERE status NOT IN ('DELIVERED', 'DEAD_LETTER'))"
    " FROM ingested_messages GROUP BY 1"
)


def text(control_id: str, person: str, phone: str) -> bytes:
    """An admission without the frame of MLLP."""
    return admission(control_id, person, phone).strip(b"\x0b\x1c\r") + b"\r"


@dataclass
class Stored:
    """What the engine has stored: messages by protocol, and how many are not at their end.  `sql` asks its database."""

    sql: Callable[[str], list[list[str]]]
    rows: Counter[str] = field(default_factory=Counter)
    open: int = 0

    async def look(self) -> bool:
        """Ask, unless its database is down; False, so that it is asked again."""
        with contextlib.suppress(RuntimeError):
            found = await asyncio.to_thread(self.sql, _STORED)
            self.rows = Counter({protocol: int(count) for protocol, count, _ in found})
            self.open = sum(int(waiting) for _, _, waiting in found)
        return False

    def keeps_up(self) -> bool:
        """Whether the engine converts what it takes."""
        return self.open < BACKLOG


class HttpFeed:
    """Posts one message after another until each is acknowledged; `accepted`: their MSH-10."""

    def __init__(self, port: int, stored: Stored) -> None:
        self.port, self._stored = port, stored
        self.accepted: list[str] = []
        self.stopping = False

    async def run(self) -> None:
        """Send until it is stopped."""
        for number in itertools.count():
            if self.stopping:
                return
            id = f"H{number}"
            body = text(id, f"HP{number % 9}", f"+48{number}")
            await until(partial(asyncio.to_thread, self._posted, body), id, seconds=FOR_EVER)
            self.accepted.append(id)
            await until(lambda: self.stopping or self._stored.keeps_up(), seconds=FOR_EVER)

    def _posted(self, body: bytes) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request("POST", "/", body, KIND)
            answer = connection.getresponse()
            return answer.status == 200 and b"MSA|AA|" in answer.read()
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


class FileFeed:
    """Writes a file of messages when the one before is taken, every second one as a batch; `written`: their MSH-10."""

    def __init__(self, folder: Path, stored: Stored) -> None:
        self.folder, self._stored = folder, stored
        self.files = 0
        self.written: list[str] = []
        self.stopping = False

    async def run(self) -> None:
        """Write until it is stopped."""
        while not self.stopping:
            ids = [f"F{self.files}-{number}" for number in range(IN_A_FILE)]
            body = b"".join(text(id, f"FP{number}", f"+49{self.files}") for number, id in enumerate(ids))
            if self.files % 2:
                body = b"FHS|^~\\&|LAB\rBHS|^~\\&|LAB\r" + body + b"BTS|%d\rFTS|1\r" % IN_A_FILE
            hidden = self.folder / f"{self.files}.tmp"
            hidden.write_bytes(body)
            hidden.rename(self.folder / f"{self.files}.hl7")
            self.files += 1
            self.written += ids
            await until(lambda: self.stopping or self._is_taken(), seconds=FOR_EVER)

    def _is_taken(self) -> bool:
        return self.done() == self.files and self._stored.keeps_up()

    def done(self) -> int:
        """Files that were taken whole."""
        return len(list((self.folder / "done").glob("*.hl7")))


class EhrFeed:
    """Changes patients and results of a second instance; a change that is not acknowledged is made again.

    The next change is made when something was polled.
    """

    def __init__(self, service: ServiceProcess, stored: Stored) -> None:
        self.service, self._stored = service, stored
        self.chance = random.Random(11)
        self.changes = 0
        self.stopping = False

    async def run(self) -> None:
        """Change until it is stopped."""
        while not self.stopping:
            number, value = self.chance.randrange(PATIENTS), self.changes + 1
            entries = [entry(patient(number, value)), entry(result(number, value))]
            polled = self._stored.rows[FHIR_REST]
            await until(partial(asyncio.to_thread, self._changed, entries), f"change {value}", seconds=FOR_EVER)
            self.changes = value
            await until(partial(self._is_polled, polled), seconds=FOR_EVER)

    def _is_polled(self, before: int) -> bool:
        return self.stopping or (self._stored.rows[FHIR_REST] > before and self._stored.keeps_up())

    def _changed(self, entries: list[Any]) -> bool:
        bundle = {"resourceType": "Bundle", "type": "transaction", "entry": entries}
        try:
            return self.service.request("POST", "/fhir", bundle)[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def last_versions(self) -> dict[str, Any]:
        """`Patient/p1/3` of the last version of each resource: its content."""
        found = {}
        for kind in ("Patient", "Observation"):
            _, bundle = self.service.get(f"/fhir/{kind}?_count=1000")
            held = [one["resource"] for one in bundle["entry"]]
            found |= {f"{kind}/{one['id']}/{one['meta']['versionId']}": one for one in held}
        return found


class PracticeFeed:
    """Changes patients of the vendor's API; `made`: number and version of each change.  A few wait to be polled."""

    def __init__(self, practice: Practice, stored: Stored) -> None:
        self.practice, self._stored = practice, stored
        self.stopping = False

    async def run(self) -> None:
        """Change until it is stopped."""
        for number in itertools.count():
            if self.stopping:
                return
            self.practice.change(number % PRACTICE_PATIENTS)
            await until(lambda: self.stopping or self._is_polled(), seconds=FOR_EVER)

    def _is_polled(self) -> bool:
        return len(self.made) - self._stored.rows[NATIVE_API] < AHEAD and self._stored.keeps_up()

    @property
    def made(self) -> set[str]:
        """As `3/7`: the seventh version of patient 3."""
        return {f"{number}/{version}" for number, last in self.practice.versions.items()
                for version in range(1, last + 1)}  # fmt: skip


__all__ = ["CREDENTIALS", "EhrFeed", "Feed", "FileFeed", "HttpFeed", "PracticeFeed", "profiles"]
