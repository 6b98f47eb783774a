"""Erasures through the admin API: functions on values, over the erasure on PostgreSQL."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ipf.app.listeners.erasure import erasure_admin
from ipf.config.settings import Settings
from ipf.errors import Problem
from ipf.fhir.model.json import dumps, loads
from ipf.ports import Request
from ipf.wire.admin.messages import refusal
from ipf.wire.admin.patients.erasure import forget, list_receipts
from tests.pipeline.maintenance.erasures import ErasureSuite, hl7, observation
from tests.rest.world import BASE, CORRELATION_ID
from tests.wire.admin.operators import check

ERASE = {"dry_run": False, "reason": "asked for"}


class ErasureAdminTests(ErasureSuite):
    async def setUp(self) -> None:
        await super().setUp()
        stores: Any = SimpleNamespace(fhir_database=self.database, inbox_database=self.inbox_database)
        settings = Settings(data_dir=self.mktemp(), base_url=BASE, legal_holds=("Patient/held",))
        self.admin = erasure_admin(settings, stores, "admin token")

    async def ask(self, body: Any, id_: str = "x", tenant: str = "default") -> tuple[int, Any]:
        """The response, checked against the OpenAPI document."""
        path = ("patients", id_, "forget")
        sent = body if isinstance(body, bytes) else dumps(body)
        request = Request("POST", path, (("tenant", tenant),), {}, sent, BASE, CORRELATION_ID)
        try:
            answer = await forget(self.admin, id_, request)
        except Problem as problem:
            answer = refusal(problem)
        shown = loads(answer.body)
        check("POST", f"/admin/{'/'.join(path)}", answer.status, shown)
        return answer.status, shown

    async def test_dry_run_decisions_and_receipt(self) -> None:
        """What is in the way is named; a decision removes it; the receipt is in the list."""
        await self.put({"resourceType": "Device", "id": "d", "patient": {"reference": "Patient/x"}})
        await self.put(observation("both", "x", performer=[{"reference": "Patient/y"}]))
        shared, uncertain = hl7("S", "4711^^^A^MR"), hl7("U", "4711^^^B^MR")
        await self.inbox.store([shared, uncertain])
        await self.wrote(shared, "x", "both")
        before = await self.rows()
        status, shown = await self.ask({})
        way = shown["in_the_way"]
        self.assertEqual(
            (status, shown["patients"], way["resources"]), (200, ["Patient/x"], ["Device/d", "Observation/both"])
        )
        self.assertEqual([len(way[name]) for name in ("shared_messages", "uncertain_messages")], [1, 1])
        self.assertEqual((await self.ask({**ERASE, "confirm": shown["confirm"]}))[0], 409)
        self.assertEqual(await self.rows(), before)
        chosen = {"redact": ["Observation/both"], "remove": ["*"], "shared_messages": "remove",
                  "uncertain_messages": "keep"}  # fmt: skip
        _, shown = await self.ask(chosen)
        self.assertEqual(shown["in_the_way"]["resources"], [])
        self.assertEqual((await self.ask({**ERASE, **chosen, "confirm": "0"}))[0], 409)
        status, done = await self.ask({**ERASE, **chosen, "confirm": shown["confirm"]})
        self.assertEqual((status, done["receipt"]["counts"], done["receipt"]["finished"]), (200, shown["counts"], True))
        self.assertEqual(await self.names(), ["Observation/both", "Observation/oy", "Patient/y", "Patient/y"])
        self.assertEqual(await self.message_ids(), ["U"])
        request = Request("GET", ("erasures",), (), {}, b"", BASE, CORRELATION_ID)
        page = loads((await list_receipts(self.admin, request)).body)
        check("GET", "/admin/erasures", 200, page)
        self.assertEqual((page["total"], page["items"]), (1, [done["receipt"]]))
        self.assertEqual(done["receipt"]["actor"], "admin token")
        self.assertEqual((await self.ask({}))[0], 404)

    async def test_refusals(self) -> None:
        """Bad input, unknown patients and tenants, holds; nothing is changed."""
        before = await self.rows()
        for body, status in (
            (b"[]", 400), (b"{", 400), ({"names": 1}, 400), ({"dry_run": "no"}, 400), ({"redact": "Group/1"}, 400),
            ({"redact": ["nobody"]}, 400), ({"redact": ["*"], "remove": ["*"]}, 400), ({"remove": [1]}, 400),
            ({"shared_messages": "keep"}, 400), ({"uncertain_messages": "drop"}, 400),
            (ERASE, 400), ({**ERASE, "reason": " ", "confirm": "1"}, 400), ({**ERASE, "reason": "two\nlines"}, 400),
            ({**ERASE, "confirm": "1"}, 409),
        ):  # fmt: skip
            self.assertEqual((await self.ask(body))[0], status, body)
        cases = (("x", "*", 400), ("a|b", "default", 400), ("n", "default", 404), ("x", "north", 404),
                 ("held", "default", 409))  # fmt: skip
        for id_, tenant, status in cases:
            self.assertEqual((await self.ask({}, id_, tenant))[0], status, (id_, tenant))
        self.assertEqual(await self.rows(), before)
