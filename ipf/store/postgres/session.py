"""A transaction on a connection of the pool."""

from __future__ import annotations

from ipf.errors import Category, Problem
from ipf.store.postgres.connection import Connection
from ipf.store.postgres.driver import Row
from ipf.store.postgres.quoting import script
from ipf.store.postgres.replication import NoPositions, Positions


class Session:
    """The first statement opens the transaction in its own round trip; `commit` closes it in the last one's.

    `prologue`: statements that go before each string that is sent (see `tenant_scope.py`).  It may be replaced.
    `positions`: learns where the log of the server is behind the commit.
    """

    def __init__(self, connection: Connection, prologue: str = "", positions: Positions | None = None) -> None:
        self._connection = connection
        self._positions = positions or NoPositions()
        self._open = False
        self.prologue = prologue

    async def many(self, sql: str) -> list[Row]:
        """Run `sql` inside the transaction; the rows of its last statement."""
        begin = self._begin()
        return await self._connection.run(script(begin, self.prologue, sql))

    async def outside(self, sql: str) -> list[Row]:
        """Run `sql` on its own, committed at once; only before the transaction has begun."""
        if self._open:
            raise RuntimeError("a transaction is open")
        return await self._connection.run(sql)

    async def one(self, sql: str) -> Row:
        """Exactly one row."""
        return exactly_one(await self.many(sql))

    async def maybe(self, sql: str) -> Row | None:
        """One row or none."""
        return at_most_one(await self.many(sql))

    async def commit(self, sql: str = "") -> None:
        """Run `sql` (may be several statements) and commit, in one round trip; durable when it returns."""
        if not (self._open or sql):
            return
        begin = self._begin()
        question = self._positions.committed_question
        rows = await self._connection.run(script(begin, self.prologue if sql else "", sql, "COMMIT", question))
        self._open = False
        if question:
            self._positions.committed(exactly_one(rows))

    def _begin(self) -> str:
        """The statement that opens the transaction, if it is not open."""
        if self._open:
            return ""
        self._open = True
        return "BEGIN"

    def warnings(self) -> list[str]:
        """The notices and warnings (50 at most) of the last statements sent, once each."""
        return self._connection.take_notices()

    async def end(self) -> None:
        """Roll back what was not committed, after the statement that may still be running."""
        await self._connection.settled()
        if self._open and self._connection.alive:
            await self._connection.run("ROLLBACK")
            self._open = False


def exactly_one(rows: list[Row]) -> Row:
    """The row; Problem INTERNAL when there is another number of them."""
    if len(rows) != 1:
        raise Problem(Category.INTERNAL, f"one row expected, {len(rows)} found")
    return rows[0]


def at_most_one(rows: list[Row]) -> Row | None:
    """The row or None; Problem INTERNAL when there are several."""
    if len(rows) > 1:
        raise Problem(Category.INTERNAL, f"at most one row expected, {len(rows)} found")
    return rows[0] if rows else None
