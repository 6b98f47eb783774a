"""Unmapped codes, overrides and further conversions in the admin API."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem
from ipf.ports import Answer, Request, Status, UnmappedCode
from ipf.wire.admin.access import AdminAccess
from ipf.wire.admin.inbox import unmapped as admin
from ipf.wire.admin.klein_app import respond
from ipf.wire.admin.messages import InvalidStatus, refusal
from tests.contracts.inbox import ended, failed, received
from tests.fakes import MemoryInbox, MemoryUnmappedCodes
from tests.pipeline.test_worker import MemoryNotifier

WARD = UnmappedCode("urn:t:ward", "W9")


def admin_request(query: str = "", body: Any = None, **headers: str) -> Request:
    """A request as a value."""
    pairs = tuple(tuple(pair.split("=", 1)) for pair in query.split("&") if pair)
    payload = b"" if body is None else json.dumps(body).encode()
    return Request("GET", ("admin",), pairs, headers, payload, "", "c")  # type: ignore[arg-type]


class AdminUnmappedTests(TestCase):
    async def setUp(self) -> None:
        self.inbox = MemoryInbox()
        self.codes = MemoryUnmappedCodes(self.inbox)
        self.notifier = MemoryNotifier()
        await self.inbox.store([received("A"), received("B"), received("C", system="OTHER")])
        claims = await self.inbox.claim("w", 5)
        await self.inbox.settle([replace(ended(claim), unmapped=(WARD,)) for claim in claims])

    async def body(self, answer: Any, status: int = 200) -> Any:
        """The JSON of a response."""
        found: Answer = await answer
        self.assertEqual(found.status, status, found.body)
        return json.loads(found.body) if found.body else None

    async def refused(self, work: Any, category: Category) -> None:
        """It raises a Problem of this category."""
        problem = await self.assertFailure(Deferred.fromCoroutine(work), Problem)
        self.assertIs(problem.category, category)

    async def test_lists_and_filters(self) -> None:
        page = await self.body(admin.list_codes(self.codes, admin_request("limit=1&offset=1")))
        self.assertEqual((page["total"], page["limit"], page["offset"], len(page["items"])), (2, 1, 1, 1))
        item = (await self.body(admin.list_codes(self.codes, admin_request("source_system=LAB&status=open"))))["items"][
            0
        ]
        self.assertEqual((item["count"], item["messages"], item["status"], item["override_id"]), (2, 2, "open", None))
        one = await self.body(admin.get_code(self.codes, str(item["id"])))
        self.assertEqual(one["message_ids"], [2, 1])
        self.assertEqual((await self.body(admin.list_codes(self.codes, admin_request("status=mapped"))))["total"], 0)
        await self.assertFailure(
            Deferred.fromCoroutine(admin.list_codes(self.codes, admin_request("status=x"))), InvalidStatus
        )
        await self.refused(admin.get_code(self.codes, "77"), Category.NOT_FOUND)
        await self.refused(admin.get_code(self.codes, "x"), Category.VALUE)

    async def test_overrides(self) -> None:
        """For one sender or for all; a null target is allowed."""
        answer = {"system": "urn:s", "code": "icu", "display": "ICU", "scope": "all"}
        made = await self.body(admin.map_code(self.codes, self.notifier, "1", admin_request(body=answer)))
        self.assertEqual((made["source_system"], made["source_code"], made["code"]), (None, "W9", "icu"))
        self.assertEqual((await self.body(admin.list_codes(self.codes, admin_request("status=mapped"))))["total"], 2)
        made = await self.body(admin.map_code(self.codes, self.notifier, "1", admin_request(body={"code": None})))
        self.assertEqual((made["source_system"], made["code"]), ("LAB", None))
        self.assertEqual(made, await self.body(admin.get_override(self.codes, str(made["id"]))))
        page = await self.body(admin.list_overrides(self.codes, admin_request("source_system=LAB")))
        self.assertEqual([item["id"] for item in page["items"]], [made["id"]])
        await self.body(admin.delete_override(self.codes, self.notifier, str(made["id"])), 204)
        await self.refused(admin.get_override(self.codes, str(made["id"])), Category.NOT_FOUND)
        for body in ([], {}, {"code": 1}, {"code": ""}, {"code": "a\nb"}, {"code": None, "system": "x"}, {"kode": "a"}):
            await self.refused(admin.map_code(self.codes, self.notifier, "1", admin_request(body=body)), Category.VALUE)

    async def test_conversions(self) -> None:
        """Listed, retried and deleted like messages."""
        done = await self.body(
            admin.requeue_code(self.codes, self.notifier, "1", admin_request(body={"following": False}))
        )
        self.assertEqual(done, {"id": 1, "converted_again": 2, "following": 0, "retried": 0})
        page = await self.body(admin.list_conversions(self.codes, admin_request("message_id=1&status=RECEIVED")))
        item = page["items"][0]
        self.assertEqual((page["total"], item["message_id"], item["reason"]), (1, 1, "unmapped-code/1"))
        conflict = await self.body(admin.retry_conversion(self.codes, self.notifier, str(item["id"])), 409)
        self.assertEqual((conflict["error"], conflict["currentStatus"]), ("invalid_state_for_retry", "RECEIVED"))
        conflict = await self.body(admin.delete_conversion(self.codes, str(item["id"])), 409)
        self.assertEqual(conflict["error"], "invalid_state_for_delete")
        for claim in await self.inbox.claim("w", 5):
            await self.inbox.settle([failed(claim, 60, Status.DEAD_LETTER)])
        again = await self.body(admin.retry_conversion(self.codes, self.notifier, str(item["id"])))
        self.assertEqual((again["status"], again["attempt_count"], again["last_error"]), ("RECEIVED", 0, None))
        await self.inbox.settle([failed(claim, 60, Status.DEAD_LETTER) for claim in await self.inbox.claim("w", 5)])
        await self.body(admin.delete_conversion(self.codes, str(item["id"])), 204)
        await self.refused(admin.delete_conversion(self.codes, str(item["id"])), Category.NOT_FOUND)

    async def test_a_token_is_required(self) -> None:
        async def work(request: Request) -> Answer:
            return await admin.list_codes(self.codes, request)

        await self.body(respond(AdminAccess("secret").check, refusal, admin_request(), work), 401)
        await self.body(
            respond(AdminAccess("secret").check, refusal, admin_request(authorization="Bearer secret"), work), 200
        )
