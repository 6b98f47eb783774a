"""Partitions of messages and attempts: made ahead, rows without one, whole ones dropped, and tenants apart in each."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from twisted.internet import defer, reactor
from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem
from ipf.ports import MessageFilter, Outcome
from ipf.store.erasure.messages import PostgresMessageErasure
from ipf.store.inbox.inbox import PostgresInbox
from ipf.store.inbox.message_partitions import PartitionsAhead
from ipf.store.inbox.retention import PostgresPruner
from ipf.store.postgres.database import Database
from ipf.store.postgres.row_security import secure
from tests import postgres
from tests.contracts.inbox import received
from tests.store.inbox.test_statistics import message

NOW = datetime.now(UTC)
OLD, YOUNG, BEFORE = NOW - timedelta(days=40), NOW - timedelta(days=1), NOW - timedelta(days=30)
OWN = "6f1e1b5e-0c38-4b3c-9c51-0242ac120002"
FIRST_END = 10_000_001
"""The end of the first partition of a new database."""


async def places(database: Database, table: str) -> dict[str, int]:
    """Rows by partition."""
    return {
        row[0]: row[1]
        for row in await database.many(f"SELECT tableoid::regclass::text, count(*) FROM {table} GROUP BY 1")
    }


class _TestCase(TestCase):
    async def setUp(self) -> None:
        self.inbox = await postgres.database(self, "ipf", size=4)
        self.fhir = await postgres.database(self, "fhir", size=2)
        self.pruner = PostgresPruner(self.inbox, self.fhir)
        self.ahead = PartitionsAhead(self.inbox, self.fhir, 365, smallest=4)

    async def at_id(self, last: int) -> None:
        """As if so many messages had been received."""
        await self.inbox.many(f"SELECT setval('message_bodies_id_seq', {last})")

    async def ranges(self) -> list[tuple[Any, ...]]:
        """The partitions of messages."""
        return [tuple(row) for row in await self.inbox.many("SELECT lower, upper FROM message_partitions")]

    async def prune(self, kind: str, pruner: PostgresPruner | None = None) -> int:
        """A whole run of one kind; the dry run must have the same count."""
        pruner = pruner or self.pruner
        expected = await pruner.count(kind, BEFORE)
        removed, cursor = 0, ""
        while cursor is not None:
            count, cursor = await pruner.prune(kind, BEFORE, cursor)
            removed += count
        self.assertEqual(removed, expected)
        return removed


class AheadTests(_TestCase):
    """Partitions exist before they are needed; without them nothing is refused."""

    async def test_made_before_they_are_needed(self) -> None:
        """Once, by one of several processes, and not while the last one has room."""
        await self.ahead.run()
        self.assertEqual(await self.ranges(), [(1, FIRST_END)])
        await self.at_id(FIRST_END - 2)
        again = PartitionsAhead(self.inbox, self.fhir, 365, smallest=4)
        await defer.gatherResults([defer.Deferred.fromCoroutine(one.run()) for one in (self.ahead, again)])
        self.assertEqual(await self.ranges(), [(1, FIRST_END), (FIRST_END, FIRST_END + 4)])
        await self.ahead.run()
        self.assertEqual(len(await self.ranges()), 2)

    async def test_it_lasts_for_days(self) -> None:
        """A busy site gets partitions of a twelfth of what it keeps, in messages of the last days."""
        await self.inbox.many(
            "INSERT INTO message_bodies (id, tenant, received_at, source_protocol, source_system, source_id,"
            " message_type, correlation_id, listener, charset, raw_content_type, raw_message) OVERRIDING SYSTEM VALUE"
            f" VALUES ({FIRST_END}, '', now() - interval '1 hour', '', '', '', '', '{OWN}', '', '', '', '')"
        )
        await self.at_id(FIRST_END + 100_000)
        await self.ahead.run()
        (_, (lower, upper)) = await self.ranges()
        self.assertEqual(lower, FIRST_END)
        self.assertEqual(round((upper - lower) / (30 * 24 * 100_000), 1), 1.0)

    async def test_far_ahead_of_every_partition(self) -> None:
        """Messages are stored, recognized, claimed and found; maintenance moves them, and they stay counted."""
        inbox = PostgresInbox(self.inbox)
        await self.at_id(10**12)
        await self.inbox.many("UPDATE received_counted SET until = now() + interval '1 hour', kept = 3")
        self.assertEqual(await inbox.store([received("A"), received("B")]), [Outcome.STORED] * 2)
        self.assertEqual(await inbox.store([received("C")]), [Outcome.STORED])
        await self.inbox.many("INSERT INTO message_text SELECT id, 'x' FROM message_bodies")
        for table in ("message_bodies", "message_text"):
            self.assertEqual(await places(self.inbox, table), {f"{table}_default": 3})
        await self.ahead.run()
        for table in ("message_bodies", "message_text"):
            self.assertEqual(await places(self.inbox, table), {f"{table}_{FIRST_END}": 3})
        self.assertEqual(await inbox.store([received("A"), received("D")]), [Outcome.DUPLICATE, Outcome.STORED])
        self.assertEqual(await inbox.store([received("C")]), [Outcome.DUPLICATE])
        self.assertEqual([claim.source_id for claim in await inbox.claim("w", 9)], ["A", "B", "C", "D"])
        self.assertEqual((await inbox.page(MessageFilter(source_id="B"), 9, 0)).total, 1)
        self.assertEqual(await self.inbox.one("SELECT kept FROM received_counted"), (3,))

    async def test_statistics_of_an_empty_partition(self) -> None:
        """ANALYZE of an empty partition leaves plans that read all of it later: maintenance resets them."""
        await self.at_id(FIRST_END - 1)
        await self.ahead.run()
        await self.inbox.many("ANALYZE")
        await self.ahead.run()
        rows = await self.inbox.many(
            "SELECT relname FROM pg_class WHERE relname ~ 'message_(bodies|text)_[1d].*[0-9t]$' AND relkind = 'r'"
            " AND reltuples = 0"
        )
        self.assertEqual(rows, [])

    async def test_others_use_the_default_partition(self) -> None:
        """Nothing waits for long; the next run makes the partition."""
        await self.at_id(FIRST_END - 1)
        async with self.inbox.session() as session:
            await session.many("SELECT count(*) FROM message_bodies")
            await self.ahead.run()
            self.assertEqual(len(await self.ranges()), 1)
            await session.commit("SELECT 1")
        await self.ahead.run()
        self.assertEqual(len(await self.ranges()), 2)


class PlanTests(_TestCase):
    """Statements open as few partitions as they can."""

    async def _twelve(self) -> None:
        for end in range(12):
            await self.at_id(FIRST_END + 4 * end - 1)
            await self.ahead.run()

    async def test_hot_statements(self) -> None:
        """A claim reads the partition of its messages by primary key; storing locks one partition."""
        await self._twelve()
        self.assertEqual(len(await self.ranges()), 13)
        inbox = PostgresInbox(self.inbox)
        await inbox.store([received("A"), received("B")])
        async with self.inbox.session() as session:
            ((plan,),) = await session.many("EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE inbox_claim('w', 9)")
            scans = [
                one for one in _nodes(plan[0]["Plan"]) if str(one.get("Relation Name")).startswith("message_bodies")
            ]
            self.assertEqual(len(scans), 14)
            self.assertEqual({one["Node Type"] for one in scans}, {"Index Scan"})
            self.assertTrue(all("Index Cond" in one and one["Index Name"].endswith("pkey") for one in scans), scans)
            self.assertEqual(sum(one["Actual Loops"] > 0 for one in scans), 1)
            await session.commit("SELECT 1")
        async with self.inbox.session() as session:
            await inbox.store_in(session, [received("C"), received("D")])
            locked = await session.many(
                "SELECT c.relname FROM pg_locks l JOIN pg_class c ON c.oid = l.relation"
                " WHERE l.pid = pg_backend_pid() AND c.relkind = 'r' AND c.relname LIKE 'message_bodies%'"
            )
            self.assertEqual({row[0] for row in locked}, {f"message_bodies_{FIRST_END + 44}"})
            await session.commit("SELECT 1")


class _DropCase(_TestCase):
    """A partition of four messages, all delivered 40 days ago."""

    async def setUp(self) -> None:
        await super().setUp()
        await self.at_id(FIRST_END - 1)
        await self.ahead.run()
        self.old = [await self._stored(f"M{n}") for n in range(4)]
        await self.ahead.run()
        self.next = await self._stored("M4")
        self.young = await message(self.inbox, 9, "DELIVERED", YOUNG)
        await self.inbox.many(f"UPDATE message_index_state SET indexed_to = {self.next}")

    async def _stored(self, source_id: str) -> int:
        """A message with a key, its text, a receipt and an effect; delivered long ago."""
        await PostgresInbox(self.inbox).store([received(source_id)])
        ((id_, correlation),) = await self.inbox.many(
            f"SELECT id, correlation_id::text FROM message_bodies WHERE source_id = '{source_id}'"
            " ORDER BY id DESC LIMIT 1"
        )
        past = f"'{OLD.isoformat()}'"
        await self.inbox.many(
            f"UPDATE message_states SET status = 'DELIVERED', received_at = {past}, delivered_at = {past}"
            f" WHERE id = {id_};"
            f"INSERT INTO message_text VALUES ({id_}, 'x');"
            f"INSERT INTO remote_effects VALUES ({id_}, 'Patient', 'p', '1', 'created', now());"
            "INSERT INTO message_totals SELECT tenant, source_system, message_type, 1 FROM message_bodies"
            f" WHERE id = {id_} ON CONFLICT (tenant, source_system, message_type)"
            " DO UPDATE SET count = message_totals.count + 1"
        )
        await self.fhir.many(
            "INSERT INTO receipts (partition_id, key, correlation_id)"
            f" VALUES (1, 'message/{correlation}/{id_}', '{OWN}')"
        )
        return int(id_)

    async def _left(self) -> list[int]:
        return [row[0] for row in await self.inbox.many("SELECT id FROM message_bodies ORDER BY 1")]


class DropTests(_DropCase):
    """Retention of the partition."""

    async def test_a_whole_partition(self) -> None:
        """It is gone with all that belonged to its messages, and their keys are free; others stay."""
        await self.inbox.many("UPDATE received_counted SET until = now() + interval '1 hour', kept = 9")
        await self.inbox.many(f"UPDATE message_states SET delivered_at = now() WHERE id = {self.next}")
        self.assertEqual(await self.prune("messages"), 4)
        self.assertEqual(await self._left(), [self.next, self.young])
        self.assertNotIn((FIRST_END, FIRST_END + 4), await self.ranges())
        self.assertEqual(await self.inbox.many("SELECT to_regclass('message_text_10000001')"), [(None,)])
        for table, column in (("message_states", "id"), ("message_text", "message_id"), ("message_keys", "id"),
                              ("remote_effects", "message_id"), ("message_drops", "upper")):  # fmt: skip
            rows = await self.inbox.many(
                f"SELECT {column} FROM {table} WHERE {column} BETWEEN {self.old[0]} AND {self.old[3] + 1}"
            )
            self.assertEqual([row[0] for row in rows if row[0] != self.next], [], table)
        self.assertEqual(
            await self.inbox.one("SELECT kept, (SELECT count FROM message_totals) FROM received_counted"), (5, 1)
        )
        self.assertEqual(await self.fhir.one("SELECT count(*) FROM receipts"), (1,))
        again = await PostgresInbox(self.inbox).store([received("M0"), received("M4")])
        self.assertEqual(again, [Outcome.STORED, Outcome.DUPLICATE])

    async def test_a_partition_that_is_old_soon(self) -> None:
        """Its messages wait for the newest, so that it is dropped; others are removed, and none waits longer."""
        for days, removed in ((28, 1), (20, 3)):
            newest = f"'{(NOW - timedelta(days=days)).isoformat()}' WHERE id = {self.old[3]}"
            for table in ("message_states", "message_bodies"):
                await self.inbox.many(f"UPDATE {table} SET received_at = {newest}")
            if days == 28:
                for n in (0, 1, 2):
                    past = f"'{OLD.isoformat()}' WHERE id = {self.old[n]}"
                    await self.inbox.many(f"UPDATE message_bodies SET received_at = {past}")
            self.assertEqual(await self.prune("messages"), removed)
        self.assertEqual(await self._left(), [self.old[3], self.young])

    async def test_messages_that_must_stay(self) -> None:
        """One of them keeps its partition; the others are removed one by one."""
        await self.inbox.one(f"SELECT drop_message_partition({FIRST_END})")  # the first one, which is empty
        states, one = "UPDATE message_states SET", f"WHERE id = {self.old[1]}"
        for change, undone in (
            (f"{states} status = 'DEAD_LETTER' {one}", f"{states} status = 'DELIVERED' {one}"),
            (f"{states} delivered_at = now() {one}", f"{states} delivered_at = received_at {one}"),
            (f"INSERT INTO forwards (destination, message_id) VALUES ('d', {self.old[1]})", "DELETE FROM forwards"),
            ("INSERT INTO message_states (id, tenant, status, received_at, ready_at, original_id)"
             f" VALUES (77, '', 'FAILED', now(), now(), {self.old[1]})", "DELETE FROM message_states WHERE id = 77"),
        ):  # fmt: skip
            await self.inbox.many(change)
            held = await self.pruner.prune("messages", BEFORE, "")
            self.assertEqual((held[0], (FIRST_END, FIRST_END + 4) in await self.ranges()), (4, True), change)
            self.assertEqual(await self._left(), [self.old[1], self.young])
            await self.inbox.many(undone)
            for n in (0, 2, 3):
                self.old[n] = await self._restored(n)
            self.next = await self._restored(4)

    async def _restored(self, number: int) -> int:
        """The message is there again, at its former id."""
        await self.at_id(FIRST_END + number - 1)
        id_ = await self._stored(f"M{number}")
        await self.at_id(FIRST_END + 5)
        return id_

    async def test_a_partition_in_use(self) -> None:
        """It stays until the next run, its payloads too, and an erasure waits for that."""
        erasure = PostgresMessageErasure(self.inbox, "http://localhost/fhir")
        async with self.inbox.session() as session:
            await session.many("SELECT count(*) FROM message_bodies")
            self.assertEqual(await self.prune("messages"), 5)
            self.assertIn((FIRST_END, FIRST_END + 4), await self.ranges())
            refused = await self.assertFailure(
                defer.Deferred.fromCoroutine(erasure.containing("default", frozenset({"x"}))), Problem
            )
            self.assertEqual(refused.category, Category.CONFLICT)
            await session.commit("SELECT 1")
        self.assertEqual(await self.prune("messages"), 0)
        self.assertNotIn((FIRST_END, FIRST_END + 4), await self.ranges())
        self.assertEqual(await erasure.containing("default", frozenset({"x"})), [])
        self.assertEqual(await self._left(), [self.young])

    async def test_the_first_partition(self) -> None:
        """It is dropped as the others are."""
        await self.at_id(5)
        await message(self.inbox, 1, "DELIVERED", OLD)
        await self.at_id(self.young)
        self.assertEqual(await self.prune("messages"), 6)
        self.assertNotIn((1, FIRST_END), await self.ranges())
        self.assertEqual(await self._left(), [self.young])
        self.assertEqual(await PostgresInbox(self.inbox).store([received("M1")]), [Outcome.STORED])


class BusyTests(_DropCase):
    """The same while others read and write without a pause."""

    async def test_a_whole_partition(self) -> None:
        """It is dropped, no statement fails, and nothing is lost."""
        inbox, stored, stop = PostgresInbox(self.inbox), 0, False

        async def busy() -> None:
            nonlocal stored
            while not stop:
                await inbox.store([received()])
                stored += 1
                await inbox.page(MessageFilter(), 5, 0)

        running = [defer.Deferred.fromCoroutine(busy()) for _ in range(2)]
        try:
            self.assertEqual(await self.prune("messages"), 5)
        finally:
            stop = True
            await defer.gatherResults(running)
        self.assertNotIn((FIRST_END, FIRST_END + 4), await self.ranges())
        self.assertEqual(await self.inbox.one("SELECT count(*) FROM message_bodies"), (stored + 1,))


class AttemptTests(_TestCase):
    """The ledger of deliveries."""

    async def _attempts(self, database: Database, at: datetime, rid: int = 1) -> None:
        await database.many(
            "INSERT INTO delivery_attempts (subscription_rid, event_number, attempted_at, succeeded, duration_ms,"
            f" correlation_id) SELECT {rid}, n, '{at.isoformat()}', true, 1, '{OWN}' FROM generate_series(1, 4) n"
        )

    async def test_dropped_when_all_are_old(self) -> None:
        """A partition with one younger attempt loses its rows one by one; a missing partition refuses nothing."""
        await self.fhir.many(f"SELECT setval('delivery_attempts_id_seq', {FIRST_END - 1})")
        await self._attempts(self.fhir, OLD)
        self.assertEqual(await places(self.fhir, "delivery_attempts"), {"delivery_attempts_default": 4})
        await self.ahead.run()
        await self._attempts(self.fhir, OLD)
        await self.fhir.many(f"UPDATE delivery_attempts SET attempted_at = now() WHERE id = {FIRST_END + 7}")
        await self._attempts(self.fhir, YOUNG)
        self.assertEqual(await self.prune("attempts"), 7)
        await self.fhir.many(
            f"UPDATE delivery_attempts SET attempted_at = '{OLD.isoformat()}' WHERE id = {FIRST_END + 7}"
        )
        self.assertEqual(await self.prune("attempts"), 1)
        self.assertEqual(sum((await places(self.fhir, "delivery_attempts")).values()), 4)
        rows = await self.fhir.many("SELECT lower FROM attempt_partitions")
        self.assertNotIn((FIRST_END,), rows)

    async def test_old_soon(self) -> None:
        """The attempts of a partition wait for the newest one."""
        await self.fhir.many(f"SELECT setval('delivery_attempts_id_seq', {FIRST_END - 1})")
        await self.ahead.run()
        await self._attempts(self.fhir, OLD)
        await self._attempts(self.fhir, YOUNG)
        newest = f"WHERE id = {FIRST_END + 3}"
        await self.fhir.many(f"UPDATE delivery_attempts SET attempted_at = now() - interval '28 days' {newest}")
        self.assertEqual(await self.prune("attempts"), 0)
        await self.fhir.many(f"UPDATE delivery_attempts SET attempted_at = '{OLD.isoformat()}' {newest}")
        self.assertEqual(await self.prune("attempts"), 4)
        self.assertNotIn((FIRST_END,), await self.fhir.many("SELECT lower FROM attempt_partitions"))

    async def test_tenants_apart_in_each_partition(self) -> None:
        """Also for those who read a partition by its name."""
        url = await postgres.fresh_url("fhir")
        await secure(url, reactor=reactor)
        database = Database(url, reactor=reactor, size=1, tenants=True, **postgres.PATIENT)
        await database.start()
        self.addCleanup(lambda: defer.Deferred.fromCoroutine(database.close()))
        everyone = database.all_tenants
        await everyone.many(
            "INSERT INTO partitions (name) VALUES ('alpha'), ('beta');"
            "INSERT INTO subscription_states (rid, partition_id, id, status)"
            " VALUES (2, 2, 'a', 'active'), (3, 3, 'b', 'active');"
            f"SELECT setval('delivery_attempts_id_seq', {FIRST_END - 1})"
        )
        await everyone.many("SELECT ensure_attempt_partition(30, 8)")
        await self._attempts(database.for_tenant("alpha"), NOW, 2)  # type: ignore[arg-type]
        await self._attempts(database.for_tenant("beta"), NOW, 3)  # type: ignore[arg-type]
        await secure(url, reactor=reactor)
        for table in ("delivery_attempts", f"delivery_attempts_{FIRST_END}"):
            counted = f"SELECT subscription_rid, count(*) FROM {table} GROUP BY 1"
            self.assertEqual(await database.for_tenant("alpha").many(counted), [(2, 4)], table)
            self.assertEqual(await database.many(counted), [], table)
            self.assertEqual(len(await everyone.many(counted)), 2, table)


def _nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(below for part in plan.get("Plans", ()) for below in _nodes(part))]
