"""Receivers are replaced under load: no connection is refused, and what was acknowledged is stored.

The listening socket belongs to systemd; here to the test.  Two receivers have it at the same time.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import tempfile
from pathlib import Path

from psycopg2.extensions import parse_dsn
from twisted.trial.unittest import TestCase

from tests.activated import Activated, listening
from tests.event_loop import LIMIT, run
from tests.faults.callers import Callers
from tests.faults.feed import Feed
from tests.faults.roles import two_databases
from tests.traffic.psql import psql
from tests.waiting import free_port, until

GROUP = "flows"
SOME = 30  # messages


class UpgradeTests(TestCase):
    timeout = LIMIT  # each process is replaced under load

    async def test_receivers_are_replaced_under_load(self) -> None:
        run(self._replaced(await two_databases()))

    async def _replaced(self, databases: tuple[str, str]) -> None:
        folder = Path(tempfile.mkdtemp(prefix="ipf-upgrade-"))
        self.addCleanup(shutil.rmtree, folder, True)
        port = free_port()
        with listening(port) as held:
            first, second = (_receiver(folder / name, held, databases) for name in ("first", "second"))
            callers, feed = Callers(port), Feed(port, senders=4)
            try:
                await _started(first)
                callers.start()
                feed.start()
                await self._rolling(first, second, callers, feed)
                await self._restart_of_the_only_one(second, callers)
                await callers.stop()
                await feed.stop()
            finally:
                feed.abandon()
                for one in (first, second):
                    if one.ended() is None:
                        await asyncio.to_thread(one.stop)
        self.assertEqual(callers.refused, 0)
        self.assertEqual(set(feed.codes) - {"AA", "lost"}, set())
        self._stored(databases[0], callers.accepted | set(feed.accepted))

    async def _rolling(self, first: Activated, second: Activated, callers: Callers, feed: Feed) -> None:
        """The new process starts beside the old one, which then ends."""
        await callers.until(SOME)
        await _started(second)
        await callers.until(len(callers.accepted) + SOME)
        self.assertEqual(await asyncio.to_thread(first.stop), 0, first.log_tail())
        await callers.until(len(callers.accepted) + SOME)
        await feed.until(len(feed.accepted) + SOME)

    async def _restart_of_the_only_one(self, one: Activated, callers: Callers) -> None:
        """Senders wait in the queue of the socket meanwhile."""
        self.assertEqual(await asyncio.to_thread(one.stop), 0, one.log_tail())
        await _started(one)
        await callers.until(len(callers.accepted) + SOME)

    def _stored(self, inbox: str, accepted: set[str]) -> None:
        server = parse_dsn(inbox)
        rows = psql(Path(server["host"]), "SELECT source_id FROM ingested_messages", server["dbname"]).split()
        self.assertEqual(accepted - set(rows), set())
        self.assertEqual(len(rows), len(set(rows)))


def _receiver(folder: Path, held: socket.socket, databases: tuple[str, str]) -> Activated:
    return Activated(
        folder, {"mllp": held}, IPF_ROLES="receive", IPF_DB_URL=databases[0], IPF_FHIR_DB_URL=databases[1],
        IPF_MLLP_LISTEN="lab=systemd:domain=INET:name=mllp",
    )  # fmt: skip


async def _started(one: Activated) -> None:
    one.start()
    await until(lambda: asyncio.to_thread(one.ready))
