"""A server that hangs, and one that only seems to."""

from __future__ import annotations

import socket
from typing import Any

import psutil
import psycopg2.extensions
from twisted.internet import defer, reactor
from twisted.trial.unittest import TestCase

from ipf.errors import StoreUnreachable
from ipf.store.postgres.connect import connect
from ipf.store.postgres.database import Database
from ipf.store.postgres.hosts import hosts_of
from ipf.store.postgres.migrate import LOCK, migrate
from ipf.store.postgres.notify import PostgresNotifier
from ipf.store.postgres.probe import TICKS, Probe
from tests import postgres, processes
from tests.store.postgres.clock import ClockWithSockets
from tests.waiting import PATIENCE, turns, until


def started(coroutine: Any) -> defer.Deferred[Any]:
    """Run a coroutine."""
    return defer.Deferred.fromCoroutine(coroutine)


class ProbeTest(TestCase):
    """Ticks of a clock; real sockets."""

    def setUp(self) -> None:
        self.clock = ClockWithSockets()
        self.found: list[str] = []
        self.probe = Probe(self.clock, lambda problem: self.found.append(problem.detail))
        self.addCleanup(self.probe.stop)

    async def test_a_silent_server(self) -> None:
        """It hangs when it has not answered at so many ticks in a row."""
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            self.probe.watch(hosts_of(f"postgresql://ipf@127.0.0.1:{silent.getsockname()[1]}/one")[0])
            for tick in range(TICKS):
                self.clock.advance(1)
                self.assertEqual(self.found, [], tick)
            self.clock.advance(1)
            self.assertEqual(len(self.found), 1)
            self.assertIn("has not answered for 3 s", self.found[0])
            self.clock.advance(100)
            self.assertEqual(len(self.found), 1)

    async def test_a_process_that_was_blocked(self) -> None:
        """However late its ticks are, an answer that has arrived is read before the last."""
        self.probe.watch(hosts_of(await postgres.fresh_url(None))[0])
        for _ in range(20):
            self.clock.advance(1)  # asks
            for _ in range(TICKS - 1):
                self.clock.advance(60)  # the reactor reads nothing meanwhile
            await until(lambda: self.probe._asking is None)
        self.assertEqual(self.found, [])

    async def test_a_server_that_only_reads(self) -> None:
        """It is told within one question, and only where the connection string asks for one that writes."""
        url = await postgres.fresh_url(None)
        for attributes, told in (("read-write", 1), ("any", 0)):
            host = hosts_of(f"{url} target_session_attrs={attributes}")[0]
            self.found.clear()
            self.probe.watch(host)
            await self._ask()
            self.assertEqual(self.found, [])
            assert self.probe._connection is not None
            await self.probe._connection.run("SET default_transaction_read_only = on")
            await self._ask()
            self.clock.advance(0)
            await turns()  # what was due before has run then
            self.assertEqual([one.endswith(" only reads") for one in self.found], [True] * told)
            self.probe.stop()

    async def _ask(self) -> None:
        self.clock.advance(1)
        await until(lambda: self.probe._asking is None)

    async def test_a_server_that_is_gone(self) -> None:
        """A refusal is an answer: connections notice it by themselves."""
        self.probe.watch(hosts_of("postgresql://ipf@127.0.0.1:1/one")[0])
        for _ in range(20):
            self.clock.advance(1)
            await until(lambda: self.probe._asking is None)
        self.assertEqual(self.found, [])


class HangTest(TestCase):
    """All processes of the server are stopped (SIGSTOP), and go on before the test ends."""

    async def setUp(self) -> None:
        self.server = await postgres.server()
        self.url = await postgres.fresh_url(None)
        self.stopped: list[psutil.Process] = []
        self.addCleanup(self._resume)

    def _suspend(self) -> None:
        pid = self.server.pid()
        assert pid is not None
        self.stopped = processes.suspend(pid)

    def _resume(self) -> None:
        processes.resume(self.stopped)
        self.stopped = []

    async def test_every_statement_fails_and_the_pool_comes_back(self) -> None:
        """Running, waiting and reserved ones, a transaction; later ones at once; the notifier leaves as well."""
        notifier = PostgresNotifier(self.url, reactor=reactor)
        await notifier.start()
        self.addCleanup(lambda: started(notifier.close()))
        database = Database(
            self.url, reactor=reactor, size=2, connect_seconds=PATIENCE, tick_seconds=0.2, left=notifier.reconnect
        )
        self.addCleanup(lambda: started(database.close()))
        await database.start()
        listening = notifier._connection
        sleep = "SELECT pg_sleep(3000)"
        running = [started(database.many(sleep)), started(database.transact(lambda session: session.many(sleep)))]
        running += [started(database.many("SELECT 1")), started(database.run_reserved(sleep))]
        self._suspend()
        for each in running:
            await self.assertFailure(each, StoreUnreachable)
        for work in (database.many("SELECT 1"), database.run_reserved("SELECT 1")):
            self.failureResultOf(started(work), StoreUnreachable)
        self.assertIs(notifier._connection, None)
        self._resume()
        await until(lambda: database.reachable and notifier._connection is not None)
        self.assertIsNot(notifier._connection, listening)
        while await self._answer(database) != [(1,)]:  # a slow machine may seem to hang again
            await turns(1)

    async def _answer(self, database: Database) -> object:
        try:
            return await database.many("SELECT 1")
        except StoreUnreachable:
            return None

    async def test_closing(self) -> None:
        """A pool closes although its server hangs."""
        database = Database(self.url, reactor=reactor, size=2, connect_seconds=PATIENCE, tick_seconds=0.2)
        await database.start()
        running = started(database.many("SELECT pg_sleep(3000)"))
        self._suspend()
        await database.close(PATIENCE)
        await self.assertFailure(running, StoreUnreachable)

    async def test_a_migration(self) -> None:
        """The error names the host, also when another replica held the lock."""
        holder = await connect(self.url, reactor=reactor, connect_seconds=PATIENCE)
        self.addCleanup(holder.close)
        await holder.run(f"SELECT pg_advisory_lock({LOCK})")
        migrating = started(migrate(self.url, "ipf", reactor=reactor))
        waiting = "SELECT 1 FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND query LIKE '%pg_try_advisory_lock%'"
        while not await holder.run(waiting):
            await turns(1)
        self._suspend()
        failed = await self.assertFailure(migrating, StoreUnreachable)
        folder = psycopg2.extensions.parse_dsn(self.url)["host"]
        self.assertIn(f"{folder}:5432 has not answered for 3 s", failed.detail)
