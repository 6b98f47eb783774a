"""Reads on the connection of an open transaction, which see what it has written.

`ports.FhirStore.within` and `ports.Histories.within` read from here instead of the pool.
"""

from __future__ import annotations

from typing import Protocol

from ipf.errors import Category, Problem
from ipf.ports import FhirTransaction
from ipf.store.postgres.connection import StatementCancelled
from ipf.store.postgres.driver import Row
from ipf.store.postgres.prepared import DynamicStatement, took_too_long
from ipf.store.postgres.quoting import script
from ipf.store.postgres.session import Session, at_most_one, exactly_one


class Rows(Protocol):
    """Runs statements that read: of a pool, or of a transaction."""

    async def many(self, sql: str) -> list[Row]:
        """See `Database.many`."""

    async def run_dynamic(self, dynamic: DynamicStatement) -> list[Row]:
        """See `Database.run_dynamic`."""

    async def one(self, sql: str) -> Row:
        """See `Database.one`."""

    async def maybe(self, sql: str) -> Row | None:
        """See `Database.maybe`."""


class Readable(Protocol):
    """A `Database`, or a transaction on it."""

    def for_tenant(self, tenant: str) -> Rows:
        """Statements that see the rows of this tenant."""


class Prologues(Protocol):
    """What `SessionReads` needs of a `Database`."""

    async def tenant_prologue(self, tenant: str) -> str:
        """See `Database.tenant_prologue`."""


class SessionReads:
    """The reads of one session, for any tenant."""

    def __init__(self, session: Session, database: Prologues) -> None:
        self.session = session
        self._database = database

    def for_tenant(self, tenant: str) -> Rows:
        """See `Readable`."""
        return _TenantReads(self, tenant)

    async def many(self, sql: str, tenant: str) -> list[Row]:
        """Run `sql` in the transaction, for one tenant."""
        return await self.session.many(script(await self._database.tenant_prologue(tenant), sql))


class _TenantReads:
    """The reads of one session for one tenant."""

    def __init__(self, reads: SessionReads, tenant: str) -> None:
        self._reads = reads
        self._tenant = tenant

    async def many(self, sql: str) -> list[Row]:
        """See `Rows`."""
        return await self._reads.many(sql, self._tenant)

    async def run_dynamic(self, dynamic: DynamicStatement) -> list[Row]:
        """See `Rows`.  The bound of a search holds for the statements of the transaction that follow it."""
        try:
            return await self.many(dynamic.bounded_text)
        except StatementCancelled as cancelled:
            raise took_too_long() from cancelled

    async def one(self, sql: str) -> Row:
        """See `Rows`."""
        return exactly_one(await self.many(sql))

    async def maybe(self, sql: str) -> Row | None:
        """See `Rows`."""
        return at_most_one(await self.many(sql))


def view_of(transaction: FhirTransaction) -> SessionReads:
    """The reads of a transaction of a store on PostgreSQL."""
    if not isinstance(transaction.view, SessionReads):
        raise Problem(Category.INTERNAL, "the transaction is none of this store")
    return transaction.view
