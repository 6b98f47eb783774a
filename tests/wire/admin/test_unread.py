"""Unread fields in the admin API, over HTTP on PostgreSQL."""

from __future__ import annotations

from typing import Any

from tests.contracts.unread_fields import count
from tests.wire.admin.operators import OperatorsTest, adt


class UnreadTest(OperatorsTest):
    """Message 1 is stored; rows of two senders and two tenants."""

    async def setUp(self) -> None:
        await super().setUp()
        await self.inbox.store([adt(1, "One")])
        await self.unread.add(
            [count("PV1-40", 3), count("PID-1", 5, kind="declared", reason="set ID (segments/PID.fml:3)"),
             count("ZPI", 1, 99, source_system="OTHER"), count("OBR-39", 2, tenant="north", message_type="ORU_R01")]
        )  # fmt: skip

    async def paths(self, query: str = "") -> list[str]:
        """Paths of a list; checks the total."""
        status, body = await self.ask("GET", f"/unread-fields{query}")
        self.assertEqual((status, body["total"]), (200, len(body["items"])))
        return [item["path"] for item in body["items"]]

    async def test_list(self) -> None:
        """The most frequent first, declared ones last; filters are exact."""
        self.assertEqual(await self.paths(), ["PV1-40", "ZPI", "PID-1"])
        self.assertEqual(await self.paths("?kind=unread&source_system=LAB"), ["PV1-40"])
        self.assertEqual(await self.paths("?path=ZPI"), ["ZPI"])
        self.assertEqual(await self.paths("?message_type=ORU_R01"), [])
        self.assertEqual(await self.paths("?tenant=*&message_type=ORU_R01"), ["OBR-39"])
        self.assertEqual(await self.paths("?kind=%20"), ["PV1-40", "ZPI", "PID-1"])
        _, body = await self.ask("GET", "/unread-fields?limit=1&offset=1")
        self.assertEqual((body["total"], body["limit"], body["offset"], len(body["items"])), (3, 1, 1, 1))
        status, body = await self.ask("GET", "/unread-fields?kind=lost")
        self.assertEqual((status, body["message"]), (400, "kind must be one of unread, declared, dropped, invalid"))

    async def test_row(self) -> None:
        """A message that is gone is null."""
        _, body = await self.ask("GET", "/unread-fields")
        _, gone, declared = body["items"]
        times = {name: declared.pop(name) for name in ("id", "first_seen", "last_seen")}
        self.assertTrue(all(times.values()))
        expected: dict[str, Any] = {
            "source_system": "LAB", "message_type": "ADT_A01", "kind": "declared", "path": "PID-1", "tenant": "default",
            "reason": "set ID (segments/PID.fml:3)", "occurrences": 5, "message_id": 1,
        }  # fmt: skip
        self.assertEqual(declared, expected)
        self.assertEqual((gone["message_id"], gone["reason"]), (None, None))

    async def test_forget(self) -> None:
        """One row, or those of a sender; without a sender it is refused."""
        _, body = await self.ask("GET", "/unread-fields?path=ZPI")
        number = body["items"][0]["id"]
        self.assertEqual((await self.ask("DELETE", f"/unread-fields/{number}"))[0], 204)
        self.assertEqual((await self.ask("DELETE", f"/unread-fields/{number}"))[0], 404)
        status, body = await self.ask("DELETE", "/unread-fields")
        self.assertEqual((status, body["message"]), (400, "source_system says whose rows are forgotten"))
        status, body = await self.ask("DELETE", "/unread-fields?source_system=LAB&kind=declared")
        self.assertEqual((status, body), (200, {"forgotten": 1}))
        self.assertEqual(await self.paths("?tenant=*"), ["PV1-40", "OBR-39"])
        await self.unread.add([count("PID-1", kind="declared")])
        self.assertEqual(await self.paths(), ["PV1-40", "PID-1"])
