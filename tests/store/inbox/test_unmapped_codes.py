"""Unmapped codes on PostgreSQL and in memory; bounds of the real store."""

from __future__ import annotations

from dataclasses import replace

from ipf.ports import UnmappedCode
from ipf.store.inbox import unmapped_codes_sql
from ipf.store.inbox.inbox import PostgresInbox
from ipf.store.inbox.unmapped_codes import PostgresCodes
from tests import postgres
from tests.contracts import codes as contract
from tests.contracts.inbox import ended, received
from tests.fakes import MemoryCodes, MemoryInbox


class MemoryCodesTest(contract.CodesContract):
    """The fake."""

    def setUp(self) -> None:
        self.inbox = MemoryInbox()
        self.codes = MemoryCodes(self.inbox)


class PostgresCodesTest(contract.CodesContract):
    """The real one."""

    async def setUp(self) -> None:
        database = await postgres.database(self, "ipf")
        self.inbox, self.codes = PostgresInbox(database), PostgresCodes(database)

    async def test_what_a_message_says_is_bounded(self) -> None:
        """Control characters and endless codes are made storable."""
        claims = await self._delivered(received(), unmapped=(UnmappedCode("urn:t", "a\x1f\x00b" + "x" * 1000),))
        row = await self._only()
        self.assertEqual((row.code[:5], len(row.code)), ("a  bx", 200))
        many = tuple(UnmappedCode("urn:t", str(n)) for n in range(1000))
        call = unmapped_codes_sql.record([replace(ended(claims[0]), unmapped=many)])
        self.assertLess(len(call), 10_000)
        self.assertEqual(unmapped_codes_sql.record([ended(claims[0])]), "")
