"""Row-level security per tenant: which rows the statements of a Database see.

A Database that was opened with `tenants=True` works in a role that sees the rows of one partition: the one that the
setting `ipf.partition` names, and none without it.  Each statement string begins with a prologue that sets it for the
string's transaction, so nothing stays on a connection of the pool.  `Database.for_tenant(tenant)` adds the prologue for
one tenant's request.  `Database.all_tenants` leaves the role for work on all tenants; `test_tenant_scope.py` lists its
users, each with its reason.  A tenant's number is looked up here independently of `symbols.py`: a wrong number there
exposes no rows.

Sources: https://www.postgresql.org/docs/current/ddl-rowsecurity.html,
https://www.postgresql.org/docs/current/protocol-flow.html#PROTOCOL-FLOW-MULTI-STATEMENT
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol, TypeVar

from ipf.store.postgres.driver import Row
from ipf.store.postgres.prepared import DynamicStatement
from ipf.store.postgres.quoting import Statement, literal, script
from ipf.store.postgres.session import Session, at_most_one, exactly_one

T = TypeVar("T")

ROLE = "('ipf_tenants_' || current_database())::name"
"""SQL expression for the role's name.  Roles belong to a server, so each database has its own."""

SET_ROLE = f"SELECT set_config('role', {ROLE}, false)"

SET_TENANT = Statement(
    "tenants_set",
    "text",
    "SELECT set_config('ipf.partition', coalesce((SELECT id FROM partitions WHERE name = $1)::text, ''), true)",
)

TENANT_NUMBER = Statement("tenants_number", "text", "SELECT id FROM partitions WHERE name = $1")

ALL_TENANTS = "SET LOCAL ROLE NONE"


def set_partition(number: int) -> str:
    """The prologue for a partition; ten times cheaper than `SET_TENANT`, which looks the number up by name."""
    return f"SET LOCAL ipf.partition = {literal(number)}"


class Executor(Protocol):
    """Runs statements: a `Database`, or a `TenantScope` of one."""

    async def many(self, sql: str) -> list[Row]:
        """See `Database.many`."""

    async def run_dynamic(self, dynamic: DynamicStatement) -> list[Row]:
        """See `Database.run_dynamic`."""

    async def one(self, sql: str) -> Row:
        """See `Database.one`."""

    async def maybe(self, sql: str) -> Row | None:
        """See `Database.maybe`."""

    async def run_reserved(self, sql: str) -> list[Row]:
        """See `Database.run_reserved`."""

    async def transact(self, work: Callable[[Session], Awaitable[T]]) -> T:
        """See `Database.transact`."""

    def session(self) -> AbstractAsyncContextManager[Session]:
        """See `Database.session`."""


class Pool(Protocol):
    """What a `TenantScope` needs of a `Database`."""

    async def tenant_prologue(self, tenant: str) -> str:
        """See `Database.tenant_prologue`."""

    async def many(self, sql: str) -> list[Row]:
        """See `Database.many`."""

    async def run_dynamic(self, dynamic: DynamicStatement, prologue: str = "") -> list[Row]:
        """See `Database.run_dynamic`."""

    async def run_reserved(self, sql: str) -> list[Row]:
        """See `Database.run_reserved`."""

    async def transact(self, work: Callable[[Session], Awaitable[T]], prologue: str = "") -> T:
        """See `Database.transact`."""

    def session(self, prologue: str = "") -> AbstractAsyncContextManager[Session]:
        """See `Database.session`."""


class TenantScope:
    """Runs statements on `pool`, each string after `prologue`; without one, after the prologue of `tenant`."""

    def __init__(self, pool: Pool, prologue: str, tenant: str = "") -> None:
        self._pool = pool
        self._fixed = prologue
        self._tenant = tenant

    async def _prologue(self) -> str:
        return self._fixed or await self._pool.tenant_prologue(self._tenant)

    async def many(self, sql: str) -> list[Row]:
        """See `Database.many`."""
        return await self._pool.many(script(await self._prologue(), sql))

    async def run_dynamic(self, dynamic: DynamicStatement) -> list[Row]:
        """See `Database.run_dynamic`."""
        return await self._pool.run_dynamic(dynamic, await self._prologue())

    async def one(self, sql: str) -> Row:
        """See `Database.one`."""
        return exactly_one(await self.many(sql))

    async def maybe(self, sql: str) -> Row | None:
        """See `Database.maybe`."""
        return at_most_one(await self.many(sql))

    async def run_reserved(self, sql: str) -> list[Row]:
        """See `Database.run_reserved`."""
        return await self._pool.run_reserved(script(await self._prologue(), sql))

    async def transact(self, work: Callable[[Session], Awaitable[T]]) -> T:
        """See `Database.transact`."""
        return await self._pool.transact(work, await self._prologue())

    def session(self) -> AbstractAsyncContextManager[Session]:
        """See `Database.session`."""
        return self._session()

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[Session]:
        async with self._pool.session(await self._prologue()) as session:
            yield session


_: type[Executor] = TenantScope
