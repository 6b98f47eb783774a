"""All switches of security on, from MLLP over mutual TLS to signed web hooks, for two hospitals on one server."""

from __future__ import annotations

import asyncio
import hmac
import json
import re
import shutil
import ssl
from functools import partial
from hashlib import sha256
from typing import Any

from twisted.trial.unittest import TestCase

from tests.event_loop import LIMIT, run
from tests.faults.feed import admission
from tests.faults.scenario import scratch
from tests.flows import idp
from tests.service_process import ServiceProcess
from tests.traffic.sink import Sink
from tests.waiting import PATIENCE, free_port, until
from tests.wire.certificates import Authority

GROUP = "flows"
ADMIN, SIGNING, HOOK_SECRET = "only-operators-know", "signing-secret-of-a-test", "Bearer hook-s3cret"
SCOPE = "system/*.cruds"


class Hook(Sink):
    """A subscriber that keeps headers as well."""

    def __init__(self) -> None:
        super().__init__()
        self.keep_bodies = True
        self.heads: list[bytes] = []

    def take(self, head: bytes, body: bytes) -> None:
        self.heads.append(head)
        super().take(head, body)


class TwoTenantsTests(TestCase):
    timeout = LIMIT  # two tenants, one after the other

    def test_two_hospitals(self) -> None:
        """Each sends, reads and is notified of its own, and nothing else."""
        run(self._flow(idp.start()))

    async def _flow(self, provider: idp.RealProvider | idp.OwnProvider) -> None:
        folder = scratch()
        self.authority, self.stranger = Authority(folder), Authority(folder, "other")
        key, certificate = self.authority.sign("localhost")
        self.secure_port = free_port()
        place = f"mtls:{self.secure_port}:interface=127.0.0.1:privateKey={key}:certKey={certificate}"
        self.service = ServiceProcess(
            folder / "service",
            IPF_MLLP_LISTEN=f"lab={place}:clientCa={self.authority.path}",
            IPF_MLLP_CLIENT_NAMES="a.example.org=a *.b.example.org=b",
            IPF_MLLP_ALLOW="127.0.0.0/8",
            IPF_MLLP_MAX_RATE_PER_PEER="1000",
            IPF_MLLP_MAX_CONNECTIONS_PER_PEER="20",
            SUBSCRIPTION_SERVICE_AUTH_ENABLED="true",
            SUBSCRIPTION_SERVICE_AUTH_ISSUER=provider.issuer,
            SUBSCRIPTION_SERVICE_MULTITENANCY="enabled",
            SUBSCRIPTION_SERVICE_ENDPOINT_ALLOW="127.0.0.0/8",
            SUBSCRIPTION_SERVICE_SIGNING_SECRET=SIGNING,
            SUBSCRIPTION_SERVICE_VALIDATION_MODE="warn",
            IPF_SECRET_KEY="key-of-a-test-at-rest",
            IPF_ADMIN_AUTH_TOKEN=ADMIN,
        )
        hooks = {"a": Hook(), "b": Hook()}
        try:
            self.service.start()
            await until(lambda: asyncio.to_thread(self.service.ready))
            self.tokens = {one: provider.token(f"tenant-{one}", SCOPE) for one in hooks}
            for tenant, hook in hooks.items():
                await self._subscribe(tenant, hook)
            await self._messages()
            await self._notifications(hooks)
            await self._bare_ids()
            await self._apart(provider)
            await self._audited()
            self._nothing_in_the_log()
        finally:
            for hook in hooks.values():
                hook.close()
            provider.stop()
            self.service.stop()
            shutil.rmtree(folder, ignore_errors=True)

    async def ask(self, tenant: str, path: str, method: str = "GET", body: Any = None) -> tuple[int, Any]:
        """One FHIR request of a tenant's client."""
        headers = {"Authorization": f"Bearer {self.tokens[tenant]}"}
        return await asyncio.to_thread(self.service.request, method, f"/fhir/{path}", body, headers)

    async def _subscribe(self, tenant: str, hook: Hook) -> None:
        channel = {"type": "rest-hook", "endpoint": await hook.start(), "payload": "application/fhir+json",
                   "header": [f"Authorization: {HOOK_SECRET}"]}  # fmt: skip
        resource = {"resourceType": "Subscription", "status": "requested", "reason": "flow",
                    "criteria": "Patient?", "channel": channel}  # fmt: skip
        status, made = await self.ask(tenant, "Subscription", "POST", resource)
        self.assertEqual((status, made["channel"]["header"]), (201, [f"Authorization: {HOOK_SECRET}"]))
        self.subscriptions = {**getattr(self, "subscriptions", {}), tenant: made["id"]}

        async def active() -> Any:
            _, found = await self.ask(tenant, f"Subscription/{made['id']}")
            return found["status"] == "active" and found

        found = await until(active)
        self.assertEqual(found["channel"]["header"], ["Authorization: ***"])

    async def _bare_ids(self) -> None:
        """The operator API finds a Subscription in whatever partition it is; `?tenant=` narrows."""
        admin = {"Authorization": f"Bearer {ADMIN}"}
        for tenant, id in self.subscriptions.items():
            other = "b" if tenant == "a" else "a"
            for method, rest, body, kind in (
                ("GET", "resource", None, "resourceType"), ("GET", "history", None, "items"),
                ("GET", "health", None, "tenant"), ("PATCH", "status", {"status": "off"}, "status"),
                ("PATCH", "status", {"status": "requested"}, "status"),
            ):  # fmt: skip
                place = f"/admin/subscriptions/{id}/{rest}"
                for query, expected in (("", 200), (f"?tenant={tenant}", 200), (f"?tenant={other}", 404)):
                    asked = method, f"{place}{query}", body, admin
                    status, found = await asyncio.to_thread(self.service.request, *asked)
                    self.assertEqual(status, expected, (asked, found))
                    self.assertTrue(status == 404 or kind in found)

    async def _messages(self) -> None:
        """The same message of both hospitals, and senders that are not let in."""
        for name, authority, code in (
            ("a.example.org", self.authority, b"MSA|AA|M1"),
            ("ward.b.example.org", self.authority, b"MSA|AA|M1"),
            ("a.example.org", self.stranger, None),
            ("c.example.org", self.authority, None),
        ):
            answer = await self._send(authority.sign(name), admission("M1", "P1", "+4711"))
            self.assertEqual(answer[1] if answer else None, code, name)

    async def _send(self, files: tuple[str, str], frame: bytes) -> list[bytes]:
        """The segments of the acknowledgement; none when the sender is cut off."""
        context = ssl.create_default_context(cafile=str(self.authority.path))
        context.load_cert_chain(files[1], files[0])
        try:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", self.secure_port, ssl=context, server_hostname="localhost"
            )
            writer.write(frame)
            answer = await asyncio.wait_for(reader.readuntil(b"\x1c\r"), PATIENCE)
            writer.close()
        except (OSError, asyncio.IncompleteReadError):
            return []
        return answer.strip(b"\x0b\x1c\r").split(b"\r")

    async def _notifications(self, hooks: dict[str, Hook]) -> None:
        for tenant, hook in hooks.items():
            self.assertTrue(await hook.until(1, PATIENCE), tenant)
            head, body = hook.heads[0], hook.bodies[0]
            self.assertIn(f"Authorization: {HOOK_SECRET}".encode(), head)
            found = re.search(rb"X-Ipf-Signature: t=(\d+),v1=([0-9a-f]+)", head)
            assert found is not None, head
            expected = hmac.new(SIGNING.encode(), found[1] + b"." + body, sha256).hexdigest()
            self.assertEqual(found[2].decode(), expected)
            _, patient = await self.ask(tenant, f"Patient/{json.loads(body)['id']}")
            self.assertEqual(patient["id"], json.loads(body)["id"], "each is notified of its own patient")
        self.assertNotEqual(*(json.loads(hook.bodies[0])["id"] for hook in hooks.values()))

    async def _apart(self, provider: idp.Provider) -> None:
        """What one sees of the other: nothing."""
        patients = {}
        for tenant in ("a", "b"):
            _, found = await self.ask(tenant, "Patient?identifier=P1")
            self.assertEqual(found["total"], 1, tenant)
            patients[tenant] = found["entry"][0]["resource"]["id"]
            self.assertEqual((await self.ask(tenant, "Subscription?_summary=count"))[1]["total"], 1)
        for tenant, other in (("a", "b"), ("b", "a")):
            for path in (f"Patient/{patients[other]}", f"Patient/{patients[other]}/_history",
                         f"Subscription/{self.subscriptions[other]}"):  # fmt: skip
                self.assertEqual((await self.ask(tenant, path))[0], 404, path)
        self.tokens["none"] = provider.token("good", SCOPE)
        self.assertEqual((await self.ask("none", "Patient"))[0], 403)
        for tenant in ("a", "b"):
            headers = {"Authorization": f"Bearer {ADMIN}"}
            _, page = await asyncio.to_thread(
                self.service.request, "GET", f"/admin/messages?tenant={tenant}", None, headers
            )
            self.assertEqual(page["total"], 1, tenant)
            path = f"/admin/messages/{page['items'][0]['id']}/effects"
            _, effects = await asyncio.to_thread(self.service.request, "GET", path, None, headers)
            made = {f"{one['resource_type']}/{one['id']}" for one in effects["fhir_resources_created"]}
            self.assertIn(f"Patient/{patients[tenant]}", made)
            self.assertEqual([one["id"] for one in effects["subscriptions_matched"]],
                             [f"Subscription/{self.subscriptions[tenant]}"])  # fmt: skip

    async def _has_failures(self, tenant: str) -> bool:
        return bool((await self.ask(tenant, "AuditEvent?outcome=4&_summary=count"))[1]["total"] >= 3)

    async def _audited(self) -> None:
        """Each finds its own message, its own doings and who failed, and operators find them all."""
        for tenant in ("a", "b"):
            await until(partial(self._has_failures, tenant))
            _, found = await self.ask(tenant, "AuditEvent?_count=100")
            events = [entry["resource"] for entry in found["entry"]]
            self.assertEqual({event["source"]["site"] for event in events}, {tenant})
            kinds = [(event["subtype"][0]["code"], event["agent"][0].get("altId")) for event in events]
            self.assertEqual({kind for kind in kinds if kind[0] == "transaction"}, {("transaction", "ipf")})
            self.assertEqual([who for kind, who in kinds if kind == "create"], [f"tenant-{tenant}"])
            self.assertEqual((await self.ask({"a": "b", "b": "a"}[tenant], f"AuditEvent/{events[0]['id']}"))[0], 404)
            headers = {"Authorization": f"Bearer {ADMIN}"}
            path = f"/admin/audit?tenant={tenant}&interaction=create"
            _, page = await asyncio.to_thread(self.service.request, "GET", path, None, headers)
            self.assertEqual([one["tenant"] for one in page["items"]], [tenant])

    def _nothing_in_the_log(self) -> None:
        log = self.service.log_path.read_text()
        for word in (ADMIN, SIGNING, "hook-s3cret", "key-of-a-test", "Bearer ey", "Hansen"):
            self.assertNotIn(word, log)
