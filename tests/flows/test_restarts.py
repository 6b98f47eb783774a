"""One real kill -9, a second service on the same data, and an end in order."""

from __future__ import annotations

import asyncio

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
            await scenario.ready()
            await self.refused_beside(scenario)
            await feed.until(len(acknowledged) + MESSAGES)  # senders repeat what has no answer
            await feed.stop()
            await scenario.settled()
            self.assertEqual(scenario.broken_promises(), [])
            await self.mail_without_a_server(service)
            self.assertEqual(await asyncio.to_thread(service.stop), 0, service.log_tail())
            self.assertFalse((scenario.postgres / "postmaster.pid").exists(), service.log_tail())

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
        """A subscription to mail is accepted; then its error says what is not set."""
        made = {
            "resourceType": "Subscription", "status": "requested", "reason": "flow", "criteria": "Device?",
            "channel": {"type": "email", "endpoint": "mailto:ward@example.org"},
        }  # fmt: skip
        status, created = await asyncio.to_thread(service.request, "POST", "/fhir/Subscription", made)
        self.assertEqual(status, 201)

        async def error() -> str:
            _, found = await asyncio.to_thread(service.get, f"/fhir/Subscription/{created['id']}")
            return str(found.get("error", ""))

        self.assertIn("IPF_SMTP_URL", await until(error, "the subscription is in error"))
