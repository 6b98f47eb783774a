"""Saved views of the console through the admin API, on PostgreSQL."""

from __future__ import annotations

from typing import Any

from ipf.ports.messages.saved_views import LONGEST_NAME, LONGEST_QUERY, MOST_VIEWS
from ipf.store.inbox.saved_views import PostgresSavedViews
from ipf.wire.admin.route import AnyMounted
from ipf.wire.admin.systems import views
from tests.wire.admin.operators import OperatorsTest

MINE = {"area": "messages", "name": "Failed", "query": "status=FAILED"}


class ViewsTests(OperatorsTest):
    def more_routes(self) -> list[AnyMounted]:
        """The paths of views."""
        return [views.routes(PostgresSavedViews(self.database), "the token")]

    async def names(self, person: str = "", area: str = "messages") -> list[str]:
        """The views of a person."""
        status, found = await self.ask("GET", f"/views?area={area}", **_by(person))
        self.assertEqual(status, 200)
        return [one["name"] for one in found["items"]]

    async def test_save_list_and_remove(self) -> None:
        """By list and by name, without regard to case; the same name again is another query."""
        status, saved = await self.ask("POST", "/views", MINE)
        self.assertEqual((status, {**saved, "id": 0}), (200, {**MINE, "id": 0}))
        for name, area in (("all", "messages"), ("Zoo", "messages"), ("Failed", "rejects")):
            self.assertEqual((await self.ask("POST", "/views", {**MINE, "name": name, "area": area}))[0], 200)
        self.assertEqual((await self.names(), await self.names(area="rejects")), (["all", "Failed", "Zoo"], ["Failed"]))
        _, again = await self.ask("POST", "/views", {**MINE, "query": ""})
        self.assertEqual((again["id"], again["query"]), (saved["id"], ""))
        self.assertEqual((await self.ask("DELETE", f"/views/{saved['id']}"))[0], 204)
        self.assertEqual((await self.ask("DELETE", f"/views/{saved['id']}"))[0], 404)
        self.assertEqual(await self.names(), ["all", "Zoo"])

    async def test_everybody_has_his_own(self) -> None:
        """Who is named by X-Ipf-Actor; nobody lists or removes those of others."""
        _, hers = await self.ask("POST", "/views", MINE, **_by("ada"))
        self.assertEqual((await self.names("ada"), await self.names("bo"), await self.names()), (["Failed"], [], []))
        self.assertEqual((await self.ask("DELETE", f"/views/{hers['id']}", **_by("bo")))[0], 404)
        await self.ask("POST", "/views", {**MINE, "query": "of=bo"}, **_by("bo"))
        _, found = await self.ask("GET", "/views?area=messages", **_by("ada"))
        self.assertEqual([one["query"] for one in found["items"]], ["status=FAILED"])

    async def test_refusals(self) -> None:
        """Bad input, and one view too many."""
        for body in (
            {}, [], b"{", {**MINE, "more": "1"}, {**MINE, "name": " "}, {**MINE, "area": ""}, {**MINE, "name": 1},
            {**MINE, "name": "a\nb"}, {**MINE, "name": "x" * (LONGEST_NAME + 1)},
            {**MINE, "query": "x" * (LONGEST_QUERY + 1)},
        ):  # fmt: skip
            self.assertEqual((await self.ask("POST", "/views", body))[0], 400, body)
        for number in range(MOST_VIEWS):
            self.assertEqual((await self.ask("POST", "/views", {**MINE, "name": f"v{number}"}))[0], 200)
        self.assertEqual((await self.ask("POST", "/views", MINE))[0], 409)
        self.assertEqual((await self.ask("POST", "/views", {**MINE, "name": "v0", "query": ""}))[0], 200)
        self.assertEqual((await self.ask("DELETE", "/views/x"))[0], 400)


def _by(person: str) -> dict[str, Any]:
    return {"X_Ipf_Actor": person} if person else {}
