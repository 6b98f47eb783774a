"""Point-in-time recovery as docs/how-to/back-up-and-restore.md describes it: base backup, WAL archive, restore point;
the service goes on.

Both databases are on one server, so one place in its WAL is one moment of both.
"""

from __future__ import annotations

import asyncio
import shutil

from twisted.trial.unittest import TestCase

from tests.event_loop import LIMIT, run
from tests.faults.scenario import Scenario
from tests.replication import Server, as_postgres, scratch_folder, why_not
from tests.service_process import ServiceProcess
from tests.waiting import until

GROUP = "failover"


class PointInTimeTests(TestCase):
    timeout = LIMIT
    skip = why_not() or None

    def setUp(self) -> None:
        self.folder = scratch_folder("ipf-pitr-")
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.archive = self.folder / "archive"
        self.archive.mkdir()
        if owner := as_postgres():
            shutil.chown(self.archive, owner["user"], owner["group"])
        self.server, self.restored = Server(self.folder, "a"), Server(self.folder, "b")
        self.addCleanup(self.restored.stop, "kill")
        self.addCleanup(self.server.stop, "kill")

    def test_both_databases_are_restored_to_one_moment(self) -> None:
        run(self.recovered())

    async def recovered(self) -> None:
        self.server.create()
        self.server.configure(archive_mode="on", archive_command=f"'cp %p {self.archive}/%f'")
        self.server.start()
        for name in ("ipf", "fhir"):
            self.server.sql(f"CREATE DATABASE {name}")
        async with Scenario(**self.urls(self.server)) as scenario:
            scenario.psql = self.server.sql
            scenario.feed.start()
            await scenario.feed.until(40)
            await asyncio.to_thread(self.restored.copy, self.server)
            await scenario.feed.until(80)
            before = dict(scenario.feed.accepted)
            self.server.sql("SELECT pg_create_restore_point('before_the_mistake')")
            await scenario.feed.until(len(before) + 40)
            await scenario.feed.stop()
            await scenario.settled()
            scenario.service.stop()
            self.server.sql("DELETE FROM message_states", "ipf")  # the mistake
            self.server.sql("SELECT pg_switch_wal()")
            self.server.stop()

            await self.recover()
            scenario.psql = self.restored.sql
            scenario.service = ServiceProcess(scenario.folder / "again", **scenario.chosen | self.urls(self.restored))
            scenario.feed.accepted = before
            scenario.service.start()
            await scenario.ready()
            await scenario.settled()
            self.assertEqual(scenario.broken_promises(), [])
            self.assertLess(int(scenario.sql("ipf", "SELECT count(*) FROM message_bodies")[0][0]), len(before) + 40)

    async def recover(self) -> None:
        """Replay the archive behind the base backup up to the restore point."""
        (self.restored.data / "recovery.signal").touch()
        self.restored.configure(
            restore_command=f"'cp {self.archive}/%f %p'", recovery_target_name="'before_the_mistake'",
            recovery_target_action="'promote'", archive_mode="off",
        )  # fmt: skip
        self.restored.start()
        recovering = "SELECT pg_is_in_recovery()"
        await until(lambda: self.restored.sql(recovering).strip() == "f", "the server is promoted")

    def urls(self, server: Server) -> dict[str, str]:
        """The settings of a service on it."""
        base = f"postgresql://ipf@{server.address}"
        return {"IPF_DB_URL": f"{base}/ipf", "IPF_FHIR_DB_URL": f"{base}/fhir"}
