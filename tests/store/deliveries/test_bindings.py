"""Websocket tokens on PostgreSQL and in memory."""

from __future__ import annotations

from datetime import timedelta

from ipf.store.deliveries.bindings import PostgresBindingTokens
from tests import postgres
from tests.contracts import bindings as contract
from tests.contracts.clock import CLOCK
from tests.fakes.bindings import MemoryBindingTokens


class MemoryBindingTokensTest(contract.BindingTokensContract):
    """The fake."""

    def setUp(self) -> None:
        self.tokens = MemoryBindingTokens(CLOCK)


class PostgresBindingTokensTest(contract.BindingTokensContract):
    """The real one."""

    async def setUp(self) -> None:
        self.database = await postgres.database(self, "fhir", now=CLOCK)
        self.tokens = PostgresBindingTokens(self.database)

    async def test_the_token_itself_is_not_stored(self) -> None:
        """Only its digest."""
        token = await self.tokens.issue("default", ["a"], CLOCK() + timedelta(minutes=1))
        (row,) = await self.database.many("SELECT * FROM websocket_tokens")
        self.assertNotIn(token, str(row))
