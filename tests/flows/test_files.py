"""A watched folder: a file of many messages, one that is none, and a folder that is gone."""

from __future__ import annotations

import os
from pathlib import Path
from shutil import rmtree
from typing import Any

from tests.flows.engine import EngineTestCase, from_sender

FAMILY = "engine"


class FileFlowTests(EngineTestCase):
    def health(self) -> Any:
        """The component of the file sources."""
        return self.ask("GET", "/actuator/health")["components"]["files"]

    def test_a_file_of_messages_is_taken_once(self) -> None:
        watched = self.engine.watched
        hidden = watched / "a.tmp"
        hidden.write_bytes(b"".join(from_sender("FILED", f"F{number}", f"FILE{number % 5}") for number in range(40)))
        hidden.rename(watched / "a.hl7")
        self.wait((watched / "done" / "a.hl7").exists, "the file is done")
        self.wait(lambda: len(self.listed("source_system=FILED&status=DELIVERED")) == 40, "all are delivered")
        self.assertEqual(len(self.listed("source_system=FILED")), 40)
        self.assertFalse((watched / "failed").exists())

    def test_a_name_that_is_no_text_does_not_stop_the_folder(self) -> None:
        """Names of Windows in Latin-1, one with no message in it: both are moved, and the file after them is taken."""
        watched = os.fsencode(self.engine.watched)
        for name, content in ((b"J\xf8rn.hl7", from_sender("LATIN", "L1", "LAT1")), (b"br\xe9v.txt", b"dear lab\n")):
            with open(os.path.join(watched, name), "wb") as file:
                file.write(content)
        (self.engine.watched / "last.hl7").write_bytes(from_sender("LATIN", "L2", "LAT2"))
        self.wait(lambda: len(self.listed("source_system=LATIN&status=DELIVERED")) == 2, "both are delivered")
        moved = [os.path.join(watched, *path) for path in ((b"done", b"J\xf8rn.hl7"), (b"failed", b"br\xe9v.txt"))]
        self.wait(lambda: all(map(os.path.exists, moved)), "the files are moved")
        self.assertIn(b"br\\udce9v.txt, source drop", Path(os.fsdecode(moved[1] + b".report.txt")).read_bytes())
        self.assertEqual(self.health()["status"], "UP")
        rmtree(self.engine.watched / "failed")

    def test_health_tells_of_files_and_of_the_folder(self) -> None:
        """A file that failed is counted; without its folder the source is down, and the service up."""
        watched = self.engine.watched
        (watched / "bad.hl7").write_bytes(b"MSH|^~\\&|LAB\r")
        self.wait((watched / "failed" / "bad.hl7").exists, "the file has failed")
        self.wait(lambda: self.health()["details"]["drop"]["failed"] >= 1, "health counts it")
        rmtree(watched)
        self.addCleanup(watched.mkdir)
        self.wait(lambda: self.health()["status"] == "DOWN", "health misses the folder")
        self.assertIn("drop: the folder cannot be read", str(self.health()))
        self.assertEqual(self.ask("GET", "/actuator/health")["status"], "UP")
        kinds = {one["listener"]: one["kind"] for one in self.ask("GET", "/admin/observe/interfaces")["items"]}
        self.assertEqual(kinds["drop"], "file")
