"""Each process of a service of six is killed under load in turn: nothing acknowledged is lost, each effect is once."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from tests.event_loop import LIMIT, run
from tests.faults.roles import RoleProcesses, two_databases
from tests.waiting import until

GROUP = "kills"

WANTED = {
    "receive": {"IPF_ROLES": "receive"},
    "convert-1": {"IPF_ROLES": "convert", "IPF_WORKER_PROCESSES": "1"},
    "convert-2": {"IPF_ROLES": "convert", "IPF_WORKER_PROCESSES": "0"},
    "fhir": {"IPF_ROLES": "fhir,admin"},
    "deliver": {"IPF_ROLES": "deliver"},
    "poll": {"IPF_ROLES": "poll"},
}
BETWEEN = 15  # messages
STALE_SECONDS = "20"
"""A busy machine renews leases late; what a killed process of this host held is recovered at the next start anyway."""


class RoleKillTests(TestCase):
    timeout = LIMIT

    async def test_each_process_in_turn(self) -> None:
        run(self._each(await two_databases()))

    async def _each(self, databases: tuple[str, str]) -> None:
        async with RoleProcesses(databases, WANTED, IPF_WORKER_TRANSFORMING_STALE_SECONDS=STALE_SECONDS) as roles:
            roles.feed.senders = 4
            roles.feed.start()
            for name, one in roles.processes.items():
                await roles.feed.more(BETWEEN)
                one.kill()
                if name != "receive":  # the others go on meanwhile
                    with roles.feed.wider():
                        await roles.feed.more(BETWEEN)
                if name.startswith("convert"):
                    await self._converts(roles)
                one.start()
                await roles.answers(name)
            await roles.feed.more(BETWEEN)
            await roles.feed.stop()
            await roles.settled()
            self.assertEqual(roles.broken_promises(), [])

    async def _converts(self, roles: RoleProcesses) -> None:
        """The other converting process goes on."""
        query = "SELECT count(*) FROM ingested_messages WHERE status = 'DELIVERED'"
        before = roles.sql("ipf", query)
        with roles.feed.wider():
            await until(lambda: roles.sql("ipf", query) != before, "a message is converted")
