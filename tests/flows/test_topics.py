"""Topics through the whole service: a published topic fires over a real web hook, and one that fails is not silent."""

from __future__ import annotations

import json
import shutil
from typing import Any

from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from tests.event_loop import run
from tests.faults.feed import admission
from tests.faults.scenario import scratch
from tests.flows.far_ends import Hook
from tests.flows.test_channels import BACKPORT, kind_of
from tests.flows.test_end_to_end import answer_to
from tests.service_process import ServiceProcess
from tests.waiting import LIMIT, until

GROUP = "flows"
COMPLETE = "http://example.org/topics/encounter-complete"
FAILS = "http://example.org/topics/named-patients"
ENDED = "(%previous.id.empty() | (%previous.status != 'finished')) and (%current.status = 'finished')"
WRONG, RIGHT = "%current.name.family + 1 = 2", "%current.name.family.exists()"


class TopicFlowTests(TestCase):
    timeout = 2 * LIMIT  # two starts, one after the other

    async def setUp(self) -> None:
        self.folder = scratch()
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.hook = Hook()
        self.addCleanup(self.hook.stop)
        self.url = self.hook.url
        self.service = ServiceProcess(self.folder / "service", IPF_WORKER_PROCESSES="1")
        await self.start()
        self.addCleanup(deferToThread, self.service.stop)

    async def start(self) -> None:
        self.service.start()

        await until(lambda: deferToThread(self.service.ready), "it is ready")

    async def ask(self, method: str, path: str, body: object = None) -> Any:
        status, answer = await deferToThread(self.service.request, method, path, body)
        self.assertLess(status, 300, answer)
        return answer

    async def put(self, resource: dict[str, Any]) -> Any:
        return await self.ask("PUT", f"/fhir/{resource['resourceType']}/{resource['id']}", resource)

    async def topic(self, id: str, url: str, resource: str, expression: str) -> None:
        trigger = {"resource": resource, "fhirPathCriteria": expression}
        await self.put({"resourceType": "SubscriptionTopic", "id": id, "url": url, "status": "active",
                        "resourceTrigger": [trigger]})  # fmt: skip

    async def subscribe(self, id: str, topic: str, **members: Any) -> str:
        """Register, and wait for the first status after `requested`; this status."""
        level = {"extension": [{"url": f"{BACKPORT}payload-content", "valueCode": "id-only"}]}
        channel = {"type": "rest-hook", "endpoint": f"{self.url}/{id}", "payload": "application/fhir+json",
                   "_payload": level}  # fmt: skip
        await self.put({"resourceType": "Subscription", "id": id, "status": "requested", "reason": "test",
                        "criteria": topic, "channel": channel, **members})  # fmt: skip

        async def decided() -> bool:
            self.status = (await self.ask("GET", f"/fhir/Subscription/{id}"))["status"]
            return bool(self.status != "requested")

        await until(decided)
        return str(self.status)

    def kinds(self, id: str) -> list[str]:
        return [kind_of(one[3]) for one in self.hook.at(f"/{id}")]

    async def test_topics(self) -> None:
        """One service for both parts: its start is what takes long."""
        await self.a_published_topic()
        await self.a_topic_that_fails()

    async def a_published_topic(self) -> None:
        """`encounter-complete` of fhir-candle: one event for the step to finished.  No handshake after the end."""
        await self.topic("complete", COMPLETE, "Encounter", ENDED)
        self.assertEqual(await self.subscribe("late", COMPLETE, end="2020-01-01T00:00:00Z"), "off")
        self.assertEqual(await self.subscribe("hook", COMPLETE), "active")
        encounter = {"resourceType": "Encounter", "id": "e1", "class": {"code": "AMB"}}
        for status in ("in-progress", "finished"):
            stored = await self.put({**encounter, "status": status})
        await self.put({**stored, "priority": {"text": "late"}})
        await until(lambda: len(self.kinds("hook")) > 1, "a notification")
        self.assertEqual(self.kinds("hook"), ["handshake", "event-notification"])
        entry = json.loads(self.hook.at("/hook")[1][3])["entry"][1]
        self.assertTrue(entry["fullUrl"].endswith("/Encounter/e1"), entry)
        self.assertEqual(entry["response"]["etag"], 'W/"2"')
        self.assertEqual(self.kinds("late"), [])

    async def a_topic_that_fails(self) -> None:
        """Found by the converter process, told by the main one; it survives a restart and ends with a new version."""
        await self.topic("fails", FAILS, "Patient", WRONG)
        self.assertEqual(await self.subscribe("fails", FAILS), "active")
        self.assertNotIn("error", await self.ask("GET", "/fhir/Subscription/fails"))
        answer = await deferToThread(run, answer_to(self.service.mllp_port, admission("M1", "P1", "+4711")))
        self.assertEqual(answer[1], b"MSA|AA|M1")

        async def told() -> bool:
            self.stored = await self.ask("GET", "/fhir/Subscription/fails")
            return "error" in self.stored

        await until(told)
        self.assertEqual(self.stored["status"], "active")
        self.assertIn(f"the topic {FAILS} (version 1) cannot be evaluated: resourceTrigger[0].fhirPathCriteria: ",
                      self.stored["error"])  # fmt: skip
        found = await self.ask("GET", "/fhir/Subscription/fails/$status")
        errors = [one for one in found["entry"][0]["resource"]["parameter"] if one["name"] == "error"]
        self.assertEqual([one["valueCodeableConcept"]["text"] for one in errors], [self.stored["error"]])
        self.assertIn("event=topic_failed", self.service.log_path.read_text())
        self.assertNotIn("Hansen", self.stored["error"])

        async def counted() -> bool:  # a converter process writes its counts once a second
            return "fhir_subscription_topic_failures_total 1.0" in await self.ask("GET", "/actuator/prometheus")

        await until(counted)
        await deferToThread(self.service.stop)
        await self.start()
        await until(self.shown_in_health)
        self.assertEqual(self.topics["topics"], [
            {"topic": FAILS, "rule": "resourceTrigger[0].fhirPathCriteria", "subscriptions": 1},
        ])  # fmt: skip

        await self.topic("fails", FAILS, "Patient", RIGHT)

        async def withdrawn() -> bool:
            return "error" not in await self.ask("GET", "/fhir/Subscription/fails") and not await self.shown_in_health()

        await until(withdrawn)
        await self.put({"resourceType": "Patient", "id": "p", "name": [{"family": "Solberg"}]})
        await until(lambda: self.kinds("fails")[-1:] == ["event-notification"], "a notification")

    async def shown_in_health(self) -> bool:
        health = await self.ask("GET", "/actuator/health")
        component = health["components"]["topics"]
        self.assertEqual(component["status"], "UP")
        self.topics = component["details"]
        return bool(self.topics["failing"])
