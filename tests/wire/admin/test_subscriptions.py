"""Subscription administration on fakes that the contract suite covers."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from twisted.logger import globalLogPublisher

from ipf.errors import Category, Problem
from ipf.ports import HANDSHAKE, Answer, Attempt, Json, Request, SubscriptionState
from ipf.ports.caller import Caller
from ipf.telemetry.logs import record
from ipf.wire.admin.messages import refusal
from ipf.wire.admin.systems import subscriptions as under_test
from ipf.wire.admin.systems.subscriptions import SubscriptionAdmin, health_item
from tests.contracts.resources import CORRELATION, Writing, change
from tests.fakes import MemoryDeliveryQueue, MemoryFhirStore
from tests.pipeline.test_worker import MemoryNotifier

NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)


def request(body: object = None, **query: str) -> Request:
    raw = b"" if body is None else json.dumps(body).encode()
    return Request("GET", (), tuple(query.items()), {}, raw, "", CORRELATION, address="10.0.0.9")


class AdminSubscriptionsTests(Writing):
    def setUp(self) -> None:
        self.store = MemoryFhirStore()
        self.queue = MemoryDeliveryQueue(self.store)
        self.notifier = MemoryNotifier()
        self.changes: list[tuple[str, str, str, str | None]] = []
        self.authors: list[str] = []
        self.admin = SubscriptionAdmin(self.queue, self.change, self.notifier, self.handshake, "admin token")

    async def change(
        self, tenant: str, id: str, status: str, error: str | None, correlation_id: str, who: str
    ) -> object:
        self.changes.append((tenant, id, status, error))
        self.authors.append(who)
        stream = next(each for each in self.store.streams.values() if each.state.id == id)
        stream.state = replace(stream.state, status=status, error=error)
        return None

    async def handshake(self, tenant: str, id: str) -> Attempt:
        sent = Attempt(0, NOW, False, 503, 12, "HTTP status 503", CORRELATION, kind=HANDSHAKE)
        await self.queue.record(tenant, id, [sent])
        return sent

    async def register(
        self, id: str, status: str = "active", error: str | None = None, tenant: str = "default"
    ) -> None:
        resource: Json = {
            "resourceType": "Subscription",
            "id": id,
            "status": status,
            "criteria": "Patient?active=true",
            "channel": {"type": "rest-hook", "endpoint": "https://far.example.org/hook",
                        "header": ["Authorization: ipf-sealed:0:czNjcmV0"]},
        }  # fmt: skip
        rid = await self.store.new_rid()
        state = SubscriptionState(tenant, rid, id, status, error)
        written = replace(change(rid, resource), tenant=tenant)
        await self.write(written, subscriptions_change=True, subscriptions=[state])

    async def attempts(self, id: str, *succeeded: bool) -> None:
        made = [
            Attempt(n, NOW + timedelta(seconds=n), good, 200 if good else 503, 12, None if good else "HTTP status 503",
                    CORRELATION)
            for n, good in enumerate(succeeded, 1)
        ]  # fmt: skip
        await self.queue.record("default", id, made)

    def body(self, answer: Answer) -> Any:
        self.assertEqual(answer.status, 200)
        return json.loads(answer.body)

    async def test_health(self) -> None:
        await self.register("s1")
        await self.attempts("s1", False, True)
        await self.register("s2", "error", "no answer since noon")
        await self.register("s3", "requested")
        found = self.body(await under_test.health(self.admin, request()))
        self.assertEqual(found["total"], 3)
        first, second, third = found["items"]
        self.assertEqual(
            first,
            {
                "id": "Subscription/s1", "active": True, "channel_type": "rest-hook",
                "endpoint": "https://far.example.org/hook", "delivery_success_count": 1, "delivery_failure_count": 1,
                "last_attempt_at": "2026-03-04T05:06:09.000000Z", "last_attempt_outcome": "success",
                "last_error": None, "status": "active", "criteria": "Patient?active=true", "tenant": "default",
                "last_event_number": 0, "pending_count": 0, "warnings": [],
            },
        )  # fmt: skip
        self.assertEqual((second["last_attempt_outcome"], second["last_error"]), ("failure", "no answer since noon"))
        self.assertEqual((second["active"], second["last_attempt_at"]), (False, None))
        self.assertEqual((third["last_attempt_outcome"], third["last_error"]), (None, None))
        self.assertEqual(self.body(await under_test.health(self.admin, request(tenant="north")))["total"], 0)

    async def test_a_bare_id_finds_its_tenant(self) -> None:
        """In every operation; `?tenant=` narrows; an id of several tenants needs it."""
        await self.register("n", tenant="north")
        for operation in (under_test.resource, under_test.history, under_test.one_health, under_test.send_test):
            self.assertEqual((await operation(self.admin, "n", request())).status, 200)
            self.assertEqual((await operation(self.admin, "n", request(tenant="north"))).status, 200)
        await under_test.change_status(self.admin, "n", request({"status": "off"}))
        self.assertEqual(self.changes, [("north", "n", "off", None)])
        for tenant in ("default", "south"):
            with self.assertRaises(Problem) as raised:
                await under_test.change_status(self.admin, "n", request({"status": "off"}, tenant=tenant))
            self.assertEqual(raised.exception.category, Category.NOT_FOUND)
        await self.register("n")
        with self.assertRaises(Problem) as raised:
            await under_test.change_status(self.admin, "n", request({"status": "off"}))
        self.assertEqual(raised.exception.category, Category.CONFLICT)
        self.assertIn("?tenant= with one of default, north", raised.exception.text)
        self.assertEqual(len(self.changes), 1)

    async def test_health_of_one(self) -> None:
        await self.register("s1")
        item = self.body(await under_test.one_health(self.admin, "s1", request()))
        self.assertEqual((item["id"], item["status"]), ("Subscription/s1", "active"))

    async def test_the_endpoint_is_tested(self) -> None:
        """The answer is the attempt, which the history has as well."""
        await self.register("s1")
        tried = self.body(await under_test.send_test(self.admin, "s1", request()))
        self.assertEqual((tried["kind"], tried["outcome"], tried["http_status"]), ("handshake", "failure", 503))
        self.assertIsNone(tried["event_number"])
        found = self.body(await under_test.history(self.admin, "s1", request()))
        self.assertEqual(found["items"], [tried])
        self.assertEqual(self.changes, [])

    async def test_a_resource_without_criteria_or_channel(self) -> None:
        """The response has the fields that exist."""
        await self.register("s1")
        found = await self.queue.health("default", "s1")
        assert found is not None
        item = health_item(replace(found, resource={"resourceType": "Subscription"}))
        self.assertEqual((item["criteria"], item["endpoint"], item["channel_type"]), ("", "", ""))

    async def test_history(self) -> None:
        await self.register("s1")
        await self.attempts("s1", False, True, True)
        found = self.body(await under_test.history(self.admin, "s1", request(limit="2", offset="1")))
        self.assertEqual((found["subscription_id"], found["total"]), ("Subscription/s1", 3))
        self.assertEqual((found["limit"], found["offset"]), (2, 0))
        self.assertEqual([item["event_number"] for item in found["items"]], [3, 2])
        last = self.body(await under_test.history(self.admin, "s1", request(limit="2", offset="2")))["items"]
        self.assertEqual(
            last,
            [
                {
                    "attempted_at": "2026-03-04T05:06:08.000000Z", "outcome": "failure", "http_status": 503,
                    "error": "HTTP status 503", "duration_ms": 12, "kind": "event-notification", "event_number": 1,
                    "to_event_number": 1, "correlation_id": CORRELATION,
                }
            ],
        )  # fmt: skip

    async def test_the_resource(self) -> None:
        await self.register("s1")
        found = self.body(await under_test.resource(self.admin, "s1", request()))
        self.assertEqual((found["id"], found["channel"]["header"]), ("s1", ["Authorization: ***"]))

    async def test_unknown_subscriptions(self) -> None:
        for work in (
            under_test.history(self.admin, "nobody", request()),
            under_test.resource(self.admin, "no\x1fbody", request()),
            under_test.one_health(self.admin, "nobody", request()),
            under_test.change_status(self.admin, "nobody", request({"status": "off"})),
        ):
            with self.assertRaises(Problem) as caught:
                await work
            self.assertEqual(caught.exception.rendering.http_status, 404)

    async def test_status(self) -> None:
        """Every status change is allowed; the log names the author."""
        await self.register("s1")
        lines: list[str] = []
        observe = lambda event: lines.append(record(event)["message"])  # noqa: E731
        globalLogPublisher.addObserver(observe)
        self.addCleanup(globalLogPublisher.removeObserver, observe)
        for status in ("off", "requested", "error", "active"):
            item = self.body(await under_test.change_status(self.admin, "s1", request({"status": status})))
            self.assertEqual((item["status"], item["active"]), (status, status == "active"))
        self.assertEqual(self.changes[2], ("default", "s1", "error", "set to error by an operator"))
        self.assertEqual(len(lines), 4)
        for token in ("audit_event=subscription_status_changed", "old_status=active", "new_status=off", "10.0.0.9"):
            self.assertIn(token, lines[0])
        self.assertIn('actor="admin token"', lines[0])
        by_person = replace(request({"status": "off"}), caller=Caller(subject="admin", user="Ada (u1)"))
        await under_test.change_status(self.admin, "s1", by_person)
        self.assertEqual(self.authors, ["admin token"] * 4 + ["Ada (u1)"])
        self.assertIn('actor="Ada (u1)"', lines[4])

    async def test_bad_status(self) -> None:
        await self.register("s1")
        bad = [b"", b"{", b"[]", b"{}", b'{"status": "on"}', b'{"status": null}', b'{"status": ["off"]}']
        for raw in bad:
            with self.assertRaises(Problem) as caught:
                await under_test.change_status(self.admin, "s1", replace(request(), body=raw))
            refused = refusal(caught.exception)
            code = "invalid_status" if raw not in (b"", b"{") else "bad_request"
            self.assertEqual((refused.status, json.loads(refused.body)["error"]), (400, code), raw)
        self.assertEqual(self.changes, [])
