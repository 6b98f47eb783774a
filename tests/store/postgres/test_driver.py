"""txpostgres's connection with its repairs: each fault that failover meets, on a real server and on fakes."""

from __future__ import annotations

import os
import weakref
from threading import get_ident
from typing import Any

from psycopg2 import OperationalError
from psycopg2.errors import QueryCanceled, UndefinedTable, UniqueViolation
from twisted.internet import reactor
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectionDone
from twisted.trial.unittest import TestCase
from txpostgres import txpostgres

from ipf.errors import StoreUnreachable
from ipf.store.postgres.connect import connect
from ipf.store.postgres.driver import LARGE_STATEMENT, FailoverConnection, Row
from tests import postgres
from tests.waiting import PATIENCE, turns, until


def threadpool_is_busy() -> bool:
    """Whether a thread of the reactor works."""
    return bool(reactor.getThreadPool().working)  # type: ignore[attr-defined]  # of a reactor with threads


KILL = "SELECT pg_terminate_backend({})"


class DriverTest(TestCase):
    """One connection, and another one that acts on its server process."""

    async def setUp(self) -> None:
        self.url = await postgres.fresh_url(None)
        self.driver = FailoverConnection(reactor)
        self.deaths: list[str] = []
        self.driver.died = lambda: self.deaths.append("died")
        self.addCleanup(self.driver.close)
        await self.driver.connect(self.url)
        self.control = await connect(self.url, reactor=reactor, connect_seconds=PATIENCE)
        self.addCleanup(self.control.close)

    async def _rows(self, sql: str) -> list[Row]:
        cursor = await self.driver.cursor().execute(sql)
        return list(cursor.rows())

    async def _kill(self) -> None:
        await self.control.run(KILL.format(self.driver.get_backend_pid()))

    async def test_it_is_the_connection_of_txpostgres(self) -> None:
        """Connection, cursors and notify observers."""
        self.assertIsInstance(self.driver, txpostgres.Connection)
        self.assertIsInstance(self.driver.cursor(), txpostgres.Cursor)
        self.assertEqual(await self._rows("SELECT 1; SELECT 2, 'x'"), [(2, "x")])
        self.assertEqual(await self._rows("CREATE TABLE t (id integer)"), [])
        self.assertEqual(await self.driver.runQuery("SELECT 3"), [(3,)])

    async def test_the_reactor_watches_a_duplicate(self) -> None:
        """libpq closes its socket when the server is gone; the poll set holds none that is closed."""
        watched, own = self.driver.fileno(), self.driver.pollable().fileno()
        self.assertNotEqual(watched, own)
        self.assertTrue(os.path.sameopenfile(watched, own))
        await self._kill()
        await until(lambda: self.deaths)
        self.assertTrue(self.driver.closed)
        os.fstat(watched)
        self.driver.close()
        self.assertRaises(OSError, os.fstat, watched)
        self.assertNotIn(self.driver, reactor.getReaders())  # type: ignore[attr-defined]  # of a reactor with sockets
        self.assertEqual(self.driver.fileno(), -1)

    async def test_lost_while_nothing_runs(self) -> None:
        """It is reported; nothing is raised in the reactor, which would log it."""
        await self._kill()
        await until(lambda: self.deaths)
        self.assertEqual(self.flushLoggedErrors(), [])

    async def test_lost_while_a_query_runs(self) -> None:
        """The query ends with the reason of the server, once."""
        running = self._start("SELECT pg_sleep(300)")
        await self._kill()
        failed = await self.assertFailure(running, OperationalError)
        self.assertIn("terminating connection", str(failed))

    async def test_closed_while_a_query_runs(self) -> None:
        """The query ends within `close`; nothing comes later."""
        running = self._start("SELECT pg_sleep(300)")
        self.driver.close()
        self.failureResultOf(running, Exception)
        self.driver.close()
        await turns()

    async def test_closed_before_a_result_that_is_here_is_passed_on(self) -> None:
        """A result that arrived while the query was sent waits for the next turn, in which the connection is closed."""
        running = self._start("SELECT 1")
        self.driver.continuePolling()
        self.driver.close()
        await self.assertFailure(running, Exception)
        await turns()

    def _start(self, sql: str) -> Deferred[Any]:
        running: Deferred[Any] = self.driver.cursor().execute(sql)
        return running

    async def test_cancelled_while_connecting(self) -> None:
        """It closes the connection; no request to cancel goes to the server, which may hang."""
        other = FailoverConnection(reactor)
        connecting = other.connect(self.url)
        connecting.cancel()
        self.failureResultOf(connecting, CancelledError)
        self.assertTrue(other.closed)
        self.assertEqual(other.fileno(), -1)
        await turns()

    async def test_errors_have_their_state(self) -> None:
        """A statement that the server cancels is none that its caller cancelled; the connection stays."""
        too_long = "SET statement_timeout = 1; SELECT pg_sleep(300)"
        failed = await self.assertFailure(Deferred.fromCoroutine(self._rows(too_long)), QueryCanceled)
        self.assertEqual(failed.pgcode, "57014")
        await self._rows("CREATE TABLE t (id integer PRIMARY KEY); INSERT INTO t VALUES (1)")
        await self.assertFailure(Deferred.fromCoroutine(self._rows("INSERT INTO t VALUES (1)")), UniqueViolation)
        self.assertEqual(await self._rows("SELECT 1"), [(1,)])
        self.assertEqual(self.deaths, [])

    async def test_large_strings_are_sent_in_parts(self) -> None:
        """Neither direction fits into the buffers of a socket."""
        text = "x" * 20_000_000
        ((found,),) = await self._rows(f"SELECT '{text}'")
        self.assertEqual(len(found), len(text))

    async def test_large_statements_are_handed_over_in_a_thread(self) -> None:
        """libpq copies them.  Small ones are not: a thread costs more than they do."""
        threads: list[int] = []
        table = f"SELECT length('{'x' * LARGE_STATEMENT}')"
        for sql, wanted in ((table, LARGE_STATEMENT), ("SELECT 3", 3), (table, LARGE_STATEMENT)):
            cursor = self.driver.cursor()
            real = cursor._cursor

            class Watched:
                """psycopg2's cursor; notes which thread executes."""

                def execute(self, text: str, params: Any = None, real: Any = real) -> None:
                    threads.append(get_ident())
                    real.execute(text)

            cursor._cursor = Watched()
            await cursor.execute(sql)
            self.assertEqual(real.fetchall(), [(wanted,)])
        self.assertEqual([one == get_ident() for one in threads], [False, True, False])

    async def test_large_statements_that_fail(self) -> None:
        """An error of SQL; a server that dies meanwhile; a connection that is closed meanwhile, or was before."""
        large = f"SELECT '{'x' * LARGE_STATEMENT}'"
        await self.assertFailure(Deferred.fromCoroutine(self._rows(f"{large} FROM nowhere")), UndefinedTable)
        self.assertEqual(await self._rows("SELECT 1"), [(1,)])
        dying = Deferred.fromCoroutine(self._rows(f"SELECT pg_sleep(300); {large}"))
        await self._kill()
        await self.assertFailure(dying, OperationalError, ConnectionDone)
        for end in ("close", "cancel"):
            driver = FailoverConnection(reactor)
            await driver.connect(self.url)
            running = driver.cursor().execute(large)
            if end == "close":
                driver.close()
                self.failureResultOf(running, ConnectionDone)
            else:
                running.cancel()
                self.failureResultOf(running, CancelledError)
            await until(lambda: not threadpool_is_busy())  # what comes later ends nothing
            self.assertTrue(driver.closed)

    async def test_rows_are_not_kept(self) -> None:
        """A connection of the pool that waits holds nothing of its last query."""
        cursor = self.driver.cursor()
        await cursor.execute("SELECT repeat('x', 1000000)")
        held = weakref.ref(cursor)
        del cursor
        await turns(1)  # the reactor still passes it on
        self.assertIsNone(held())

    async def test_queries_do_not_nest(self) -> None:
        """Thousands of queries from the callback of the one before it."""
        left = [3000]
        done: Deferred[None] = Deferred()

        def again(_: object) -> None:
            left[0] -= 1
            if left[0]:
                self._start("SELECT 1").addCallbacks(again, done.errback)
            else:
                done.callback(None)

        again(None)
        await done

    async def test_notifications(self) -> None:
        """All of many that come at once, idle and with a result; an observer that fails disturbs no other."""
        heard: list[str] = []

        def fails(notify: Any) -> None:
            raise ValueError("an observer")

        self.driver.addNotifyObserver(fails)
        self.driver.addNotifyObserver(lambda notify: heard.append(notify.payload))
        await self._rows("LISTEN here")
        await self.control.run("SELECT pg_notify('here', number::text) FROM generate_series(1, 500) number")
        await until(lambda: len(heard) == 500)
        await self._rows("SELECT pg_notify('here', 'own')")
        await until(lambda: len(heard) == 501)
        self.assertEqual(heard, [*(str(number) for number in range(1, 501)), "own"])
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 501)


class LostConnectionTest(TestCase):
    """A `Connection` on a server process that ends."""

    async def test_notices_of_a_lost_connection(self) -> None:
        """Asking for notices finds the loss; the connection is given up."""
        url = await postgres.fresh_url(None)
        control = await connect(url, reactor=reactor, connect_seconds=PATIENCE)
        self.addCleanup(control.close)
        lost: list[object] = []
        connection = await connect(url, reactor=reactor, connect_seconds=PATIENCE, lost=lost.append)
        self.addCleanup(connection.close)
        backend = connection.backend
        await control.run(KILL.format(backend))
        while await control.run(f"SELECT 1 FROM pg_stat_activity WHERE pid = {backend}") and not lost:
            await turns(1)
        connection.take_notices()
        await self.assertFailure(connection.run("SELECT 1"), StoreUnreachable)
        self.assertEqual((lost, connection.alive), ([connection], False))
