"""The message API: every response of the specification, as values and over a listener."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from treq.client import HTTPClient
from twisted.internet import reactor
from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import TestCase
from twisted.web.client import Agent, HTTPConnectionPool
from twisted.web.resource import Resource
from twisted.web.server import Site

from ipf.errors import Category, Problem, StoreUnreachable
from ipf.ports import Answer, MessageFilter, MessagePage, MessageRow, Request, Status, WrongState
from ipf.wire.admin import app as admin
from ipf.wire.admin import messages
from ipf.wire.admin.access import AdminAccess
from ipf.wire.admin.klein_app import respond
from ipf.wire.admin.messages import readable, refusal, timestamp, window
from ipf.wire.admin.route import Mounted
from ipf.wire.http.serving import shielded
from tests.pipeline.test_worker import MemoryNotifier

NOW = datetime(2026, 3, 4, 5, 6, 7, 89, tzinfo=UTC)
OWN = "6f1e1b5e-0c38-4b3c-9c51-0242ac120002"
LIST_KEYS = [
    "id", "received_at", "source_protocol", "source_system", "source_id", "message_type", "status", "attempt_count",
    "last_attempt_at", "last_error", "delivered_at", "correlation_id", "tenant", "permanent",
]  # fmt: skip


def row(number: int, status: Status, **changes: Any) -> MessageRow:
    """A stored message; odd ids are from ADT1."""
    made = MessageRow(
        id=number,
        received_at=NOW + timedelta(seconds=number),
        source_protocol="HL7V2_MLLP",
        source_system="ADT1" if number % 2 else "LAB1",
        source_id=f"m{number}",
        message_type="ADT_A01",
        status=status,
        attempt_count=2,
        last_attempt_at=NOW,
        last_error="mapping failed",
        delivered_at=None,
        correlation_id=f"00000000-0000-7000-8000-{number:012d}",
        tenant="default",
        next_attempt_at=NOW,
        raw=b"MSH|^~\\&|ADT1\rPID|1\r",
        charset="utf-8",
        raw_content_type="x-application/hl7-v2+er7",
    )
    return replace(made, **changes)


class Messages:
    """The administrative part of an inbox."""

    def __init__(self, *rows: MessageRow) -> None:
        self.rows = {each.id: each for each in rows}
        self.pages_requested: list[tuple[MessageFilter, int, int]] = []
        self.error: Exception | None = None

    async def page(self, wanted: MessageFilter, limit: int, offset: int) -> MessagePage:
        self.check()
        self.pages_requested.append((wanted, limit, offset))
        names = ("status", "source_id", "source_system", "message_type", "correlation_id")
        found = [
            each
            for each in sorted(self.rows.values(), key=lambda one: one.id, reverse=True)
            if all(getattr(wanted, name) in (None, getattr(each, name)) for name in names)
        ]
        return MessagePage(len(found), tuple(found[offset : offset + limit]))

    async def get(self, message_id: int) -> MessageRow | None:
        self.check()
        return self.rows.get(message_id)

    async def retry(self, message_id: int) -> MessageRow:
        found = self.find(message_id, Status.FAILED, Status.DEAD_LETTER)
        self.rows[message_id] = replace(
            found, status=Status.RECEIVED, attempt_count=0, next_attempt_at=None, last_error=None
        )
        return self.rows[message_id]

    async def delete(self, message_id: int) -> None:
        self.find(message_id, Status.DEAD_LETTER)
        del self.rows[message_id]

    def find(self, message_id: int, *allowed: Status) -> MessageRow:
        self.check()
        if message_id not in self.rows:
            raise Problem(Category.NOT_FOUND, f"there is no message with id {message_id}")
        if self.rows[message_id].status not in allowed:
            raise WrongState(message_id, self.rows[message_id].status)
        return self.rows[message_id]

    def check(self) -> None:
        if self.error is not None:
            raise self.error


class AdminTests(TestCase):
    """Through a real listener."""

    async def open(self, token: str | None = None) -> None:
        self.inbox = Messages(*(row(number, status) for number, status in enumerate(Status, 1)))
        self.notifier = MemoryNotifier()
        self.notifications = 0
        self.notifier.subscribe("inbox", self.count_ring)
        root = Resource()
        table = Mounted(messages.ROUTES, messages.Messages(self.inbox, self.notifier))
        root.putChild(b"admin", admin.resource(AdminAccess(token), [table]))
        port = reactor.listenTCP(0, Site(root), interface="127.0.0.1")
        pool = HTTPConnectionPool(reactor, persistent=False)
        self.client = HTTPClient(Agent(reactor, pool=pool))
        self.base = f"http://127.0.0.1:{port.getHost().port}/admin"
        self.addCleanup(port.stopListening)

    def count_ring(self) -> None:
        self.notifications += 1

    async def ask(self, method: str, path: str, **headers: str) -> tuple[int, Any, Any]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        response = await self.client.request(method, self.base + path, headers=named, reactor=reactor)
        body = await response.content()
        return response.code, json.loads(body) if body else None, response.headers

    async def test_list(self) -> None:
        await self.open()
        status, body, headers = await self.ask("GET", "/messages")
        self.assertEqual((status, list(body)), (200, ["total", "limit", "offset", "items"]))
        self.assertEqual((body["total"], body["limit"], body["offset"]), (5, 50, 0))
        self.assertEqual([item["id"] for item in body["items"]], [5, 4, 3, 2, 1])
        for item in body["items"]:
            self.assertEqual(list(item), LIST_KEYS)
        self.assertEqual(body["items"][-1]["received_at"], "2026-03-04T05:06:08.000089Z")
        self.assertEqual(headers.getRawHeaders("content-type"), ["application/json"])

    async def test_filters_combine_and_blank_is_none(self) -> None:
        await self.open()
        for query, ids in (
            ("status=FAILED", [4]),
            ("status=", [5, 4, 3, 2, 1]),
            ("source_system=ADT1", [5, 3, 1]),
            ("source_system=ADT1&status=DELIVERED", [3]),
            ("source_system=LAB1&status=DELIVERED", []),
            ("source_id=m2", [2]),
            ("source_id=m2&source_id=m3", [2]),
            ("message_type=ADT_A08", []),
            ("correlation_id=00000000-0000-7000-8000-000000000004", [4]),
            ("correlation_id=no-uuid", []),
            ("source_id=a%00b", []),
            ("source_id=%ff", []),
            ("unknown=1", [5, 4, 3, 2, 1]),
        ):
            status, body, _ = await self.ask("GET", f"/messages?{query}")
            self.assertEqual((status, [item["id"] for item in body["items"]]), (200, ids), query)
            self.assertEqual(body["total"], len(ids), query)

    async def test_bad_parameters(self) -> None:
        await self.open()
        for query, code in (
            ("status=BOGUS", "invalid_status"),
            ("status=failed", "invalid_status"),
            ("limit=abc", "bad_request"),
            ("limit=1.5", "bad_request"),
            ("offset=x", "bad_request"),
            ("offset=%D9%A1", "bad_request"),
        ):
            status, body, _ = await self.ask("GET", f"/messages?{query}")
            self.assertEqual((status, body["error"], list(body)), (400, code, ["error", "message"]), query)

    async def test_the_full_row(self) -> None:
        await self.open()
        status, body, _ = await self.ask("GET", "/messages/4")
        self.assertEqual(status, 200)
        self.assertEqual(
            list(body), [*LIST_KEYS, "next_attempt_at", "raw_message", "raw_content_type", "passed_through"]
        )
        self.assertEqual(body["raw_message"], "MSH|^~\\&|ADT1\rPID|1\r")

    async def test_unknown_and_malformed_ids(self) -> None:
        await self.open()
        for method, path in (("GET", "/messages/{}"), ("POST", "/messages/{}/retry"), ("DELETE", "/messages/{}")):
            for number, expected in (
                ("999", (404, "not_found")),
                ("-1", (404, "not_found")),
                ("9" * 40, (404, "not_found")),
                ("9223372036854775808", (404, "not_found")),
                ("abc", (400, "bad_request")),
                ("1e3", (400, "bad_request")),
                ("%00", (400, "bad_request")),
            ):
                status, body, _ = await self.ask(method, path.format(number))
                self.assertEqual((status, body["error"]), expected, (method, number))

    async def test_retry_and_delete_matrix(self) -> None:
        await self.open()
        for method, path, allowed, success in (
            ("POST", "/messages/{}/retry", (4, 5), 200),
            ("DELETE", "/messages/{}", (5,), 204),
        ):
            for number, state in enumerate(Status, 1):
                self.inbox.rows[number] = row(number, state)
                status, body, _ = await self.ask(method, path.format(number))
                if number in allowed:
                    self.assertEqual(status, success)
                    continue
                action = "retry" if method == "POST" else "delete"
                self.assertEqual((status, list(body)), (409, ["error", "message", "id", "currentStatus"]))
                self.assertEqual((body["error"], body["id"]), (f"invalid_state_for_{action}", number))
                self.assertEqual(body["currentStatus"], str(state))
                self.assertIn(str(state), body["message"])
                self.assertIn("DEAD_LETTER", body["message"])
        self.assertEqual(self.notifications, 2)

    async def test_retry_answers_the_updated_row(self) -> None:
        await self.open()
        _, body, _ = await self.ask("POST", "/messages/5/retry")
        shown = {key: body[key] for key in ("id", "status", "attempt_count", "next_attempt_at", "last_error")}
        self.assertEqual(
            shown, {"id": 5, "status": "RECEIVED", "attempt_count": 0, "next_attempt_at": None, "last_error": None}
        )
        self.assertIn("raw_message", body)

    async def test_delete_answers_nothing(self) -> None:
        await self.open()
        status, body, headers = await self.ask("DELETE", "/messages/5")
        self.assertEqual((status, body), (204, None))
        self.assertIsNone(headers.getRawHeaders("content-type"))
        self.assertEqual((await self.ask("GET", "/messages/5"))[0], 404)

    async def test_the_token(self) -> None:
        await self.open("s3cret-ü")
        for authorization, expected in (
            (None, 401),
            ("Bearer wrong", 401),
            ("Basic s3cret-ü", 401),
            ("s3cret-ü", 401),
            ("Bearer s3cret-ü ", 200),
            ("bearer  s3cret-ü", 200),
        ):
            headers = {} if authorization is None else {"Authorization": authorization}
            for path in ("/messages", "/nothing"):
                status, body, answered = await self.ask("GET", path, **headers)
                self.assertEqual(status, 404 if expected == 200 and path == "/nothing" else expected, authorization)
                if expected == 401:
                    self.assertEqual(body["error"], "unauthorized")
                    self.assertEqual(answered.getRawHeaders("www-authenticate"), ["Bearer"])
        self.assertEqual(self.inbox.pages_requested[0][1:], (50, 0))

    async def test_correlation_id_is_echoed_or_made(self) -> None:
        await self.open()
        for path in ("/messages", "/messages/999", "/nothing"):
            _, _, headers = await self.ask("GET", path, X_Correlation_Id=OWN)
            self.assertEqual(headers.getRawHeaders("x-correlation-id"), [OWN])
        _, _, headers = await self.ask("GET", "/messages", X_Correlation_Id="nonsense")
        self.assertEqual(len(headers.getRawHeaders("x-correlation-id")[0]), 36)

    async def test_wrong_methods_and_paths(self) -> None:
        await self.open()
        status, body, headers = await self.ask("PUT", "/messages/4")
        self.assertEqual((status, body["error"]), (405, "bad_request"))
        self.assertEqual(headers.getRawHeaders("allow"), ["DELETE, GET"])
        for path in ("/", "/nothing", "/messages/4/other", "/messages/"):
            status, body, _ = await self.ask("GET", path)
            self.assertEqual((status, body["error"]), (404, "not_found"), path)
        status, body, _ = await self.ask("HEAD", "/messages")
        self.assertEqual((status, body), (200, None))

    async def test_a_store_that_is_away(self) -> None:
        await self.open()
        self.inbox.error = StoreUnreachable()
        for method, path in (("GET", "/messages"), ("GET", "/messages/1"), ("POST", "/messages/4/retry")):
            status, body, _ = await self.ask(method, path)
            self.assertEqual((status, body["error"]), (503, "upstream_failed"))
        self.assertEqual(self.notifications, 0)

    async def test_a_bug_shows_nothing(self) -> None:
        await self.open()
        self.inbox.error = KeyError("MRN12345")
        status, body, _ = await self.ask("GET", "/messages/1")
        self.assertEqual((status, body["error"]), (500, "upstream_failed"))
        self.assertNotIn("MRN12345", json.dumps(body))
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), 1)


class ValueTests(TestCase):
    def test_window(self) -> None:
        for limit, offset, expected in (
            ("", "", (50, 0)),
            ("50", "37", (50, 0)),
            ("50", "137", (50, 100)),
            ("0", "10", (1, 10)),
            ("-5", "3", (1, 3)),
            ("501", "1000", (500, 1000)),
            ("9" * 60, "-1", (500, 0)),
            ("-" + "9" * 60, "-" + "9" * 60, (1, 0)),
            ("+7", "15", (7, 14)),
        ):
            self.assertEqual(window({"limit": limit, "offset": offset}), expected)
        limit, offset = window({"limit": "7", "offset": "9" * 60})
        self.assertEqual(offset % limit, 0)
        self.assertLess(offset, 2**63)

    def test_characters(self) -> None:
        for raw, charset, expected in (
            ("Jürgen".encode(), "utf-8", "Jürgen"),
            ("Jürgen".encode("latin-1"), "iso-8859-1", "Jürgen"),
            ("Jürgen".encode("latin-1"), "utf-8", "J\ufffdrgen"),
            (b"abc", None, "abc"),
            (b"abc", "klingon", "abc"),
            (b"abc", "hex", "abc"),
            (b"a\x00b", "utf-8", "a\x00b"),
        ):
            self.assertEqual(readable(raw, charset), expected)

    def test_timestamps(self) -> None:
        self.assertIsNone(timestamp(None))
        paris = datetime(2026, 1, 1, 1, 0, tzinfo=timezone(timedelta(hours=1)))
        self.assertEqual(timestamp(paris), "2026-01-01T00:00:00.000000Z")

    def test_access(self) -> None:
        both = AdminAccess("secret", "reader")
        for access, method, path, authorization, expected in (
            (AdminAccess(None), "POST", "messages", None, None),
            (AdminAccess(""), "DELETE", "messages", None, None),
            (AdminAccess(None, "reader"), "POST", "messages", None, None),
            (both, "GET", "messages", None, 401),
            (both, "GET", "messages", "", 401),
            (both, "GET", "messages", "Bearer", 401),
            (both, "GET", "messages", "Bearer ", 401),
            (both, "GET", "messages", "Bearer secre", 401),
            (both, "GET", "messages", "Bearer secrets", 401),
            (both, "GET", "messages", "Bearer SECRET", 401),
            (both, "GET", "messages", "Basic secret", 401),
            (both, "GET", "messages", "secret", 401),
            (both, "GET", "messages", "Bearer secret, Bearer secret", 401),
            (both, "GET", "messages", "Bearer \ud800", 401),
            (both, "POST", "messages", "Bearer secret", None),
            (both, "POST", "messages", "bearer  secret ", None),
            (both, "GET", "messages", "Bearer reader", None),
            (both, "HEAD", "messages", "Bearer reader", None),
            (both, "POST", "messages", "Bearer reader", 403),
            (both, "PATCH", "messages", "Bearer reader", 403),
            (both, "DELETE", "messages", "Bearer reader", 403),
            (AdminAccess("secret"), "GET", "messages", "Bearer reader", 401),
            (AdminAccess("secret"), "GET", "messages", "Bearer ", 401),
            (both, "GET", "observe/openapi.json", None, None),
            (both, "GET", "observe/openapi.json/x", None, 401),
            (both, "GET", "openapi.json", None, None),
            (both, "GET", "openapi.json/x", None, 401),
            (both, "GET", "docs", None, 401),
        ):
            headers = {} if authorization is None else {"authorization": authorization}
            request = Request(method, ("admin", *path.split("/")), (), headers, b"", "", OWN)
            try:
                access.check(request)
                status = None
            except Problem as problem:
                status = problem.rendering.http_status
            self.assertEqual(status, expected, (method, path, authorization))

    def test_a_request_is_completed_when_the_client_hangs_up(self) -> None:
        pause: Deferred[None] = Deferred()
        done = []

        async def change() -> Answer:
            await pause
            done.append(1)
            return Answer(200)

        waiting = shielded(change())
        waiting.cancel()
        self.failureResultOf(waiting, CancelledError)
        pause.callback(None)
        self.assertEqual(done, [1])
        self.assertEqual(self.successResultOf(shielded(change())).status, 200)

    def test_respond_runs_without_a_socket(self) -> None:
        request = Request("GET", ("admin",), (), {}, b"", "", OWN)

        async def work(_: Request) -> Answer:
            raise Problem(Category.TOO_LARGE, "too much")

        answer = self.successResultOf(Deferred.fromCoroutine(respond(AdminAccess(None).check, refusal, request, work)))
        self.assertEqual((answer.status, json.loads(answer.body)["error"]), (413, "payload_too_large"))
