"""A pool of connections to PostgreSQL, transactions on them, and reconnection.

Arrives: SQL as text (values already quoted by `quoting.py`), often several statements in one string: one round trip.
Leaves: the rows of the last statement, or a `Problem`: `StoreUnreachable` (the server is gone or refuses to serve),
`WriteConflict` (another writer was first), INTERNAL (a defect of this program).

Cancelling a caller (an HTTP client hangs up) does not disturb a connection: a statement that was sent runs to its end,
then the transaction is rolled back unless it was committed.  `transact` always runs to its end.

When the server goes away the pool drops every connection, and callers fail at once instead of queueing.  The pool tries
to connect every `RECONNECT_SECONDS`.  A server that hangs (`probe.py`), or only reads where the connection string asks
for one that writes, counts as gone.  All connections of a pool are to one server; the pool goes to another one when it
has none left.  Nothing here survives a crash: all durable state is in the server.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from twisted.internet.defer import CancelledError, Deferred, DeferredLock, TimeoutError
from twisted.logger import Logger

from ipf.errors import Problem, StoreUnreachable
from ipf.store.postgres.connect import Connector
from ipf.store.postgres.connection import Connection, StatementCancelled, shielded
from ipf.store.postgres.driver import Row
from ipf.store.postgres.preamble import Now, Preambles
from ipf.store.postgres.prepared import DynamicStatement, StatementCache, took_too_long
from ipf.store.postgres.probe import TICK_SECONDS, Probe
from ipf.store.postgres.quoting import Statement, literal, script
from ipf.store.postgres.replication import Positions
from ipf.store.postgres.session import Session, at_most_one, exactly_one
from ipf.store.postgres.tenant_scope import (
    ALL_TENANTS,
    SET_ROLE,
    SET_TENANT,
    TENANT_NUMBER,
    Executor,
    TenantScope,
    set_partition,
)

__all__ = ["Database", "Row", "Session"]

T = TypeVar("T")
log = Logger()

RECONNECT_SECONDS = 0.25
WAIT_SECONDS = 10.0

SETTINGS: Mapping[str, str] = {
    "synchronous_commit": "on",
    "TimeZone": "UTC",
    "DateStyle": "ISO",
    "jit": "off",
    # Statements are prepared once.  Their plans must not depend on the first values, nor on missing statistics of fresh
    # tables: one plan, by index, in nested loops.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "lock_timeout": "10s",
    "idle_in_transaction_session_timeout": "60s",
}


class Database:
    """A pool of at most `size` connections to one database, lent in order of request.

    `statements` are prepared on each connection.  `settings` adds to or replaces `SETTINGS`.  `connect_seconds` bounds
    one attempt to connect (`connect.py`), `wait_seconds` the wait for a free connection, `statement_seconds` one
    statement, and six times `tick_seconds` the silence of the server.  `tenants`: its connections use the role that
    sees one tenant at a time (`tenant_scope.py`); `row_security.py` has prepared the database for it.  `left`: called
    when the pool leaves a server that still holds its sockets, for connections that others have there.  `positions`:
    learns where the log of the server is.  `now`: the time of `now()` in statements; None: the database's own, on which
    all hosts agree.  `prepare_on_use`: statements are prepared at their first call instead (`preamble.py`).
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
        connect_seconds: float | None = None,
        wait_seconds: float = WAIT_SECONDS,
        statement_seconds: float = 60.0,
        tick_seconds: float = TICK_SECONDS,
        tenants: bool = False,
        left: Callable[[], None] = lambda: None,
        positions: Positions | None = None,
        now: Now | None = None,
        prepare_on_use: bool = False,
    ) -> None:
        self.url = url
        self.has_row_security = tenants
        self.all_tenants: Executor = TenantScope(self, ALL_TENANTS) if tenants else self
        self._prologues: dict[str, str] = {}
        self._reactor = reactor
        self._name = application_name
        self._size = size
        chosen = {**SETTINGS, "application_name": application_name, **(settings or {})}
        sets = [f"SET {name} = {literal(value)}" for name, value in chosen.items()]
        begin = (SET_ROLE, SET_TENANT.prepare(), TENANT_NUMBER.prepare()) if tenants else ()
        self._preambles = Preambles(now, statements, prepare_on_use)
        greeting = script(*sets, self._preambles.clock, *begin, self._preambles.prepared)
        self._wait_seconds = wait_seconds
        self._left = left
        self._connector = Connector(
            url, reactor=reactor, greeting=greeting, connect_seconds=connect_seconds,
            statement_seconds=statement_seconds, lost=self._lost,
        )  # fmt: skip
        self._positions = positions
        self._probe = Probe(reactor, self._leave, tick_seconds, positions)
        self._idle: deque[Connection] = deque()
        self._waiting: deque[Deferred[Connection]] = deque()
        self._all: set[Connection] = set()
        self._opening: set[Deferred[bool]] = set()
        self._down = False
        self._closed = False
        self._reconnecting: Any = None
        self._reserved: Connection | None = None
        self._reserved_lock = DeferredLock()
        self._statements = StatementCache()

    # -- life

    async def start(self) -> None:
        """Open all connections.  StoreUnreachable when the server cannot be reached now (the pool goes on trying)."""
        first = await self._borrow()
        self._give_back(first)
        for _ in range(self._size):
            self._open_more()

    async def close(self, patience: float = 10.0) -> None:
        """Close every connection; those who wait fail with StoreUnreachable, statements that take longer as well."""
        self._closed = True
        if self._reconnecting is not None and self._reconnecting.active():
            self._reconnecting.cancel()
        for connection in list(self._all):
            if not connection.lent:
                self._drop(connection)
        self._fail_waiting(StoreUnreachable("the store is closed"))
        self._connector.stop()
        busy = [connection.settled() for connection in list(self._all)]
        limit = self._reactor.callLater(patience, self._drop_all)
        for settled in busy:
            await settled
        if limit.active():
            limit.cancel()
        self._drop_all()
        self._probe.stop()

    @property
    def reachable(self) -> bool:
        """False from the moment the server was found gone until a connection succeeds again."""
        return not self._down

    @property
    def server(self) -> str:
        """The server of the pool, by host and port; empty before there was one."""
        return "" if self._connector.host is None else self._connector.host.label

    @property
    def usage(self) -> tuple[int, int, int]:
        """Connections that are idle and in use, and callers that wait for one."""
        idle = len(self._idle)
        return idle, len(self._all) - idle, len(self._waiting)

    # -- use

    def for_tenant(self, tenant: str) -> Executor:
        """An executor whose statements see the rows of this tenant only."""
        return TenantScope(self, self._prologues.get(tenant, ""), tenant) if self.has_row_security else self

    def set_tenant(self, tenant: str) -> str:
        """The statement that restricts the rest of a transaction to this tenant's rows; empty without row security."""
        return (self._prologues.get(tenant) or SET_TENANT.call(tenant)) if self.has_row_security else ""

    async def tenant_prologue(self, tenant: str) -> str:
        """As `set_tenant`, with the tenant's number, which is remembered, instead of its name."""
        if self.has_row_security and tenant not in self._prologues:
            for (number,) in await self.run_reserved(TENANT_NUMBER.call(tenant)):
                self._prologues[tenant] = set_partition(number)
        return self.set_tenant(tenant)

    async def transact(self, work: Callable[[Session], Awaitable[T]], prologue: str = "") -> T:
        """Run `work` in one transaction and commit it; rolled back when it raises.  `prologue`: see Session.

        Once begun it goes on to its end even if the caller is cancelled.
        """
        connection = await self._borrow()
        return await shielded(self._transact(connection, work, prologue))

    async def _transact(self, connection: Connection, work: Callable[[Session], Awaitable[T]], prologue: str) -> T:
        async with self._lent(connection, prologue) as session:
            result = await work(session)
            await session.commit()
            return result

    @asynccontextmanager
    async def session(self, prologue: str = "") -> AsyncIterator[Session]:
        """A session to be used statement by statement; rolled back at the end unless committed."""
        connection = await self._borrow()
        async with self._lent(connection, prologue) as session:
            yield session

    async def many(self, sql: str) -> list[Row]:
        """Run `sql` as a transaction of its own, in one round trip; the rows of its last statement."""
        connection = self._take_idle() or await self._borrow()
        return await connection.run(sql, self._give_back)

    async def run_dynamic(self, dynamic: DynamicStatement, prologue: str = "") -> list[Row]:
        """As `many`; a repeated text is prepared, another one bounded (Problem COSTLY).  `prologue` goes before it."""
        statement = self._statements.prepared(dynamic)
        if statement is None:
            try:
                return await self.many(script(prologue, dynamic.bounded_text))
            except StatementCancelled as cancelled:
                raise took_too_long() from cancelled
        sql = script(prologue, statement.call(*dynamic.parameters.values))
        connection = self._take_idle() or await self._borrow()
        if not connection.has_prepared(statement.name):
            return await shielded(self._prepared(connection, statement, sql))
        return await connection.run(sql, self._give_back)

    async def _prepared(self, connection: Connection, statement: Statement, sql: str) -> list[Row]:
        """Prepare in a round trip of its own, so that the connection has it even if the call fails."""
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

    async def run_reserved(self, sql: str) -> list[Row]:
        """As `many`, on a connection outside the pool, for statements needed by the holder of a pooled connection.

        Waiting for a second connection of the pool would deadlock when all holders do it.
        """
        return await shielded(self._run_reserved(sql))

    async def _run_reserved(self, sql: str) -> list[Row]:
        await self._reserved_lock.acquire()
        try:
            if self._reserved is None or not self._reserved.alive:
                if self._closed or self._down:
                    raise StoreUnreachable()
                self._reserved = await self._connect()
            return await self._reserved.run(sql)
        except CancelledError:
            raise StoreUnreachable() from None
        finally:
            self._reserved_lock.release()

    @asynccontextmanager
    async def _lent(self, connection: Connection, prologue: str) -> AsyncIterator[Session]:
        session = Session(connection, prologue, self._positions)
        try:
            yield session
        finally:
            await shielded(self._finish(connection, session))

    async def _finish(self, connection: Connection, session: Session) -> None:
        try:
            await session.end()
        except Problem:
            connection.close()  # its state is unknown
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
        if not waiting.called:
            waiting.addTimeout(self._wait_seconds, self._reactor)
        try:
            return await waiting
        except TimeoutError:
            text = f"no connection to the store was free within {self._wait_seconds:g} s"
            raise StoreUnreachable(text) from None

    def _give_back(self, connection: Connection) -> None:
        connection.lent = False
        if not connection.alive or self._closed:
            self._drop(connection)
        elif self._waiting:
            connection.lent = True
            self._waiting.popleft().callback(connection)
        else:
            self._idle.appendleft(connection)  # the most recently used first

    def _drop_all(self) -> None:
        for connection in list(self._all):
            self._drop(connection)
        if self._reserved is not None:
            self._reserved.close()

    def _drop(self, connection: Connection) -> None:
        self._all.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        connection.close()
        if self._waiting and not self._closed and not self._down:
            self._open_more()

    def _open_more(self) -> None:
        if len(self._all) + len(self._opening) >= self._size:
            return
        opening = Deferred.fromCoroutine(self._open())
        if not opening.called:
            self._opening.add(opening)
        opening.addErrback(lambda failure: log.failure("opening a connection", failure))
        opening.addBoth(lambda succeeded: self._opened(opening, bool(succeeded)))

    async def _open(self) -> bool:
        try:
            connection = await self._connect()
        except CancelledError:
            return False
        except Problem as problem:
            self._server_gone(problem)
            return False
        if self._has_server and connection.host != self._connector.host:  # both were sought at the same time
            connection.close()
            return True
        self._connector.host = connection.host
        self._probe.watch(connection.host)
        if self._down:
            text = "event=store_back database={database} the store can be reached again"
            log.info(text, event="store_back", database=self._name)
        self._down = False
        self._all.add(connection)
        self._give_back(connection)
        return True

    async def _connect(self) -> Connection:
        connection = await self._connector.open(self._has_server)
        connection.preamble = self._preambles.one()
        return connection

    def _opened(self, opening: Deferred[bool], succeeded: bool) -> None:
        self._opening.discard(opening)
        if succeeded and self._waiting and not self._closed:
            self._open_more()

    @property
    def _has_server(self) -> bool:
        return any(connection.alive for connection in self._all)

    def _lost(self, connection: Connection) -> None:
        """A connection died; only an idle one is not noticed by its borrower."""
        if connection.only_reads and connection.host.must_be_writable and connection.host == self._connector.host:
            self._leave(StoreUnreachable(detail=f"{connection.host.label} only reads"))
        elif connection in self._idle:
            self._drop(connection)

    def _leave(self, problem: StoreUnreachable) -> None:
        """Drop every connection to a server that cannot be used; running statements and callers fail now."""
        self._probe.stop()
        self._left()
        self._connector.stop()
        self._server_gone(problem, wait=0.0, at_once=True)
        self._drop_all()

    def _server_gone(self, problem: Problem, wait: float = RECONNECT_SECONDS, at_once: bool = False) -> None:
        if not self._down and not self._closed:
            log.warn(
                "event=store_unreachable database={database} reason={reason}",
                event="store_unreachable",
                database=self._name,
                reason=getattr(problem, "detail", problem.text),
            )
        if at_once or not self._has_server:
            self._down = True
            self._probe.stop()
            self._fail_waiting(problem if isinstance(problem, StoreUnreachable) else StoreUnreachable(problem.text))
        if not self._closed and (self._reconnecting is None or not self._reconnecting.active()):
            self._reconnecting = self._reactor.callLater(wait, self._reconnect)

    def _reconnect(self) -> None:
        if not self._closed and not self._opening:
            self._open_more()

    def _fail_waiting(self, problem: Problem) -> None:
        while self._waiting:
            self._waiting.popleft().errback(problem)
