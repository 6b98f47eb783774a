"""Filled databases of the former release become partitioned: no row is missing, and what is done with rows goes on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from twisted.internet import defer, reactor
from twisted.trial.unittest import TestCase

from ipf.ports import MessageFilter, Outcome, Status
from ipf.ports.fhir.erasure import ErasedMessages
from ipf.store.erasure.messages import PostgresMessageErasure
from ipf.store.inbox import text_index
from ipf.store.inbox.inbox import STATEMENTS, PostgresInbox
from ipf.store.inbox.retention import PostgresPruner
from ipf.store.inbox.text_index import PostgresMessageIndex
from ipf.store.postgres.connect import connect
from ipf.store.postgres.database import Database
from ipf.store.postgres.migrate import migrate, migrations
from ipf.store.postgres.quoting import Statement
from tests import postgres
from tests.contracts.inbox import ended, received
from tests.store.inbox.test_statistics import message
from tests.waiting import turns

OLD = datetime.now(UTC) - timedelta(days=40)
OWN = "6f1e1b5e-0c38-4b3c-9c51-0242ac120002"
_FORMER = {"ipf": 17, "fhir": 30}
_FILL_FHIR = f"""
INSERT INTO subscription_states (rid, partition_id, id, status, last_event_number, delivered_number)
    VALUES (7, 1, 's', 'active', 9, 9);
INSERT INTO delivery_attempts (subscription_rid, event_number, attempted_at, succeeded, duration_ms, correlation_id)
    SELECT 7, n, now() - (10 - n) * interval '10 days', true, 1, '{OWN}' FROM generate_series(1, 9) n"""
# As the former release recorded an attempt (deliveries.SETTLE_ONE).
_FORMER_ATTEMPT = f"""
INSERT INTO delivery_attempts (subscription_rid, event_number, attempted_at, succeeded, http_status, duration_ms,
    correlation_id) VALUES (7, 10, now(), true, 200, 3, '{OWN}')"""


class UpgradeTests(TestCase):
    async def setUp(self) -> None:
        self.urls = {kind: await postgres.fresh_url(None) for kind in ("ipf", "fhir")}
        for kind, count in _FORMER.items():
            await migrate(self.urls[kind], kind, reactor=reactor, known=migrations(kind)[:count])

    async def _open(self, kind: str, statements: tuple[Statement, ...] = ()) -> Database:
        opened = Database(self.urls[kind], reactor=reactor, size=2, statements=statements, **postgres.PATIENT)
        await opened.start()
        self.addCleanup(lambda: defer.Deferred.fromCoroutine(opened.close()))
        return opened

    async def _filled(self) -> None:
        former = await self._open("ipf", text_index.STATEMENTS)
        for number, status in enumerate(("DELIVERED", "RECEIVED", "FAILED", "DEAD_LETTER", "DELIVERED"), 1):
            await message(former, number, status, OLD, correlation=OWN if number == 5 else None)
        await former.many(
            "INSERT INTO forwards (destination, message_id, status) VALUES ('d', 1, 'SENT'), ('d', 2, 'PENDING');"
            "INSERT INTO remote_effects VALUES (1, 'Patient', 'p', '1', 'created', now());"
            "UPDATE received_counted SET until = now(), kept = 5"
        )
        index = PostgresMessageIndex(former, reactor.seconds, 0)
        former_fhir = await self._open("fhir")
        await former_fhir.many(_FILL_FHIR)
        while not await index.index_next(_no_pause):
            await turns(1)

    async def test_messages(self) -> None:
        """Read, found, recognized, claimed, retried, replayed, erased and removed; numbers go on."""
        await self._filled()
        await migrate(self.urls["ipf"], "ipf", reactor=reactor)
        await migrate(self.urls["fhir"], "fhir", reactor=reactor)
        database, fhir = await self._open("ipf", STATEMENTS), await self._open("fhir")
        inbox = PostgresInbox(database)
        self.assertEqual((await inbox.page(MessageFilter(), 9, 0)).total, 5)
        self.assertEqual((await inbox.page(MessageFilter(text="msh"), 9, 0)).total, 5)
        self.assertEqual((await inbox.page(MessageFilter(source_id="M3"), 9, 0)).total, 1)
        again = [received("M1", raw=b"MSH|"), received("M2", raw=b"other"), received("NEW"), received("NEW")]
        expected = [Outcome.DUPLICATE, Outcome.CONFLICTING_DUPLICATE, Outcome.STORED, Outcome.DUPLICATE]
        self.assertEqual(await inbox.store(again), expected)
        self.assertEqual(await inbox.store([received("M1")]), [Outcome.DUPLICATE])
        self.assertEqual(await inbox.store([received("NEXT")]), [Outcome.STORED])
        self.assertEqual(
            [row[0] for row in await database.many("SELECT id FROM message_bodies ORDER BY 1")][:5], [1, 2, 3, 4, 5]
        )
        row = await inbox.get(4)
        assert row is not None
        self.assertEqual((row.source_id, row.status, row.raw), ("M4", Status.DEAD_LETTER, b"MSH|"))
        await inbox.retry(4)
        claims = await inbox.claim("w", 9)
        self.assertEqual(sorted(claim.source_id for claim in claims), ["M2", "M3", "M4", "NEW", "NEXT"])
        await inbox.settle([ended(claim) for claim in claims])
        pruner = PostgresPruner(database, fhir)
        removed, cursor = 0, ""
        while cursor is not None:
            count, cursor = await pruner.prune("messages", datetime.now(UTC) - timedelta(days=30), cursor)
            removed += count
        self.assertEqual(removed, 2)  # 1 and 5: the others were delivered just now, or wait to be forwarded
        self.assertEqual(await database.many("SELECT message_id FROM forwards"), [(2,)])
        self.assertEqual(await database.many("SELECT message_id FROM remote_effects"), [])
        self.assertEqual(await inbox.store([received("M1")]), [Outcome.STORED])
        erasure = PostgresMessageErasure(database, "http://localhost/fhir")
        found = await erasure.containing("default", frozenset({"MSH|"}))
        self.assertEqual([one.id for one in found][:3], [2, 3, 4])
        await erasure.remove(ErasedMessages("default", [2, 3], [], frozenset(), frozenset()))
        self.assertEqual((await inbox.page(MessageFilter(), 9, 0)).total, 4)
        self.assertEqual(await inbox.store([received("M2"), received("M4")]), [Outcome.STORED, Outcome.DUPLICATE])

    async def test_a_receiver_of_the_former_release(self) -> None:
        """It fails while the migration runs beside it, and nothing is stored twice or lost: its sender repeats."""
        await self._filled()
        former = await connect(self.urls["ipf"], reactor=reactor)
        self.addCleanup(former.close)
        await migrate(self.urls["ipf"], "ipf", reactor=reactor)
        stored = (
            "INSERT INTO message_bodies (tenant, received_at, source_protocol, source_system, source_id, message_type,"
            " correlation_id, listener, charset, raw_content_type, raw_message)"
            f" VALUES ('default', now(), '', 'LAB', 'X', '', '{OWN}', '', '', '', '')"
            " ON CONFLICT (source_id, source_system, tenant) DO NOTHING"
        )
        await self.assertFailure(former.run(stored), Exception)
        inbox = PostgresInbox(await self._open("ipf", STATEMENTS))
        self.assertEqual(await inbox.store([received("X")]), [Outcome.STORED])

    async def test_attempts(self) -> None:
        """All are there; the former release goes on to record, and retention removes the old ones."""
        await self._filled()
        former = await connect(self.urls["fhir"], reactor=reactor)
        self.addCleanup(former.close)
        await former.run(f"PREPARE attempt AS {_FORMER_ATTEMPT}")
        await migrate(self.urls["fhir"], "fhir", reactor=reactor)
        await former.run("EXECUTE attempt")
        fhir = await self._open("fhir")
        self.assertEqual(
            await fhir.one("SELECT count(*), max(id), max(event_number) FROM delivery_attempts"), (10, 10, 10)
        )
        pruner = PostgresPruner(fhir, fhir)
        count, _ = await pruner.prune("attempts", datetime.now(UTC) - timedelta(days=35), "")
        self.assertEqual((count, await fhir.one("SELECT count(*) FROM delivery_attempts")), (6, (4,)))

    async def test_limits_of_the_first_partition(self) -> None:
        """The former release can go on for two days of traffic and more between the steps."""
        await self._filled()
        former = await connect(self.urls["ipf"], reactor=reactor)
        self.addCleanup(former.close)
        await former.run(
            "INSERT INTO received_hours VALUES (date_trunc('hour', now()), 'default', 'LAB', 30000000);"
            "SELECT setval(pg_get_serial_sequence('message_bodies', 'id'), 50000000)"
        )
        await migrate(self.urls["ipf"], "ipf", reactor=reactor, known=migrations("ipf")[:18])
        opened = await self._open("ipf")
        self.assertGreater(await message(opened, 99, "RECEIVED", OLD), 50_000_000)
        await migrate(self.urls["ipf"], "ipf", reactor=reactor)
        self.assertEqual(await opened.many("SELECT upper FROM message_partitions"), [(120_000_001,)])


async def _no_pause() -> None:
    return None
