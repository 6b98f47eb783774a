"""`/admin/audit`, and the audit records of admin requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
from twisted.trial.unittest import TestCase

from ipf.errors import Problem
from ipf.ports import Answer, Request
from ipf.ports.audit.records import ADMIN, Audit
from ipf.security.audit.rules import id_suffixes
from ipf.wire.admin.access import AdminAccess
from ipf.wire.admin.audit import records as admin_audit
from ipf.wire.admin.audit.views import note_view
from ipf.wire.admin.klein_app import respond
from ipf.wire.admin.messages import refusal
from tests.contracts.audit import START, audit
from tests.fakes.audit import MemoryAuditStore
from tests.wire.admin.operators import check

ID = "0190f7a4-2b6e-7cc0-8a11-2f6d3c1b9e55"


def request(url: str, method: str = "GET", **headers: str) -> Request:
    """A request to the admin API."""
    path, _, query = url.partition("?")
    pairs = tuple(tuple(pair.split("=", 1)) for pair in query.split("&") if pair)
    segments = ("admin", *path.split("/"))
    return Request(method, segments, pairs, headers, b"", "", ID, address="192.0.2.5")  # type: ignore[arg-type]


class AuditSearchTests(TestCase):
    """The list."""

    def setUp(self) -> None:
        self.store = MemoryAuditStore()

    async def found(self, query: str = "") -> list[int]:
        """Numbers of the records listed."""
        body = orjson.loads((await admin_audit.list_records(self.store, request(f"audit?{query}"))).body)
        check("GET", "/admin/audit", 200, body)
        self.assertEqual(body["total"], len(body["items"]))
        return [int(one["id"][-12:], 16) for one in body["items"]]

    async def test_filters(self) -> None:
        await self.store.append([
            audit(1), audit(2, action="C", outcome=4, status=404), audit(3, surface=ADMIN, agent="admin"),
            audit(4, tenant="north", outcome=8, status=401), audit(5, interaction="create", entities=("Basic/7",)),
            audit(6, patients=("Patient/9",)), audit(7, surface=ADMIN, agent="admin", user="lang"),
        ])  # fmt: skip
        since = (START + timedelta(seconds=5)).isoformat()
        table = {
            "": [7, 6, 5, 4, 3, 2, 1], "tenant=*": [7, 6, 5, 4, 3, 2, 1], "tenant=north": [4],
            "agent=admin": [7, 3], "surface=admin": [7, 3], "action=C": [2],
            "actor=lang": [7], "actor=nobody": [],
            "outcome=4,8": [4, 2], "interaction=create": [5], "entity=Basic/7": [5], "patient=9": [6],
            "patient=Patient/9": [6], f"since={since}": [7, 6, 5], "until=2026-01-31T08:00:02Z": [2, 1],
            f"correlation_id={audit(2).correlation_id.upper()}": [2], "agent=": [7, 6, 5, 4, 3, 2, 1],
            "agent=nobody": [],
            f"since={since}&action=R&entity=Basic/7": [5], "agent=a%00": [],
        }  # fmt: skip
        for query, expected in table.items():
            self.assertEqual(await self.found(query), expected, query)

    async def test_what_cannot_be_read(self) -> None:
        refused = "outcome=1", "action=X", "action=C,X", "surface=both", "since=yesterday", "limit=x", "offset=1.5"
        for query in refused:
            with self.assertRaises(Problem, msg=query):
                await self.found(query)

    async def test_pages_as_messages_do(self) -> None:
        await self.store.append([audit(number) for number in range(1, 8)])
        given = await admin_audit.list_records(self.store, request("audit?limit=3&offset=4"))
        body = orjson.loads(given.body)
        self.assertEqual((body["total"], body["limit"], body["offset"], len(body["items"])), (7, 3, 3, 3))
        self.assertEqual(list(body["items"][0]), [
            "id", "recorded_at", "duration_ms", "tenant", "surface", "interaction", "action", "outcome", "http_status",
            "agent", "client", "issuer", "user", "actor", "via", "address", "correlation_id", "target", "entities",
            "patients", "source",
        ])  # fmt: skip


class AuditHookTests(TestCase):
    """Audit records of admin requests."""

    def setUp(self) -> None:
        self.noted: list[Audit] = []
        self.access = AdminAccess("right", "reading")
        self.hook = admin_audit.audit_hook(
            self.noted.append, self.access.caller, lambda: datetime(2026, 1, 1, tzinfo=UTC), id_suffixes()
        )

    async def ask(self, url: str, method: str = "GET", token: str = "right", status: int = 200) -> Sequence[Any]:
        """The audit record of a request: interaction, action, outcome, agent, entities."""

        async def work(_: Request) -> Answer:
            return Answer(status)

        sent = request(url, method, authorization=f"Bearer {token}")
        before = len(self.noted)
        self.hook(sent, await respond(self.access.check, refusal, sent, work), datetime(2026, 1, 1, tzinfo=UTC))
        if len(self.noted) == before:
            return ()
        one = self.noted[-1]
        context = one.context
        self.assertEqual((context.surface, context.address, one.correlation_id), (ADMIN, "192.0.2.5", ID))
        return context.interaction, context.action, context.outcome, context.agent, one.entities

    async def test_requests(self) -> None:
        table: dict[tuple[Any, ...], tuple[Any, ...]] = {
            ("messages",): ("list", "R", 0, "admin", ()),
            ("messages/7",): ("read", "R", 0, "admin", ("messages/7",)),
            ("messages/7", "GET", "reading"): ("read", "R", 0, "admin-read", ("messages/7",)),
            ("messages/7", "GET", "wrong-token"): ("read", "R", 8, "anonymous", ("messages/7",)),
            ("messages/7/retry", "POST"): ("retry", "E", 0, "admin", ("messages/7",)),
            ("messages/7/retry", "POST", "reading"): ("retry", "E", 4, "admin-read", ("messages/7",)),
            ("messages/7/trace",): ("trace", "R", 0, "admin", ("messages/7",)),
            ("messages/7", "DELETE", "right", 409): ("delete", "D", 4, "admin", ("messages/7",)),
            ("subscriptions/s1/status", "PATCH"): ("status", "U", 0, "admin", ("subscriptions/s1",)),
            ("mapping/reload", "POST"): ("reload", "E", 0, "admin", ("mapping/reload",)),
            ("audit",): ("list", "R", 0, "admin", ()),
            ("observe/system",): (),
            ("observe/system", "GET", "wrong-token"): ("read", "R", 8, "anonymous", ("observe/system",)),
            ("messages/7", "GET", "right", 500): ("read", "R", 8, "admin", ("messages/7",)),
        }
        for arguments, expected in table.items():
            self.assertEqual(tuple(await self.ask(*arguments)), expected, arguments)

    async def test_the_person_whom_a_caller_names(self) -> None:
        """Only the full token may name a person, and without tokens only this machine."""
        named = {"x-ipf-actor": "Zo%C3%AB%0ALang"}
        closed, open_ = self.access, AdminAccess(None)
        table = [
            (closed, "Bearer right", "192.0.2.5", ("admin", "Zoë Lang")),
            (closed, "Bearer reading", "192.0.2.5", ("admin-read", None)),
            (closed, "Bearer wrong", "127.0.0.1", ("", None)),
            (closed, "", "127.0.0.1", ("", None)),
            (open_, "", "127.0.0.1", ("", "Zoë Lang")),
            (open_, "", "::1", ("", "Zoë Lang")),
            (open_, "", "192.0.2.5", ("", None)),
            (open_, "Bearer right", "192.0.2.5", ("", None)),
            (open_, "", "", ("", None)),
        ]
        for access, authorization, address, expected in table:
            sent = replace(request("messages", **named, authorization=authorization), address=address)
            caller = access.caller(sent)
            self.assertEqual((caller.subject, caller.user), expected, (authorization, address))
        for given, expected_name in (("", None), ("%20", None), ("%F0%9F%99%82" * 900, "\U0001f642" * 200)):
            sent = request("messages", **{"x-ipf-actor": given}, authorization="Bearer right")
            self.assertEqual(self.access.caller(sent).user, expected_name)

    async def test_the_record_of_a_person(self) -> None:
        sent = request("messages/7/retry", "POST", **{"x-ipf-actor": "lang", "authorization": "Bearer right"})
        self.hook(sent, Answer(200), datetime(2026, 1, 1, tzinfo=UTC))
        shown = admin_audit.item(self.noted[-1])
        self.assertEqual(
            (shown["actor"], shown["via"], shown["agent"], shown["user"]), ("lang", "admin", "admin", "lang")
        )
        await self.ask("messages/7/retry", "POST")
        shown = admin_audit.item(self.noted[-1])
        self.assertEqual((shown["actor"], shown["via"], shown["user"]), ("admin", None, None))

    async def test_what_a_person_is_shown(self) -> None:
        body = b'{"page": "/browse/Patient/7", "references": ["Patient/7", "Observation/o", "Patient/7"]}'
        headers = {"x-ipf-actor": "lang", "authorization": "Bearer right"}
        sent = replace(request("audit/views", "POST", **headers), body=body)
        answer = await respond(self.access.check, refusal, sent, note_view)
        self.hook(sent, answer, datetime(2026, 1, 1, tzinfo=UTC))
        shown = admin_audit.item(self.noted[-1])
        self.assertEqual(answer.status, 204)
        self.assertEqual((shown["actor"], shown["interaction"], shown["action"]), ("lang", "view", "R"))
        self.assertEqual((shown["target"], shown["patients"]), ("/browse/Patient/7", ["Patient/7"]))
        self.assertEqual(shown["entities"], ["Patient/7", "Observation/o"])
        for wrong in (
            b"", b"[]", b'{"page": "/browse?name=x", "references": ["Patient/7"]}', b'{"page": "/x", "references": []}',
            b'{"page": "/x", "references": ["Patient/7?x"]}', b'{"page": "/x"}', b'{"page": "/x", "references": [7]}',
        ):  # fmt: skip
            sent = replace(sent, body=wrong)
            answer = await respond(self.access.check, refusal, sent, note_view)
            self.hook(sent, answer, datetime(2026, 1, 1, tzinfo=UTC))
            self.assertEqual((answer.status, self.noted[-1].context.interaction), (400, "views"), wrong)

    async def test_a_failing_audit_trail_fails_no_request(self) -> None:
        def broken(_: Audit) -> None:
            raise RuntimeError("no trail")

        hook = admin_audit.audit_hook(broken, self.access.caller, lambda: datetime.now(UTC), id_suffixes())
        hook(request("messages"), Answer(200), datetime.now(UTC))
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
