"""`/admin/retention`: shown, counted, requested; refusals in the shape of the admin API."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from treq.client import HTTPClient
from twisted.internet import reactor
from twisted.trial.unittest import TestCase
from twisted.web.client import Agent, HTTPConnectionPool
from twisted.web.resource import Resource
from twisted.web.server import Site

from ipf.ports import Json
from ipf.ports.audit.records import Audit
from ipf.ports.messages.statistics import RetentionPolicy, RetentionState
from ipf.wire.admin.access import AdminAccess
from ipf.wire.admin.audit.records import audit_hook
from ipf.wire.admin.klein_app import application, mount
from ipf.wire.admin.messages import refusal
from ipf.wire.admin.systems.retention import routes
from tests.pipeline.maintenance.test_retention import MemoryPruner
from tests.wire.admin.operators import check

NOW = datetime(2026, 3, 4, 5, 6, 7, 89, tzinfo=UTC)


class RetentionTests(TestCase):
    def open(self, policy: RetentionPolicy, token: str | None = None) -> None:
        self.pruner = MemoryPruner()

        async def count() -> Json:
            return {"messages": 7}

        root = Resource()
        access = AdminAccess(token, "r")
        self.trail: list[Audit] = []
        audit = audit_hook(self.trail.append, access.caller, lambda: NOW, lambda: "id")
        app, run = application(access.check, refusal, audit)
        mount(app, run, routes(self.pruner, policy, count))
        root.putChild(b"admin", app.resource())
        port = reactor.listenTCP(0, Site(root), interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        self.client = HTTPClient(Agent(reactor, pool=HTTPConnectionPool(reactor, persistent=False)))
        self.base = f"http://127.0.0.1:{port.getHost().port}/admin/retention"

    async def ask(self, method: str, rest: str = "", token: str = "t") -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {token}"}
        response = await self.client.request(method, self.base + rest, headers=headers, reactor=reactor)
        body = json.loads(await response.content())
        check(method, "/admin/retention" + rest.partition("?")[0], response.code, body)
        return response.code, body

    async def test_shown(self) -> None:
        self.open(RetentionPolicy(30, 0, 365))
        policy = {"delivered_days": 30, "dead_letter_days": 0, "history_days": 365}
        self.assertEqual(await self.ask("GET"), (200, {"policy": policy, "last_run": None, "would_remove": None}))
        for query in ("?dry_run", "?dry_run=true"):
            self.assertEqual((await self.ask("GET", query))[1]["would_remove"], {"messages": 7})
            self.assertEqual((await self.ask("POST", query))[0], 200)
        self.assertIsNone((await self.ask("GET", "?dry_run=false"))[1]["would_remove"])

        async def last() -> RetentionState:
            return RetentionState("host:1", NOW, None, {"messages": 3})

        self.pruner.last_run = last  # type: ignore[method-assign]
        run = {
            "began_at": "2026-03-04T05:06:07.000089Z", "ended_at": None, "running_on": "host:1",
            "removed": {"messages": 3},
        }  # fmt: skip
        self.assertEqual((await self.ask("GET"))[1]["last_run"], run)

    async def test_requested(self) -> None:
        self.open(RetentionPolicy(30))
        self.pruner.free = False
        self.assertEqual((await self.ask("POST", "?dry_run"))[0], 200)
        self.assertFalse(self.pruner.free)
        self.assertEqual((await self.ask("POST"))[0], 202)
        self.assertTrue(self.pruner.free)

    async def test_refusals(self) -> None:
        self.open(RetentionPolicy(), "t")
        for method, rest, token, expected in (
            ("POST", "", "t", 422), ("DELETE", "", "t", 405), ("GET", "/x", "t", 404), ("GET", "", "wrong", 401),
            ("POST", "", "r", 403), ("GET", "", "r", 200),
        ):  # fmt: skip
            status, body = await self.ask(method, rest, token)
            self.assertEqual(status, expected, (method, rest))
            if expected != 200:
                self.assertEqual(list(body), ["error", "message"])
        self.assertEqual(
            [(one.context.agent, one.context.interaction, one.context.status) for one in self.trail],
            [("admin", "retention", 422), ("admin", "delete", 405), ("admin", "read", 404), ("anonymous", "list", 401),
             ("admin-read", "retention", 403), ("admin-read", "list", 200)],
        )  # fmt: skip
