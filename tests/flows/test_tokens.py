"""With bearer tokens: the pipeline runs, clients get what their scopes allow, and the service survives an outage of
the provider."""

from __future__ import annotations

import asyncio
import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

from twisted.trial.unittest import TestCase

from tests.event_loop import LIMIT, run
from tests.faults.feed import admission
from tests.faults.scenario import scratch
from tests.flows import idp
from tests.flows.test_end_to_end import answer_to
from tests.service_process import ServiceProcess
from tests.traffic.sink import Sink
from tests.waiting import PATIENCE, until

GROUP = "flows"
ADMIN, READER = "only-operators-know", "only-readers-know"


class TokenFlowTests(TestCase):
    timeout = LIMIT  # two services, and an outage of the provider

    def test_from_message_to_notification_with_tokens(self) -> None:
        """MLLP in, FHIR behind tokens, notifications within the grants of the subscriber."""
        run(self._flow(idp.start()))

    async def _flow(self, provider: idp.RealProvider | idp.OwnProvider) -> None:
        folder = scratch()
        (folder / "admin.token").write_text(ADMIN + "\n")
        (folder / "admin.token").chmod(0o600)
        self.service = ServiceProcess(
            folder / "service",
            SUBSCRIPTION_SERVICE_AUTH_ENABLED="true",
            SUBSCRIPTION_SERVICE_AUTH_ISSUER=provider.issuer,
            SUBSCRIPTION_SERVICE_AUTH_AUDIENCE=idp.AUDIENCE,
            IPF_ADMIN_AUTH_TOKEN_FILE=str(folder / "admin.token"),
            IPF_ADMIN_READ_TOKEN=READER,
        )
        sinks = [Sink(), Sink()]
        try:
            self.service.start()
            await until(lambda: asyncio.to_thread(self.service.ready))
            await self._entry_points(provider)
            await self._strangers()
            await self._subscribers(provider, *sinks)
            await self._remote_store(provider, folder)
            await self._outage(provider)
            self.assertNotIn(ADMIN, self.service.log_path.read_text())
            self.assertNotIn("Bearer ey", self.service.log_path.read_text())
        finally:
            for sink in sinks:
                sink.close()
            provider.stop()
            self.service.stop()
            shutil.rmtree(folder, ignore_errors=True)

    async def ask(self, method: str, path: str, bearer: str = "", body: Any = None) -> tuple[int, Any]:
        """One request."""
        headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
        return await asyncio.to_thread(self.service.request, method, path, body, headers)

    async def status(self, method: str, path: str, bearer: str = "", body: Any = None) -> int:
        """The status of its answer."""
        return (await self.ask(method, path, bearer, body))[0]

    async def _entry_points(self, provider: idp.Provider) -> None:
        """Which credentials each entry point accepts."""
        reads = provider.token("good", "system/Patient.rs")
        other = provider.token("es", "system/Observation.read")
        for method, path, bearer, expected in (
            ("GET", "/fhir/metadata", "", 200),
            ("GET", "/fhir/.well-known/smart-configuration", "", 200),
            ("GET", "/fhir/Patient", "", 401),
            ("GET", "/fhir/Patient", "nonsense", 401),
            ("GET", "/fhir/Patient", reads[:-5] + "AAAAA", 401),
            ("GET", "/fhir/Patient", reads, 200),
            ("GET", "/fhir/Patient", other, 401),
            ("GET", "/fhir/Observation", other, 200),
            ("POST", "/fhir/Patient", reads, 401),
            ("GET", "/fhir/AuditEvent", reads, 401),
            ("GET", "/mapping/fhir/StructureMap", "", 401),
            ("GET", "/mapping/fhir/StructureMap", reads, 401),
            ("GET", "/mapping/fhir/metadata", "", 200),
            ("GET", "/admin/messages", "", 401),
            ("GET", "/admin/messages", reads, 401),
            ("GET", "/admin/messages", ADMIN, 200),
            ("GET", "/admin/messages", READER, 200),
            ("POST", "/admin/messages/1/retry", READER, 403),
            ("GET", "/admin/observe/openapi.json", "", 200),
            ("GET", "/fhir/Patient", ADMIN, 401),
            ("GET", "/actuator/health", "", 200),
        ):
            self.assertEqual(await self.status(method, path, bearer), expected, (method, path))
        _, smart = await self.ask("GET", "/fhir/.well-known/smart-configuration")
        self.assertEqual((smart["issuer"], smart["token_endpoint"]), (provider.issuer, f"{provider.issuer}/token"))
        _, health = await self.ask("GET", "/actuator/health")
        self.assertEqual(health["components"]["identity_provider"]["status"], "UP")

    async def _strangers(self) -> None:
        """A search for 9,000 patients without a token is one bounded record; it made 9,000, before the next message."""
        asked = "/fhir/Patient?_id=" + ",".join(map(str, range(9000)))
        self.assertEqual(await self.status("GET", asked), 401)
        acknowledged = await answer_to(self.service.mllp_port, admission("S1", "STRANGER", "+4710"))
        self.assertTrue(any(line.startswith(b"MSA|AA|S1") for line in acknowledged), acknowledged)
        query = "/admin/audit?agent=anonymous&interaction=search&limit=100"
        rows: list[Any] = []

        async def written() -> bool:
            rows[:] = (await self.ask("GET", query, ADMIN))[1]["items"]
            return any("_id=0%2C1%2C" in one["target"] for one in rows)

        await until(written)
        found = [one for one in rows if "_id=" in one["target"]]
        self.assertEqual([(len(one["target"]), one["patients"]) for one in found], [(2000, [])])
        self.assertEqual(found[0]["source"]["details"]["patients without a record"], "8900")

    async def _is_active(self, id: str, bearer: str) -> bool:
        return bool((await self.ask("GET", f"/fhir/Subscription/{id}", bearer))[1]["status"] == "active")

    async def _subscribers(self, provider: idp.Provider, whole: Sink, bare: Sink) -> None:
        """One whose scopes show patients, and one who may only subscribe; a message makes both notified."""
        for sink, scope in ((whole, "system/Subscription.crus system/Patient.r"), (bare, "system/Subscription.crus")):
            sink.keep_bodies = True
            bearer = provider.token("good", scope)
            channel = {"type": "rest-hook", "endpoint": await sink.start(), "payload": "application/fhir+json"}
            resource = {"resourceType": "Subscription", "status": "requested", "reason": "flow",
                        "criteria": "Patient?", "channel": channel}  # fmt: skip
            status, made = await self.ask("POST", "/fhir/Subscription", bearer, resource)
            self.assertEqual(status, 201, made)
            await until(partial(self._is_active, made["id"], bearer))
        acknowledged = await answer_to(self.service.mllp_port, admission("M1", "P1", "+4711"))
        self.assertEqual(acknowledged[1], b"MSA|AA|M1")
        self.assertTrue(await whole.until(1, PATIENCE) and await bare.until(1, PATIENCE))
        self.assertEqual(json.loads(whole.bodies[0])["resourceType"], "Patient")
        self.assertEqual(bare.bodies[0], b"")

    async def _remote_store(self, provider: idp.Provider, folder: Path) -> None:
        """A second service stores its conversions in the first one, with client credentials."""
        second = ServiceProcess(
            folder / "second",
            IPF_FHIR_URL=f"{self.service.base_url}/fhir",
            IPF_FHIR_TOKEN_URL=f"{provider.issuer}/token",
            IPF_FHIR_CLIENT_ID="good",
            IPF_FHIR_CLIENT_SECRET="s3cret",
            IPF_FHIR_SCOPE="system/*.cruds",
            IPF_WORKER_PROCESSES="0",
        )
        try:
            second.start()
            await asyncio.to_thread(second.wait_ready)
            acknowledged = await answer_to(second.mllp_port, admission("F1", "FAR", "+4713"))
            self.assertEqual(acknowledged[1], b"MSA|AA|F1")
            bearer = provider.token("good", "system/Patient.s")

            async def reached() -> bool:
                return bool((await self.ask("GET", "/fhir/Patient?identifier=FAR", bearer))[1]["total"] == 1)

            await until(reached)
            status, found = await asyncio.to_thread(second.get, "/fhir/Patient")
            self.assertEqual((status, found["total"]), (200, 0))
            self.assertNotIn(b"s3cret", second.log_path.read_bytes())
        finally:
            second.stop()

    async def _outage(self, provider: idp.RealProvider | idp.OwnProvider) -> None:
        """New tokens are verified with the known keys."""
        later = provider.token("good", "system/Patient.rs system/Observation.r")
        provider.stop()
        status, found = await self.ask("GET", "/fhir/Patient?identifier=P1", later)
        self.assertEqual((status, found["total"]), (200, 1))
        self.assertEqual(await self.status("GET", "/actuator/health/readiness"), 200)
