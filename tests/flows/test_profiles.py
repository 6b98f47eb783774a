"""A vendor profile in a running service: its port, its map, its tenant, its audit; and reloads under a running feed."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

from twisted.trial.unittest import TestCase

from tests.event_loop import LIMIT, run
from tests.faults.feed import Feed
from tests.faults.scenario import scratch
from tests.flows.test_end_to_end import answer_to
from tests.flows.test_mapping import Running
from tests.traffic.psql import psql
from tests.vendor_profiles.samples import MAP, message, small, tar
from tests.waiting import free_port, until

GROUP = "flows"
PROFILES = "/admin/api/profiles"


def framed(raw: bytes) -> bytes:
    """As it goes over the wire."""
    return b"\x0b" + raw + b"\x1c\r"


class ProfileFlowTests(TestCase):
    timeout = LIMIT  # profiles come and go under load

    def test_a_vendor_of_its_own(self) -> None:
        """From the profile's port to resources of its tenant; and no message is lost while profiles change."""
        run(self._flow())

    async def _flow(self) -> None:
        folder = scratch()
        self.port = free_port()
        self.archive = folder / "acme.tar.gz"
        self.install("1.0")
        try:
            async with Running(IPF_PROFILE_DIR=str(folder), IPF_WORKER_PROCESSES="1") as self.running:
                await self._own_way()
                await self._passed_through()
                await self._under_a_feed()
                await self._broken()
                await self._removed()
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def install(self, version: str, files: dict[str, str] | None = None) -> None:
        """Put an archive with this version into the folder."""
        made = small(version=version, port=self.port) | (files or {})
        manifest = made["manifest.yaml"].replace("facilityResolver: msh-4", "tenant: west")
        made["manifest.yaml"] = manifest.replace("quirks:", "quirks:\n  broken-lines: join")
        self.archive.write_bytes(tar(made))

    async def delivered(self, tenant: str, count: int) -> list[dict[str, Any]]:
        """The messages of a tenant, when so many have ended well."""
        path = f"/admin/messages?tenant={tenant}&limit=500"
        done = f"{path}&status=DELIVERED"
        await self.running.until(done, lambda body: body["total"] >= count)
        _, body = await self.running.http("GET", path)
        self.assertEqual({one["status"] for one in body["items"]}, {"DELIVERED"}, body)
        items: list[dict[str, Any]] = body["items"]
        return items

    def patients(self) -> list[tuple[str, dict[str, Any]]]:
        """Tenant and content of every Patient."""
        query = (
            "SELECT p.name || ' ' || v.body FROM resources r JOIN partitions p ON p.id = r.partition_id JOIN"
            " resource_versions v USING (rid, version_id) WHERE r.resource_type = 'Patient' ORDER BY r.rid"
        )
        data = Path(self.running.service.environment["IPF_DATA_DIR"])
        rows = [row.partition(" ") for row in psql(data / "postgres", query, "fhir").splitlines()]
        return [(tenant, json.loads(body)) for tenant, _, body in rows]

    async def _own_way(self) -> None:
        """Mapped by the profile's map with its quirks, in its tenant, also without a control id; recorded by the
        audit.  The name in the first message is broken in two lines."""
        for raw in (message("W1", "1").replace(b"A^B", b"A\rlane^B"), message("", "2"), message("", "2")):
            answer = await answer_to(self.port, framed(raw))
            self.assertTrue(answer[1].startswith(b"MSA|AA|"), answer)
        items = await self.delivered("west", 2)
        self.assertEqual(len(items), 2, "the same bytes are the same message")
        self.assertEqual([one["source_id"][:4] for one in items], ["sha-", "W1"])
        found = self.patients()
        self.assertEqual([tenant for tenant, _ in found], ["west", "west"])
        # Two patients are converted in parallel: either may be stored first.
        shown = sorted((one["identifier"][0]["value"], one["birthDate"], one["gender"]) for _, one in found)
        self.assertEqual(shown, [("1", "1970-03-15", "female"), ("2", "1970-03-15", "female")])
        records = await self.running.until("/admin/audit?tenant=west&surface=fhir", lambda body: body["total"] == 2)
        details = {"agent_system": "urn:test:acme", "source_system": "ACME", "details": {"facility": "WEST"}}
        self.assertEqual([one["source"] for one in records["items"]], [details, details])
        _, health = await self.running.http("GET", "/actuator/health")
        self.assertEqual(health["components"]["profiles"]["details"], {"loaded": ["acme 1.0"]})

    async def _passed_through(self) -> None:
        """The same type of another sender is still passed through."""
        answer = await answer_to(self.running.service.mllp_port, framed(message("M1", "9")))
        self.assertEqual(answer[1], b"MSA|AA|M1")
        (row,) = await self.delivered("default", 1)
        self.assertEqual((row["message_type"], row["last_error"]), ("ADT_A04", None))
        self.assertEqual(len(self.patients()), 2)

    async def _under_a_feed(self) -> None:
        """Three reloads while both ports are busy: everything is taken and delivered, later ones by the new map."""
        feed = Feed(self.running.service.mllp_port, senders=2)
        feed.start()
        sending, sent = True, 0

        async def west() -> None:
            nonlocal sent
            while sending:
                sent += 1
                answer = await answer_to(self.port, framed(message(f"F{sent}", f"F{sent}")))
                self.assertEqual(answer[1], f"MSA|AA|F{sent}".encode())

        vendor = asyncio.create_task(west())
        for version in ("2.0", "3.0", "4.0"):
            self.install(version, {"maps/a04.fml": MAP.replace("urn:test:acme'", f"urn:test:{version}'")})
            status, body = await self.running.http("POST", f"{PROFILES}/reload")
            self.assertEqual((status, body["loaded"][0]["profile"]["version"], body["skipped"]), (200, version, []))
        await feed.until(20)
        await until(lambda: sent > 3)
        sending = False
        await vendor
        await feed.stop()
        self.assertEqual(set(feed.codes), {"AA"})
        await self.delivered("default", 1 + len(feed.accepted))
        await self.delivered("west", 2 + sent)

        async def newest() -> str:
            nonlocal sent
            sent += 1
            await answer_to(self.port, framed(message(f"F{sent}", f"F{sent}")))
            await self.delivered("west", 2 + sent)
            system: str = self.patients()[-1][1]["identifier"][0]["system"]
            return system

        async def reached() -> bool:
            return bool(await newest() == "urn:test:4.0")

        await until(reached)
        self.sent = sent

    async def _broken(self) -> None:
        """It replaces nothing, and says so."""
        self.install("5.0", {"maps/a04.fml": "map"})
        _, body = await self.running.http("POST", f"{PROFILES}/reload")
        self.assertEqual(body["loaded"][0]["profile"]["version"], "4.0")
        self.assertEqual((body["skipped"][0]["file"], body["skipped"][0]["kept"]), ("acme.tar.gz", "4.0"))
        status, health = await self.running.http("GET", "/actuator/health")
        self.assertEqual((status, health["status"], health["components"]["profiles"]["status"]), (200, "UP", "DOWN"))
        self.assertIn("maps/a04.fml", json.dumps(health["components"]["profiles"]))
        await answer_to(self.port, framed(message("X1", "X1")))
        await self.delivered("west", 3 + self.sent)

    async def _removed(self) -> None:
        """Its port is closed."""
        self.archive.unlink()
        _, body = await self.running.http("POST", f"{PROFILES}/reload")
        self.assertEqual(body, {"loaded": [], "skipped": []})
        with self.assertRaises(OSError):
            await asyncio.open_connection("127.0.0.1", self.port)
