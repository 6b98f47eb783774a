"""One real kill -9, a second service on the same data, and an end in order."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

from twisted.trial.unittest import TestCase

from tests.event_loop import run
from tests.faults.scenario import Scenario
from tests.service_process import ServiceProcess
from tests.waiting import until

MESSAGES = 30


class RestartTests(TestCase):
    def test_what_was_acknowledged_before_a_kill_is_delivered_once(self) -> None:
        """Then SIGTERM ends the service with status 0, and PostgreSQL with it."""
        run(self.killed())

    async def killed(self) -> None:
        async with Scenario() as scenario:
            service, feed = scenario.service, scenario.feed
            feed.senders = 2
            feed.start()
            await feed.until(MESSAGES)
            await asyncio.to_thread(service.kill)
            acknowledged = dict(feed.accepted)
            service.start()
            await self.acknowledges_before_it_converts(scenario)
            await scenario.ready()
            await self.refused_beside(scenario)
            await feed.until(len(acknowledged) + MESSAGES)  # senders repeat what has no answer
            await feed.stop()
            await scenario.settled()
            self.assertEqual(scenario.broken_promises(), [])
            await self.mail_without_a_server(service)
            self.assertEqual(await asyncio.to_thread(service.stop), 0, service.log_tail())
            self.assertFalse((scenario.postgres / "postmaster.pid").exists(), service.log_tail())

    async def acknowledges_before_it_converts(self, scenario: Scenario) -> None:
        """Maps that have compiled before keep nobody waiting: readiness says that converters are starting."""
        service, feed = scenario.service, scenario.feed
        held = await until(lambda: service.converters, "a converter process")
        for pid in held:
            os.kill(pid, signal.SIGSTOP)
        before = len(feed.accepted)
        await until(lambda: len(feed.accepted) > before, "a message is acknowledged")

        async def readiness() -> Any:
            status, found = await asyncio.to_thread(service.get, "/actuator/health/readiness")
            return found if status == 503 and "components" in found else None

        found = await until(readiness, "readiness is answered")
        self.assertEqual(found["components"]["startup"]["status"], "DOWN")
        for pid in held:
            os.kill(pid, signal.SIGCONT)

    async def refused_beside(self, scenario: Scenario) -> None:
        """A second service on the same data ends, and says why."""
        data = scenario.service.environment["IPF_DATA_DIR"]
        second = ServiceProcess(scenario.folder / "second", IPF_DATA_DIR=data)
        second.start()
        await until(lambda: second.ended() is not None, "the second service ends")
        self.assertEqual(second.ended(), 1, second.log_tail())
        self.assertIn("another ipf", second.log_tail())
        self.assertIn(data, second.log_tail())

    async def mail_without_a_server(self, service: ServiceProcess) -> None:
        """A subscription to mail is accepted and active; the response and its health say why nothing is sent."""
        made = {
            "resourceType": "Subscription", "status": "requested", "reason": "flow", "criteria": "Device?",
            "channel": {"type": "email", "endpoint": "mailto:ward@example.org"},
        }  # fmt: skip
        prefer = {"Prefer": "return=OperationOutcome"}
        status, outcome = await asyncio.to_thread(service.request, "POST", "/fhir/Subscription", made, prefer)
        self.assertEqual((status, outcome["issue"][1]["severity"]), (201, "warning"))
        self.assertIn("IPF_SMTP_URL", outcome["issue"][1]["diagnostics"])
        for name in ("first", "second"):
            device = {"resourceType": "Device", "deviceName": [{"name": name, "type": "other"}]}
            self.assertEqual((await asyncio.to_thread(service.request, "POST", "/fhir/Device", device))[0], 201)

        async def skipped() -> Any:
            _, found = await asyncio.to_thread(service.get, "/admin/subscriptions/health")
            (one,) = [one for one in found["items"] if one["channel_type"] == "email"]
            return one if one["active"] and one["last_event_number"] and not one["pending_count"] else None

        item = await until(skipped, "the events are skipped")
        counts = (item["delivery_success_count"], item["delivery_failure_count"], item["last_error"])
        self.assertEqual(counts, (0, 0, None))
        self.assertIn("IPF_SMTP_URL", item["warnings"][0])
        _, history = await asyncio.to_thread(
            service.get, f"/admin/subscriptions/{item['id'].partition('/')[2]}/history"
        )
        self.assertEqual(history["items"], [])
        _, stored = await asyncio.to_thread(service.get, f"/fhir/{item['id']}")
        self.assertEqual((stored["status"], "error" in stored), ("active", False))
