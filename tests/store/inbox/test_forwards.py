"""The ledger of forwarded messages on PostgreSQL and in memory; on PostgreSQL also what retention and erasure leave."""

from __future__ import annotations

from ipf.ports.messages.forwards import Forwarded
from ipf.store.inbox.forwards import PostgresForwards
from ipf.store.inbox.inbox import PostgresInbox
from tests import postgres
from tests.contracts import forwards as contract
from tests.contracts.clock import CLOCK
from tests.contracts.forwards import NAME, SENT, every
from tests.contracts.inbox import received
from tests.fakes import MemoryInbox
from tests.fakes.forwards import MemoryForwards


class MemoryForwardsTest(contract.ForwardsContract):
    """The contract in memory."""

    def setUp(self) -> None:
        self.inbox = MemoryInbox(CLOCK)
        self.forwards = MemoryForwards(self.inbox, CLOCK)

    async def settled(self) -> None:
        """Nothing is in flight."""


class PostgresForwardsTest(contract.ForwardsContract):
    """The contract on PostgreSQL."""

    async def setUp(self) -> None:
        self.database = await postgres.database(self, "ipf", now=CLOCK)
        self.inbox = PostgresInbox(self.database)
        self.clock = 0.0
        self.forwards = PostgresForwards(self.database, lambda: self.clock)

    async def settled(self) -> None:
        last = (await self.database.one("SELECT max(id) FROM message_bodies"))[0]
        while await self.forwards.horizon.move() < last:
            self.clock += 1

    async def test_a_message_that_is_not_committed_yet(self) -> None:
        """Its id is lower than one that is visible: the destination waits for it."""
        fence = await self.begun()
        async with self.database.session() as session:
            await self.inbox.store_in(session, [received("first")])
            await self.inbox.store([received("second")])
            for _ in range(5):
                self.clock += 1
                self.assertEqual(await self.forwards.fill(NAME, fence, every, 10), 0)
            await session.commit()
        await self.settled()
        await self.forwards.fill(NAME, fence, every, 10)
        self.assertEqual(await self.sources(), ["first", "second"])

    async def test_the_ledger_goes_with_its_message(self) -> None:
        fence = await self.filled("a")
        pending = await self.forwards.next(NAME)
        assert pending is not None
        await self.forwards.settle(NAME, fence, Forwarded(pending.message_id, SENT), 60)
        await self.database.many("DELETE FROM message_states; DELETE FROM message_bodies")
        self.assertEqual(await self.sources(), [])
