"""The only door to PostgreSQL: a pool of connections, transactions on them, and what happens when the server is away.

Arrives: SQL as text (values already quoted by `quoting.py`), often several statements in one string, which costs one
round trip.  Leaves: the rows of the last statement, or a category of failure: `StoreUnreachable` (the server is gone or
will not serve), `WriteConflict` (another writer was first), `Problem` INTERNAL (a defect of ours).

A caller that is cancelled (an HTTP client hangs up) never disturbs a connection: a statement that was sent always runs
to its end, then the transaction is rolled back unless it was committed.  `transact` goes on to its end altogether.

When the server goes away every connection is thrown off at once, and until it is back callers fail immediately instead
of queueing; one connection attempt every `HEAL_SECONDS` finds out when that is.  Nothing here survives a crash: all
that lasts is in the server.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, DeferredLock
from twisted.logger import Logger

from ipf.errors import Problem, StoreUnreachable
from ipf.store.postgres.connection import Connection, connect, shielded
from ipf.store.postgres.driver import Row
from ipf.store.postgres.prepared import Call, Shapes
from ipf.store.postgres.quoting import Statement, script
from ipf.store.postgres.scopes import BIND, EVERYONE, NUMBER, SET_ROLE, Runs, Scope, words_of
from ipf.store.postgres.session import Session, at_most_one, exactly_one

__all__ = ["Database", "Row", "Session"]

T = TypeVar("T")
log = Logger()

HEAL_SECONDS = 0.25

SETTINGS: Mapping[str, str] = {
    "standard_conforming_strings": "on",
    "synchronous_commit": "on",
    "TimeZone": "UTC",
    "DateStyle": "ISO",
    "jit": "off",
    # Statements are prepared once and their plans must not depend on the first values or on fresh tables without
    # statistics: one plan, by index, in nested loops (measured: three to a hundred times faster than a wrong guess).
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "lock_timeout": "10s",
    "idle_in_transaction_session_timeout": "60s",
}


class Database:
    """A pool of at most `size` connections to one database, lent in order of asking.

    `statements` are prepared on each connection.  `settings` adds to or replaces `SETTINGS`.  `connect_seconds` bounds
    one attempt to connect, `statement_seconds` one statement (a server that hangs counts as gone).  `tenants`: it works
    in the role that sees one tenant at a time (`scopes.py`), for which `row_security.py` has prepared the database.
    """

    def __init__(
        self,
        url: str,
        *,
        reactor: Any,
        size: int = 8,
        statements: Sequence[Statement] = (),
        settings: Mapping[str, str] | None = None,
        application_name: str = "ipf",
        connect_seconds: float = 3.0,
        statement_seconds: float = 60.0,
        tenants: bool = False,
    ) -> None:
        self.url = url
        self.is_divided = tenants
        self.everyone: Runs = Scope(self, EVERYONE) if tenants else self
        self._openings: dict[str, str] = {}
        self._reactor = reactor
        self._name = application_name
        self._size = size
        chosen = {**SETTINGS, "application_name": application_name, **(settings or {})}
        sets = [f"SET {name} = '{value}'" for name, value in chosen.items()]
        begin = (SET_ROLE, BIND.prepare(), NUMBER.prepare()) if tenants else ()
        self._greeting = script(*sets, *begin, *(statement.prepare() for statement in statements))
        self._connect_seconds = connect_seconds
        self._statement_seconds = statement_seconds
        self._idle: deque[Connection] = deque()
        self._waiting: deque[Deferred[Connection]] = deque()
        self._all: set[Connection] = set()
        self._opening: set[Deferred[bool]] = set()
        self._down = False
        self._closed = False
        self._healing: Any = None
        self._run_in_thread: Connection | None = None
        self._aside_lock = DeferredLock()
        self._shapes = Shapes()

    # -- life

    async def start(self) -> None:
        """Open all connections.  StoreUnreachable when the server cannot be reached now (healing goes on meanwhile)."""
        first = await self._borrow()
        self._give_back(first)
        while self._room():
            self._open_one()

    async def close(self, patience: float = 10.0) -> None:
        """Close every connection; those who wait fail with StoreUnreachable, statements that take longer as well."""
        self._closed = True
        if self._healing is not None and self._healing.active():
            self._healing.cancel()
        for connection in list(self._all):
            if not connection.lent:
                self._drop(connection)
        self._fail_waiting(StoreUnreachable("the store is closed"))
        for opening in list(self._opening):
            await opening
        busy = [connection.settled() for connection in list(self._all)]
        limit = self._reactor.callLater(patience, self._drop_all)
        for settled in busy:
            await settled
        if limit.active():
            limit.cancel()
        self._drop_all()
        if self._run_in_thread is not None:
            self._run_in_thread.close()

    @property
    def reachable(self) -> bool:
        """False from the moment the server was found gone until a connection succeeds again."""
        return not self._down

    @property
    def usage(self) -> tuple[int, int, int]:
        """Connections that are idle and in use, and callers that wait for one."""
        idle = len(self._idle)
        return idle, len(self._all) - idle, len(self._waiting)

    # -- use

    def of(self, tenant: str) -> Runs:
        """What runs statements that touch this tenant's rows alone."""
        return Scope(self, self._openings.get(tenant, ""), tenant) if self.is_divided else self

    def bind(self, tenant: str) -> str:
        """The statement from which on a transaction touches this tenant's rows alone; none where it is not divided."""
        return (self._openings.get(tenant) or BIND.call(tenant)) if self.is_divided else ""

    async def opening(self, tenant: str) -> str:
        """As `bind`; the tenant's number is remembered once there is one."""
        if self.is_divided and tenant not in self._openings:
            for (number,) in await self.run_in_thread(NUMBER.call(tenant)):
                self._openings[tenant] = words_of(number)
        return self.bind(tenant)

    async def transact(self, work: Callable[[Session], Awaitable[T]], words: str = "") -> T:
        """Run `work` in one transaction and commit it; rolled back when it raises.  `words`: see Session.

        Once begun it goes on to its end even if the caller is cancelled.
        """
        connection = await self._borrow()
        return await shielded(self._transact(connection, work, words))

    async def _transact(self, connection: Connection, work: Callable[[Session], Awaitable[T]], words: str) -> T:
        async with self._lent(connection, words) as session:
            result = await work(session)
            await session.commit()
            return result

    @asynccontextmanager
    async def session(self, words: str = "") -> AsyncIterator[Session]:
        """A session to be used statement by statement; rolled back at the end unless committed."""
        connection = await self._borrow()
        async with self._lent(connection, words) as session:
            yield session

    async def many(self, sql: str) -> list[Row]:
        """Run `sql` as a transaction of its own, in one round trip; the rows of its last statement."""
        connection = self._take_idle() or await self._borrow()
        return await connection.run(sql, self._give_back)

    async def call(self, call: Call, words: str = "") -> list[Row]:
        """As `many`; a shape that came before is prepared on the connection that runs it.  `words` go before it."""
        statement = self._shapes.statement(call)
        if statement is None:
            return await self.many(words + call.text)
        sql = words + statement.call(*call.values.values)
        connection = self._take_idle() or await self._borrow()
        if not connection.has_prepared(statement.name):
            return await shielded(self._prepared(connection, statement, sql))
        return await connection.run(sql, self._give_back)

    async def _prepared(self, connection: Connection, statement: Statement, sql: str) -> list[Row]:
        """Prepare on its own, so that the connection surely has it, whatever becomes of the call."""
        try:
            await connection.prepare(statement)
        except BaseException:
            self._give_back(connection)
            raise
        return await connection.run(sql, self._give_back)

    async def one(self, sql: str) -> Row:
        """As `many`, exactly one row."""
        return exactly_one(await self.many(sql))

    async def maybe(self, sql: str) -> Row | None:
        """As `many`, one row or none."""
        return at_most_one(await self.many(sql))

    async def run_in_thread(self, sql: str) -> list[Row]:
        """As `many`, on a connection beside the pool: for what a transaction needs while it holds one of the pool's.

        Taken from the pool it could wait for ever, when all others do the same.
        """
        return await shielded(self._run_aside(sql))

    async def _run_aside(self, sql: str) -> list[Row]:
        await self._aside_lock.acquire()
        try:
            if self._run_in_thread is None or not self._run_in_thread.alive:
                if self._closed or self._down:
                    raise StoreUnreachable()
                self._run_in_thread = await self._connected()
            return await self._run_in_thread.run(sql)
        finally:
            self._aside_lock.release()

    @asynccontextmanager
    async def _lent(self, connection: Connection, words: str) -> AsyncIterator[Session]:
        session = Session(connection, words)
        try:
            yield session
        finally:
            await shielded(self._finish(connection, session))

    async def _finish(self, connection: Connection, session: Session) -> None:
        try:
            await session.end()
        except Problem:
            connection.close()  # a rollback that fails leaves nothing to be trusted
        finally:
            self._give_back(connection)

    # -- the pool

    def _take_idle(self) -> Connection | None:
        while self._idle:
            connection = self._idle.popleft()
            if connection.alive:
                connection.lent = True
                return connection
        return None

    async def _borrow(self) -> Connection:
        connection = self._take_idle()
        if connection is not None:
            return connection
        if self._closed:
            raise StoreUnreachable("the store is closed")
        if self._down:
            raise StoreUnreachable()
        waiting: Deferred[Connection] = Deferred(self._waiting.remove)
        self._waiting.append(waiting)
        self._open_more()
        return await waiting

    def _room(self) -> bool:
        return len(self._all) + len(self._opening) < self._size

    def _open_more(self) -> None:
        if self._room():
            self._open_one()

    def _give_back(self, connection: Connection) -> None:
        connection.lent = False
        if not connection.alive or self._closed:
            self._drop(connection)
        elif self._waiting:
            connection.lent = True
            self._waiting.popleft().callback(connection)
        else:
            self._idle.appendleft(connection)  # the warmest first

    def _drop_all(self) -> None:
        for connection in list(self._all):
            self._drop(connection)

    def _drop(self, connection: Connection) -> None:
        self._all.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        connection.close()
        if self._waiting and not self._closed and not self._down:
            self._open_more()

    def _open_one(self) -> None:
        opening = Deferred.fromCoroutine(self._open())
        if not opening.called:
            self._opening.add(opening)
        opening.addErrback(lambda failure: log.failure("opening a connection", failure))
        opening.addBoth(lambda succeeded: self._opened(opening, bool(succeeded)))

    async def _open(self) -> bool:
        try:
            connection = await self._connected()
        except Problem as problem:
            self._server_gone(problem)
            return False
        if self._down:
            text = "event=store_back database={database} the store can be reached again"
            log.info(text, event="store_back", database=self._name)
        self._down = False
        self._all.add(connection)
        self._give_back(connection)
        return True

    def _opened(self, opening: Deferred[bool], succeeded: bool) -> None:
        self._opening.discard(opening)
        if succeeded and self._waiting and not self._closed:
            self._open_more()

    async def _connected(self) -> Connection:
        return await connect(
            self.url,
            reactor=self._reactor,
            greeting=self._greeting,
            connect_seconds=self._connect_seconds,
            statement_seconds=self._statement_seconds,
            lost=self._lost,
        )

    def _lost(self, connection: Connection) -> None:
        """A connection died; when it was idle nobody else would notice."""
        if connection in self._idle:
            self._drop(connection)

    def _server_gone(self, problem: Problem) -> None:
        if not self._down and not self._closed:
            log.warn(
                "event=store_unreachable database={database} reason={reason}",
                event="store_unreachable",
                database=self._name,
                reason=getattr(problem, "detail", problem.text),
            )
        if not any(connection.alive for connection in self._all):
            self._down = True
            self._fail_waiting(problem if isinstance(problem, StoreUnreachable) else StoreUnreachable(problem.text))
        if not self._closed and (self._healing is None or not self._healing.active()):
            self._healing = self._reactor.callLater(HEAL_SECONDS, self._heal)

    def _heal(self) -> None:
        if not self._closed and not self._opening:
            self._open_more()

    def _fail_waiting(self, problem: Problem) -> None:
        while self._waiting:
            self._waiting.popleft().errback(problem)
