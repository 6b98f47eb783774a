"""Reads on a standby: its replay is paused, it hangs, dies, comes back, is promoted; no read fails or misleads."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from twisted.trial.unittest import TestCase

from tests.event_loop import LIMIT, run
from tests.faults.replica_client import (
    WRITER,
    Readers,
    Replicated,
    ask,
    outcomes,
    until,
)
from tests.flows import idp
from tests.replication import why_not
from tests.service_process import ServiceProcess
from tests.traffic.sink import Sink
from tests.traffic.subscribers import subscribe
from tests.waiting import PATIENCE, block_until

GROUP = "failover"

STALENESS_MS = "6000"
ROUNDS = 8
"""A machine that stalls for STALENESS_MS between two steps hides what a round wants to see: then it is repeated."""


def patient(id: str, family: str, **more: Any) -> dict[str, Any]:
    """A Patient."""
    return {"resourceType": "Patient", "id": id, "name": [{"family": family}], **more}


class _Sink(Sink):
    """A subscriber that keeps the positions that it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.positions: list[str] = []

    def take(self, head: bytes, body: bytes) -> None:
        """See Sink."""
        found = re.search(rb"^x-ipf-lsn: (.*?)\r?$", head, re.MULTILINE | re.IGNORECASE)
        self.positions.append("" if found is None else found[1].decode())
        super().take(head, body)


class ReadReplicaTests(TestCase):
    timeout = LIMIT
    if why_not():
        skip = why_not()

    def test_staleness_and_own_writes(self) -> None:
        """With replay paused: own writes are seen at once, those of others within the staleness."""
        run(self._staleness())

    async def _staleness(self) -> None:
        async with Replicated(IPF_FHIR_READ_MAX_STALENESS_MS=STALENESS_MS) as world:
            second = await world.add_service()
            await self._on_the_standby(world)
            for number in range(ROUNDS):
                if await asyncio.to_thread(self._paused, world, second, f"p{number}"):
                    break
                await asyncio.to_thread(world.resume_replay)
                await world.until_used(True)
            else:
                self.fail(f"the standby was never seen to be behind: {outcomes(world.service)}")
            await self._too_stale(world, f"p{number}")

    async def _on_the_standby(self, world: Replicated) -> None:
        """What is there on both sides is read from the standby, each interaction."""
        service = world.service
        for name in ("a", "b", "c"):
            self.assertEqual(ask(service, "PUT", f"Patient/{name}", patient(name, name), address=WRITER).status, 201)
        self.assertEqual(ask(service, "PUT", "Patient/a", patient("a", "a2"), address=WRITER).status, 200)
        await until(world.is_caught_up)
        form = {"Content_Type": "application/x-www-form-urlencoded"}
        reads: list[tuple[str, str, bytes | None]] = [
            ("GET", "Patient/a", None),
            ("HEAD", "Patient/a", None),
            ("GET", "Patient/a/_history/1", None),
            ("GET", "Patient/a/_history", None),
            ("GET", "Patient/_history", None),
            ("GET", "_history", None),
            ("GET", "Patient?family=b", None),
            ("GET", "?_type=Patient", None),
            ("POST", "Patient/_search", b"family=a2"),
            ("POST", "_search", b"_type=Patient"),
            ("GET", "Patient/a/Observation", None),
            ("GET", "Patient/a/$everything", None),
        ]
        for method, path, body in reads:
            before = outcomes(service)
            reply = ask(service, method, path, body, **(form if body else {}))
            self.assertEqual(reply.status, 200, path)
            self.assertEqual(outcomes(service) - before, {"replica": 1}, path)
        page = ask(service, "GET", "Patient?_count=1&_sort=_id").body
        found = [page["entry"][0]["resource"]["id"]]
        while following := [one["url"] for one in page["link"] if one["relation"] == "next"]:
            before = outcomes(service)
            page = ask(service, "GET", following[0].partition("/fhir/")[2]).body
            found.append(page["entry"][0]["resource"]["id"])
            self.assertEqual(outcomes(service) - before, {"replica": 1})
        self.assertEqual(found, ["a", "b", "c"])

    def _paused(self, world: Replicated, second: ServiceProcess, id: str) -> bool:
        """Whether a read of the standby was seen to be behind.  What must hold at any speed is checked each time."""
        service = world.service
        self.assertEqual(ask(service, "PUT", f"Patient/{id}", patient(id, "old"), address=WRITER).status, 201)
        block_until(lambda: ask(second, "GET", f"Patient/{id}").status == 200 and world.is_caught_up(), "the standby")
        first_page = ask(second, "GET", "Patient?_count=2&_sort=_id", Cache_Control="no-cache")
        world.pause_replay()
        written = ask(service, "PUT", f"Patient/{id}", patient(id, "new"), address=WRITER)
        made = ask(service, "PUT", f"Patient/{id}x", patient(f"{id}x", "made"), address=WRITER)
        position = made.headers["x-ipf-lsn"]
        self.assertEqual(written.status, 200)
        before = outcomes(second)
        seen = ask(second, "GET", f"Patient/{id}").version
        found = ask(second, "GET", "Patient?family=made").body["total"]
        was_behind = (seen, found) == ("1", 0) and outcomes(second) - before == {"replica": 2}
        with self.subTest("own writes"):
            self.assertEqual(ask(service, "GET", f"Patient/{id}", address=WRITER).version, "2")
            self.assertEqual(
                ask(service, "GET", "Patient?family=new", address=WRITER).body["entry"][0]["resource"]["id"], id
            )
        told: dict[str, dict[str, str]] = {
            "position": {"X_IPF_LSN": position},
            "no-cache": {"Cache_Control": "no-cache"},
        }
        for name, headers in told.items():
            self.assertEqual(ask(second, "GET", f"Patient/{id}", **headers).version, "2", name)
            self.assertGreater(ask(second, "GET", "Patient?family=made", **headers).body["total"], 0, name)
        self.assertEqual(ask(second, "GET", f"Patient/{id}x").version, "1", "made: not on the standby")
        self.assertEqual(ask(second, "GET", f"Patient/{id}/_history/2").version, "2")
        self.assertEqual(ask(second, "GET", f"Patient/{id}", If_None_Match='W/"2"').status, 304)
        self.assertEqual(ask(second, "GET", f"Patient/{id}", X_IPF_LSN="gibberish").status, 400)
        following = next(one["url"] for one in first_page.body["link"] if one["relation"] == "next")
        before = outcomes(second)
        ask(second, "GET", following.partition("/fhir/")[2])
        self.assertEqual(outcomes(second) - before, {"page": 1})
        self.assertEqual(ask(service, "DELETE", f"Patient/{id}x", address=WRITER).status, 204)
        self.assertEqual(ask(service, "GET", f"Patient/{id}x", address=WRITER).status, 410)
        bundle = {
            "resourceType": "Bundle",
            "type": "batch",
            "entry": [{"request": {"method": "GET", "url": f"Patient/{id}"}}],
        }
        entry = ask(second, "POST", "", bundle).body["entry"][0]
        self.assertEqual(entry["resource"]["meta"]["versionId"], "2", "a Bundle is for the primary")
        return was_behind

    async def _too_stale(self, world: Replicated, id: str) -> None:
        """Behind for longer, the standby is not asked; replay goes on, and it is."""
        await until(lambda: ask(world.service, "GET", f"Patient/{id}").version == "2")
        await world.until_used(False)
        before = outcomes(world.service)
        self.assertEqual(ask(world.service, "GET", "Patient?family=new").body["entry"][0]["resource"]["id"], id)
        self.assertEqual(outcomes(world.service) - before, {"stale": 1})
        _, health = await asyncio.to_thread(world.service.get, "/actuator/health")
        self.assertEqual((health["status"], health["components"]["fhir_replica"]["status"]), ("UP", "DOWN"))
        self.assertEqual((await asyncio.to_thread(world.service.get, "/actuator/health/readiness"))[0], 200)
        await asyncio.to_thread(world.resume_replay)
        await world.until_used(True)
        log = world.service.log_path.read_text()
        self.assertIn("event=replica_not_used reason=stale", log)
        self.assertIn("event=replica_used", log)

    def test_a_subscriber_that_reads_at_once(self) -> None:
        """With replay paused: what a notification tells of is there for a read that sends its position back."""
        run(self._subscriber())

    async def _subscriber(self) -> None:
        async with Replicated(IPF_FHIR_READ_MAX_STALENESS_MS="600000") as world:
            service, sink = world.service, _Sink()
            await asyncio.to_thread(ask, service, "PUT", "Patient/a", patient("a", "a"), address=WRITER)
            await subscribe(service, await sink.start(), "Patient?")
            await until(world.is_caught_up)
            await until(lambda: ask(service, "GET", "Patient/a").status == 200)
            await asyncio.to_thread(world.pause_replay)
            await asyncio.to_thread(ask, service, "PUT", "Patient/a", patient("a", "b"), address=WRITER)
            self.assertTrue(await sink.until(1, PATIENCE))
            position = sink.positions[0]
            without = await asyncio.to_thread(ask, service, "GET", "Patient/a")
            self.assertEqual(without.version, "1")
            told = await asyncio.to_thread(ask, service, "GET", "Patient/a", X_IPF_LSN=position)
            self.assertEqual(told.version, "2")
            found = await asyncio.to_thread(ask, service, "GET", "Patient?family=b", X_IPF_LSN=position)
            self.assertEqual(found.body["total"], 1)
            by_number = await asyncio.to_thread(ask, service, "GET", "Patient/a/_history/2")
            self.assertEqual(by_number.version, "2")
            sink.close()

    def test_a_standby_that_fails(self) -> None:
        """It hangs, dies, comes back, and is promoted, under reads: each is answered."""
        run(self._failing())

    async def _failing(self) -> None:
        async with Replicated() as world:
            pair, service = world.pair, world.service
            ask(service, "PUT", "Patient/a", patient("a", "a"), address=WRITER)
            readers = Readers(service, "Patient/a", "Patient?family=a", "Patient/a/$everything")
            readers.start()
            try:
                for fail, mend in (
                    (pair.standby.hang, pair.standby.resume),
                    (lambda: pair.standby.stop("kill"), lambda: pair.standby.start(pair.primary)),
                    (lambda: pair.standby.stop("fast"), lambda: pair.standby.start(pair.primary)),
                ):
                    await self._read_some(readers)
                    await asyncio.to_thread(fail)
                    await world.until_used(False)
                    await self._read_some(readers)
                    await asyncio.to_thread(mend)
                    await world.until_used(True)
                await asyncio.to_thread(pair.switch)
                await world.until_used(False)
                await self._read_some(readers)
                ask(service, "PUT", "Patient/a", patient("a", "b"), address=WRITER)
                self.assertEqual(ask(service, "GET", "Patient/a").version, "2", "the promoted server is another world")
            finally:
                await asyncio.to_thread(readers.stop)
            self.assertEqual(set(readers.statuses), {200}, service.log_tail())
            await self._failed_over(world)
            found = outcomes(service)
            self.assertTrue(found["replica"] and found["unreachable"], found)
            print(f"\nreads {readers.statuses}, longest {readers.longest:.2f} s, {dict(found)}")

    async def _failed_over(self, world: Replicated) -> None:
        """The former primary is the standby now, on the new timeline."""
        service = world.service
        await asyncio.to_thread(world.pair.demote)
        await world.until_used(True)
        self.assertEqual(ask(service, "PUT", "Patient/n", patient("n", "n"), address=WRITER).status, 201)
        self.assertEqual(ask(service, "GET", "Patient/n", address=WRITER).status, 200)
        before = outcomes(service)
        await until(lambda: ask(service, "GET", "Patient?family=n").body["total"] == 1)
        self.assertGreater((outcomes(service) - before)["replica"], 0)

    async def _read_some(self, readers: Readers) -> None:
        wanted = readers.statuses.total() + 20
        await until(lambda: readers.statuses.total() >= wanted)

    def test_access_is_decided_by_what_is_stored_now(self) -> None:
        """With replay paused, a Consent that denies and a label hold for the next request of whom they limit.

        Tenants are separated on the standby as on the primary.
        """
        run(self._access(idp.OwnProvider()))

    async def _access(self, provider: idp.OwnProvider) -> None:
        chosen = {
            "SUBSCRIPTION_SERVICE_AUTH_ENABLED": "true",
            "SUBSCRIPTION_SERVICE_AUTH_ISSUER": provider.issuer,
            "IPF_ACCESS_CONSENT": "true",
            "IPF_ACCESS_LABELS": "R",
            "IPF_ACCESS_TRUSTED_CLIENTS": "feed-tenant-north backup-tenant-north backup-tenant-south",
            "SUBSCRIPTION_SERVICE_MULTITENANCY": "enabled",
            "IPF_FHIR_READ_MAX_STALENESS_MS": "600000",
        }
        try:
            async with Replicated(**chosen) as world:
                await asyncio.to_thread(self._limited, provider, world)
        finally:
            provider.stop()

    def _limited(self, provider: idp.OwnProvider, world: Replicated) -> None:
        def by(client: str, scope: str, tenant: str = "north") -> dict[str, str]:
            return {"Authorization": f"Bearer {provider.signed(f'{client}-tenant-{tenant}', scope)}"}

        service = world.service
        feed, backup, reader = by("feed", "system/*.cruds"), by("backup", "system/*.rs"), by("app", "system/*.rs")
        narrow = by("phone", "system/Patient.rs?family=one")
        for name in ("p1", "p2"):
            self.assertEqual(ask(service, "PUT", f"Patient/{name}", patient(name, "one"), **feed).status, 201)
        block_until(world.is_caught_up, "the standby")
        block_until(lambda: ask(service, "GET", "Patient/p1", **backup).status == 200, "the standby is read")
        world.pause_replay()
        consent: dict[str, Any] = {
            "resourceType": "Consent", "id": "denial", "status": "active",
            "scope": {"coding": [{"code": "patient-privacy"}]}, "category": [{"text": "privacy"}],
            "patient": {"reference": "Patient/p1"}, "policyRule": {"text": "local"}, "provision": {"type": "deny"},
        }  # fmt: skip
        self.assertEqual(ask(service, "GET", "Patient/p1", **reader).status, 200)
        self.assertEqual(ask(service, "PUT", "Consent/denial", consent, **feed).status, 201)
        self.assertEqual(ask(service, "GET", "Patient/p1", **reader).status, 404)
        self.assertEqual(ask(service, "GET", "Patient?_id=p1", **reader).body["total"], 0)
        self.assertEqual(ask(service, "GET", "Patient/p2", **reader).status, 200)
        label = {
            "meta": {"security": [{"system": "http://terminology.hl7.org/CodeSystem/v3-Confidentiality", "code": "R"}]}
        }
        ask(service, "PUT", "Patient/p2", patient("p2", "two", **label), **feed)
        self.assertEqual(ask(service, "GET", "Patient/p2", **reader).status, 404)
        self.assertEqual(ask(service, "GET", "Patient/p2/_history/1", **reader).status, 404)
        self.assertEqual(ask(service, "GET", "Patient?family=one", **reader).body["total"], 0)
        self.assertEqual(ask(service, "GET", "Patient/p2", **narrow).status, 404)
        self.assertEqual(ask(service, "GET", "Patient/p2", **feed).version, "2", "the writer sees its own")
        before = outcomes(service)
        self.assertEqual(ask(service, "GET", "Patient/p2", **backup).version, "1", "a client without limits")
        self.assertEqual(outcomes(service) - before, {"replica": 1})
        other, before = by("backup", "system/*.rs", "south"), outcomes(service)
        self.assertEqual(ask(service, "GET", "Patient?_id=p2", **other).body["total"], 0, "another tenant")
        self.assertEqual(outcomes(service) - before, {"replica": 1})
        self.assertEqual(ask(service, "GET", "Patient/p2", **other).status, 404)
