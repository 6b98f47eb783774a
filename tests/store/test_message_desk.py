"""Rejects, error groups and jobs, on PostgreSQL and in memory."""

from __future__ import annotations

from ipf.store.inbox import PostgresInbox
from ipf.store.message_desk import PostgresMessageDesk
from tests import postgres
from tests.contracts import message_desk as contract
from tests.fakes import MemoryInbox, MemoryMessageDesk


class MemoryMessageDeskTest(contract.MessageDeskContract):
    """The fake."""

    def setUp(self) -> None:
        self.inbox = MemoryInbox()
        self.desk = MemoryMessageDesk(self.inbox)


class PostgresMessageDeskTest(contract.MessageDeskContract):
    """The real one."""

    async def setUp(self) -> None:
        database = await postgres.database(self, "ipf")
        self.inbox, self.desk = PostgresInbox(database), PostgresMessageDesk(database)
