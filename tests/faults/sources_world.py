"""Feeds for every kind of source at once, each of which keeps what it was promised.

MLLP, HL7 over HTTP, files and batches, a FHIR server that is polled (a second instance), a vendor's REST API that is
polled; behind the engine a receiver of forwarded messages and a stream of notifications.
"""

from __future__ import annotations

import asyncio
import http.client
import itertools
import json
import random
from pathlib import Path
from typing import Any

from tests.faults.feed import Feed, admission
from tests.flows.athena import SECRET, Practice
from tests.flows.test_polling import MANIFEST as EHR_MANIFEST
from tests.flows.test_polling import PATIENTS, entry, patient, result
from tests.flows.test_rest_polling import MANIFEST as PRACTICE_MANIFEST
from tests.flows.test_rest_polling import MAP
from tests.service_process import ServiceProcess
from tests.vendor_profiles.samples import tar
from tests.waiting import PATIENCE

KIND = {"Content-Type": "application/hl7-v2"}
IN_A_FILE = 10
PRACTICE_PATIENTS = 12


def text(control_id: str, person: str, phone: str) -> bytes:
    """An admission without the frame of MLLP."""
    return admission(control_id, person, phone).strip(b"\x0b\x1c\r") + b"\r"


class HttpFeed:
    """Posts one message after another until each is acknowledged; `accepted`: their MSH-10."""

    def __init__(self, port: int, pause: float) -> None:
        self.port, self.pause = port, pause
        self.accepted: list[str] = []
        self.stopping = False

    async def run(self) -> None:
        """Send until it is stopped."""
        for number in itertools.count():
            if self.stopping:
                return
            id = f"H{number}"
            while not await asyncio.to_thread(self._posted, text(id, f"HP{number % 9}", f"+48{number}")):
                await asyncio.sleep(0.2)
            self.accepted.append(id)
            await asyncio.sleep(self.pause)

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
    """Writes a file of messages now and then, every second one as a batch; `written`: their MSH-10."""

    def __init__(self, folder: Path, pause: float) -> None:
        self.folder, self.pause = folder, pause
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
            await asyncio.sleep(self.pause)

    def done(self) -> int:
        """Files that were taken whole."""
        return len(list((self.folder / "done").glob("*.hl7")))


class EhrFeed:
    """Changes patients and results of a second instance; a change that is not acknowledged is made again."""

    def __init__(self, service: ServiceProcess, pause: float) -> None:
        self.service, self.pause = service, pause
        self.chance = random.Random(11)
        self.changes = 0
        self.stopping = False

    async def run(self) -> None:
        """Change until it is stopped."""
        while not self.stopping:
            number, value = self.chance.randrange(PATIENTS), self.changes + 1
            while not await asyncio.to_thread(
                self._changed, [entry(patient(number, value)), entry(result(number, value))]
            ):
                await asyncio.sleep(0.2)
            self.changes = value
            await asyncio.sleep(self.pause)

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
    """Changes patients of the vendor's API; `made`: number and version of each change."""

    def __init__(self, practice: Practice, pause: float) -> None:
        self.practice, self.pause = practice, pause
        self.stopping = False

    async def run(self) -> None:
        """Change until it is stopped."""
        for number in itertools.count():
            if self.stopping:
                return
            self.practice.change(number % PRACTICE_PATIENTS)
            await asyncio.sleep(self.pause)

    @property
    def made(self) -> set[str]:
        """As `3/7`: the seventh version of patient 3."""
        return {f"{number}/{version}" for number, last in self.practice.versions.items()
                for version in range(1, last + 1)}  # fmt: skip


def profiles(folder: Path, ehr_url: str, practice_port: int) -> None:
    """The archives of both polled sources."""
    folder.mkdir()
    (folder / "ehr.tar.gz").write_bytes(tar({"manifest.yaml": EHR_MANIFEST.format(base=ehr_url), "README.md": "x"}))
    archive = {
        "manifest.yaml": PRACTICE_MANIFEST.format(port=practice_port),
        "README.md": "x",
        "maps/patient.fml": MAP,
        "tests/patient/input.json": '{"patientid": "1"}',
        "tests/patient/expected.json": json.dumps({"resourceType": "Patient", "identifier": [{"value": "1"}]}),
    }
    (folder / "practice.tar.gz").write_bytes(tar(archive))


CREDENTIALS = {"EHR_TOKEN": "t", "PRACTICE_CLIENT": "me", "PRACTICE_SECRET": SECRET}

__all__ = ["CREDENTIALS", "EhrFeed", "Feed", "FileFeed", "HttpFeed", "PracticeFeed", "profiles"]
