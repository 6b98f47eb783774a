"""Databases of the first release are upgraded while a program of that release goes on storing messages.

The start of the service migrates them.  Old writers use the statement of the first release on connections of their own,
commit by commit, before and during the migration, until it refuses them (ipf/020-message-partitions.sql): their senders
get AE then.  Senders use the new service.  Afterwards everything is there and readable: what the first release stored,
what the old writers committed, what the service acknowledged.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg2

from tests.event_loop import run
from tests.faults.feed import Feed, admission
from tests.flows.test_backup import ipfctl
from tests.flows.test_upgrade import UpgradeCase
from tests.service_process import ServiceProcess
from tests.waiting import LIMIT, PATIENCE, until

GROUP = "flows"
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


class UpgradeUnderLoadTests(UpgradeCase):
    timeout = 3 * LIMIT  # a trial of all migrations, the upgrade, and a backup

    def test_the_first_release_is_upgraded_under_load(self) -> None:
        run(self.upgraded(), self.timeout)

    async def upgraded(self) -> None:
        service, socket = self.service, self.socket
        writers = [OldWriter(socket, number) for number in range(2)]
        feed = Feed(service.mllp_port, senders=2)
        try:
            await self.rehearsed(service)
            for writer in writers:
                writer.start()
            await until(lambda: all(len(writer.stored) > 10 for writer in writers), "the old writers store")
            service.start()
            await until(service.ready, "it is ready")
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

    async def rehearsed(self, service: ServiceProcess) -> None:
        """The dry run and the trial say what will happen, and change nothing."""
        for option in ("--dry-run", "--try"):
            status, output = await ipfctl(service, "migrate", option)
            self.assertEqual(status, 0, output)
            self.assertIn("ipf: version 8 of ipf an earlier release", output)
            self.assertIn("fhir: version 16 of ipf an earlier release", output)
            self.assertRegex(output, r"message_states \(\d+ rows, .* MiB\): blocks reads and writes")
            self.assertRegex(output, r"019-probes[^\n]*\n    index_text \([^)]*\): blocks writes, builds 1 index")
