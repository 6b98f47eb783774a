"""The observability API through a real listener; its OpenAPI document holds every answer, refusals included."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any
from urllib.parse import quote, urlencode

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator, FormatChecker
from openapi_spec_validator import validate
from treq.client import HTTPClient
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase
from twisted.web.client import Agent, HTTPConnectionPool
from twisted.web.resource import Resource
from twisted.web.server import Site

from ipf.errors import Category, Problem, StoreUnreachable
from ipf.ports import MessageRow, Request, Status
from ipf.ports.audit.records import Audit
from ipf.ports.caller import Caller
from ipf.ports.identity import AnswerKind, ConflictKind, ConflictRow, ConflictStatus, IdentityFinding, IdentityKey
from ipf.ports.messages.statistics import (
    Sender,
    SendersNow,
    Trace,
    TracedDelivery,
    TracedEvent,
    TracedMessage,
    TracedResource,
)
from ipf.wire.admin import app as admin
from ipf.wire.admin.access import OPEN_PATHS
from ipf.wire.admin.actuator import Component, Health
from ipf.wire.admin.audit.records import audit_hook
from ipf.wire.admin.klein_app import respond
from ipf.wire.observe import interfaces
from ipf.wire.observe.app import resource
from ipf.wire.observe.observe import Facts, Observe, buckets, refusal
from ipf.wire.reference.table import observe_api_document
from tests.wire.admin.test_messages import row

NOW = datetime(2026, 3, 4, 5, 6, 7, 89, tzinfo=UTC)
OWN = "6f1e1b5e-0c38-4b3c-9c51-0242ac120002"
HOUR = NOW.replace(minute=0, second=0, microsecond=0)
DOCUMENT = observe_api_document("1.2.3")
TOKEN = "letmein"
FINDING = IdentityFinding(
    ConflictKind.AMBIGUOUS, "Patient", (IdentityKey("urn:mrn", "MR", "4711"),), ("Patient/a", "Patient/b")
)
TRACE = Trace(
    (
        TracedMessage(row(1, Status.DELIVERED, delivered_at=NOW), "lab", "http://m/ADT|2", 1.2345),
        TracedMessage(row(2, Status.RECEIVED), "lab", None, None, 1),
    ),
    (
        TracedResource("default", "Patient", "p", 1, "POST", NOW),
        TracedResource("default", "Patient", "p", 2, "DELETE", NOW),
    ),
    (TracedEvent("s", 4, "Patient", "p", 1, NOW),),
    (
        TracedDelivery("s", 4, NOW, False, None, 10, "connection refused", "event-notification", 4),
        TracedDelivery("s", 4, NOW, True, 200, 11, None, "event-notification", 6),
    ),
    (
        ConflictRow(7, 1, OWN, "LAB", "M1", "ADT_A01", NOW, ConflictStatus.OPEN, FINDING, "FAILED"),
        ConflictRow(
            8,
            1,
            OWN,
            "LAB",
            "M1",
            "ADT_A01",
            NOW,
            ConflictStatus.ANSWERED,
            FINDING,
            "RECEIVED",
            2,
            "default",
            AnswerKind.MERGE,
            "Patient/a",
            "admin token",
            NOW,
        ),
    ),
)


SENDERS = (
    Sender("default", "AAA", "lab", NOW, NOW, tuple(range(60)), 200, 50, 0, None, 30, timedelta(hours=1), "OTHER"),
    Sender("default", "LAB", None, NOW, NOW - timedelta(minutes=16), (), 0, 0, 2, NOW),
    Sender(
        "default",
        "RIS",
        "ris",
        NOW,
        NOW - timedelta(hours=9),
        (0,) * 60,
        3,
        0,
        0,
        None,
        30,
        timedelta(hours=4),
        "FHIR_REST",
    ),
    Sender(
        "default",
        "PAS",
        "pas",
        NOW,
        NOW - timedelta(hours=9),
        (0,) * 60,
        3,
        0,
        0,
        None,
        23,
        timedelta(hours=4),
        "OTHER",
    ),
    Sender(
        "default",
        "ECG",
        "ecg",
        NOW,
        NOW - timedelta(hours=7),
        (0,) * 60,
        3,
        3,
        0,
        None,
        30,
        timedelta(hours=4),
        "HL7V2_MLLP",
    ),
)


class MemoryStatistics:
    """Statistics that the test gives; `error` is raised instead."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.asked: list[Any] = []

    def check(self, *asked: Any) -> None:
        self.asked.append(asked)
        if self.error is not None:
            raise self.error

    async def queue(self) -> Mapping[Status, int]:
        self.check()
        return dict.fromkeys(Status, 3)

    async def oldest_waiting(self) -> datetime | None:
        return None

    async def throughput(
        self, since: datetime, source_system: str | None, unit: str
    ) -> Sequence[tuple[datetime, Status, int]]:
        self.check(since, source_system)
        if unit == "day":
            return [(HOUR.replace(hour=0), Status.DELIVERED, 12)]
        return [(HOUR, Status.FAILED, 2), (HOUR, Status.DELIVERED, 5), (HOUR - timedelta(hours=5), Status.DELIVERED, 7)]

    async def senders(self, now: datetime) -> SendersNow:
        self.check(now)
        return SendersNow(SENDERS)

    async def newest(self, limit: int) -> Sequence[MessageRow]:
        self.check(limit)
        return [row(number, Status.DELIVERED) for number in range(min(limit, 3))]

    async def dead_letters(self, limit: int) -> tuple[int, Sequence[MessageRow]]:
        self.check(limit)
        return 70, [row(number, Status.DEAD_LETTER) for number in range(min(limit, 3))]

    async def trace(self, correlation_id: str) -> Trace:
        self.check(correlation_id)
        return TRACE if correlation_id == OWN else Trace()

    async def count_received(self) -> bool:
        return False


async def up() -> Mapping[str, Any]:
    return {"queue": 3}


async def down() -> None:
    raise ConnectionError("refused")


def schema_of(path: str, status: int) -> Any:
    """The schema of an answer of a documented path; anything else is refused with the error body."""
    operation = DOCUMENT["paths"].get(path, {}).get("get")
    if operation is None:
        return {"$ref": "#/components/schemas/Error"}
    return operation["responses"][str(status)]["content"]["application/json"]["schema"]


def check(path: str, status: int, body: Any) -> None:
    """Whether the body is what the document says."""
    _validator(path, status).validate(body)


@cache
def _validator(path: str, status: int) -> Draft202012Validator:
    whole = {**schema_of(path, status), "components": DOCUMENT["components"]}
    return Draft202012Validator(whole, format_checker=FormatChecker())


class ObserveTests(TestCase):
    def setUp(self) -> None:
        self.statistics = MemoryStatistics()
        health = Health({"inbox": Component(up), "mapping": Component(down, required=False)}, reactor)
        toggles = {
            "auth_enabled": False, "validation_mode": "off", "channel_security_mode": "strict",
            "multitenancy_mode": "disabled",
        }  # fmt: skip
        observe = Observe(
            self.statistics, health, Facts("1.2.3", toggles, lambda: 12.5, {"LAB": 900}, {"lab": "file"}), lambda: NOW
        )
        self.token = ""
        root = Resource()
        self.trail: list[Audit] = []
        audit = audit_hook(self.trail.append, lambda _: Caller(subject="admin"), lambda: NOW, lambda: "id")
        observed = resource(observe, self.check, DOCUMENT, audit)
        access: Any = self
        root.putChild(b"admin", admin.resource(access, [], below={"observe": observed}))
        port = reactor.listenTCP(0, Site(root), interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        self.client = HTTPClient(Agent(reactor, pool=HTTPConnectionPool(reactor, persistent=False)))
        self.base = f"http://127.0.0.1:{port.getHost().port}"

    def check(self, request: Request) -> Caller:
        if (
            self.token
            and request.path not in OPEN_PATHS
            and request.headers.get("authorization") != f"Bearer {self.token}"
        ):
            raise Problem(Category.UNAUTHORIZED, "a token is needed")
        return Caller(subject="admin")

    async def ask(
        self, path: str, query: str = "", method: str = "GET", template: str = "", **headers: str
    ) -> tuple[int, Any, Any]:
        url = f"{self.base}{path}{query and '?'}{query}"
        response = await self.client.request(method, url, headers=headers, reactor=reactor)
        content = await response.content()
        self.assertEqual(response.headers.getRawHeaders("content-type"), ["application/json"], path)
        self.assertEqual(len(response.headers.getRawHeaders("x-correlation-id")[0]), 36)
        body = json.loads(content) if content else None
        if body is not None:
            check(template or path, response.code, body)
        return response.code, body, response.headers

    async def test_system(self) -> None:
        status, body, _ = await self.ask("/admin/observe/system")
        self.assertEqual(
            (status, body["schema_version"], body["version"], body["uptime_seconds"]), (200, "1.0", "1.2.3", 12.5)
        )
        self.assertEqual(body["components"], [{"name": "inbox", "status": "UP", "detail": {"queue": 3}}])
        self.assertEqual(body["downstream"], {"mapping": {"status": "DOWN", "detail": {"error": "refused"}}})
        states = ["received", "transforming", "delivered", "failed", "dead_letter"]
        self.assertEqual(body["queue"], dict.fromkeys(states, 3))
        self.assertEqual(body["feature_toggles"]["channel_security_mode"], "strict")

    async def test_requests_are_audited(self) -> None:
        """All but those that dashboards poll."""
        trace = "/admin/observe/trace/{correlationId}"
        for path, status in (
            ("system", 200),
            ("live", 200),
            ("interfaces", 200),
            ("throughput", 200),
            ("openapi.json", 200),
            ("dlq", 200),
        ):
            self.assertEqual((await self.ask(f"/admin/observe/{path}"))[0], status)
        await self.ask(f"/admin/observe/trace/{OWN}", template=trace)
        self.token = TOKEN
        await self.ask("/admin/observe/system")
        self.assertEqual(
            [(one.context.interaction, one.target, one.context.status) for one in self.trail],
            [("read", "admin/observe/dlq", 200), ("read", f"admin/observe/trace/{OWN}", 200),
             ("read", "admin/observe/system", 401)],
        )  # fmt: skip

    async def test_system_without_its_store(self) -> None:
        """It still answers, with null queue sizes."""
        self.statistics.error = StoreUnreachable()
        status, body, _ = await self.ask("/admin/observe/system")
        self.assertEqual((status, set(body["queue"].values())), (200, {None}))

    async def test_throughput(self) -> None:
        status, body, _ = await self.ask("/admin/observe/throughput", "window=6h&source_system=LAB")
        self.assertEqual((status, body["window"], body["bucket_width"], len(body["buckets"])), (200, "6h", "hour", 6))
        self.assertEqual(self.statistics.asked, [(HOUR - timedelta(hours=5), "LAB")])
        self.assertEqual(body["buckets"][0]["bucket_start"], "2026-03-04T00:00:00.000000Z")
        empty = {"RECEIVED": 0, "TRANSFORMING": 0, "DELIVERED": 0, "FAILED": 0, "DEAD_LETTER": 0}
        self.assertEqual(body["buckets"][0]["counts"], empty | {"DELIVERED": 7})
        self.assertEqual(body["buckets"][1]["counts"], empty)
        self.assertEqual(body["buckets"][5]["counts"], empty | {"DELIVERED": 5, "FAILED": 2})
        _, body, _ = await self.ask("/admin/observe/throughput", "window=2d&source_system=%20")
        self.assertEqual([each["counts"]["DELIVERED"] for each in body["buckets"]], [0, 12])
        self.assertIsNone(self.statistics.asked[-1][1])
        _, body, _ = await self.ask("/admin/observe/throughput")
        self.assertEqual((body["window"], len(body["buckets"])), ("24h", 24))

    def test_windows(self) -> None:
        for window, count, unit in (("1h", 1, "hour"), ("90d", 90, "day"), ("2160h", 2160, "hour"), ("007d", 7, "day")):
            starts, width, found = buckets(window, NOW)
            self.assertEqual((len(starts), found), (count, unit))
            self.assertLess(NOW - starts[-1], width)
        for window in ("0h", "91d", "2161h", "24", "h", "1w", "-1h", "1.5h", "24H", "9" * 5000 + "h", "٣h"):
            with self.assertRaises(Problem, msg=window):
                buckets(window, NOW)

    async def test_interfaces(self) -> None:
        """Silent ones first, by the setting or by what is learnt; then those with errors."""
        status, body, _ = await self.ask("/admin/observe/interfaces")
        shown = {one["source_system"]: one for one in body["items"]}
        self.assertEqual(list(shown), ["LAB", "RIS", "AAA", "ECG", "PAS"])
        self.assertEqual((status, body["total"], body["silent"]), (200, 5, 2))
        expected = {"LAB": (900, "setting"), "RIS": (28_800, "learnt"), "PAS": (None, None), "ECG": (28_800, "learnt")}
        for name, pair in expected.items():
            self.assertEqual((shown[name]["expected_seconds"], shown[name]["expected_by"]), pair)
        first = shown["AAA"]
        self.assertEqual((first["per_minute"], first["error_share"], first["silent_seconds"]), (69.2, 0.25, 0))
        self.assertEqual((shown["LAB"]["error_share"], shown["LAB"]["waiting"]), (None, 2))
        _, body, _ = await self.ask("/admin/observe/interfaces", "source_system=RIS")
        self.assertEqual([one["source_system"] for one in body["items"]], ["RIS"])
        kinds = {one["source_system"]: one["kind"] for one in (await self.ask("/admin/observe/interfaces"))[1]["items"]}
        self.assertEqual(kinds, {"LAB": None, "RIS": "fhir", "AAA": "file", "ECG": "mllp", "PAS": "other"})
        every = interfaces.expectation(SENDERS[0], {"*": 60, "LAB": 5})
        self.assertEqual(every, (60, "setting"))

    async def test_live(self) -> None:
        for query, count in (("", 0), ("limit=2", 2), ("limit=-1", 0), ("limit=500", 3)):
            status, body, _ = await self.ask("/admin/observe/live", query)
            self.assertEqual((status, len(body["newest"])), (200, count))
        self.assertEqual(body["components"], {"inbox": "UP", "mapping": "DOWN"})
        self.assertEqual((body["queue"]["received"], body["newest"][0]["tenant"]), (3, "default"))

    async def test_live_counts_a_share_of_the_time(self) -> None:
        clock, counts = [100.0], []
        statistics = MemoryStatistics()

        async def slow() -> datetime:
            statistics.check()
            counts.append(round(clock[0], 3))
            clock[0] += 0.1
            return NOW

        statistics.oldest_waiting = slow  # type: ignore[method-assign]
        observe = Observe(statistics, Health({}, reactor), Facts("1", {}, lambda: clock[0]), lambda: NOW)
        request = Request("GET", (), (), {}, b"", "", OWN)
        for _ in range(10):
            await observe.live(request)
            clock[0] += 1
        self.assertEqual(counts, [100.0, 103.1, 106.2, 109.3])
        statistics.error = StoreUnreachable()
        clock[0] += 9
        body = json.loads((await observe.live(request)).body)
        self.assertEqual((body["queue"]["received"], body["oldest_waiting_at"]), (None, None))

    async def test_dead_letters(self) -> None:
        for query, limit in (("", 20), ("limit=7", 7), ("limit=0", 1), ("limit=-5", 1), ("limit=" + "9" * 40, 100)):
            status, body, _ = await self.ask("/admin/observe/dlq", query)
            self.assertEqual((status, body["total"], body["limit"]), (200, 70, limit))
        self.assertEqual(body["items"][0]["status"], "DEAD_LETTER")

    async def test_trace(self) -> None:
        path = "/admin/observe/trace/{correlationId}"
        status, body, _ = await self.ask(f"/admin/observe/trace/{OWN.upper()}", template=path)
        self.assertEqual((status, body["correlation_id"], body["truncated"]), (200, OWN, False))
        of_map = {"map_url": "http://m/ADT", "version": "2"}
        transform = of_map | {"duration_ms": 1.234, "rules_path": "/admin/messages/1/trace"}
        self.assertEqual([one["transform"] for one in body["messages"]], [transform, None])
        self.assertEqual([one["action"] for one in body["resources"]], ["create", "delete"])
        self.assertEqual(body["events"][0]["subscription_id"], "Subscription/s")
        self.assertEqual([one["outcome"] for one in body["deliveries"]], ["failure", "success"])
        conflicts = body["identity_conflicts"]
        shown = [(one["id"], one["status"], one["answer"], one["target"], one["path"]) for one in conflicts]
        path_of = "/admin/identity-conflicts/{}".format
        expected = [(7, "open", None, None, path_of(7)), (8, "answered", "merge", "Patient/a", path_of(8))]
        self.assertEqual((shown, conflicts[0]["candidates"]), (expected, ["Patient/a", "Patient/b"]))
        self.assertNotIn("4711", str(conflicts))
        for unknown in ("00000000-0000-0000-0000-000000000000", "x", quote("a/b'", safe="")):
            status, body, _ = await self.ask(f"/admin/observe/trace/{unknown}", template=path)
            self.assertEqual((status, body["error"]), (404, "not_found"))

    async def test_refusals_carry_the_version(self) -> None:
        cases = [
            ("/admin/observe/throughput", "window=1w", "GET", 400, "bad_request"),
            ("/admin/observe/dlq", "limit=many", "GET", 400, "bad_request"),
            ("/admin/observe/nothing", "", "GET", 404, "not_found"),
            ("/admin/observe", "", "GET", 404, "not_found"),
            ("/admin/observe/", "", "GET", 404, "not_found"),
            ("/admin/observe/dlq/", "", "GET", 404, "not_found"),
        ]
        for path, query, method, expected, code in cases:
            status, body, _ = await self.ask(path, query, method)
            self.assertEqual((status, body["schema_version"], body["error"]), (expected, "1.0", code), path)
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            status, body, headers = await self.ask("/admin/observe/dlq", "", method, template="none")
            self.assertEqual((status, headers.getRawHeaders("allow")), (405, ["GET"]))
        self.statistics.error = StoreUnreachable()
        status, body, _ = await self.ask("/admin/observe/dlq")
        self.assertEqual((status, body["error"]), (503, "upstream_failed"))

    async def test_an_unforeseen_error(self) -> None:
        async def broken(_: Request) -> Any:
            raise ZeroDivisionError

        answer = await respond(self.check, refusal, Request("GET", (), (), {}, b"", "", OWN), broken)
        check("/admin/observe/dlq", answer.status, json.loads(answer.body))
        self.assertEqual((answer.status, len(self.flushLoggedErrors(ZeroDivisionError))), (500, 1))
        self.assertEqual(Problem(Category.INTERNAL, "").rendering.http_status, 500)

    async def test_the_token(self) -> None:
        self.token = TOKEN
        for path in ("/admin/observe/system", "/admin/observe/nothing"):
            status, body, headers = await self.ask(path)
            self.assertEqual((status, body["error"]), (401, "unauthorized"))
            self.assertEqual(headers.getRawHeaders("www-authenticate"), ["Bearer"])
        status, _, _ = await self.ask("/admin/observe/system", authorization=f"Bearer {TOKEN}")
        self.assertEqual(status, 200)
        status, body, _ = await self.ask("/admin/observe/openapi.json")
        self.assertEqual((status, body), (200, json.loads(json.dumps(DOCUMENT))))

    def test_the_document_is_openapi(self) -> None:
        validate(DOCUMENT)

    def test_every_member_is_described(self) -> None:
        """The document names all members, so that a client may rely on them: nothing undescribed is answered."""
        observe = Observe(self.statistics, Health({}, reactor), Facts("1", {}, lambda: 0.0), lambda: NOW)
        body = json.loads(self.successResultOf(Deferred.fromCoroutine(observe.trace(OWN))).body)
        schemas = DOCUMENT["components"]["schemas"]
        self.assertEqual(set(body), set(schemas["Trace"]["properties"]))
        for kind in ("messages", "resources", "events", "deliveries"):
            described = schemas["Trace"]["properties"][kind]["items"]["properties"]
            for one in body[kind]:
                self.assertEqual(set(one), set(described), kind)

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        st.sampled_from(["system", "throughput", "dlq", "trace", "openapi.json", "trace/" + OWN]),
        st.text(max_size=20),
        st.dictionaries(st.sampled_from(["window", "limit", "source_system", "x"]), st.text(max_size=30)),
        st.sampled_from(["h", "d", ""]),
    )
    def test_random_requests(self, name: str, rest: str, query: dict[str, str], unit: str) -> None:
        """No 500, and always a body that the document describes."""
        if "window" in query:
            query["window"] += unit
        self.statistics.error = None
        health = Health({}, reactor)
        observe = Observe(self.statistics, health, Facts("1", {}, lambda: 0.0), lambda: NOW)
        request = Request("GET", (name,), tuple(query.items()), {}, b"", "", OWN)
        works = {"system": observe.system, "throughput": observe.throughput, "dlq": observe.dlq}
        work = works.get(name, lambda _: observe.trace(rest))
        answered = respond(lambda _: Caller(), refusal, request, work)
        answer = self.successResultOf(Deferred.fromCoroutine(answered))
        if name == "system":
            return
        path = f"/admin/observe/{name}" if name in works else "/admin/observe/trace/{correlationId}"
        self.assertIn(answer.status, (200, 400, 404), urlencode(query))
        check(path, answer.status, json.loads(answer.body))
