"""The feed of audit records end to end: PostgreSQL, the stage, TLS, a syslog server that is killed and started again.

The records are real ones, and so is the kill.
"""

from __future__ import annotations

import re
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random
from time import monotonic

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from ipf.app.runtime.process import now
from ipf.app.stages.audit_feed import frames
from ipf.pipeline.maintenance.audit_feed import AuditFeed, Pace
from ipf.ports.audit.feed import FedRecord
from ipf.ports.audit.records import ADMIN, FHIR
from ipf.ports.messages.mapping import Origin
from ipf.store.audit.audit import PostgresAuditStore
from ipf.store.audit.feed import PostgresAuditFeed
from ipf.wire.client.syslog_stream import SyslogServer, open_stream
from tests import postgres
from tests.audit_chains import chain_some
from tests.contracts.audit import audit
from tests.syslog_server import SyslogProcess
from tests.waiting import PATIENCE, turns

GROUP = "flows"
RECORDS, BATCH = 3000, 150
_ID = re.compile(rb'ParticipantObjectID="AuditEvent/([0-9a-f-]{36})"')


class FeedFlow(TestCase):
    """A run."""

    async def setUp(self) -> None:
        self.database = await postgres.database(self, "fhir")
        self.trail, self.store = PostgresAuditStore(self.database), PostgresAuditFeed(self.database)
        self.process = SyslogProcess(Path(self.mktemp()))
        self.addCleanup(self.process.kill)
        process = self.process
        self.server = SyslogServer("localhost", process.port, process.ca, process.certificate, process.key)

    def make(self) -> AuditFeed:
        """The stage of one process."""
        render = partial(frames, "https://fhir.example.org/fhir", "node-1")
        connect = partial(open_stream, reactor, self.server)
        pace = Pace(0.3, 0.05, 0.2)
        return AuditFeed(self.store, connect, render, (FHIR, ADMIN), "one", now, monotonic, pace=pace)

    async def test_every_record_arrives_in_order(self) -> None:
        """While records are written the server is killed again and again, sometimes slow, sometimes away."""
        random, feed, kills = Random(7), self.make(), 0
        writing = Deferred.fromCoroutine(self._write())
        self.process.start()
        until = monotonic() + PATIENCE
        while not (writing.called and await self._position() == RECORDS):
            self.assertLess(monotonic(), until)
            await chain_some(self.database, 1000)
            if not await feed.step():
                await turns()
            if kills < 12 and random.random() < 0.1:
                kills += 1
                self.process.kill()
                self.process.start(random.choice((0, 0.002)))
        await writing
        await feed.stop()
        await self._check(kills)

    async def _write(self) -> None:
        for first in range(0, RECORDS, BATCH):
            await self.trail.append([audit(number) for number in range(first, first + BATCH)])
            await turns()  # the feed reads meanwhile

    async def _position(self) -> int:
        row = await self.database.maybe("SELECT position FROM audit_feed")
        return 0 if row is None else int(row[0])

    async def _check(self, kills: int) -> None:
        ids = {audit(number).id: number for number in range(RECORDS)}
        found = [_ID.findall(message) for message in self.process.messages()]
        self.assertEqual({len(one) for one in found}, {1})
        numbers = [ids[one[0].decode()] for one in found]
        self.assertEqual(sorted(set(numbers)), [*range(RECORDS)])
        backwards = 0
        for before, after in pairwise(numbers):
            if after != before + 1:
                self.assertLessEqual(after, before)  # never a gap
                backwards += 1
        self.assertLessEqual(backwards, kills)  # repeated only after a break
        self.assertGreater(kills, 3)

    def test_a_record_that_cannot_be_rendered_stops_no_other(self) -> None:
        broken = audit(2, origin=Origin("x", "y", (("a", "\ud800"),)))
        records = [FedRecord(number, one) for number, one in enumerate((audit(1), broken, None, audit(3)), 1)]
        made = frames("https://fhir.example.org/fhir", "node-1", records)
        self.assertEqual([one.decode() for one in _ID.findall(made)], [audit(1).id, audit(3).id])
        self.assertEqual(len(self.flushLoggedErrors(UnicodeEncodeError)), 1)

    async def test_a_stop_confirms(self) -> None:
        """After a regular stop nothing comes twice."""
        self.process.start()
        for first in (0, 50):
            feed = self.make()
            await self.trail.append([audit(number) for number in range(first, first + 50)])
            await chain_some(self.database, 100)
            while await feed.step():
                pass
            await feed.stop()
        self.assertEqual((len(self.process.messages()), await self._position()), (100, 100))
