"""The inbox on PostgreSQL and in memory; on PostgreSQL also concurrency, long queues and query plans."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from twisted.internet import defer

from ipf.errors import Category, Problem
from ipf.ports import Backoff, Outcome, Settlement, Status
from ipf.store.inbox.inbox import PostgresInbox
from tests import postgres
from tests.contracts import inbox as contract
from tests.contracts.clock import CLOCK
from tests.contracts.inbox import ended, received
from tests.fakes import MemoryInbox
from tests.waiting import turns


class MemoryInboxTest(contract.InboxContract):
    """The contract in memory."""

    def setUp(self) -> None:
        self.inbox = MemoryInbox(CLOCK)

    def passing(self) -> MemoryInbox:
        return MemoryInbox(CLOCK, holds_permanent=False)


class PostgresInboxTest(contract.InboxContract):
    """The contract on PostgreSQL."""

    async def setUp(self) -> None:
        self.database = await postgres.database(self, "ipf", now=CLOCK)
        self.inbox = PostgresInbox(self.database)

    def passing(self) -> PostgresInbox:
        return PostgresInbox(self.database, holds_permanent=False)

    async def test_what_cannot_be_stored_is_refused(self) -> None:
        """NUL in a name: MALFORMED, nothing of the batch is stored."""
        refused = await self.assertFailure(
            defer.Deferred.fromCoroutine(self.inbox.store([received("a"), received("b\x00")])), Problem
        )
        self.assertIs(refused.category, Category.MALFORMED)
        self.assertEqual(sum((await self.inbox.counts()).values()), 0)

    async def test_names_with_separators(self) -> None:
        """A name may contain any control character; a name with all of them is stored outside a batch."""
        ids = ["a\x1eb", "\x1e\x1d\x1c", "\x02\x03'"]
        self.assertEqual(await self.inbox.store([received(one) for one in ids]), [Outcome.STORED] * 3)
        self.assertEqual([claim.source_id for claim in await self.inbox.claim("w", 5)], ids)
        worst = received("".join(map(chr, range(1, 31))))
        with self.assertRaises(Problem):
            await self.inbox.store([worst, received("c")])
        self.assertEqual(await self.inbox.store([worst]), [Outcome.STORED])

    async def test_many_claimers(self) -> None:
        """Four workers drain 400 rows of 20 keys: each row once, each key in order."""
        await self.inbox.store([received(f"{n}", key=n % 20) for n in range(400)])
        done: list[tuple[int, str]] = []

        async def drain(worker: str) -> None:
            idle = 0
            while idle < 3:
                claims = await self.inbox.claim(worker, 7)
                idle = 0 if claims else idle + 1
                for claim in claims:
                    done.append((claim.ordering_key or 0, claim.source_id))
                await self.inbox.settle([ended(claim) for claim in claims])
                if not claims:
                    await turns()

        await concurrently([drain(f"w{n}") for n in range(4)])
        while len(done) < 400:  # a lost wake-up delays a message by up to a second
            CLOCK.advance(1)
            await drain("last")
        self.assertEqual(len({source_id for _, source_id in done}), 400)
        for key in range(20):
            order = [int(source_id) for found, source_id in done if found == key]
            self.assertEqual(order, sorted(order))

    async def test_same_messages_at_once(self) -> None:
        """Two connections store the same 50 messages in opposite order: 50 rows, no deadlock."""
        batch = [received(f"{n}") for n in range(50)]
        first, second = await concurrently([self.inbox.store(batch), self.inbox.store(batch[::-1])])
        stored = sum(outcome.value == "stored" for outcome in (*first, *second))
        self.assertEqual((stored, (await self.inbox.counts())[Status.RECEIVED]), (50, 50))

    async def test_a_long_queue_behind_one_message(self) -> None:
        """3,000 rows wait for a failed one: they are deferred once, then other rows are claimed at full speed."""
        for start in range(0, 3000, 500):
            await self.inbox.store([received(f"k{start + n}", key=7) for n in range(500)])
        (first,) = await self.inbox.claim("w", 1)
        due = CLOCK() + timedelta(hours=1)
        await self.inbox.settle([Settlement(first.id, first.fence, Status.FAILED, 1, "x", due)])
        await self.inbox.store([received(f"o{n}", key=100 + n) for n in range(100)])
        claims: list[Any] = []
        for _ in range(5):
            claims += await self.inbox.claim("w", 50)
        self.assertEqual(len(claims), 100)
        waiting = await self.database.one(
            "SELECT count(*) FROM message_states WHERE ready_at <= now() AND status = 'RECEIVED'"
        )
        self.assertEqual(waiting[0], 0)

    async def test_a_clock_that_was_set_back(self) -> None:
        """Rows due by the former clock are due now; deferred rows and retries keep their time."""
        await self.inbox.store([received(f"{number}") for number in range(5)])
        minutes = {1: 60, 2: 60, 3: 0.9, 4: 4, 5: 10}  # by id; the longest backoff is five minutes here
        for id_, later in minutes.items():
            status = "RECEIVED" if id_ in (1, 3) else "FAILED"
            await self.database.many(
                f"UPDATE message_states SET status = '{status}', ready_at = now() + {later} * interval '1 minute',"
                f" next_attempt_at = now() + {later} * interval '1 minute' WHERE id = {id_}"
            )
        self.assertEqual(await self.inbox.claim("w", 50), [])
        await self.inbox.recover_stale(60, Backoff(1000, 2.0, 300_000, 5))
        self.assertEqual([claim.id for claim in await self.inbox.claim("w", 50)], [1, 2, 5])

    async def test_full_table_plans(self) -> None:
        """With 50,000 rows and statistics, the frequent statements use their indexes."""
        await self.database.many(
            "INSERT INTO message_bodies (tenant, received_at, source_protocol, source_system, source_id, message_type, "
            "correlation_id, listener, charset, raw_content_type, raw_message) "
            "SELECT 'default', now(), 'HL7V2_MLLP', 'LAB', 'old' || n, 'ADT_A01', gen_random_uuid(), '', 'utf-8', '', "
            "'\\x00' FROM generate_series(1, 50000) n;"
            "INSERT INTO message_states (id, tenant, status, received_at, ready_at, ordering_key) "
            "SELECT id, tenant, 'DELIVERED', received_at, received_at, id FROM message_bodies;"
            "INSERT INTO message_states (id, tenant, status, received_at, ready_at) "
            "SELECT -n, 'default', 'RECEIVED', now(), now() FROM generate_series(1, 100) n"
        )
        await self.database.many("ANALYZE message_states; ANALYZE message_bodies")
        await self.database.many("SELECT reset_empty_partitions('message_bodies')")  # as maintenance does
        for call, index in (
            ("inbox_claim('w', 50)", "message_states_claim"),
            ("inbox_claim('w', 50)", "message_states_order"),
            ("inbox_claim_passing('w', 50)", "message_states_order"),
            ("inbox_settle_passing('1', '1', 'DELIVERED', '0', '', '', '', '', 'f')", "message_states_pkey"),
            ("inbox_recover_stale(60, 1, 2, 3, 4)", "message_states_"),
            ("inbox_reschedule(310)", "message_states_claim"),
            ("inbox_settle('1', '1', 'DELIVERED', '0', '', '', '', '', 'f')", "message_states_pkey"),
            ("inbox_get(1)", "message_bodies_1_pkey"),
        ):
            plan = "\n".join(row[0] for row in await self.database.many(f"EXPLAIN EXECUTE {call}"))
            self.assertIn(index, plan, plan)
            self.assertNotIn("Seq Scan", plan)
            self.assertNotIn("Filter: (id =", plan)


async def concurrently(coroutines: list[Any]) -> list[Any]:
    """Run all at once; their results in order."""
    return await defer.gatherResults([defer.Deferred.fromCoroutine(one) for one in coroutines], consumeErrors=True)
