"""A watched folder of a real service: files of many messages, through kill -9."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from shutil import rmtree

from twisted.trial.unittest import TestCase

from tests.faults.feed import admission
from tests.service_process import ServiceProcess
from tests.waiting import PATIENCE

GROUP = "kills"
FILES, MESSAGES = 4, 500


class FileFlowTests(TestCase):
    timeout = PATIENCE

    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ipf-file-flow-"))
        self.folder.chmod(0o755)
        self.addCleanup(rmtree, self.folder, ignore_errors=True)
        self.watched = self.folder / "lab"
        self.watched.mkdir()
        self.service = ServiceProcess(
            self.folder / "service", IPF_FILE_SOURCES=f"lab={self.watched}", IPF_FILE_POLL_SECONDS="0.1"
        )
        self.service.start()
        self.addCleanup(self.service.stop)
        self.service.wait_ready()

    def wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        pause = getattr(time, "sleep")  # noqa: B009  # blocking on purpose: there is no reactor here
        while not condition():
            self.assertLess(time.monotonic(), deadline)
            pause(0.02)

    def total(self) -> int:
        """Messages that are stored."""
        found: int = self.service.get("/admin/messages?limit=1")[1]["total"]
        return found

    def done(self) -> int:
        """Files that are done."""
        return len(list((self.watched / "done").glob("*")))

    def test_kills_lose_nothing_and_double_nothing(self) -> None:
        for file in range(FILES):
            messages = (admission(f"F{file}-{number}", f"P{number}", f"+47{file}") for number in range(MESSAGES))
            (self.watched / f"{file}.tmp").write_bytes(b"".join(messages))
        for file in range(FILES):
            self.wait(lambda count=file: self.done() == count)  # type: ignore[misc]
            (self.watched / f"{file}.tmp").rename(self.watched / f"{file}.hl7")
            self.wait(lambda count=file: self.total() > count * MESSAGES)  # type: ignore[misc]
            self.service.kill()
            self.service.start()
            self.service.wait_ready()
        self.wait(lambda: self.done() == FILES)
        self.assertEqual(self.total(), FILES * MESSAGES)
        self.assertFalse((self.watched / "failed").exists())
        self.reported()

    def reported(self) -> None:
        """Health and the list of senders say that it is a folder."""
        (self.watched / "bad.hl7").write_bytes(b"MSH|^~\\&|LAB\r")
        self.wait(lambda: (self.watched / "failed" / "bad.hl7").exists())
        self.wait(
            lambda: self.service.get("/actuator/health")[1]["components"]["files"]["details"]["lab"]["failed"] == 1
        )
        rmtree(self.watched)
        self.wait(lambda: self.service.get("/actuator/health")[1]["components"]["files"]["status"] == "DOWN")
        state, health = self.service.get("/actuator/health")
        self.assertIn("lab: the folder cannot be read", str(health["components"]["files"]))
        self.assertEqual((state, health["status"]), (200, "UP"))
        (sender,) = self.service.get("/admin/observe/interfaces")[1]["items"]
        self.assertEqual((sender["kind"], sender["listener"]), ("file", "lab"))
