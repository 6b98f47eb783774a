"""The review queue of identity on PostgreSQL and in memory."""

from __future__ import annotations

from ipf.ports.identity import AnswerKind
from ipf.store.inbox.conflicts import PostgresIdentityConflicts
from ipf.store.inbox.inbox import PostgresInbox
from ipf.store.inbox.unmapped_codes import PostgresUnmappedCodes
from tests import postgres
from tests.contracts import conflicts as contract
from tests.contracts.clock import CLOCK
from tests.contracts.conflicts import conflicting
from tests.contracts.inbox import ended
from tests.fakes import MemoryIdentityConflicts, MemoryInbox, MemoryUnmappedCodes
from tests.store.inbox.test_inbox import concurrently


class MemoryConflictsTest(contract.ConflictsContract):
    """The contract in memory."""

    def setUp(self) -> None:
        self.inbox = MemoryInbox(CLOCK)
        self.codes = MemoryUnmappedCodes(self.inbox)
        self.conflicts = MemoryIdentityConflicts(self.inbox)


class PostgresConflictsTest(contract.ConflictsContract):
    """The contract on PostgreSQL."""

    async def setUp(self) -> None:
        database = await postgres.database(self, "ipf", now=CLOCK)
        self.inbox = PostgresInbox(database)
        self.codes, self.conflicts = PostgresUnmappedCodes(database), PostgresIdentityConflicts(database)

    async def test_answers_while_messages_are_settled(self) -> None:
        """Twenty conflicts of one key, answered while workers settle their messages: no deadlock, nothing is lost."""
        claims = await self.claims(*(f"{number}" for number in range(20)), key=None)
        await self.inbox.settle([conflicting(claim) for claim in claims])
        number = (await self.rows())[0].id

        async def convert() -> int:
            claims = await self.inbox.claim("w", 50)
            await self.inbox.settle([ended(claim) for claim in reversed(claims)])
            return len(claims)

        answer = self.conflicts.answer(number, AnswerKind.TAKE, "Patient/a", "admin")
        await concurrently([answer, convert(), convert()])
        while await convert():
            pass
        statuses = [row.message_status for row in await self.rows()]
        self.assertEqual(statuses, ["DELIVERED"] * 20)
        self.assertEqual(await self.conflicts.open_count(), 0)
