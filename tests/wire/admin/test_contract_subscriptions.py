"""Subscription administration through HTTP on PostgreSQL: every row of the contract's tables.

Source: interface specification "Subscription administration", "Subscription health item", "Limits", "Errors".
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from twisted.logger import globalLogPublisher

from ipf.ports import Attempt
from ipf.rest.interactions.transaction import entries_of
from ipf.rest.write.commit import commit
from ipf.rest.write.unit import Unit
from ipf.store.deliveries.deliveries import PostgresDeliveryQueue
from ipf.telemetry.logs import record
from tests.wire.admin.operators import OperatorsTest, now

CORRELATION = "6f1e1b5e-0c38-4b3c-9c51-0242ac120002"
HEALTH = [
    "id", "active", "channel_type", "endpoint", "delivery_success_count", "delivery_failure_count", "last_attempt_at",
    "last_attempt_outcome", "last_error", "status", "criteria", "tenant", "last_event_number", "pending_count",
    "warnings",
]  # fmt: skip


class SubscriptionContractTest(OperatorsTest):
    """Tables of the contract."""

    async def register(self, *ids: str, status: str = "active", **changes: Any) -> None:
        """Subscriptions with these ids."""
        channel = {"type": "rest-hook", "endpoint": "https://far.example.org/hook"}
        shape = {"resourceType": "Subscription", "status": status, "reason": "r", "channel": channel, **changes}
        requests = [{"method": "PUT", "url": f"Subscription/{id}"} for id in ids]
        entries = [
            {"resource": {"criteria": "Patient?active=true", **shape, "id": id}, "request": request}
            for id, request in zip(ids, requests, strict=True)
        ]
        bundle = {"resourceType": "Bundle", "type": "transaction", "entry": entries}
        unit = Unit("default", entries_of(bundle), CORRELATION)
        (written,) = await commit([unit], self.fhir, self.matcher, now)
        assert not isinstance(written, Exception), written

    async def attempts(self, id: str, *succeeded: bool) -> None:
        """Delivery attempts, one second apart."""
        made = [
            Attempt(number, now() + timedelta(seconds=number), good, 200 if good else None, 7,
                    None if good else "no answer", CORRELATION)
            for number, good in enumerate(succeeded, 1)
        ]  # fmt: skip
        await PostgresDeliveryQueue(self.fhir_database).record("default", id, made)

    async def test_health(self) -> None:
        """Each status; the outcome of the last attempt, and `failure` whenever the status is `error`."""
        for status in ("active", "off", "requested", "error"):
            await self.register(f"in-{status}", status=status)
        await self.attempts("in-active", False, True)
        await self.attempts("in-error", True)
        status, body = await self.ask("GET", "/subscriptions/health")
        self.assertEqual((status, list(body), body["total"]), (200, ["total", "items"], 4))
        self.assertEqual(list(body["items"][0]), HEALTH)
        found = {item["status"]: item for item in body["items"]}
        self.assertEqual(set(found), {"active", "off", "requested", "error"})
        for code, item in found.items():
            self.assertEqual((item["id"], item["active"]), (f"Subscription/in-{code}", code == "active"))
            shown = (item["channel_type"], item["endpoint"], item["criteria"])
            self.assertEqual(shown, ("rest-hook", "https://far.example.org/hook", "Patient?active=true"))
        outcomes = {code: item["last_attempt_outcome"] for code, item in found.items()}
        self.assertEqual(outcomes, {"active": "success", "off": None, "requested": None, "error": "failure"})
        counts = found["active"]["delivery_success_count"], found["active"]["delivery_failure_count"]
        self.assertEqual(counts, (1, 1))

    async def test_at_most_500(self) -> None:
        await self.register(*(f"s{number}" for number in range(503)), status="off")
        _, body = await self.ask("GET", "/subscriptions/health")
        self.assertEqual((body["total"], len(body["items"])), (500, 500))

    async def test_history(self) -> None:
        """Newest first; limits and offsets as for messages."""
        await self.register("s1")
        _, body = await self.ask("GET", "/subscriptions/s1/history")
        empty = {"subscription_id": "Subscription/s1", "total": 0, "limit": 50, "offset": 0, "items": []}
        self.assertEqual(body, empty)
        await self.attempts("s1", *([True] * 119), False)
        for query, limit, offset, count in (
            ("", 50, 0, 50), ("limit=0", 1, 0, 1), ("limit=-5", 1, 0, 1), ("limit=501", 500, 0, 120),
            ("limit=50&offset=37", 50, 0, 50), ("limit=50&offset=99", 50, 50, 50), ("limit=50&offset=100", 50, 100, 20),
            ("offset=-1", 50, 0, 50), ("limit=50&offset=5000", 50, 5000, 0),
        ):  # fmt: skip
            status, body = await self.ask("GET", f"/subscriptions/s1/history?{query}")
            shown = (status, body["total"], body["limit"], body["offset"], len(body["items"]))
            self.assertEqual(shown, (200, 120, limit, offset, count), query)
        _, body = await self.ask("GET", "/subscriptions/s1/history?limit=2")
        newest, before = body["items"]
        shown = (newest["outcome"], newest["http_status"], newest["error"], newest["duration_ms"])
        self.assertEqual(shown, ("failure", None, "no answer", 7))
        self.assertEqual((before["outcome"], before["http_status"], before["error"]), ("success", 200, None))
        self.assertGreater(newest["attempted_at"], before["attempted_at"])

    async def test_the_resource(self) -> None:
        await self.register("s1")
        status, body = await self.ask("GET", "/subscriptions/s1/resource")
        shown = body["resourceType"], body["id"], body["status"]
        self.assertEqual((status, shown), (200, ("Subscription", "s1", "active")))

    async def test_any_status_becomes_any_other(self) -> None:
        """The item shows the new state; the log names the author; the resource has a new version."""
        await self.register("s1", status="requested")
        lines: list[dict[str, Any]] = []
        observe = lambda event: lines.append(record(event))  # noqa: E731
        globalLogPublisher.addObserver(observe)
        self.addCleanup(globalLogPublisher.removeObserver, observe)
        codes, was, changes = ("active", "off", "requested", "error"), "requested", 0
        for code in (codes[int(number)] for number in "00102031121322330"):  # each behind each
            status, item = await self.ask("PATCH", "/subscriptions/s1/status", {"status": code})
            self.assertEqual((status, list(item)), (200, HEALTH))
            self.assertEqual((item["status"], item["active"]), (code, code == "active"))
            _, resource = await self.ask("GET", "/subscriptions/s1/resource")
            changes += code != was
            was = code
            self.assertEqual((resource["status"], resource["meta"]["versionId"]), (code, str(1 + changes)))
        said = [line for line in lines if line["message"].startswith("audit_event=subscription_status_changed")]
        self.assertEqual((len(said), {line["level"] for line in said}), (17, {"INFO"}))
        self.assertIn("old_status=requested new_status=active", said[0]["message"])
        self.assertTrue(all(line["correlation_id"] for line in said))

    async def test_refusals(self) -> None:
        """400, 401, 404 and 405 have the same form; nothing changes."""
        await self.register("s1")
        for body in (b"", b"{", b"[]", {}, {"status": "on"}, {"status": None}, {"status": ["off"]}, {"Status": "off"}):
            status, shown = await self.ask("PATCH", "/subscriptions/s1/status", body)
            code = "bad_request" if body in (b"", b"{") else "invalid_status"
            self.assertEqual((status, shown["error"], list(shown)), (400, code, ["error", "message"]), body)
        for method, path, body in (
            ("GET", "/subscriptions/nobody/history", None),
            ("GET", "/subscriptions/nobody/resource", None),
            ("PATCH", "/subscriptions/nobody/status", {"status": "off"}),
            ("GET", "/subscriptions/s1/history?tenant=north", None),
        ):
            status, shown = await self.ask(method, path, body)
            self.assertEqual((status, shown["error"], list(shown)), (404, "not_found", ["error", "message"]), path)
        self.assertEqual((await self.ask("GET", "/subscriptions/s1/history?limit=ten"))[0], 400)
        self.assertEqual((await self.ask("POST", "/subscriptions/s1/status"))[0], 405)
        self.assertEqual((await self.ask("GET", "/subscriptions/s1/resource"))[1]["meta"]["versionId"], "1")
        await self._listen("s3cret", "look")
        for path in ("/subscriptions/health", "/subscriptions/s1/history", "/subscriptions/s1/resource"):
            self.assertEqual((await self.ask("GET", path))[0], 401, path)
            self.assertEqual(self.headers.getRawHeaders("www-authenticate"), ["Bearer"])
            self.assertEqual((await self.ask("GET", path, Authorization="Bearer look"))[0], 200, path)
        arguments = ("PATCH", "/subscriptions/s1/status", {"status": "off"})
        self.assertEqual((await self.ask(*arguments))[0], 401)
        self.assertEqual((await self.ask(*arguments, Authorization="Bearer look"))[0], 403)
