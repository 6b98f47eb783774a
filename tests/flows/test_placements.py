"""One service on two PostgreSQL servers, each with the data of one tenant."""

from __future__ import annotations

import subprocess
import threading
from functools import partial
from typing import Any

from twisted.internet import reactor
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from ipf.store.postgres.database import Database
from tests import postgres
from tests.event_loop import LIMIT
from tests.flows.placement_world import World, program
from tests.service_process import ROOT

GROUP = "flows"
DROP = ROOT / "etc/placement/drop-tenants.sql"
PATIENT = {"resourceType": "Patient", "id": "p", "active": True}


class Load:
    """A tenant's messages and requests, one after the other, until it is stopped; `results` of all of them."""

    def __init__(self, world: World, tenant: str) -> None:
        self.results: list[str] = []
        self._world, self._tenant = world, tenant
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            number += 1
            self.results.append(self._world.send(self._tenant, f"L{number}", f"Q{number % 5}", f"+{number}"))
            status, _ = self._world.ask(self._tenant, "Patient/p", "PUT", PATIENT | {"active": number % 2 == 0})
            self.results.append(str(status))
            self.results.append(str(self._world.ask(self._tenant, "Patient?identifier=Q1")[0]))

    def stop(self) -> list[str]:
        """The results of all messages and requests."""
        self._stop.set()
        self._thread.join()
        return self.results


class PlacementTests(TestCase):
    timeout = LIMIT

    async def setUp(self) -> None:
        self.world = World()

    async def tearDown(self) -> None:
        await self.world.stop()

    async def count(self, url: str, sql: str) -> list[Any]:
        """The rows of a statement."""
        database = Database(url, reactor=reactor, size=1, **postgres.PATIENT)
        await database.start()
        try:
            return [row[0] for row in await database.many(sql)]
        finally:
            await database.close()

    async def test_one_server_is_away(self) -> None:
        """Started late, hanging, stopped: the other's tenant notices nothing, and nothing acknowledged is lost."""
        world = self.world
        world.place(world.placement("north", '"b"'))
        await world.start(north_is_up=False)
        await self._away_at_start()
        await world.north.start()
        await world.until(lambda: world.is_in_state("north", "open"), "the placement is open")
        for tenant in ("a", "b"):
            await deferToThread(world.subscribe, tenant)
        load = await deferToThread(Load, world, "a")
        accepted = [await self._accepted("B1"), await self._accepted("B2")]
        await deferToThread(world.suspend)
        self.assertEqual(await deferToThread(world.send, "b", "B3"), "AE")
        self.assertEqual((await deferToThread(world.ask, "b", "Patient?_count=1"))[0], 503)
        self.assertEqual((await deferToThread(world.health, "north"))["status"], "DOWN")
        await deferToThread(world.resume)
        accepted.append(await self._accepted("B3"))
        await world.north.shut_down()
        self.assertEqual(await deferToThread(world.send, "b", "B4"), "AE")
        await world.north.start_up()
        accepted.append(await self._accepted("B4"))
        results = await deferToThread(load.stop)
        self.assertEqual(set(results), {"AA", "200"} | ({"201"} & set(results)), "the other tenant notices nothing")
        self.assertGreater(len(results), 10)
        await self._all_is_there(accepted)

    async def _away_at_start(self) -> None:
        world = self.world
        self.assertEqual(await deferToThread(world.send, "a", "A1"), "AA")
        self.assertEqual((await deferToThread(world.ask, "a", "Patient/p", "PUT", PATIENT))[0], 201)
        self.assertEqual(await deferToThread(world.send, "b", "B0"), "AE")
        self.assertEqual(await deferToThread(world.retry_after, "b", "Patient/p", PATIENT), (503, "1"))
        found = await deferToThread(world.health, "north")
        self.assertEqual(found["status"], "DOWN")
        self.assertIn("placement north (db_url)", found["details"]["error"])
        self.assertEqual((await deferToThread(world.admin, "messages", "north"))[0], 503)
        self.assertEqual((await deferToThread(world.admin, "messages?tenant=b"))[0], 503)
        self.assertEqual((await deferToThread(world.admin, "messages", "south"))[0], 404)
        self.assertEqual((await deferToThread(world.admin, "messages?tenant=a"))[1]["total"], 1)
        _, system = await deferToThread(world.admin, "observe/system")
        self.assertIn("north", str(system))

    async def _accepted(self, control_id: str) -> str:
        """A sender that repeats until the message is accepted."""
        await self.world.until(
            lambda: self.world.send("b", control_id, control_id) == "AA", f"{control_id} is accepted"
        )
        return control_id

    async def _all_is_there(self, accepted: list[str]) -> None:
        world = self.world

        def delivered() -> bool:
            status, page = world.admin("messages?tenant=b&status=DELIVERED")
            return status == 200 and page["total"] == len(accepted)

        await world.until(delivered, "all messages of the placement are delivered")
        await world.until(lambda: len(set(world.hooks["b"].ids)) == len(accepted), "its subscriber is notified")
        self.assertEqual(await self.count(world.north.url("ipf"), "SELECT DISTINCT tenant FROM message_bodies"), ["b"])
        self.assertEqual(await self.count(world.home["ipf"], "SELECT DISTINCT tenant FROM message_bodies"), ["a"])
        named = "SELECT DISTINCT p.name FROM resources r JOIN partitions p ON p.id = r.partition_id ORDER BY 1"
        self.assertEqual(await self.count(world.north.url("fhir"), named), ["b"])
        self.assertEqual(await self.count(world.home["fhir"], named), ["a"])
        self.assertTrue(set(world.hooks["a"].ids).isdisjoint(world.hooks["b"].ids))

    async def test_a_tenant_is_moved(self) -> None:
        """Freeze, copy with pg_dump, remove what is not moved, switch: as docs/placement.md says."""
        world = self.world
        world.place()
        await world.start(north_is_up=True)
        for tenant in ("a", "b"):
            await deferToThread(world.subscribe, tenant)
            self.assertEqual(await deferToThread(world.send, tenant, "M1"), "AA")
            await world.until(lambda tenant=tenant: len(world.hooks[tenant].ids) == 1, "it is notified")
        before = await deferToThread(world.ask, "b", "Patient?identifier=P1")

        world.place('[default]\nstate = "frozen"\n')
        await world.reload()
        await world.until(lambda: world.is_in_state("default", "frozen"), "the placement is frozen")
        await self._frozen(before)

        await deferToThread(self._copy)
        world.place(world.placement("north", '"b"'))
        await world.reload()
        for name in ("default", "north"):
            await world.until(lambda name=name: world.is_in_state(name, "open"), f"{name} is open")
        await self._moved(before[1]["entry"][0]["resource"])

    async def _frozen(self, before: tuple[int, Any]) -> None:
        """Senders and writers repeat what they have, and everybody reads."""
        world = self.world
        for tenant in ("a", "b"):
            self.assertEqual(await deferToThread(world.send, tenant, "M2"), "AE")
            self.assertEqual(await deferToThread(world.retry_after, tenant, "Patient/p", PATIENT), (503, "1"))
        self.assertEqual(await deferToThread(world.ask, "b", "Patient?identifier=P1"), before)
        self.assertEqual((await deferToThread(world.ask, "b", "Patient/_search?identifier=P1", "POST"))[0], 200)
        self.assertEqual((await deferToThread(world.admin, "messages"))[0], 200)
        self.assertEqual((await deferToThread(world.admin, "mapping/reload", None, "POST"))[0], 503)

    def _copy(self) -> None:
        """The commands of docs/placement.md."""
        for kind, home in self.world.home.items():
            north = self.world.north.url(kind)
            dump = [program("pg_dump"), "--no-owner", "--no-privileges", "--format=custom", "--dbname", home]
            restore = [program("pg_restore"), "--no-owner", "--exit-on-error", "--dbname", north]
            copied = subprocess.run(dump, check=True, capture_output=True).stdout
            subprocess.run(restore, check=True, capture_output=True, input=copied)
            for url, tenant in ((north, "a"), (home, "b")):
                drop = [program("psql"), "-X", "-v", f"tenants={tenant}", "-f", str(DROP), url]
                done = subprocess.run(drop, check=False, capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, done.stderr)

    async def _moved(self, patient: Any) -> None:
        """Both tenants go on where they were, each in its own databases; nothing is sent twice."""
        world = self.world
        self.assertEqual((await deferToThread(world.ask, "b", f"Patient/{patient['id']}"))[1], patient)
        for tenant in ("a", "b"):
            accepted = partial(world.send, tenant, "M2", "P1", "+2")
            self.assertEqual(await deferToThread(accepted), "AA")
            await world.until(lambda tenant=tenant: len(world.hooks[tenant].ids) == 2, "it is notified again")
            self.assertEqual(len(set(world.hooks[tenant].ids)), 1, "of the same patient")
        _, history = await deferToThread(world.ask, "b", f"Patient/{patient['id']}/_history")
        self.assertEqual(history["total"], 2)
        tenants = "SELECT DISTINCT tenant FROM message_bodies"
        named = "SELECT name FROM partitions WHERE name <> 'default'"
        for urls, tenant in (
            (world.home, "a"),
            ({"ipf": world.north.url("ipf"), "fhir": world.north.url("fhir")}, "b"),
        ):
            self.assertEqual(await self.count(urls["ipf"], tenants), [tenant])
            self.assertEqual(await self.count(urls["fhir"], named), [tenant])
        _, metrics = await deferToThread(world.service.get, "/actuator/prometheus")
        self.assertIn('ipf_placement_up{placement="north"} 1.0', metrics)
        await self._changed()

    async def _changed(self) -> None:
        """A file with a mistake changes nothing; a placement that is closed serves nothing."""
        world = self.world
        world.place("[")
        await world.reload()
        await world.until(lambda: "is no TOML" in world.service.log_path.read_text(), "the mistake is in the log")
        self.assertTrue(await deferToThread(world.is_in_state, "north", "open"))
        world.place(world.placement("north", '"b"', 'state = "closed"\n'))
        await world.reload()
        await world.until(lambda: "it is closed" in str(world.health("north")), "the placement is closed")
        self.assertEqual(await deferToThread(world.send, "b", "M3"), "AE")
        self.assertEqual((await deferToThread(world.ask, "b", "Patient"))[0], 503)
        self.assertEqual(await deferToThread(world.send, "a", "M3"), "AA")
