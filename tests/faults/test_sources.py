"""Every kind of source at once, through kills and outages: at the end the counts of all of them agree.

Each fault in turn: kill -9 of the engine, its PostgreSQL stopped for a while, its PostgreSQL killed, kill -9 of the
polled FHIR server, kill -9 of the broker, a restart of the engine; the vendor's API and the receiver of forwarded
messages fail all the time.  Between two faults, every source hands in something.  `IPF_SOURCES_ROUNDS` (default 1) says
how often each fault happens.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Awaitable, Callable
from http.client import HTTPException
from pathlib import Path
from typing import Any

from twisted.logger import Logger
from twisted.trial.unittest import TestCase

from ipf.ports.messages.sources import FHIR_REST, MLLP, NATIVE_API, OTHER, PROTOCOLS
from tests.brokers.nats_server import NatsServer
from tests.event_loop import LIMIT, run
from tests.faults.scenario import PATIENT, scratch
from tests.faults.sources_world import CREDENTIALS, EhrFeed, Feed, FileFeed, HttpFeed, PracticeFeed, Stored, profiles
from tests.faults.test_database_outage import pg_ctl
from tests.flows.athena import Practice
from tests.flows.far_ends import Receiver
from tests.service_process import ServiceProcess
from tests.traffic.psql import psql
from tests.waiting import PATIENCE, free_port, until

GROUP = "brokers"

log = Logger()

ROUNDS = int(os.environ.get("IPF_SOURCES_ROUNDS", "1"))
SECONDS = LIMIT * (1 + ROUNDS)
FEEDS = ("practice/api/test-changed-patients", "ehr/all/patients", "ehr/all/results")
FORWARD = """
[[destination]]
name = "copy"
endpoint = "tcp:127.0.0.1:{0}"
where = "PV1.PV1_2 = 'I'"

[[destination]]
name = "outpatients"
endpoint = "tcp:127.0.0.1:{0}"
where = "PV1.PV1_2 = 'O'"
"""


class World:
    """The engine with its sources and receivers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ehr = ServiceProcess(folder / "ehr", IPF_WORKER_PROCESSES="0")
        self.practice = Practice(5)
        self.nats = NatsServer(folder / "nats")
        port, http_port, lab = free_port(), free_port(), folder / "lab"
        lab.mkdir()
        self.receiver = Receiver(port, 5)
        (folder / "forward.toml").write_text(FORWARD.format(port))
        profiles(folder / "profiles", f"{self.ehr.base_url}/fhir", self.practice.port)
        self.engine = ServiceProcess(
            folder / "engine", **PATIENT, **CREDENTIALS, IPF_WORKER_PROCESSES="1",
            IPF_HL7_HTTP_LISTEN=f"web=tcp:{http_port}", IPF_FILE_SOURCES=f"lab={lab}", IPF_FILE_POLL_SECONDS="0.2",
            IPF_FORWARD_FILE=str(folder / "forward.toml"), IPF_PROFILE_DIR=str(folder / "profiles"),
            IPF_BROKERS=f"nats://127.0.0.1:{self.nats.port}/fhir.*",
        )  # fmt: skip
        self.stored = Stored(self.sql)
        self.mllp = Feed(self.engine.mllp_port, senders=2, behind=lambda: self.stored.open)
        self.web = HttpFeed(http_port, self.stored)
        self.files = FileFeed(lab, self.stored)
        self.changes = EhrFeed(self.ehr, self.stored)
        self.visits = PracticeFeed(self.practice, self.stored)
        self.tasks: list[asyncio.Task[None]] = []
        self.looking: asyncio.Future[Any] = asyncio.Future()

    async def start(self) -> None:
        """Start everything, and subscribe to patients."""
        for service in (self.ehr, self.engine):
            service.start()
            await self.ready(service)
        await self.nats.start()
        await self.nats.add_stream("FHIR", "fhir.>")
        made = {
            "resourceType": "Subscription", "status": "requested", "reason": "test", "criteria": "Patient?",
            "channel": {"type": "message", "endpoint": f"nats://127.0.0.1:{self.nats.port}/fhir.patients"},
        }  # fmt: skip
        status, answer = await asyncio.to_thread(self.engine.request, "POST", "/fhir/Subscription", made)
        assert status == 201, answer
        self.mllp.start()
        self.looking = asyncio.create_task(until(self.stored.look, seconds=float("inf")))
        self.tasks = [asyncio.create_task(one.run()) for one in (self.web, self.files, self.changes, self.visits)]

    async def ready(self, service: ServiceProcess) -> None:
        """Wait until a service accepts messages."""
        await until(lambda: asyncio.to_thread(service.ready), "it is ready")

    def counts(self) -> tuple[int, ...]:
        """What each source has handed in, and the engine has taken."""
        rows = self.stored.rows
        polled = rows[FHIR_REST], rows[NATIVE_API]
        return len(self.mllp.accepted), len(self.web.accepted), self.files.done(), *polled

    async def progress(self) -> None:
        """Wait until every source has handed in something more."""
        before = self.counts()

        async def is_made() -> bool:
            if all(now > was for now, was in zip(self.counts(), before, strict=True)):
                return True
            await asyncio.to_thread(self.poll)
            return False

        try:
            await until(is_made)
        except AssertionError as late:
            raise AssertionError(f"no progress: {before}, then {self.counts()}; {self.stored}") from late

    def poll(self) -> None:
        """Poll now: after failures the next poll may be minutes away."""
        for name in FEEDS:
            with contextlib.suppress(OSError, HTTPException):  # the engine may be away
                self.engine.request("POST", "/admin/sources/poll", {"name": name})

    async def quiet(self) -> None:
        """The feeds end, and so do the faults of the others."""
        for one in (self.web, self.files, self.changes, self.visits):
            one.stopping = True
        self.practice.calm = self.receiver.calm = True
        await self.mllp.stop()
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*self.tasks)
        self.looking.cancel()

    def stop(self) -> None:
        """End everything."""
        for task in self.tasks:
            task.cancel()
        self.looking.cancel()
        self.mllp.abandon()
        self.receiver.stop()
        self.practice.stop()
        for process in (self.engine, self.ehr):
            process.stop()
        self.nats.kill()

    def sql(self, query: str, database: str = "ipf") -> list[list[str]]:
        """Rows of a query, as text."""
        return [row.split("|") for row in psql(self.postgres, query, database).splitlines()]

    @property
    def postgres(self) -> Path:
        """The cluster of the engine."""
        return Path(self.engine.environment["IPF_DATA_DIR"]) / "postgres"

    async def kill_the_engine(self) -> None:
        """kill -9, and start."""
        self.engine.kill()
        self.engine.start()
        await self.ready(self.engine)

    async def restart_the_engine(self) -> None:
        """SIGTERM, and start."""
        await asyncio.to_thread(self.engine.stop)
        self.engine.start()
        await self.ready(self.engine)

    async def stop_postgresql(self) -> None:
        """Until senders are refused."""
        await asyncio.to_thread(pg_ctl, self.postgres, "stop", "-m", "fast", "-w")
        await self.mllp.refused()
        await asyncio.to_thread(pg_ctl, self.postgres, "start", "-w", "-l", str(self.postgres / "restart.log"))

    async def kill_postgresql(self) -> None:
        """kill -9; the service starts its own again."""
        killed = self._postmaster()
        os.kill(killed, signal.SIGKILL)
        await until(lambda: self._postmaster() != killed, "PostgreSQL is started again")
        await self.ready(self.engine)

    def _postmaster(self) -> int:
        """Its process id; 0 while there is none."""
        with contextlib.suppress(OSError, IndexError):
            return int((self.postgres / "postmaster.pid").read_text().split()[0])
        return 0

    async def kill_the_ehr(self) -> None:
        """kill -9 of the polled FHIR server."""
        self.ehr.kill()
        self.ehr.start()
        await self.ready(self.ehr)

    async def kill_the_broker(self) -> None:
        """kill -9, away until an event could not be delivered."""
        self.nats.kill()
        failed = "SELECT count(*) FROM subscription_states WHERE attempt_count > 0"

        def is_noticed() -> bool:
            return self.sql(failed, "fhir") != [["0"]]

        await until(lambda: asyncio.to_thread(is_noticed), "an event is not delivered")
        await self.nats.start()


class SourcesTests(TestCase):
    timeout = SECONDS

    def test_every_source_at_once(self) -> None:
        run(self._all(), seconds=SECONDS)

    async def _all(self) -> None:
        self.world = world = World(scratch())
        try:
            await world.start()
            await self._fail()
            await world.quiet()
            await self._settled()
            await self._compare()
        finally:
            await asyncio.to_thread(world.stop)
            shutil.rmtree(world.folder, ignore_errors=True)

    async def _fail(self) -> None:
        world = self.world
        faults: tuple[Callable[[], Awaitable[None]], ...] = (
            world.kill_the_engine, world.kill_the_ehr, world.stop_postgresql, world.kill_the_broker,
            world.kill_postgresql, world.restart_the_engine,
        )  # fmt: skip
        for fault in faults * ROUNDS:
            await world.progress()
            await fault()
        await world.progress()
        log.info("{count} faults", count=len(faults) * ROUNDS)

    async def _settled(self) -> None:
        """Wait until everything that was handed in is at its end; what was postponed is due now."""
        for name in ("copy", "outpatients"):
            await asyncio.to_thread(self.world.engine.request, "POST", f"/admin/destinations/{name}/resume")
        try:
            await until(lambda: asyncio.to_thread(self._is_settled), seconds=3 * PATIENCE)
        except AssertionError as late:
            raise AssertionError(f"open: {self._open()}") from late

    def _is_settled(self) -> bool:
        if not self._open():
            return True
        self.world.poll()
        return False

    def _open(self) -> dict[str, int]:
        world = self.world
        rows = set(self._keys())
        statuses = dict(world.sql("SELECT status, count(*) FROM ingested_messages GROUP BY 1"))
        behind = world.sql(
            "SELECT count(*) FROM subscription_states WHERE delivered_number < last_event_number", "fhir"
        )
        waiting = world.sql("SELECT count(*) FROM forwards WHERE status = 'PENDING'")
        left = {
            "files": world.files.files - world.files.done(),
            "versions": len(world.changes.last_versions().keys() - rows),
            "changes": len(world.visits.made - set(self._visits())),
            "messages": sum(int(count) for status, count in statuses.items() if status != "DELIVERED"),
            "subscriptions": int(behind[0][0]),
            "forwards": int(waiting[0][0]),
            "forwarded": len(self._v2()) - len(world.receiver.taken),
        }
        return {name: count for name, count in left.items() if count}

    def _keys(self, *protocols: str) -> list[str]:
        """Keys of the rows of these protocols (all when there are none), in the order of receipt."""
        named = ", ".join(f"'{one}'" for one in protocols or PROTOCOLS)
        query = f"SELECT source_id FROM message_bodies WHERE source_protocol IN ({named}) ORDER BY id"
        return [row[0] for row in self.world.sql(query)]

    def _v2(self) -> list[str]:
        return self._keys(MLLP, OTHER)

    def _visits(self) -> list[str]:
        """Number and version of each record of the practice, such as `3/7`."""
        record = "convert_from(raw_message, 'UTF8')::json"
        query = f"""SELECT ({record} ->> 'patientid') || '/' || split_part({record} ->> 'email', '@', 1)
            FROM message_bodies WHERE source_protocol = '{NATIVE_API}'"""
        return [row[0] for row in self.world.sql(query)]

    async def _compare(self) -> None:
        """What was handed in is there once, and went on once and in order."""
        world = self.world
        keys = self._keys(MLLP)
        self.assertEqual(sorted(keys), sorted(world.mllp.accepted))
        others = self._keys(OTHER)
        self.assertEqual(sorted(others), sorted(world.web.accepted + world.files.written))
        self.assertFalse((world.files.folder / "failed").exists())
        polled = self._keys(FHIR_REST)
        self.assertEqual(len(polled), len(set(polled)))
        self.assertEqual(set(world.changes.last_versions()) - set(polled), set())
        self.assertEqual(sorted(self._visits()), sorted(world.visits.made))
        self.assertEqual(world.receiver.taken, self._v2())
        self.assertEqual(self._ledger(), {"copy": len(world.receiver.taken)})
        events = await self._compare_stream()
        self._compare_resources()
        log.info("{counts}", counts={
            "MLLP": len(keys), "HTTP": len(world.web.accepted), "files": len(world.files.written),
            "FHIR server": len(polled), "vendor REST": len(world.visits.made), "forwarded": len(world.receiver.taken),
            "events in the stream": events, "answers over MLLP": dict(world.mllp.codes), "faults of the vendor":
            world.practice.faults,
        })  # fmt: skip

    def _ledger(self) -> dict[str, int]:
        rows = self.world.sql("SELECT destination, status, count(*) FROM forwards GROUP BY 1, 2")
        self.assertEqual({status for _, status, _ in rows}, {"SENT"})
        return {name: int(count) for name, _, count in rows}

    async def _compare_stream(self) -> int:
        """Each event of the subscription is in the stream, in order; how many there are."""
        ((last,),) = self.world.sql("SELECT last_event_number FROM subscription_states", "fhir")
        found = [int(one.headers["X-Ipf-Event-Number"]) for one in await self.world.nats.stored("FHIR")
                 if one.subject == "fhir.patients" and "X-Ipf-Event-Number" in one.headers]  # fmt: skip
        self.assertEqual(found, list(range(1, int(last) + 1)))
        return len(found)

    def _compare_resources(self) -> None:
        """Each patient of each source once, with the values of the last message."""
        _, bundle = self.world.engine.get("/fhir/Patient?_count=1000")
        people = [one["resource"] for one in bundle["entry"]]
        numbers = [(one["identifier"][0].get("system"), one["identifier"][0]["value"]) for one in people]
        self.assertEqual(len(numbers), len(set(numbers)))
        phones = {one["identifier"][0]["value"]: one["telecom"][0]["value"] for one in people if "telecom" in one}
        there = {key: held for key, held in self.world.changes.last_versions().items() if key.startswith("Patient/")}
        for held in there.values():
            self.assertEqual(phones[held["identifier"][0]["value"]], held["telecom"][0]["value"])
        for number, version in self.world.practice.versions.items():
            self.assertEqual(phones[str(number)], f"{version}@test")
