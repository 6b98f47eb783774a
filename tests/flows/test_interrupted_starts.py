"""Starts that end early, of the real service: a broken map, and signals at each step."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]  # has no types of its own
from twisted.trial.unittest import TestCase

from tests import processes
from tests.event_loop import run
from tests.service_process import ROOT, ServiceProcess
from tests.waiting import LIMIT, until

GROUP = "flows"
QUIET = {"PYTHONWARNINGS": "default,ignore::ResourceWarning"}
"""An early end leaves files for the end of the process to close, which Python reports when all warnings are on."""


def records(service: ServiceProcess) -> list[dict[str, Any]]:
    """The log so far; a line that is not JSON is an error."""
    return [json.loads(line) for line in service.log_path.read_bytes().splitlines() if line]


def left_behind(folder: Path) -> list[str]:
    """The processes that work in a folder or on its database: PostgreSQL, its programs, converters."""
    found = []
    for process in psutil.process_iter():
        try:
            command = process.cmdline()
            about = [process.cwd(), *command, process.environ().get("IPF_DATA_DIR", "")]
        except psutil.Error:
            continue
        if process.pid != os.getpid() and any(str(folder) in one for one in about):
            found.append(f"{process.pid} {' '.join(command)}")
    return found


class InterruptedStartTests(TestCase):
    timeout = 4 * LIMIT  # seven starts in a row, two of them from nothing

    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ipf-start-"))
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.folder.chmod(0o755)

    def test_a_broken_map_is_found_before_anything_is_accepted(self) -> None:
        """By converter processes, by the process that converts, or by a child process, also after good starts."""
        maps = self.folder / "maps"
        shutil.copytree(ROOT / "maps", maps)
        run(self.started_once(maps), self.timeout)
        path = maps / "messages/ADT_A01.fml"
        path.write_text(path.read_text().replace("encounter.subject", "encounter.object"))
        for environment in (
            {"IPF_WORKER_PROCESSES": "2"},
            {"IPF_WORKER_PROCESSES": "0"},
            {"IPF_ROLES": "admin"},
        ):
            run(self.with_a_broken_map(maps, environment), self.timeout)

    async def started_once(self, maps: Path) -> None:
        """With maps without a mistake."""
        service = ServiceProcess(self.folder / "service", IPF_MAPS_DIR=str(maps), IPF_WORKER_PROCESSES="1")
        service.start()
        await until(service.ready, "it is ready")
        self.assertEqual(service.stop(), 0)

    async def with_a_broken_map(self, maps: Path, environment: dict[str, str]) -> None:
        service = ServiceProcess(self.folder / "service", IPF_MAPS_DIR=str(maps), **environment)
        before = len(records(service)) if service.log_path.exists() else 0
        service.start()
        await until(lambda: service.answers() or service.ended() is not None, "it ends")
        self.assertFalse(service.answers())
        self.assertEqual(service.stop(), 1)
        found = [one for one in records(service)[before:] if one["level"] == "ERROR" or "stack_trace" in one]
        self.assertEqual(len(found), 1, found)
        self.assertIn("ipf cannot start: ", found[0]["message"])
        self.assertIn("messages/ADT_A01.fml:", found[0]["message"])
        self.assertEqual(left_behind(self.folder), [])

    def test_signals_during_the_start_end_it_in_order(self) -> None:
        run(self.ended_at_each_step(), self.timeout)

    async def ended_at_each_step(self) -> None:
        """Each start in `data` gets further than the one before it; the last is whole."""
        first = ServiceProcess(self.folder / "first", **QUIET)
        first.from_template = False
        await self.started_until(first, "starting up", 1, signal.SIGTERM)
        service = ServiceProcess(self.folder / "second", IPF_WORKER_PROCESSES="1", **QUIET)
        service.from_template = False
        for marker, times, number in (
            ("event=database_init", 1, signal.SIGTERM),  # initdb runs
            ("event=migrated", 1, signal.SIGTERM),
            ("is not set", 1, signal.SIGTERM),
            ("HTTP listens", 1, signal.SIGTERM),  # the converter converts
            (" listens on", 2, signal.SIGINT),
            ("event=started", 1, signal.SIGINT),
        ):
            await self.started_until(service, marker, times, number)
        self.check_the_line_of_the_start(service)

    def check_the_line_of_the_start(self, service: ServiceProcess) -> None:
        """It says where to go, in the text and in fields."""
        *_, line = [one for one in records(service) if one["message"].startswith("event=started")]
        fields = {
            "fhir": f"FHIR {service.base_url}/fhir",
            "admin": f"admin {service.base_url}/admin",
            "mllp": f"MLLP 127.0.0.1:{service.mllp_port}",
        }
        text = ", ".join(fields.values())
        self.assertEqual((line["level"], line["message"]), ("INFO", f"event=started {text}"))
        roles = "receive convert deliver poll admin fhir mapping"
        self.assertEqual(line["mdc"], {"event": "started", "places": text, "roles": roles, **fields})

    async def started_until(self, service: ServiceProcess, marker: str, times: int, number: int) -> None:
        """Start, and send a signal when the log has the marker so many times more."""
        wanted = self.times(service, marker) + times
        service.start()
        await until(lambda: self.times(service, marker) >= wanted or service.ended() is not None, marker)
        self.assertIs(service.ended(), None, service.log_tail())
        if number == signal.SIGINT:  # as of a terminal: to all processes
            for child in processes.family(service.pid)[1:]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    if "postgres" not in child.name():
                        child.send_signal(number)
        os.kill(service.pid, number)
        await until(lambda: service.ended() is not None, "it ends")
        self.assertEqual(service.stop(), 0, service.log_tail())
        found = records(service)
        self.assertEqual([one for one in found if one["level"] == "ERROR" or "stack_trace" in one], [], marker)
        self.assertEqual(left_behind(self.folder), [], marker)

    @staticmethod
    def times(service: ServiceProcess, marker: str) -> int:
        """How often the log has the marker."""
        return service.log_path.read_bytes().count(marker.encode()) if service.log_path.exists() else 0
