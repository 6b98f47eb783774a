"""Unmapped codes on PostgreSQL and in memory, and the limits of the PostgreSQL store."""

from __future__ import annotations

from dataclasses import replace

from ipf.ports import UnmappedCode
from ipf.store.inbox import unmapped_codes_sql
from ipf.store.inbox.inbox import PostgresInbox
from ipf.store.inbox.unmapped_codes import PostgresUnmappedCodes
from tests import postgres
from tests.contracts import unmapped_codes as contract
from tests.contracts.clock import CLOCK
from tests.contracts.inbox import ended, received
from tests.fakes import MemoryInbox, MemoryUnmappedCodes


class MemoryUnmappedCodesTest(contract.UnmappedCodesContract):
    """The contract in memory."""

    def setUp(self) -> None:
        self.inbox = MemoryInbox(CLOCK)
        self.codes = MemoryUnmappedCodes(self.inbox)


class PostgresUnmappedCodesTest(contract.UnmappedCodesContract):
    """The contract on PostgreSQL."""

    async def setUp(self) -> None:
        database = await postgres.database(self, "ipf", now=CLOCK)
        self.inbox, self.codes = PostgresInbox(database), PostgresUnmappedCodes(database)

    async def test_codes_are_limited_and_printable(self) -> None:
        """Control characters are replaced, long codes are cut."""
        claims = await self._delivered(received(), unmapped=(UnmappedCode("urn:t", "a\x1f\x00b" + "x" * 1000),))
        row = await self._only()
        self.assertEqual((row.code[:5], len(row.code)), ("a  bx", 200))
        many = tuple(UnmappedCode("urn:t", str(n)) for n in range(1000))
        call = unmapped_codes_sql.record([replace(ended(claims[0]), unmapped=many)])
        self.assertLess(len(call), 10_000)
        self.assertEqual(unmapped_codes_sql.record([ended(claims[0])]), "")
