"""Databases of the first release are upgraded while a program of that release goes on storing messages.

The start of the service migrates them.  Old writers use the statement of the first release on connections of their own,
commit by commit, before and during the migration, until it refuses them (ipf/020-message-partitions.sql): their senders
get AE then.  Senders use the new service.  Afterwards everything is there and readable: what the first release stored,
what the old writers committed, what the service acknowledged.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import itertools
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg2
from twisted.trial.unittest import TestCase

from tests.event_loop import run
from tests.faults.feed import Feed, admission
from tests.faults.scenario import PATIENT, scratch
from tests.flows.test_backup import ipfctl
from tests.service_process import ROOT, ServiceProcess
from tests.traffic.psql import psql
from tests.waiting import PATIENCE

FIRST = ROOT / "tests" / "store" / "postgres" / "first_release"
STORED, WAITING, DEAD, AUDITED, EVENTS = 18, 3, 1, 16, 5
"""What the first release has: messages, of those not converted, given up; audit records at least; events."""
STORE = """
WITH body AS (
    INSERT INTO message_bodies (tenant, received_at, source_protocol, source_system, source_id, message_type,
        correlation_id, ordering_key, listener, charset, raw_content_type, raw_message)
    VALUES ('default', now(), 'HL7V2_MLLP', 'FEED', %s, 'ADT_A01', %s, %s, 'default', 'utf-8',
        'x-application/hl7-v2+er7', %s)
    ON CONFLICT (source_id, source_system, tenant) DO NOTHING
    RETURNING id, ordering_key
)
INSERT INTO message_states (id, tenant, status, received_at, ordering_key, ready_at)
SELECT id, 'default', 'RECEIVED', now(), ordering_key, now() FROM body
RETURNING id"""
"""`inbox_store_one` of the first release."""
_START = """
import sys
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import react
from ipf.store.postgres.embedded import EmbeddedPostgres
react(lambda reactor: Deferred.fromCoroutine(EmbeddedPostgres(sys.argv[1], reactor).start()))
"""


class OldWriter(threading.Thread):
    """Stores messages as the first release did, until its statement is refused.

    `stored`: the control ids that were committed; `longest`: seconds; `refused`: whether the migration ended it.
    """

    def __init__(self, folder: Path, number: int) -> None:
        super().__init__(daemon=True)
        self.stored: list[str] = []
        self.longest = 0.0
        self.failure: Exception | None = None
        self.refused = False
        self.ended = threading.Event()
        self._folder = folder
        self._number = number

    def run(self) -> None:
        try:
            connection = psycopg2.connect(host=str(self._folder), user="ipf", dbname="ipf")
            connection.autocommit = True
            with connection.cursor() as cursor:
                for number in itertools.count():
                    if self.ended.wait(0.01):
                        break
                    self._store(cursor, number)
            connection.close()
        except psycopg2.errors.InvalidColumnReference:  # no unique index for ON CONFLICT
            self.refused = True
        except Exception as failed:
            self.failure = failed

    def _store(self, cursor: Any, number: int) -> None:
        control_id, patient = f"O{self._number}N{number}", f"O{self._number}P{number % 5}"
        message = admission(control_id, patient, f"+49{number:06}")[1:-2]
        began = time.monotonic()
        cursor.execute(STORE, (control_id, str(uuid4()), self._number * 10 + number % 5, message))
        assert cursor.fetchone() is not None
        self.longest = max(self.longest, time.monotonic() - began)
        self.stored.append(control_id)


class UpgradeTests(TestCase):
    def setUp(self) -> None:
        self.folder = scratch()
        self.addCleanup(shutil.rmtree, self.folder, True)

    def test_the_first_release_is_upgraded_under_load(self) -> None:
        run(self.upgraded())

    async def upgraded(self) -> None:
        service = ServiceProcess(self.folder / "service", **PATIENT)
        socket = Path(service.environment["IPF_DATA_DIR"]) / "postgres"
        self.old_databases(service, socket)
        writers = [OldWriter(socket, number) for number in range(2)]
        feed = Feed(service.mllp_port, senders=2)
        try:
            await self.rehearsed(service)
            for writer in writers:
                writer.start()
            await self.until(lambda: all(len(writer.stored) > 10 for writer in writers))
            service.start()
            await self.until(service.ready)
            feed.start()
            await feed.until(20)
            for writer in writers:
                await asyncio.to_thread(writer.join, PATIENCE)
                self.assertIsNone(writer.failure)
                self.assertTrue(writer.refused)
            await feed.stop()
            stored = [control_id for writer in writers for control_id in writer.stored]
            await self.everything_is_there(service, socket, [*stored, *feed.accepted])
            status, output = await ipfctl(service, "backup", str(self.folder / "backup"))
            self.assertEqual(status, 0, output)
            status, output = await ipfctl(service, "backup", "--verify", str(self.folder / "backup"))
            self.assertEqual(status, 0, output)
        finally:
            for writer in writers:
                writer.ended.set()
            feed.abandon()
            service.stop()

    def old_databases(self, service: ServiceProcess, socket: Path) -> None:
        """A cluster with the databases of the first release, which runs."""
        data = socket.parent
        data.mkdir(parents=True)
        subprocess.run([sys.executable, "-c", _START, str(data)], check=True, env=service.environment, cwd=ROOT)
        for name in ("ipf", "fhir"):
            with contextlib.closing(psycopg2.connect(host=str(socket), user="ipf", dbname=name)) as connection:
                connection.cursor().execute(gzip.decompress((FIRST / f"{name}.sql.gz").read_bytes()).decode())
                connection.commit()

    async def rehearsed(self, service: ServiceProcess) -> None:
        """The dry run and the trial say what will happen, and change nothing."""
        for option in ("--dry-run", "--try"):
            status, output = await ipfctl(service, "migrate", option)
            self.assertEqual(status, 0, output)
            self.assertIn("ipf: version 8 of ipf an earlier release", output)
            self.assertIn("fhir: version 16 of ipf an earlier release", output)
            self.assertRegex(output, r"message_states \(\d+ rows, .* MiB\): blocks reads and writes")
            self.assertRegex(output, r"019-probes[^\n]*\n    index_text \([^)]*\): blocks writes, builds 1 index")

    async def everything_is_there(self, service: ServiceProcess, socket: Path, accepted: list[str]) -> None:
        total = STORED + len(accepted)
        await self.until(lambda: self.count(service, "DELIVERED") == total - DEAD, 3 * PATIENCE)
        self.assertEqual(self.count(service, "DEAD_LETTER"), DEAD)
        found = psql(socket, "SELECT source_id FROM message_bodies WHERE source_system = 'FEED'").split()
        self.assertEqual(sorted(found), sorted(accepted))
        self.resources_are_readable(service)
        await self.search_in_messages(service, socket)
        self.subscription_goes_on(service)
        await self.until(lambda: self.audited(service) >= AUDITED)

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
        await self.until(lambda: service.get("/admin/messages?text=marlowe")[1]["total"] == int(wanted))

    def subscription_goes_on(self, service: ServiceProcess) -> None:
        """Its events keep their numbers, and conversions of now have further ones."""
        _, health = service.get("/admin/subscriptions/health")
        (one,) = health["items"]
        self.assertEqual(one["pending_count"], one["last_event_number"])  # its endpoint refuses
        self.assertGreater(one["last_event_number"], EVENTS)

    def audited(self, service: ServiceProcess) -> int:
        return int(service.get("/fhir/AuditEvent?_summary=count&date=lt2026-11-25T23:10:00Z")[1].get("total", 0))

    async def until(self, condition: Any, seconds: float = PATIENCE) -> None:
        async with asyncio.timeout(seconds):
            while not await asyncio.to_thread(condition):
                await asyncio.sleep(0.05)
