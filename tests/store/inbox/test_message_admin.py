"""Rejects, error groups and jobs, on PostgreSQL and in memory."""

from __future__ import annotations

from ipf.store.inbox.inbox import PostgresInbox
from ipf.store.inbox.message_admin import PostgresMessageAdmin
from tests import postgres
from tests.contracts import message_admin as contract
from tests.contracts.clock import CLOCK
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
