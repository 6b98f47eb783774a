"""From a real socket to a real web hook: the service as it is installed, on an embedded PostgreSQL of its own."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

from twisted.trial.unittest import TestCase

from tests.event_loop import run
from tests.faults.feed import admission
from tests.faults.scenario import Scenario
from tests.service_process import ServiceProcess
from tests.traffic.sink import Sink
from tests.traffic.subscribers import subscribe
from tests.waiting import PATIENCE

GROUP = "flows"
PID = b"PID|1||P9^^^GENERAL^MR||Hansen^Ola\r\x1c\r"
PASSED_THROUGH = b"\x0bMSH|^~\\&|FEED|GENERAL|IPF|IPF|20260102||ADT^A04|A4|P|2.5\r" + PID
UNMAPPED = b"\x0bMSH|^~\\&|FEED|GENERAL|IPF|IPF|20260102||ZZZ^Z01|Z1|P|2.5\r" + PID
GARBAGE = b"\x0bthis is no HL7\x1c\r"


async def answer_to(port: int, frame: bytes) -> list[bytes]:
    """Send one frame; the segments of the acknowledgement."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(frame)
    answer = await asyncio.wait_for(reader.readuntil(b"\x1c\r"), PATIENCE)
    writer.close()
    return answer.strip(b"\x0b\x1c\r").split(b"\r")


class EndToEndTests(TestCase):
    def test_messages_become_resources_and_notifications(self) -> None:
        """What `bin/demo` shows, asserted."""
        run(self._end_to_end())

    async def _end_to_end(self) -> None:
        async with Scenario(IPF_MAX_ATTEMPTS="2", IPF_CONVERTER_NICE="3") as scenario:
            service, port = scenario.service, scenario.service.mllp_port
            silent = Sink()
            silent.keep_bodies = True
            await self._subscribe_empty(service, await silent.start())
            first = await answer_to(port, admission("M1", "P1", "+4711"))
            self.assertEqual(first[1], b"MSA|AA|M1")
            self.assertEqual(first[0].split(b"|")[2:6], [b"IPF", b"IPF", b"FEED", b"GENERAL"])
            self.assertTrue(await scenario.sink.until(1, PATIENCE))
            patient = json.loads(scenario.sink.bodies[0])
            self.assertEqual((patient["resourceType"], patient["meta"]["versionId"]), ("Patient", "1"))
            self.assertTrue(await silent.until(1, PATIENCE))
            self.assertEqual(silent.bodies[0], b"")
            await self._updates_and_repeats(scenario, patient["id"])
            await self._metrics_of_all_processes(service)
            await self._operators(service, patient["id"])
            await self._other_kinds(scenario)
            status, page = await asyncio.to_thread(service.get, "/admin/rejects")
            self.assertEqual((status, page["total"], page["items"][0]["size"]), (200, 1, len(GARBAGE) - 3))

    async def _metrics_of_all_processes(self, service: ServiceProcess) -> None:
        """The converter process counts transformations, the main process notifications: one scrape has both."""
        delivered = r'fhir_subscription_delivery_total\{outcome="success"\} [34]\.0'
        active = "fhir_subscription_active 2.0"
        mapped = 'interface_engine_transform_duration_seconds_count{outcome="success"} 2.0'
        text = ""
        async with asyncio.timeout(PATIENCE):
            # A converter process writes its counts once a second; the gauge is measured as often.
            while mapped not in text or active not in text or not re.search(delivered, text):
                await asyncio.sleep(0.05)
                _, text = await asyncio.to_thread(service.get, "/actuator/prometheus")
        priorities = {os.getpriority(os.PRIO_PROCESS, one) for one in service.converters}
        self.assertEqual(priorities, {os.getpriority(os.PRIO_PROCESS, service.pid) + 3})
        self.assertIn("interface_engine_dlq_current_size 0.0", text)

    async def _subscribe_empty(self, service: ServiceProcess, url: str) -> None:
        resource = {
            "resourceType": "Subscription",
            "status": "requested",
            "reason": "flow",
            "criteria": "Encounter?status=in-progress",
            "channel": {"type": "rest-hook", "endpoint": url},
        }
        status, created = await asyncio.to_thread(service.request, "POST", "/fhir/Subscription", resource)
        self.assertEqual(status, 201, created)

    async def _updates_and_repeats(self, scenario: Scenario, patient_id: str) -> None:
        service, port = scenario.service, scenario.service.mllp_port
        self.assertEqual((await answer_to(port, admission("M1", "P1", "+4711")))[1], b"MSA|AA|M1")
        self.assertEqual((await answer_to(port, admission("M2", "P1", "+4722")))[1], b"MSA|AA|M2")
        self.assertTrue(await scenario.sink.until(2, PATIENCE))
        changed = json.loads(scenario.sink.bodies[1])
        self.assertEqual((changed["id"], changed["meta"]["versionId"]), (patient_id, "2"))
        _, page = await asyncio.to_thread(service.get, "/admin/messages?source_system=FEED")
        self.assertEqual([item["source_id"] for item in page["items"]], ["M2", "M1"])
        _, found = await asyncio.to_thread(service.get, "/fhir/Patient?identifier=P1")
        self.assertEqual(found["total"], 1)
        _, encounters = await asyncio.to_thread(service.get, f"/fhir/Encounter?subject=Patient/{patient_id}")
        self.assertEqual(encounters["total"], 1)

    async def _operators(self, service: ServiceProcess, patient_id: str) -> None:
        """Found by what stands in it, what it did, what a replay would do, and the replay."""
        _, page = await asyncio.to_thread(service.get, "/admin/messages?text=m1&patient=p1")
        self.assertEqual([item["source_id"] for item in page["items"]], ["M1"])
        path = f"/admin/messages/{page['items'][0]['id']}"
        async with asyncio.timeout(PATIENCE):
            _, effects = await asyncio.to_thread(service.get, f"{path}/effects")
            while effects["effects_status"] == "pending":
                await asyncio.sleep(0.05)
                _, effects = await asyncio.to_thread(service.get, f"{path}/effects")
        self.assertEqual((effects["effects_status"], bool(effects["transform"]["map"])), ("delivered", True))
        made = {(one["resource_type"], one["id"], one["action"]) for one in effects["fhir_resources_created"]}
        self.assertIn(("Patient", patient_id, "created"), made)
        self.assertEqual({one["http_status"] for one in effects["notifications_fired"]}, {200})
        asked = {"ids": [page["items"][0]["id"]]}
        replay = "/admin/messages/replay"
        status, dry = await asyncio.to_thread(service.request, "POST", replay, asked | {"dry_run": True})
        outcomes = {one["resource_type"]: one for one in dry["items"][0]["resources"]}
        patient = outcomes["Patient"]
        self.assertEqual((status, patient["outcome"], patient["id"]), (200, "updated", patient_id))
        paths = [one["path"] for one in patient["differences"]]
        self.assertTrue(paths and all(one.startswith("Patient.telecom") for one in paths), paths)
        status, job = await asyncio.to_thread(service.request, "POST", replay, asked)
        self.assertEqual((status, job["total"]), (202, 1))
        async with asyncio.timeout(PATIENCE):
            again = {"total": 0, "items": []}
            while again["total"] < 2:
                await asyncio.sleep(0.05)
                _, again = await asyncio.to_thread(service.get, "/admin/conversions?status=DELIVERED")
        self.assertEqual({one["reason"] for one in again["items"]}, {f"job/{job['id']}"})
        for open_path in ("/admin/config", "/admin/openapi.json", f"/admin/jobs/{job['id']}"):
            self.assertEqual((await asyncio.to_thread(service.get, open_path))[0], 200)

    async def _other_kinds(self, scenario: Scenario) -> None:
        service, port = scenario.service, scenario.service.mllp_port
        self.assertEqual((await answer_to(port, PASSED_THROUGH))[1], b"MSA|AA|A4")
        self.assertEqual((await answer_to(port, UNMAPPED))[1], b"MSA|AA|Z1")
        refused = await answer_to(port, GARBAGE)
        self.assertEqual(refused[1].split(b"|")[1], b"AR")
        self.assertTrue(any(segment.startswith(b"ERR|") for segment in refused))
        passed = await self._row(service, "A4", "DELIVERED")
        self.assertIsNone(passed["last_error"])
        dead = await self._row(service, "Z1", "DEAD_LETTER")
        self.assertEqual(dead["attempt_count"], 2)
        self.assertTrue(dead["last_error"].startswith("matchbox: "), dead["last_error"])
        async with asyncio.timeout(PATIENCE):
            said: set[str] = set()
            while not {"event=dlq", "event=passthrough"} <= said:  # what another process logs takes a moment
                said = set(re.findall(r"event=\w+", service.log_path.read_text()))
                await asyncio.sleep(0.05)
        self._said(service, passed, dead)
        path = f"/admin/messages/{dead['id']}"
        status, row = await asyncio.to_thread(service.request, "POST", f"{path}/retry")
        self.assertEqual((status, row["status"], row["attempt_count"]), (200, "RECEIVED", 0))
        await self._row(service, "Z1", "DEAD_LETTER")
        self.assertEqual((await asyncio.to_thread(service.request, "DELETE", path))[0], 204)
        self.assertEqual((await asyncio.to_thread(service.get, path))[0], 404)

    def _said(self, service: ServiceProcess, passed: dict[str, Any], dead: dict[str, Any]) -> None:
        """The lines of the log that the interface specification lists, with their fields; what each record has."""
        records = [json.loads(line) for line in service.log_path.read_text().splitlines()]
        for one in records:
            self.assertEqual({"@timestamp", "level", "logger_name", "message", "schema_version"} - set(one), set(), one)
        of = f"message_id={dead['id']} source_system=FEED source_id=Z1 message_type=ZZZ_Z01 attempt_count="
        for start, level, rest in (
            (f"event=retry_scheduled {of}1 backoff_ms=100 last_error=", "INFO", "matchbox: "),
            (f"event=dlq {of}2 last_error=", "WARN", "matchbox: "),
        ):
            (line,) = [one for one in records if one["message"].startswith(start)]
            self.assertEqual((line["level"], line["correlation_id"]), (level, dead["correlation_id"]))
            self.assertIn(rest, line["message"])
        (line,) = [one for one in records if one["message"].startswith("event=passthrough")]
        for token in (f"message_id={passed['id']}", "message_type=ADT_A04", "source_id=A4", "source_system=FEED"):
            self.assertIn(token, line["message"])
        (line,) = [one for one in records if one["message"].startswith("event=rejected")]
        self.assertRegex(line["message"], r'size=14 reason="MSH: .+"$')
        events = {one["message"].partition(" ")[0] for one in records if "correlation_id" in one}
        self.assertLessEqual({"event=transformed", "event=delivered"}, events)

    async def _row(self, service: ServiceProcess, source_id: str, status: str) -> dict[str, Any]:
        async with asyncio.timeout(PATIENCE):
            while True:
                _, page = await asyncio.to_thread(service.get, f"/admin/messages?source_id={source_id}")
                if page["items"] and page["items"][0]["status"] == status:
                    item: dict[str, Any] = page["items"][0]
                    return item
                await asyncio.sleep(0.05)

    def test_stop_and_start_again(self) -> None:
        """SIGTERM ends it with status 0 and stops PostgreSQL; what was stored is there at the next start."""
        run(self._again())

    async def _again(self) -> None:
        async with Scenario() as scenario:
            await answer_to(scenario.service.mllp_port, admission("M1", "P1", "+4711"))
            data = scenario.service.environment["IPF_DATA_DIR"]
            second = ServiceProcess(scenario.folder / "second", IPF_DATA_DIR=data)
            second.start()
            async with asyncio.timeout(PATIENCE):
                while second.ended() is None:
                    await asyncio.sleep(0.1)
            self.assertEqual(second.ended(), 1)
            self.assertIn("another ipf", second.log_tail())
            self.assertIn(scenario.service.environment["IPF_DATA_DIR"], second.log_tail())
            # Twisted ends itself by the signal that stopped it, once everything is closed.
            self.assertEqual(await asyncio.to_thread(scenario.service.stop), 0)
            self.assertFalse((scenario.postgres / "postmaster.pid").exists(), scenario.service.log_tail())
            scenario.service.start()
            await scenario.ready()
            _, page = await asyncio.to_thread(scenario.service.get, "/admin/messages")
            self.assertEqual(page["total"], 1)

    def test_a_wrong_setting_stops_the_start(self) -> None:
        """The variable is named, and the status is not 0."""
        run(self._wrong_setting())

    async def _wrong_setting(self) -> None:
        scenario = Scenario(IPF_MLLP_LISTEN="tcp:2575 tcp:2575")
        scenario.service.start()
        async with asyncio.timeout(PATIENCE):
            while scenario.service.ended() is None:
                await asyncio.sleep(0.1)
        self.assertNotEqual(scenario.service.ended(), 0)
        self.assertIn("IPF_MLLP_LISTEN", scenario.service.log_tail())


class OneProcessTests(TestCase):
    def test_converted_in_the_main_process(self) -> None:
        """IPF_WORKER_PROCESSES=0."""
        run(self._one_process())

    async def _one_process(self) -> None:
        async with Scenario(IPF_WORKER_PROCESSES="0") as scenario:
            other = Sink()
            await subscribe(scenario.service, await other.start(), "Patient?identifier=P2")
            for number in (1, 2, 3):
                await answer_to(scenario.service.mllp_port, admission(f"M{number}", f"P{number}", "+47"))
            self.assertTrue(await scenario.sink.until(3, PATIENCE))
            self.assertTrue(await other.until(1, PATIENCE))
            self.assertEqual(len(other.times), 1)


class DaemonTests(TestCase):
    def test_as_a_daemon(self) -> None:
        """`twistd ipf` in the background: log lines, also of the converter process, go to twistd.log as JSON."""
        run(self._daemon())

    async def _daemon(self) -> None:
        scenario = Scenario()
        service = scenario.service
        service.folder.mkdir(parents=True)
        environment = service.environment | {"IPF_LOG_FORMAT": "auto"}
        await asyncio.to_thread(
            subprocess.run, [str(service.twistd), "ipf"], env=environment, cwd=service.folder, check=True
        )
        pid = int((service.folder / "twistd.pid").read_text())
        try:
            async with asyncio.timeout(PATIENCE):
                while not await asyncio.to_thread(service.answers):
                    await asyncio.sleep(0.1)
                await answer_to(service.mllp_port, admission("M1", "P1", "+4711"))
                while b"event=delivered" not in (service.folder / "twistd.log").read_bytes():
                    await asyncio.sleep(0.1)
            _, text = await asyncio.to_thread(service.get, "/actuator/prometheus")
            self.assertIn("interface_engine_transform_duration_seconds_count", text)
            for line in (service.folder / "twistd.log").read_text().splitlines():
                self.assertIn("@timestamp", json.loads(line))
        finally:
            os.kill(pid, signal.SIGTERM)
        async with asyncio.timeout(PATIENCE):
            while Path(f"/proc/{pid}").exists():
                await asyncio.sleep(0.1)
        shutil.rmtree(scenario.folder, ignore_errors=True)
