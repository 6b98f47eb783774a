"""A Consent that one process stores limits what the other answers, from the next request on; with all parts of the
service: tokens, settings, two processes on one database, the audit trail and the metrics."""

from __future__ import annotations

import asyncio
import shutil
from typing import Any

from twisted.trial.unittest import TestCase

from tests.event_loop import LIMIT, run
from tests.faults.scenario import scratch
from tests.flows import idp
from tests.service_process import ServiceProcess
from tests.waiting import until

GROUP = "flows"
DENIAL: dict[str, Any] = {
    "resourceType": "Consent", "id": "denial", "status": "active",
    "scope": {"coding": [{"code": "patient-privacy"}]}, "category": [{"text": "privacy"}],
    "patient": {"reference": "Patient/p1"}, "policyRule": {"text": "local"}, "provision": {"type": "deny"},
}  # fmt: skip
PATIENT = {"resourceType": "Patient", "id": "p1", "meta": {"security": [{"code": "N"}]}}
ROUNDS = 10


class ConsentFlowTests(TestCase):
    timeout = LIMIT  # two services, one after the other

    def test_two_processes(self) -> None:
        """Stored at one, obeyed by the other; withdrawn at the other, seen at the first; break-glass at both."""
        run(self._flow(idp.OwnProvider()))

    async def _flow(self, provider: idp.OwnProvider) -> None:
        chosen = {
            "SUBSCRIPTION_SERVICE_AUTH_ENABLED": "true",
            "SUBSCRIPTION_SERVICE_AUTH_ISSUER": provider.issuer,
            "IPF_ACCESS_CONSENT": "true",
            "IPF_ACCESS_LABELS": "R",
            "IPF_ACCESS_TRUSTED_CLIENTS": "feed",
            "IPF_WORKER_PROCESSES": "0",
        }
        folder = scratch()
        services = [ServiceProcess(folder / "first", **chosen)]
        try:
            await self._start(services[0])
            url = f"host={folder / 'first/data/postgres'} port=5432 user=ipf dbname="
            databases = {"IPF_DB_URL": url + "ipf", "IPF_FHIR_DB_URL": url + "fhir"}
            services.append(ServiceProcess(folder / "second", **chosen, **databases))
            await self._start(services[1])
            await self._obeyed(provider, *services)
            await self._broken(provider, services[1])
        finally:
            for one in reversed(services):
                one.stop()
            provider.stop()
            shutil.rmtree(folder, ignore_errors=True)

    async def _start(self, service: ServiceProcess) -> None:
        service.start()
        await until(lambda: asyncio.to_thread(service.ready))

    async def _obeyed(self, provider: idp.OwnProvider, first: ServiceProcess, second: ServiceProcess) -> None:
        feed, reader = provider.signed("feed", "system/*.cruds"), provider.signed("reader", "system/*.rs")
        await self.ask(first, feed, "PUT", "Patient/p1", PATIENT)
        for number in range(ROUNDS):
            writing, reading = (first, second) if number % 2 else (second, first)
            for status, expected in (("active", (404, 0)), ("inactive", (200, 1))):
                await self.ask(writing, feed, "PUT", "Consent/denial", {**DENIAL, "status": status})
                read, _ = await self.ask(reading, reader, "GET", "Patient/p1")
                _, found = await self.ask(reading, reader, "GET", "Patient?_id=p1")
                self.assertEqual((read, found["total"]), expected, f"round {number}, {status}")

    async def _broken(self, provider: idp.OwnProvider, service: ServiceProcess) -> None:
        feed, doctor = provider.signed("feed", "system/*.cruds"), provider.signed("doctor", "user/*.rs btg")
        await self.ask(service, feed, "PUT", "Consent/denial", DENIAL)
        self.assertEqual((await self.ask(service, doctor, "GET", "Patient/p1"))[0], 404)
        reason = {"X-Break-Glass-Reason": "unconscious"}
        self.assertEqual((await self.ask(service, doctor, "GET", "Patient/p1", None, reason))[0], 200)

        async def recorded() -> Any:
            _, found = await self.ask(service, feed, "GET", "AuditEvent?subtype=break-glass&patient=Patient/p1")
            return found.get("total") and found

        found = await until(recorded)
        details = [entity["detail"] for entity in found["entry"][0]["resource"]["entity"] if "detail" in entity]
        self.assertEqual(details, [[{"type": "reason", "valueString": "unconscious"}]])
        _, metrics = await asyncio.to_thread(service.get, "/actuator/prometheus")
        self.assertIn("ipf_break_glass_requests_total 1.0", str(metrics))
        _, health = await asyncio.to_thread(service.get, "/actuator/health")
        self.assertEqual(health["components"]["consents"]["details"]["denying"], 1)

    async def ask(
        self, service: ServiceProcess, token: str, method: str, path: str, body: Any = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, Any]:  # fmt: skip
        """One FHIR request."""
        sent = {"Authorization": f"Bearer {token}", **(headers or {})}
        status, answer = await asyncio.to_thread(service.request, method, f"/fhir/{path}", body, sent)
        if method == "PUT":
            self.assertLess(status, 300, answer)
        return status, answer
