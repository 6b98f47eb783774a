"""kill -9 of `$expunge`: no resource is half gone, what was committed stays gone, and a repetition removes the rest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from ipf.fhir.model.json import loads
from ipf.store.resources.resources import PostgresFhirStore
from tests import postgres
from tests.rest.operations.test_expunge import DELETED, PREVIOUS, parameters
from tests.rest.world import World, patient
from tests.waiting import until

GROUP = "kills"

ROOT = Path(__file__).parents[2]
# Behind these: the resources are locked; former versions are gone; the deletion, their last version, is gone.
STATEMENTS = ("_LOCK", "_REMOVE", "_REMOVE_LAST")
_OPEN = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND xact_start IS NOT NULL"
# A resource has its current version, unless that is a deletion; a version, and an index entry, have a resource.
_TORN = """SELECT (SELECT count(*) FROM resources r WHERE NOT EXISTS (SELECT FROM resource_versions v
    WHERE v.rid = r.rid AND v.version_id = r.version_id))
    + (SELECT count(*) FROM resource_versions v WHERE NOT EXISTS (SELECT FROM resources r WHERE r.rid = v.rid))
    + (SELECT count(*) FROM index_text t WHERE NOT EXISTS (SELECT FROM resources r WHERE r.rid = t.rid))"""


class ExpungeKills(TestCase):
    """A call killed behind chosen statements of its transactions."""

    async def setUp(self) -> None:
        self.database = await postgres.database(self, "fhir")
        self.world = World(PostgresFhirStore(self.database), database=self.database, expunges=True)

    async def test_at_each_statement(self) -> None:
        for number, statement in enumerate(STATEMENTS):
            await self._store(f"a{number}")
            await self._store(f"b{number}")
            await self.world.send("DELETE", f"Patient/b{number}")
            child = _child(self.database.url, statement)
            await deferToThread(_killed_at, child, statement)
            await self._wait_for_the_server()
            self.assertEqual(await self.database.many(_TORN), [(0,)], statement)
            self.assertEqual((await self.world.send("GET", f"Patient/a{number}")).status, 200)
            self.assertEqual((await self.world.send("GET", f"Patient/b{number}")).status, 410, statement)
            answer = await self.world.send("POST", "$expunge", parameters(PREVIOUS, DELETED))
            self.assertEqual(answer.status, 200, answer.body)
            self.assertFalse(loads(answer.body)["parameter"][1]["valueBoolean"])
            self.assertEqual((await self.world.send("GET", f"Patient/b{number}")).status, 404)
            self.assertEqual(await self.database.many(_TORN), [(0,)], statement)
        ((versions,),) = await self.database.many("SELECT count(*) FROM resource_versions")
        self.assertEqual(versions, len(STATEMENTS))  # the current one of each Patient that is not deleted

    async def _store(self, id_: str) -> None:
        for number in range(4):
            answer = await self.world.send("PUT", f"Patient/{id_}", patient(id_, f"F{number}", id=id_))
            self.assertIn(answer.status, (200, 201))

    async def _wait_for_the_server(self) -> None:
        """Until PostgreSQL has noticed that the killed call is gone: its locks are free then."""

        async def is_alone() -> bool:
            return bool(await self.database.many(_OPEN) == [(1,)])  # this statement

        await until(is_alone, "PostgreSQL has noticed the kill")


def _child(url: str, statement: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.faults.expunge_child", url, statement]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def _killed_at(child: subprocess.Popen[str], statement: str) -> None:
    """Kill the call when it waits behind the statement."""
    assert child.stdout is not None
    try:
        for line in child.stdout:
            if line.strip() == statement:
                return
        raise AssertionError(f"the call ended before {statement}")
    finally:
        child.kill()
        child.communicate()
