"""Websocket tokens on PostgreSQL and in memory."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from ipf.store.deliveries.bindings import PostgresBindingTokens
from tests import postgres
from tests.contracts import bindings as contract
from tests.fakes.bindings import MemoryBindingTokens


class MemoryBindingTokensTest(contract.BindingTokensContract):
    """The fake."""

    def setUp(self) -> None:
        self.tokens = MemoryBindingTokens()


class PostgresBindingTokensTest(contract.BindingTokensContract):
    """The real one."""

    async def setUp(self) -> None:
        self.database = await postgres.database(self, "fhir")
        self.tokens = PostgresBindingTokens(self.database)

    async def test_the_token_itself_is_not_stored(self) -> None:
        """Only its digest."""
        token = await self.tokens.issue("default", ["a"], datetime.now(UTC) + timedelta(minutes=1))
        (row,) = await self.database.many("SELECT * FROM websocket_tokens")
        self.assertNotIn(token, str(row))
