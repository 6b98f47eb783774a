"""The states of feeds on PostgreSQL and in memory."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from ipf.store.inbox.feeds import PostgresFeeds
from ipf.store.inbox.inbox import PostgresInbox
from tests import postgres
from tests.contracts import feeds as contract
from tests.fakes import MemoryInbox
from tests.fakes.feeds import MemoryFeeds


class MemoryFeedsTest(contract.FeedsContract):
    """The contract in memory."""

    def setUp(self) -> None:
        self.ahead = timedelta()
        self.inbox = MemoryInbox()
        self.feeds = MemoryFeeds(self.inbox, lambda: datetime.now(UTC) + self.ahead)

    async def pass_time(self, seconds: float) -> None:
        self.ahead += timedelta(seconds=seconds)


class PostgresFeedsTest(contract.FeedsContract):
    """The contract on PostgreSQL."""

    async def setUp(self) -> None:
        self.database = await postgres.database(self, "ipf")
        self.inbox = PostgresInbox(self.database)
        self.feeds = PostgresFeeds(self.database, self.inbox)

    async def pass_time(self, seconds: float) -> None:
        await postgres.pass_time(self.database, "polled_feeds", seconds, "due_at", "leased_until")
