"""The pool: order, cancellation, categories of failure, a server that goes away and comes back."""

from __future__ import annotations

import atexit
import os
import resource
import shutil
import signal
import socket
import tempfile
from pathlib import Path
from typing import Any

from twisted.internet import defer, reactor
from twisted.internet.task import Clock
from twisted.logger import LogEvent, globalLogPublisher
from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem, StoreUnreachable, WriteConflict
from ipf.store.postgres.connect import connect
from ipf.store.postgres.database import Database, Session
from ipf.store.postgres.embedded import EmbeddedPostgres
from ipf.store.postgres.notify import PostgresNotifier
from ipf.store.postgres.supervisor import GRACE_SECONDS, PostgresSupervisor
from tests import postgres
from tests.cluster import service_cluster
from tests.contracts.resources import gather_all
from tests.waiting import turns, until

LOCK, UNLOCK = "SELECT pg_advisory_lock(7)", "SELECT pg_advisory_unlock(7)"
SHARED_LOCK = "SELECT pg_advisory_xact_lock_shared(7)"  # waits for as long as another has the lock
WAITING = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'"


def started(coroutine: Any) -> defer.Deferred[Any]:
    """Run a coroutine."""
    return defer.Deferred.fromCoroutine(coroutine)


class DatabaseTest(TestCase):
    """A pool of two on a server that stays."""

    async def setUp(self) -> None:
        self.database = Database(await postgres.fresh_url(None), reactor=reactor, **postgres.PATIENT, size=2)
        await self.database.start()
        self.addCleanup(lambda: started(self.database.close()))
        await self.database.many("CREATE TABLE t (id integer PRIMARY KEY)")

    async def _ids(self) -> list[int]:
        return [row[0] for row in await self.database.many("SELECT id FROM t ORDER BY id")]

    async def test_cardinality(self) -> None:
        """`one`, `maybe` and `many` check the number of rows."""
        self.assertEqual(await self.database.one("SELECT 1, 'x'"), (1, "x"))
        self.assertIsNone(await self.database.maybe("SELECT id FROM t"))
        await self.assertFailure(started(self.database.one("SELECT id FROM t")), Problem)
        await self.assertFailure(started(self.database.maybe("VALUES (1), (2)")), Problem)

    async def test_a_string_of_statements_is_one_transaction(self) -> None:
        """All or nothing; returns the rows of the last statement."""
        self.assertEqual(await self.database.many("INSERT INTO t VALUES (1); SELECT 2"), [(2,)])
        await self.assertFailure(started(self.database.many("INSERT INTO t VALUES (2); SELECT 1/0")), Problem)
        self.assertEqual(await self._ids(), [1])

    async def test_transactions(self) -> None:
        """Committed at the end, rolled back on any exception; the pool goes on."""

        async def insert(session: Session) -> str:
            await session.many("INSERT INTO t VALUES (1)")
            return "done"

        async def fail(session: Session) -> None:
            await session.many("INSERT INTO t VALUES (2)")
            raise ValueError

        self.assertEqual(await self.database.transact(insert), "done")
        for _ in range(5):
            await self.assertFailure(started(self.database.transact(fail)), ValueError)
        self.assertEqual(await self._ids(), [1])

    async def test_categories(self) -> None:
        """Conflicts may be retried; defects are INTERNAL and quote no values."""
        await self.database.many("INSERT INTO t VALUES (7)")
        await self.assertFailure(started(self.database.many("INSERT INTO t VALUES (7)")), WriteConflict)
        refused = await self.assertFailure(started(self.database.many("SELECT 'secret'::integer")), Problem)
        self.assertIs(refused.category, Category.INTERNAL)
        self.assertNotIn("secret", str(refused))

    async def test_waiting_in_order(self) -> None:
        """More callers than connections: served in order of request."""
        single = Database(self.database.url, reactor=reactor, **postgres.PATIENT, size=1)
        order: list[int] = []

        async def query(number: int) -> None:
            await single.many("SELECT 1")
            order.append(number)

        await gather_all([query(number) for number in range(20)])
        await single.close()
        self.assertEqual(order, list(range(20)))

    async def test_cancelled_callers_disturb_nothing(self) -> None:
        """A statement that was sent runs to its end; `transact` commits; a session is rolled back."""

        async def slow(session: Session) -> None:
            await session.many(f"INSERT INTO t VALUES (1); {SHARED_LOCK}")
            await session.many("INSERT INTO t VALUES (2)")

        async def by_hand() -> None:
            async with self.database.session() as session:
                await session.many(f"INSERT INTO t VALUES (3); {SHARED_LOCK}")
                await session.commit()

        other = Database(self.database.url, reactor=reactor, **postgres.PATIENT, size=1)
        for work in (lambda: self.database.transact(slow), by_hand, lambda: self.database.many(SHARED_LOCK)):
            await other.many(LOCK)
            running = started(work())
            while not await other.many(WAITING):
                await turns(1)
            running.cancel()
            await other.many(UNLOCK)
            await self.assertFailure(running, defer.CancelledError)
        await other.close()
        self.assertEqual(await gather_all([self.database.many("SELECT 5") for _ in range(6)]), [[(5,)]] * 6)
        self.assertEqual(await self._ids(), [1, 2])

    async def test_cancelled_while_waiting(self) -> None:
        """A caller cancelled before a connection is free leaves the queue."""
        busy = [started(self.database.many("SELECT pg_sleep(0.1)")) for _ in range(2)]
        waiting = started(self.database.many("INSERT INTO t VALUES (1)"))
        waiting.cancel()
        await self.assertFailure(waiting, defer.CancelledError)
        await defer.gatherResults(busy)
        self.assertEqual(await self._ids(), [])

    async def test_killed_backends(self) -> None:
        """Broken connections are replaced; a statement on one fails with StoreUnreachable."""
        hit = started(self.database.many("SELECT pg_sleep(300)"))
        other = Database(self.database.url, reactor=reactor, **postgres.PATIENT, size=1)
        await other.many("SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                         "WHERE pid <> pg_backend_pid() AND datname = current_database()")  # fmt: skip
        await other.close()
        await self.assertFailure(hit, StoreUnreachable)
        while not await self._answers():
            await turns(1)
        self.assertEqual(await gather_all([self.database.many("SELECT 1") for _ in range(9)]), [[(1,)]] * 9)

    async def _answers(self) -> bool:
        try:
            return await self.database.many("SELECT 1") == [(1,)]
        except StoreUnreachable:
            return False

    async def test_a_statement_that_hangs(self) -> None:
        """It fails after the time limit."""
        url = self.database.url
        impatient = Database(url, reactor=reactor, **postgres.PATIENT, size=1, statement_seconds=0.1)
        await self.assertFailure(started(impatient.many("SELECT pg_sleep(300)")), StoreUnreachable)
        self.assertEqual(await impatient.many("SELECT 1"), [(1,)])
        await impatient.close()


class RefusalTest(TestCase):
    """Connections and servers that cannot be made; the server of this process stays as it is."""

    async def test_connecting_to_nothing(self) -> None:
        """No server, an address that swallows packets: StoreUnreachable within the bound, then at once."""
        for url in ("postgresql://ipf@127.0.0.1:1/one", "postgresql://ipf@10.255.255.1/one"):
            database = Database(url, reactor=reactor, size=3, connect_seconds=0.3)
            await self.assertFailure(started(database.start()), StoreUnreachable)
            self.failureResultOf(started(database.many("SELECT 1")), StoreUnreachable)
            await database.close()

    async def test_reason_of_a_failed_connection(self) -> None:
        """The detail is the driver's, for the log; senders get a text without names; neither has a password."""
        host = (await postgres.server()).url("").partition("dbname")[0]
        for url, reason in (
            ("postgresql://ipf:s3cret@127.0.0.1:1/one", "Connection refused"),
            (f"{host} dbname=other password=s3cret", 'database "other" does not exist'),
            ("postgresql://ipf:s3cret@[::1/one", "the URL of the database cannot be read"),
            ("postgresql://ipf:p@s3cret@127.0.0.1/one", "%40"),
        ):
            failed = await self.assertFailure(started(connect(url, reactor=reactor)), StoreUnreachable)
            self.assertIn(reason, failed.detail)
            self.assertNotIn("s3cret", failed.detail)
            self.assertEqual(failed.text, "the store cannot be reached")

    async def test_socket_folder_of_another_user_is_refused(self) -> None:
        """Under the temporary directory another user could have created it."""
        folder = Path(tempfile.mkdtemp(prefix="ipf-long-"))
        elsewhere = Path(tempfile.mkdtemp(prefix="ipf-elsewhere-"))
        server = EmbeddedPostgres(folder / ("long" * 30), reactor, databases=(), extra=postgres.FAST)
        place = Path(server.url("one").partition("host=")[2].split(" ")[0])
        self.addCleanup(shutil.rmtree, folder)
        self.addCleanup(shutil.rmtree, elsewhere)
        self.addCleanup(place.unlink)
        place.symlink_to(elsewhere)
        refused = await self.assertFailure(started(server.start()), Problem)
        self.assertIn(str(place), refused.text)

    async def test_one_service_a_directory(self) -> None:
        """A second start is refused with the holder and the place."""
        first = await postgres.server()
        second = EmbeddedPostgres(first.data_dir, reactor)
        refused = await self.assertFailure(started(second.start()), Problem)
        self.assertIn(str(first.data_dir), refused.text)
        self.assertIn("another ipf", refused.text)

    async def test_a_statement_that_does_not_end(self) -> None:
        """It delays the closing of its pool up to the limit only."""
        database = Database(await postgres.fresh_url(None), reactor=reactor, **postgres.PATIENT, size=1)
        await database.start()
        sleeping = started(database.many("SELECT pg_sleep(300)"))
        await database.close(0.1)
        await self.assertFailure(sleeping, StoreUnreachable)

    async def test_a_server_that_does_not_answer(self) -> None:
        """The log names the timeout, not how the socket was closed."""
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            url = f"postgresql://ipf@127.0.0.1:{silent.getsockname()[1]}/one"
            failed = await self.assertFailure(
                started(connect(url, reactor=reactor, connect_seconds=0.1)), StoreUnreachable
            )
            self.assertEqual(failed.detail, f"127.0.0.1:{silent.getsockname()[1]}: no answer within 0.1 s")

    async def test_a_server_that_cannot_be_seen(self) -> None:
        """Without file descriptors no second server is started next to a running one."""
        server = await postgres.server()
        supervisor, before = PostgresSupervisor(server, Clock()), server.pid()
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
        try:
            await self.assertFailure(started(supervisor.check()), OSError)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        self.assertEqual(server.pid(), before)


_own: list[EmbeddedPostgres] = []
"""The server of `OutageTest`, once it is started."""


class OutageTest(TestCase):
    """A server of its own, stopped and started."""

    async def setUp(self) -> None:
        if not _own:
            folder = Path(tempfile.mkdtemp(prefix="ipf-outage-"))
            atexit.register(postgres.remove, folder)
            service_cluster(folder)
            _own.append(EmbeddedPostgres(folder, reactor, databases=("one",), extra=postgres.FAST))
        (self.server,) = _own
        if not self.server.running():
            self.server._drop_lock()
            await self.server.start()

    async def test_stopped_and_started(self) -> None:
        """StoreUnreachable at once, then reconnected; the notifier wakes all subscribers after the reconnect."""
        database = Database(self.server.url("one"), reactor=reactor, **postgres.PATIENT, size=3)
        await database.start()
        self.addCleanup(lambda: started(database.close()))
        notifier, woken = PostgresNotifier(self.server.url("one"), reactor=reactor), []
        notifier.subscribe("work", lambda: woken.append("work"))
        await notifier.start()
        self.addCleanup(lambda: started(notifier.close()))
        running = started(database.many("SELECT pg_sleep(300)"))
        await self.server.shut_down()
        await self.assertFailure(running, StoreUnreachable)
        while database.reachable:
            await self.assertFailure(started(database.many("SELECT 1")), StoreUnreachable)
        for _ in range(20):
            self.failureResultOf(started(database.many("SELECT 1")), StoreUnreachable)
        self.assertFalse(database.reachable)
        await self.server.start_up()
        await until(lambda: database.reachable)
        self.assertEqual(await gather_all([database.many("SELECT 1") for _ in range(9)]), [[(1,)]] * 9)
        await until(lambda: woken)

    async def test_a_killed_server_is_started_again(self) -> None:
        """At once after a kill; after an orderly stop only once the grace period is over."""
        clock = Clock()
        supervisor = PostgresSupervisor(self.server, clock)
        before = self.server.pid()
        await supervisor.check()
        self.assertEqual(self.server.pid(), before)
        assert before is not None
        os.kill(before, signal.SIGKILL)
        while self.server.pid() in (None, before):  # its own processes may take a moment to go
            await supervisor.check()
            clock.advance(1)
            await turns(1)
        await supervisor.check()
        await self.server.shut_down()
        await supervisor.check()
        clock.advance(GRACE_SECONDS - 0.1)
        await supervisor.check()
        self.assertFalse(self.server.running())
        clock.advance(0.2)
        await supervisor.check()
        self.assertTrue(self.server.running())

    async def test_a_directory_that_was_replaced(self) -> None:
        """Its server belongs to another service now, and is left alone."""
        await self.server.shut_down()
        lock = self.server.data_dir / "lock"
        lock.rename(lock.with_name("aside"))
        for _ in range(2):
            refused = await self.assertFailure(started(self.server.start_up()), Problem)
            self.assertIn("was replaced", refused.text)
            lock.touch()

    async def test_a_server_that_cannot_start(self) -> None:
        """It is retried at growing intervals; the log line has the server's own reason."""
        clock = Clock()
        lines: list[LogEvent] = []
        globalLogPublisher.addObserver(lines.append)
        self.addCleanup(globalLogPublisher.removeObserver, lines.append)
        supervisor = PostgresSupervisor(self.server, clock)
        settings = self.server.cluster / "postgresql.auto.conf"
        await self.server.shut_down()
        settings.write_text("shared_buffers = 'no number'\n")
        await supervisor.check()
        clock.advance(GRACE_SECONDS)
        for wait in (1.0, 2.0):
            await supervisor.check()
            await supervisor.check()
            clock.advance(wait)
        settings.write_text("")
        await supervisor.check()
        self.assertTrue(self.server.running())
        reasons = [line["reason"] for line in lines if line.get("event") == "postgres_not_started"]
        self.assertEqual(len(reasons), 2)
        self.assertIn("postgresql.auto.conf", reasons[0])

    async def test_after_a_crash(self) -> None:
        """A server that outlived its service is adopted; a stale pid file of another process is no obstacle."""
        self.server._drop_lock()  # what the kernel does when the service dies
        adopted = EmbeddedPostgres(self.server.data_dir, reactor, databases=("one",), extra=postgres.FAST)
        before = adopted.pid()
        await adopted.start()
        self.assertEqual(adopted.pid(), before)
        await adopted.stop()
        self.assertFalse(adopted.running())
        (adopted.cluster / "postmaster.pid").write_text("1\n/elsewhere\n")
        await self.server.start()
        self.assertTrue(self.server.running())


class NotifierTest(TestCase):
    """Rings here and in another process."""

    async def test_notifications(self) -> None:
        """At once here, soon in other processes; merged; own ones once; separate by name."""
        url = await postgres.fresh_url(None)
        here, there = PostgresNotifier(url, reactor=reactor), PostgresNotifier(url, reactor=reactor)
        received: list[str] = []
        for name, notifier in (("here", here), ("there", there)):
            await notifier.start()
            notifier.subscribe("work", lambda name=name: received.append(name))  # type: ignore[misc]  # early binding
            notifier.subscribe("other", lambda: received.append("other"))
        here.notify("work")
        self.assertEqual(received, ["here"])
        await until(lambda: received == ["here", "there"])
        for _ in range(500):
            here.notify("work")
        await until(lambda: received.count("there") >= 2)
        self.assertEqual(received.count("here"), 501)
        there.notify("work")
        await until(lambda: received.count("here") >= 502)
        self.assertEqual(received.count("here"), 502)
        self.assertLess(received.count("there"), 10)
        self.assertNotIn("other", received)
        await here.close()
        await there.close()
