"""Counts of unread fields on PostgreSQL and in memory."""

from __future__ import annotations

from ipf.ports import UnreadFilter
from ipf.store.inbox.inbox import PostgresInbox
from ipf.store.inbox.unread_fields import PostgresUnreadFields
from tests import postgres
from tests.contracts import unread_fields as contract
from tests.contracts.clock import CLOCK
from tests.contracts.resources import gather_all
from tests.contracts.unread_fields import count
from tests.fakes import MemoryInbox, MemoryUnreadFields


class MemoryUnreadFieldsTest(contract.UnreadFieldsContract):
    """The contract in memory."""

    def setUp(self) -> None:
        self.inbox = MemoryInbox(CLOCK)
        self.unread = MemoryUnreadFields(self.inbox)


class PostgresUnreadFieldsTest(contract.UnreadFieldsContract):
    """The contract on PostgreSQL."""

    async def setUp(self) -> None:
        database = await postgres.database(self, "ipf", now=CLOCK)
        self.inbox, self.unread = PostgresInbox(database), PostgresUnreadFields(database)

    async def test_processes_add_at_once(self) -> None:
        """The same rows in any order: no deadlock, and nothing is lost."""
        rows = [count(f"PID-{number}") for number in range(200)]
        await gather_all([self.unread.add(rows if turn % 2 else rows[::-1]) for turn in range(12)])
        total, found = await self.unread.fields(UnreadFilter(), 500, 0)
        self.assertEqual((total, {row.occurrences for row in found}), (200, {12}))

    async def test_names_are_limited_and_printable(self) -> None:
        """Control characters are replaced, long names are cut."""
        await self.unread.add([count("a\x1f\x00b" + "x" * 1000, reason="y" * 5000)])
        _, (row,) = await self.unread.fields(UnreadFilter(), 5, 0)
        self.assertEqual((row.path[:5], len(row.path), len(row.reason)), ("a  bx", 200, 1000))
