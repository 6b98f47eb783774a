"""Several hosts: a real PostgreSQL among servers that are silent, close, answer nonsense, refuse, or only read."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from psycopg2.extensions import parse_dsn
from twisted.internet import reactor
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, ensureDeferred
from twisted.internet.protocol import Factory, Protocol
from twisted.trial.unittest import TestCase

from ipf.errors import StoreUnreachable
from ipf.store.postgres.connect import connect
from ipf.store.postgres.database import WAIT_SECONDS, Database
from tests import postgres
from tests.contracts.resources import gather_all
from tests.store.postgres.clock import ClockWithSockets
from tests.waiting import PATIENCE, free_port, turns, until

READ_ONLY = "ALTER DATABASE {} SET default_transaction_read_only = on"
WRITABLE = "ALTER DATABASE {} RESET default_transaction_read_only"


def started(coroutine: Any) -> Deferred[Any]:
    """Run a coroutine."""
    return Deferred.fromCoroutine(coroutine)


class _Fake(Protocol):
    """Answers the first packet."""

    def __init__(self, answer: Callable[[Any], None]) -> None:
        self._answer = answer

    def dataReceived(self, data: bytes) -> None:
        """The client's first packet."""
        self._answer(self.transport)


def _silent(transport: Any) -> None:
    """Says nothing."""


FAKES: dict[str, Callable[[Any], None]] = {
    "silent": _silent,
    "closes": lambda transport: transport.loseConnection(),
    "resets": lambda transport: transport.abortConnection(),
    "nonsense": lambda transport: transport.write(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 50),
    "refuses TLS and closes": lambda transport: (transport.write(b"N"), transport.loseConnection()),
}


class _Servers(TestCase):
    """An empty database of a real server, and fakes."""

    async def setUp(self) -> None:
        parts = parse_dsn(await postgres.fresh_url(None))
        self.name = parts["dbname"]
        self.real = (parts["host"], parts["port"])
        self.ports = {"refuses": free_port()}
        for name, answer in FAKES.items():
            self.ports[name] = self._listen(answer)
        self.control = await connect(self._url(self.real), reactor=reactor, connect_seconds=PATIENCE)
        self.addCleanup(self.control.close)

    def _listen(self, answer: Callable[[Any], None]) -> int:
        factory = Factory.forProtocol(lambda: _Fake(answer))  # type: ignore[arg-type]  # any callable does
        factory.noisy = False
        port = reactor.listenTCP(0, factory, interface="127.0.0.1")  # type: ignore[attr-defined]
        self.addCleanup(port.stopListening)
        address = port.getHost()
        assert isinstance(address, IPv4Address)
        return int(address.port)

    def _url(self, *places: tuple[str, str | int], more: str = "") -> str:
        hosts, ports = ",".join(place[0] for place in places), ",".join(str(place[1]) for place in places)
        return f"host={hosts} port={ports} user=ipf password=s3cret dbname={self.name} {more}"

    def _fake(self, name: str) -> tuple[str, int]:
        return ("127.0.0.1", self.ports[name])


class ConnectTest(_Servers):
    """One connection."""

    async def test_a_real_one_in_every_place(self) -> None:
        """It is found, behind and before each kind of other server, and all of them."""
        fakes = [self._fake(name) for name in self.ports]
        orders = [[fake, self.real] for fake in fakes] + [[self.real, fake] for fake in fakes]
        orders += [[*fakes[:place], self.real, *fakes[place:]] for place in range(len(fakes) + 1)]
        for order in orders:
            connection = await connect(self._url(*order), reactor=reactor, connect_seconds=PATIENCE)
            self.assertEqual(await connection.run("SELECT 1"), [(1,)])
            self.assertEqual(connection.host.name, self.real[0])
            connection.close()

    async def test_reasons(self) -> None:
        """One line names each host and what is wrong with it, and no password."""
        await self.control.run(READ_ONLY.format(self.name))
        others = [self._fake(name) for name in self.ports if name != "silent"]
        failed = await self._failed(self._url(self.real, *others), PATIENCE)
        self.assertRegex(failed.detail, f"127.0.0.1:{self.ports['refuses']}: [^;]*Connection refused")
        self.assertIn("session is read-only", failed.detail)
        failed = await self._failed(self._url(self._fake("silent")), 0.1)
        self.assertIn(f"127.0.0.1:{self.ports['silent']}: no answer within 0.1 s", failed.detail)

    async def _failed(self, url: str, seconds: float) -> StoreUnreachable:
        failed = await self.assertFailure(
            started(connect(url, reactor=reactor, connect_seconds=seconds)), StoreUnreachable
        )
        self.assertNotIn("s3cret", failed.detail)
        self.assertEqual(failed.text, "the store cannot be reached")
        return failed

    async def test_nothing_is_left_of_failed_attempts(self) -> None:
        """Neither descriptors nor timers nor places in the poll set."""
        url = self._url(*[self._fake(name) for name in self.ports if name != "silent"])
        await self.assertFailure(started(connect(url, reactor=reactor)), StoreUnreachable)
        await turns()
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(50):
            await self.assertFailure(started(connect(url, reactor=reactor)), StoreUnreachable)
        silent = self._url(self._fake("silent"))
        for _ in range(10):
            await self.assertFailure(started(connect(silent, reactor=reactor, connect_seconds=0.01)), StoreUnreachable)
            attempt = started(connect(silent, reactor=reactor))
            attempt.cancel()
            await self.assertFailure(attempt, Exception)
        await until(lambda: len(os.listdir("/proc/self/fd")) <= before, "the fakes have seen the ends")

    async def test_every_address_of_a_name(self) -> None:
        """`localhost` may be ::1 first, where nothing listens."""
        url = self._url(("localhost", self.ports["refuses"]))
        failed = await self.assertFailure(started(connect(url, reactor=reactor)), StoreUnreachable)
        for _, _, _, _, address in socket.getaddrinfo("localhost", 1, type=socket.SOCK_STREAM):
            self.assertIn(f"localhost ({address[0]}):{self.ports['refuses']}: Connection refused", failed.detail)
        nowhere = self._url(("no-such-host.invalid", 1))
        failed = await self.assertFailure(
            started(connect(nowhere, reactor=reactor, connect_seconds=PATIENCE)), StoreUnreachable
        )
        self.assertIn("no-such-host.invalid has no address", failed.detail)


class PoolTest(_Servers):
    """A pool on several hosts."""

    def _pool(self, *places: tuple[str, str | int], **options: Any) -> Database:
        pool = Database(self._url(*places), reactor=reactor, size=3, **{**postgres.PATIENT, **options})
        self.addCleanup(lambda: started(pool.close()))
        return pool

    async def test_one_that_reads_and_one_that_refuses(self) -> None:
        """In both orders: errors at once, an answer as soon as one may write, and an end whenever asked for."""
        for order in ([self.real, self._fake("refuses")], [self._fake("refuses"), self.real]):
            await self.control.run(READ_ONLY.format(self.name))
            pool = self._pool(*order, connect_seconds=PATIENCE)
            await self.assertFailure(started(pool.start()), StoreUnreachable)
            self.failureResultOf(started(pool.many("SELECT 1")), StoreUnreachable)
            await self.control.run(WRITABLE.format(self.name))
            await until(lambda pool=pool: pool.reachable)
            self.assertEqual(await pool.many("SELECT 1"), [(1,)])
            await pool.close()

    async def test_a_server_that_becomes_read_only(self) -> None:
        """The statement that meets it fails; every connection is dropped; it is left until it writes again."""
        left: list[str] = []
        pool = self._pool(self.real, self._fake("refuses"), left=lambda: left.append("left"), connect_seconds=PATIENCE)
        await pool.start()
        await pool.many("CREATE TABLE t (id integer)")
        read_only = "SET default_transaction_read_only = on; SELECT 1"
        await self.control.run(READ_ONLY.format(self.name))
        for _ in range(3):  # sessions keep what their database was when they began
            await pool.many(read_only)
        failed = await self.assertFailure(started(pool.many("INSERT INTO t VALUES (1)")), StoreUnreachable)
        self.assertIn("25006", failed.text)
        self.assertEqual(left, ["left"])
        self.assertEqual(pool.usage[:2], (0, 0))
        self.failureResultOf(started(pool.many("SELECT 1")), StoreUnreachable)
        await self.control.run(WRITABLE.format(self.name))
        await until(lambda: pool.reachable)
        await pool.many("INSERT INTO t VALUES (1)")

    async def test_all_connections_are_to_one_server(self) -> None:
        """Two hosts may write, as two proxies of one server do: the pool stays at one for as long as it is there."""
        folder = tempfile.mkdtemp(prefix="ipf-link-")  # short, as a socket's path must be
        self.addCleanup(shutil.rmtree, folder)
        link = Path(folder) / "one"
        link.symlink_to(self.real[0])
        pool = self._pool((str(link), self.real[1]), self.real)
        await gather_all([pool.many("SELECT 1") for _ in range(3)])
        self.assertEqual({connection.host.name for connection in pool._all}, {str(link)})
        link.unlink()
        async with pool.session() as one, pool.session() as two:
            await one.many("SELECT 1")
            await two.many("SELECT 1")
        self.assertEqual({connection.host.name for connection in pool._all}, {str(link)})
        others = "datname = current_database() AND pid <> pg_backend_pid()"
        ended = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}"
        await self.control.run(ended)
        while await self._where(pool) != {self.real[0]}:
            await self.control.run(ended)  # a connection that was just being opened is not among the first ones
            await turns(1)

    async def _where(self, pool: Database) -> set[str]:
        """A question, and the servers of the pool afterwards."""
        with contextlib.suppress(StoreUnreachable):
            await pool.many("SELECT 1")
        return {connection.host.name for connection in pool._all}

    async def test_closing_while_a_server_is_silent(self) -> None:
        """It does not wait for the attempt to connect."""
        pool = self._pool(self._fake("silent"), connect_seconds=PATIENCE)
        waiting = started(pool.start())
        closing = ensureDeferred(pool.close())
        self.successResultOf(closing)
        await self.assertFailure(waiting, StoreUnreachable)

    async def test_waiting_for_a_connection_is_bounded(self) -> None:
        """A caller fails when no connection is given back in time; the next one gets it."""
        clock = ClockWithSockets()
        pool = Database(self._url(self.real), reactor=clock, size=1)
        self.addCleanup(lambda: started(pool.close()))
        await pool.start()
        async with pool.session() as session:
            await session.many("SELECT 1")
            waiting = started(pool.many("SELECT 1"))
            clock.advance(WAIT_SECONDS - 0.1)
            self.assertNoResult(waiting)
            clock.advance(0.1)
            failed = await self.assertFailure(waiting, StoreUnreachable)
        self.assertIn("was free within 10 s", failed.text)
        self.assertEqual(await pool.many("SELECT 2"), [(2,)])
