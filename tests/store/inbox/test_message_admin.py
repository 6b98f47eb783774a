"""Rejects, error groups and jobs, on PostgreSQL and in memory."""

from __future__ import annotations

from ipf.store.inbox.inbox import PostgresInbox
from ipf.store.inbox.message_admin import PostgresMessageAdmin
from tests import postgres
from tests.contracts import message_admin as contract
from tests.fakes import MemoryInbox, MemoryMessageAdmin


class MemoryMessageDeskTest(contract.MessageDeskContract):
    """The fake."""

    def setUp(self) -> None:
        self.inbox = MemoryInbox()
        self.desk = MemoryMessageAdmin(self.inbox)


class PostgresMessageDeskTest(contract.MessageDeskContract):
    """The real one."""

    async def setUp(self) -> None:
        database = await postgres.database(self, "ipf")
        self.inbox, self.desk = PostgresInbox(database), PostgresMessageAdmin(database)
