"""The states of feeds on PostgreSQL and in memory."""

from __future__ import annotations

from ipf.store.inbox.feeds import PostgresFeeds
from ipf.store.inbox.inbox import PostgresInbox
from tests import postgres
from tests.contracts import feeds as contract
from tests.contracts.clock import CLOCK
from tests.fakes import MemoryInbox
from tests.fakes.feeds import MemoryFeeds


class MemoryFeedsTest(contract.FeedsContract):
    """The contract in memory."""

    def setUp(self) -> None:
        self.inbox = MemoryInbox(CLOCK)
        self.feeds = MemoryFeeds(self.inbox, CLOCK)


class PostgresFeedsTest(contract.FeedsContract):
    """The contract on PostgreSQL."""

    async def setUp(self) -> None:
        self.database = await postgres.database(self, "ipf", now=CLOCK)
        self.inbox = PostgresInbox(self.database)
        self.feeds = PostgresFeeds(self.database, self.inbox)
