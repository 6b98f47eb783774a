"""Whose rows a statement may touch, where PostgreSQL's row-level security is the second lock between tenants.

A Database that was opened with `tenants=True` works in a role that sees the rows of one partition, which each statement
string names in words that go before it, and none without.  `Database.of(tenant)` says these words for what serves one
tenant's request; `Database.everyone` steps out of the role for what serves all of them, and
`tests/store/postgres/test_scopes.py`
names each with its reason.  The words hold for the transaction of the string alone, so nothing stays on a connection
of the pool.  A tenant's number is looked up here once more, beside `names.py`, and then remembered: a number that is
wrong there opens nothing either.

Sources: https://www.postgresql.org/docs/current/ddl-rowsecurity.html,
https://www.postgresql.org/docs/current/protocol-flow.html#PROTOCOL-FLOW-MULTI-STATEMENT
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Protocol, TypeVar

from ipf.store.postgres.driver import Row
from ipf.store.postgres.prepared import Call
from ipf.store.postgres.quoting import Statement
from ipf.store.postgres.session import Session, at_most_one, exactly_one

if TYPE_CHECKING:
    from ipf.store.postgres.database import Database

T = TypeVar("T")

ROLE = "('ipf_tenants_' || current_database())::name"
"""SQL of the role of callers' requests.  Roles belong to a server, so each database has its own."""

SET_ROLE = f"SELECT set_config('role', {ROLE}, false)"

BIND = Statement(
    "tenants_bind",
    "text",
    "SELECT set_config('ipf.partition', coalesce((SELECT id FROM partitions WHERE name = $1)::text, ''), true)",
)

NUMBER = Statement("tenants_number", "text", "SELECT id FROM partitions WHERE name = $1")

EVERYONE = "SET LOCAL ROLE NONE"


def words_of(number: int) -> str:
    """The words that open the rows of a partition: a tenth of what looking it up by name costs (1.5 us)."""
    return f"SET LOCAL ipf.partition = '{int(number)}'"


class Runs(Protocol):
    """What runs statements: a `Database`, or a Scope of it."""

    async def many(self, sql: str) -> list[Row]:
        """See `Database.many`."""

    async def call(self, call: Call) -> list[Row]:
        """See `Database.call`."""

    async def one(self, sql: str) -> Row:
        """See `Database.one`."""

    async def maybe(self, sql: str) -> Row | None:
        """See `Database.maybe`."""

    async def run_in_thread(self, sql: str) -> list[Row]:
        """See `Database.run_in_thread`."""

    async def transact(self, work: Callable[[Session], Awaitable[T]]) -> T:
        """See `Database.transact`."""

    def session(self) -> AbstractAsyncContextManager[Session]:
        """See `Database.session`."""


class Scope:
    """A Database whose every statement string begins with `words`; "" = those of `tenant`, which are looked up."""

    def __init__(self, database: Database, words: str, tenant: str = "") -> None:
        self._database = database
        self._words = words
        self._tenant = tenant

    async def _opening(self) -> str:
        return self._words or await self._database.opening(self._tenant)

    async def many(self, sql: str) -> list[Row]:
        """See `Database.many`."""
        return await self._database.many(f"{await self._opening()};\n{sql}")

    async def call(self, call: Call) -> list[Row]:
        """See `Database.call`."""
        return await self._database.call(call, f"{await self._opening()};\n")

    async def one(self, sql: str) -> Row:
        """See `Database.one`."""
        return exactly_one(await self.many(sql))

    async def maybe(self, sql: str) -> Row | None:
        """See `Database.maybe`."""
        return at_most_one(await self.many(sql))

    async def run_in_thread(self, sql: str) -> list[Row]:
        """See `Database.run_in_thread`."""
        return await self._database.run_in_thread(f"{await self._opening()};\n{sql}")

    async def transact(self, work: Callable[[Session], Awaitable[T]]) -> T:
        """See `Database.transact`."""
        return await self._database.transact(work, await self._opening())

    def session(self) -> AbstractAsyncContextManager[Session]:
        """See `Database.session`."""
        return self._session()

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[Session]:
        async with self._database.session(await self._opening()) as session:
            yield session


_: type[Runs] = Scope
