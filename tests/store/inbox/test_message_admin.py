"""Rejects, error groups and jobs, on PostgreSQL and in memory."""

from __future__ import annotations

from typing import Any

from ipf.ports import Selection, Status
from ipf.store.inbox.inbox import PostgresInbox
from ipf.store.inbox.message_admin import PostgresMessageAdmin
from tests import postgres
from tests.contracts import message_admin as contract
from tests.contracts.clock import CLOCK
from tests.contracts.inbox import received
from tests.fakes import MemoryInbox, MemoryMessageAdmin


class MemoryMessageAdminTest(contract.MessageAdminContract):
    """The contract in memory."""

    def setUp(self) -> None:
        self.inbox = MemoryInbox(CLOCK)
        self.admin = MemoryMessageAdmin(self.inbox)


class PostgresMessageAdminTest(contract.MessageAdminContract):
    """The contract on PostgreSQL."""

    async def setUp(self) -> None:
        database = await postgres.database(self, "ipf", now=CLOCK)
        self.inbox, self.admin = PostgresInbox(database), PostgresMessageAdmin(database)

    async def test_a_job_that_fails_in_a_way_that_nobody_foresaw_blocks_no_other(self) -> None:
        """It is failed, with the reason; it was taken again and again."""
        one, two = await self._end(Status.DEAD_LETTER, received(), received())
        first = await self.admin.start_job(contract.new_job("retry", Selection((one,), contract.EVERY)), 2)
        second = await self.admin.start_job(contract.new_job("retry", Selection((two,), contract.EVERY)), 2)
        batch = self.admin._batch

        async def failing(session: Any, taken: Any, limit: int) -> int:
            if taken[0] == first.id:
                raise ZeroDivisionError("Hansen")
            return await batch(session, taken, limit)

        self.patch(self.admin, "_batch", failing)
        done = await self._done(second)
        failed = await self._known(first.id)
        self.assertEqual((failed.status, done.status), ("failed", "done"))
        self.assertEqual(failed.error, "unexpected ZeroDivisionError")
