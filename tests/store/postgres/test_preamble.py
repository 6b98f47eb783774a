"""The time of a clock in statements, and statements that are prepared at their first call."""

from __future__ import annotations

from datetime import timedelta

from twisted.trial.unittest import TestCase

from ipf.errors import Problem
from ipf.store.postgres.quoting import Statement
from tests import postgres
from tests.contracts.clock import MovedClock

_ADD = Statement("add", "integer, integer", "SELECT $1 + $2")
_ADDED = "SELECT count(*) FROM pg_prepared_statements WHERE name = 'add'"


class PreambleTests(TestCase):
    """On one connection."""

    async def test_now_is_the_time_of_the_clock(self) -> None:
        """Also in prepared statements, in transactions, after a rollback and for the role of tenants."""
        clock = MovedClock()
        now = Statement("read_now", "", "SELECT now(), clock_timestamp()")
        opened = await postgres.database(self, "fhir", size=1, now=clock, statements=[now], tenants=True)
        for seconds in (0, 3600, -7200):
            clock.advance(seconds)
            for executor in (opened, opened.all_tenants, opened.for_tenant("default")):
                self.assertEqual(await executor.one(now.call()), (clock(), clock()))
        with self.assertRaises(Problem):
            await opened.transact(lambda session: session.many("SELECT 1 / 0"))
        self.assertEqual(await opened.one("SELECT now()"), (clock(),))

    async def test_now_is_the_time_of_the_database_by_default(self) -> None:
        opened = await postgres.database(self, "ipf", size=1)
        self.assertEqual(
            await opened.one("SELECT now() = pg_catalog.now(), to_regprocedure('ipf_clock.now()')"), (True, None)
        )

    async def test_due_rows_are_found_by_index(self) -> None:
        """PostgreSQL inlines the function of the clock."""
        clock = MovedClock()
        opened = await postgres.database(self, "ipf", size=1, now=clock)
        call = "EXPLAIN SELECT id FROM message_states WHERE status IN ('RECEIVED', 'FAILED') AND ready_at <= now()"
        plan = "\n".join(row[0] for row in await opened.many(call))
        self.assertIn("Index Cond: (ready_at <= (current_setting('ipf.now'", plan)
        self.assertEqual(await opened.one("SELECT now() + interval '1 s'"), (clock() + timedelta(seconds=1),))

    async def test_a_statement_is_prepared_once(self) -> None:
        opened = await postgres.database(self, "ipf", size=1, statements=[_ADD])
        self.assertEqual(await opened.one(_ADDED), (0,))
        for second in (2, 3):
            self.assertEqual(await opened.one(_ADD.call(1, second)), (1 + second,))
        self.assertEqual(await opened.one(_ADDED), (1,))

    async def test_a_first_call_that_fails(self) -> None:
        """After an error of the call it is prepared; in a transaction that has failed it is not."""
        for calls in (
            ["SELECT 1 / 0; " + _ADD.call(1, 1)],
            ["SELECT 1 / 0", _ADD.call(1, 1)],
            ["SELEC; " + _ADD.call(1, 1)],
        ):
            opened = await postgres.database(self, "ipf", size=1, statements=[_ADD])
            async with opened.session() as session:
                for call in calls:
                    with self.assertRaises(Problem):
                        await session.many(call)
            self.assertEqual(await opened.one(_ADD.call(1, 1)), (2,))
