"""The start of the service adopts a data folder of ipf 0.1: what was stored is there, readable and recognized."""

from __future__ import annotations

import base64
import contextlib
import shutil
import subprocess
import sys
from pathlib import Path

import psycopg2
from twisted.trial.unittest import TestCase

from tests.event_loop import run
from tests.faults.feed import admission
from tests.faults.scenario import PATIENT, scratch
from tests.flows.test_backup import ipfctl
from tests.flows.test_end_to_end import answer_to
from tests.service_process import ROOT, ServiceProcess
from tests.store.postgres.test_adoption import former
from tests.traffic.psql import psql
from tests.waiting import until

STORED, DEAD, AUDITED, EVENTS = 19, 1, 16, 5
"""What 0.1 has: messages, of those given up; audit records at least; events."""
_START = """
import sys
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import react
from ipf.store.postgres.embedded import EmbeddedPostgres
react(lambda reactor: Deferred.fromCoroutine(EmbeddedPostgres(sys.argv[1], reactor).start()))
"""


class UpgradeTests(TestCase):
    """A data folder of ipf 0.1, and what holds after its adoption."""

    def setUp(self) -> None:
        self.folder = scratch()
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.service = ServiceProcess(self.folder / "service", **PATIENT)
        self.socket = Path(self.service.environment["IPF_DATA_DIR"]) / "postgres"
        self.old_databases(self.service, self.socket)

    def old_databases(self, service: ServiceProcess, socket: Path) -> None:
        """A cluster with the databases of ipf 0.1, which runs."""
        data = socket.parent
        data.mkdir(parents=True)
        subprocess.run([sys.executable, "-c", _START, str(data)], check=True, env=service.environment, cwd=ROOT)
        for name in ("ipf", "fhir"):
            with contextlib.closing(psycopg2.connect(host=str(socket), user="ipf", dbname=name)) as connection:
                connection.cursor().execute(former(name))
                connection.commit()

    async def everything_is_there(self, service: ServiceProcess, socket: Path, accepted: list[str]) -> None:
        total = STORED + len(accepted)
        await until(lambda: self.count(service, "DELIVERED") == total - DEAD, "all are delivered")
        self.assertEqual(self.count(service, "DEAD_LETTER"), DEAD)
        found = psql(socket, "SELECT source_id FROM message_bodies WHERE source_system = 'FEED'").split()
        self.assertEqual(sorted(found), sorted(["K1", *accepted]))
        self.resources_are_readable(service)
        await self.search_in_messages(service, socket)
        self.subscription_goes_on(service)
        await until(lambda: self.audited(service) >= AUDITED, "the audit records are there")

    def count(self, service: ServiceProcess, status: str) -> int:
        code, page = service.get(f"/admin/messages?status={status}&limit=1")
        self.assertEqual(code, 200, page)
        return int(page["total"])

    def resources_are_readable(self, service: ServiceProcess) -> None:
        _, found = service.get("/fhir/Patient?family=Firstrelease&birthdate=1970-01-02")
        self.assertEqual([one["resource"]["id"] for one in found["entry"]], ["old-1"])
        _, history = service.get("/fhir/Patient/old-1/_history")
        self.assertEqual([one["resource"]["birthDate"] for one in history["entry"]], ["1970-01-02", "1970-01-01"])
        _, found = service.get("/fhir/Patient?identifier=urn:first-release%7C1")
        self.assertEqual(found["total"], 1)
        _, found = service.get("/fhir/Encounter?subject:Patient.family=Hansen&_count=1")
        self.assertGreaterEqual(len(found["entry"]), 1)
        update = {"resourceType": "Patient", "id": "old-1", "name": [{"family": "Upgraded"}]}
        self.assertEqual(service.request("PUT", "/fhir/Patient/old-1", update)[0], 200)

    async def search_in_messages(self, service: ServiceProcess, socket: Path) -> None:
        """The text index is filled again in the background."""
        wanted = psql(socket, "SELECT count(*) FROM message_bodies WHERE convert_from(raw_message, 'UTF8') ~ 'Marlowe'")
        self.assertGreater(int(wanted), 2)
        await until(
            lambda: service.get("/admin/messages?text=marlowe")[1]["total"] == int(wanted), "the text index is filled"
        )

    def subscription_goes_on(self, service: ServiceProcess) -> None:
        """Its events keep their numbers, and conversions of now have further ones."""
        _, health = service.get("/admin/subscriptions/health")
        (one,) = health["items"]
        self.assertEqual(one["pending_count"], one["last_event_number"])  # its endpoint refuses
        self.assertGreater(one["last_event_number"], EVENTS)

    def audited(self, service: ServiceProcess) -> int:
        return int(service.get("/fhir/AuditEvent?_summary=count&date=lt2026-11-25T23:10:00Z")[1].get("total", 0))

    def test_a_data_folder_of_0_1_is_adopted(self) -> None:
        run(self.adopted())

    async def adopted(self) -> None:
        status, output = await ipfctl(self.service, "migrate", "--dry-run")
        self.assertEqual((status, output.count("adopted as version")), (0, 2), output)
        self.service.start()
        self.addCleanup(self.service.stop)
        await until(self.service.ready, "it is ready")
        self.assertEqual(self.service.log_path.read_text().count("event=adopted"), 2)
        answer = await answer_to(self.service.mllp_port, admission("N1", "P1", "+47"))
        self.assertEqual(answer[1], b"MSA|AA|N1")
        await self.repeated()
        await self.everything_is_there(self.service, self.socket, ["N1"])

    async def repeated(self) -> None:
        """A message from before the inbox had keys is recognized."""
        query = "SELECT source_id, encode(raw_message, 'base64') FROM message_bodies WHERE id = 2"
        with contextlib.closing(psycopg2.connect(host=str(self.socket), user="ipf", dbname="ipf")) as connection:
            cursor = connection.cursor()
            cursor.execute(query)
            ((control_id, raw),) = cursor.fetchall()
        frame = b"\x0b" + base64.b64decode(raw) + b"\x1c\r"
        answer = await answer_to(self.service.mllp_port, frame)
        self.assertEqual(answer[1], b"MSA|AA|" + control_id.encode())
