"""Queues, counts by hour, dead letters and traces, on PostgreSQL."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.ports import Status
from ipf.ports.messages.statistics import Sender, SendersNow, Trace
from ipf.store.inbox.statistics import PostgresMessageStatistics
from ipf.store.postgres.database import Database, Session
from ipf.store.postgres.quoting import literal
from tests import postgres

OWN = "6f1e1b5e-0c38-4b3c-9c51-0242ac120002"
NO_ID = "00000000-0000-4000-8000-000000000000"
HOUR = timedelta(hours=1)


async def message(
    database: Database,
    number: int,
    status: str,
    received: datetime,
    *,
    system: str = "LAB",
    tenant: str = "default",
    correlation: str | None = None,
    ended: datetime | None = None,
) -> int:
    """One stored message in this state; its id."""
    row = await database.one(
        f"""WITH b AS (
            INSERT INTO message_bodies (tenant, received_at, source_protocol, source_system, source_id, message_type,
                correlation_id, listener, charset, raw_content_type, raw_message)
            VALUES ({literal(tenant)}, {literal(received)}, 'HL7V2_MLLP', {literal(system)}, 'M{number}', 'ADT_A01',
                coalesce({literal(correlation)}::uuid, gen_random_uuid()), 'lab', 'utf-8', 'x', 'MSH|')
            RETURNING id)
        INSERT INTO message_states
            (id, tenant, status, received_at, ready_at, delivered_at, last_attempt_at, last_error)
        SELECT id, {literal(tenant)}, {literal(status)}, {literal(received)}, now(),
            CASE WHEN {literal(status)} = 'DELIVERED' THEN {literal(ended or received)}::timestamptz END,
            {literal(ended or received)}, 'no map' FROM b RETURNING id"""
    )
    return int(row[0])


async def run(database: Database, sql: str) -> None:
    """One statement, committed."""
    await database.many(sql)


class MessageStatisticsTests(TestCase):
    async def setUp(self) -> None:
        self.inbox = await postgres.database(self, "ipf", size=2)
        self.fhir = await postgres.database(self, "fhir", size=2)
        self.statistics = PostgresMessageStatistics(self.inbox, self.fhir)
        self.now = datetime.now(UTC).replace(microsecond=0)
        self.hour = self.now.replace(minute=0, second=0)

    async def counts(self, hours: int = 48, system: str | None = None) -> dict[tuple[int, str], int]:
        """(hours ago, state) -> messages."""
        found = await self.statistics.throughput(self.hour - hours * HOUR, system, "hour")
        counted: Counter[tuple[int, str]] = Counter()
        for hour, status, count in found:
            counted[(self.hour - hour) // HOUR, str(status)] += count
        return dict(counted)

    async def count_all(self) -> None:
        """Run the background count until it is complete."""
        while await self.statistics.count_received():
            pass

    async def test_counts_of_hours(self) -> None:
        """Equal before and after the background count, also after state changes of messages."""
        self.assertEqual(await self.counts(), {})
        self.assertEqual(set((await self.statistics.queue()).values()), {0})
        self.assertIsNone(await self.statistics.oldest_waiting())
        old = self.hour - 30 * HOUR
        dead = await message(self.inbox, 1, "DEAD_LETTER", old)
        for number in range(2, 6):
            await message(self.inbox, number, "DELIVERED", old, system="LAB" if number < 4 else "PAS", tenant="b")
        waiting = await message(self.inbox, 7, "FAILED", old - 40 * HOUR, tenant="c")
        await message(self.inbox, 8, "DELIVERED", self.now)
        expected = {(30, "DEAD_LETTER"): 1, (30, "DELIVERED"): 4, ((self.hour - self.now) // HOUR, "DELIVERED"): 1}
        expected = {key if key[0] >= 0 else (0, key[1]): count for key, count in expected.items()}
        self.assertEqual(await self.counts(), expected)
        await self.count_all()
        self.assertEqual(await self.counts(), expected)
        self.assertEqual(await self.counts(system="PAS"), {(30, "DELIVERED"): 2})
        self.assertEqual(await self.counts(system="nobody"), {})
        day = self.hour.replace(hour=0)
        by_day = await self.statistics.throughput(day - 72 * HOUR, None, "day")
        self.assertEqual({start.hour for start, _, _ in by_day}, {0})
        self.assertEqual(sum(count for _, status, count in by_day if status is Status.DELIVERED), 5)
        queue = await self.statistics.queue()
        self.assertEqual((queue[Status.DELIVERED], queue[Status.DEAD_LETTER], queue[Status.FAILED]), (5, 1, 1))
        self.assertEqual(await self.statistics.oldest_waiting(), old - 40 * HOUR)
        await run(self.inbox, f"UPDATE message_states SET status = 'DELIVERED' WHERE id = {waiting}")
        self.assertEqual((await self.counts(80))[70, "DELIVERED"], 1)
        await run(
            self.inbox, f"DELETE FROM message_states WHERE id = {dead}; DELETE FROM message_bodies WHERE id = {dead}"
        )
        self.assertEqual((await self.counts())[30, "DELIVERED"], 4)
        self.assertNotIn((30, "DEAD_LETTER"), await self.counts())
        self.assertEqual((await self.statistics.queue())[Status.DELIVERED], 6)

    async def test_messages_removed_by_retention_stay_counted(self) -> None:
        """The trigger subtracts only messages that operators delete."""
        ids = [await message(self.inbox, number, "DELIVERED", self.hour - 5 * HOUR) for number in range(3)]
        await self.count_all()
        await self.pruning(
            f"DELETE FROM message_states WHERE id = {ids[0]}", f"DELETE FROM message_bodies WHERE id = {ids[0]}"
        )
        self.assertEqual(await self.counts(), {(5, "DELIVERED"): 3})
        await run(self.inbox, f"DELETE FROM message_bodies WHERE id = {ids[1]}")
        self.assertEqual(await self.counts(), {(5, "DELIVERED"): 2})

    async def test_senders(self) -> None:
        """The same before and after the background count, but for what is learnt, which comes from counted hours."""
        self.assertEqual(await self.statistics.senders(self.now), SendersNow([]))
        minute = self.now.replace(second=0)
        places = [(1, "DELIVERED", 3 * HOUR), (2, "DEAD_LETTER", 3 * HOUR), (3, "FAILED", 30 * HOUR)]
        places += [(4, "DELIVERED", timedelta(minutes=10)), (5, "DELIVERED", timedelta(minutes=10))]
        for number, status, ago in places:
            await message(self.inbox, number, status, minute - ago)
        await message(self.inbox, 6, "RECEIVED", minute - 2 * HOUR, system="RIS", tenant="b")
        before = await self.senders()
        await self.count_all()
        after = await self.senders()
        for found in (before, after):
            lab, ris = found["LAB"], found["RIS"]
            self.assertEqual((lab.tenant, lab.listener, lab.received, lab.errors), ("default", "lab", 4, 1))
            self.assertEqual((lab.protocol, ris.protocol), ("HL7V2_MLLP", "HL7V2_MLLP"))
            self.assertEqual((lab.waiting, lab.oldest_waiting), (1, minute - 30 * HOUR))
            self.assertEqual((lab.first_seen, lab.last_seen), (minute - 30 * HOUR, minute - timedelta(minutes=10)))
            self.assertEqual({59 - place: count for place, count in enumerate(lab.minutes) if count}, {10: 2})
            self.assertEqual((ris.tenant, ris.received, ris.errors, ris.waiting), ("b", 1, 0, 1))
        self.assertEqual((after["RIS"].hours, after["RIS"].longest_gap), (1, None))
        self.assertEqual(after["LAB"].hours, 3)
        self.assertEqual(after["LAB"].longest_gap, 27 * HOUR)
        await run(self.inbox, "UPDATE message_senders SET last_seen = now() - interval '101 days' WHERE tenant = 'b'")
        await message(self.inbox, 7, "DELIVERED", self.now - timedelta(minutes=3))
        await self.count_all()
        self.assertEqual(list(await self.senders()), ["LAB"])

    async def senders(self) -> dict[str, Sender]:
        """The senders by name; every message is counted."""
        found = await self.statistics.senders(self.now)
        self.assertTrue(found.is_exact)
        return {one.source_system: one for one in found.senders}

    async def test_newest(self) -> None:
        for number in range(5):
            await message(self.inbox, number, "DELIVERED", self.now - number * HOUR, tenant="ab"[number % 2])
        self.assertEqual([row.source_id for row in await self.statistics.newest(3)], ["M0", "M1", "M2"])

    async def pruning(self, *statements: str) -> None:
        """Delete as retention does."""

        async def work(session: Session) -> None:
            await session.many("SELECT set_config('ipf.pruning', 'on', true)")
            for statement in statements:
                await session.many(statement)

        await self.inbox.transact(work)

    async def test_dead_letters(self) -> None:
        """Newest first by receipt, of all tenants, with the total."""
        self.assertEqual(await self.statistics.dead_letters(5), (0, []))
        for number in range(6):
            await message(self.inbox, number, "DEAD_LETTER", self.now - number * HOUR, tenant="ab"[number % 2])
        await message(self.inbox, 9, "FAILED", self.now)
        total, rows = await self.statistics.dead_letters(4)
        self.assertEqual((total, [row.source_id for row in rows]), (6, ["M0", "M1", "M2", "M3"]))
        self.assertEqual((rows[0].last_error, rows[0].status), ("no map", Status.DEAD_LETTER))

    async def test_trace(self) -> None:
        """Rows of both databases with the id, and attempts that include its event."""
        self.assertEqual(await self.statistics.trace(OWN), Trace())
        first = await message(self.inbox, 1, "DELIVERED", self.now, correlation=OWN)
        await run(
            self.inbox,
            f"UPDATE message_states SET map_url = 'http://m/ADT', transform_ms = 1.5 WHERE id = {first};"
            f"INSERT INTO message_states (id, tenant, status, received_at, ready_at, original_id)"
            f" VALUES ({first + 100}, 'default', 'RECEIVED', now(), now(), {first})",
        )
        await self.fire()
        await run(
            self.inbox,
            "INSERT INTO identity_conflicts (tenant, state_id, message_id, place, status, detected_at, resource_type,"
            f" first_key, candidates, finding) VALUES ('default', {first + 100}, {first}, '', 'open', now(), 'Patient',"
            ' \'\', \'\', \'{"kind":"subject","resource_type":"Encounter","keys":[],"candidates":[],'
            '"subject":null,"place":null}\')',
        )
        found = await self.statistics.trace(OWN)
        (conflict,) = found.identity_conflicts
        self.assertEqual((conflict.message_id, conflict.conversion_id), (first, first + 100))
        self.assertEqual(
            [(one.row.id, one.original_id) for one in found.messages], [(first, None), (first + 100, first)]
        )
        self.assertEqual((found.messages[0].map_url, found.messages[0].transform_ms), ("http://m/ADT", 1.5))
        self.assertEqual(
            [(one.resource_type, one.id, one.version_id) for one in found.resources], [("Patient", "p", 2)]
        )
        self.assertEqual([(one.subscription_id, one.event_number) for one in found.events], [("s", 2)])
        self.assertEqual(
            [(one.event_number, one.to_event_number, one.succeeded) for one in found.deliveries],
            [(2, 2, False), (1, 3, True)],
        )
        self.assertEqual(await self.statistics.trace(OWN.replace("6", "7")), Trace())

    async def fire(self) -> None:
        """A Patient's second version fires event 2, which fails alone and is then sent with 1 and 3."""
        await run(
            self.fhir,
            f"""INSERT INTO resources VALUES (1, 1, 'Patient', 'p', 2, now(), false);
            INSERT INTO resource_versions VALUES (1, 1, 1, now(), 'POST', false, '{NO_ID}', ''),
                (1, 2, 1, now(), 'PUT', false, '{OWN}', '');
            INSERT INTO subscription_states (rid, partition_id, id, status) VALUES (7, 1, 's', 'active');
            INSERT INTO subscription_events VALUES (7, 2, 1, 2, now(), '{OWN}');
            INSERT INTO delivery_attempts (subscription_rid, event_number, to_event_number, attempted_at, succeeded,
                http_status, duration_ms, correlation_id)
            VALUES (7, 2, NULL, now(), false, 500, 3, '{OWN}'),
                (7, 1, 3, now() + interval '1 s', true, 200, 3, '{NO_ID}'),
                (7, 4, 9, now(), true, 200, 3, '{NO_ID}')""",
        )

    async def test_plans(self) -> None:
        """No query has a sequential scan or reads the table of bodies."""
        for ask in (
            lambda: self.statistics.throughput(self.now - 24 * HOUR, None, "day"),
            lambda: self.statistics.dead_letters(20),
            self.statistics.queue,
        ):
            watched = _Explaining(self.inbox)
            self.statistics._inbox = watched
            await ask()
            self.assertNotIn("Seq Scan on message", watched.plan, watched.plan)
            self.assertNotRegex(watched.plan, r"Index Scan using message_bodies_list", watched.plan)


class _Explaining(Database):
    """A database wrapper that records query plans."""

    def __init__(self, real: Database) -> None:
        self._real = real
        self.plan = ""

    async def many(self, sql: str) -> list[tuple[Any, ...]]:
        self.plan = "\n".join(row[0] for row in await self._real.many(f"EXPLAIN {sql}"))
        return await self._real.many(sql)
