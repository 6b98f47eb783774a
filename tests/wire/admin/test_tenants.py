"""Messages of several tenants in the admin API: operations use the tenant of the message, lists one or all."""

from __future__ import annotations

from typing import Any

from ipf.ports import Rejected, Status, UnmappedCode
from tests.wire.admin.operators import OperatorsTest, adt, now

WARD = UnmappedCode("urn:t:ward", "W9")
LISTS = (
    "/messages", "/rejects", "/jobs", "/dead-letters/errors", "/unmapped-codes", "/code-overrides", "/conversions",
    "/unread-fields",
)  # fmt: skip


class TenantsTest(OperatorsTest):
    """The same patient in two tenants: messages 1 and 3 in `default`, 2 and 4 in `north`."""

    async def setUp(self) -> None:
        await super().setUp()
        pair = (("default", "Own"), ("north", "Theirs"))
        await self.inbox.store([adt(n, name, tenant=tenant) for n in (1, 2) for tenant, name in pair])
        await self.convert(unmapped=(WARD,))

    async def listed(self, path: str, tenant: str | None = None) -> list[dict[str, Any]]:
        """The items of a list; checks the total."""
        query = "" if tenant is None else f"?tenant={tenant}"
        status, body = await self.ask("GET", path + query)
        self.assertEqual((status, body["total"]), (200, len(body["items"])), path)
        found: list[dict[str, Any]] = body["items"]
        return found

    async def changed(self, **body: Any) -> tuple[str, int, int]:
        """The tenant of a replay and its numbers of converted and of following messages."""
        status, job = await self.ask("POST", "/messages/replay", body)
        self.assertEqual(status, 202, job)
        await self.work()
        _, job = await self.ask("GET", f"/jobs/{job['id']}")
        return job["tenant"], job["changed"], job["following_changed"]

    async def test_effects_and_dry_run(self) -> None:
        """Effects and preview of a message are read in its own tenant."""
        for number, tenant, family in ((1, "default", "Own"), (2, "north", "Theirs")):
            _, message = await self.ask("GET", f"/messages/{number}")
            self.assertEqual(message["tenant"], tenant)
            _, body = await self.ask("GET", f"/messages/{number}/effects")
            self.assertEqual((body["effects_status"], body["message"]["tenant"]), ("delivered", tenant))
            self.assertEqual([one["action"] for one in body["fhir_resources_created"]], ["created"])
            _, dry = await self.ask("POST", "/messages/replay", {"ids": [number], "dry_run": True})
            ((resource,),) = [item["resources"] for item in dry["items"]]
            self.assertEqual(resource["outcome"], "unchanged", family)
            self.assertEqual(resource["id"], body["fhir_resources_created"][0]["id"])

    async def test_replay(self) -> None:
        """Limited to the tenant, despite the same patient key in another; a job on several tenants is in every list."""
        self.assertEqual(await self.changed(ids=[2]), ("north", 1, 1))
        self.assertEqual([claim.original_id for claim in await self.convert()], [2, 4])
        self.assertEqual(await self.changed(filter={"tenant": "north", "source_id": "C1"}, following=False),
                         ("north", 1, 0))  # fmt: skip
        self.assertEqual(await self.changed(ids=[1, 2, 3], filter={"tenant": "north"}, following=False),
                         ("north", 1, 0))  # fmt: skip
        self.assertEqual(await self.changed(filter={"tenant": "*", "text": "c1"}, following=False), ("*", 2, 0))
        await self.convert()
        self.assertEqual(await self.families(), ["Own", "Theirs"])
        self.assertEqual([one["tenant"] for one in await self.listed("/jobs")], ["*"])
        self.assertEqual([one["tenant"] for one in await self.listed("/jobs", "north")], ["*"] + ["north"] * 3)
        self.assertEqual(len(await self.listed("/jobs", "*")), 4)
        (again,) = await self.listed("/messages/1/conversions")
        self.assertEqual(again["tenant"], "default")
        conversions = {tenant: len(await self.listed("/conversions", tenant)) for tenant in ("default", "north", "*")}
        self.assertEqual(conversions, {"default": 1, "north": 5, "*": 6})
        self.assertEqual((await self.ask("POST", "/messages/replay", {"filter": {"tenant": "*"}}))[0], 400)

    async def test_unmapped_codes(self) -> None:
        """Override and requeue are limited to the tenant of the code."""
        (own,), (theirs,) = await self.listed("/unmapped-codes"), await self.listed("/unmapped-codes", "north")
        self.assertEqual((own["tenant"], theirs["tenant"]), ("default", "north"))
        _, made = await self.ask("POST", f"/unmapped-codes/{theirs['id']}/map", {"code": "icu", "system": "urn:x"})
        self.assertEqual(made["tenant"], "north")
        self.assertEqual((await self.ask("GET", f"/code-overrides/{made['id']}"))[1], made)
        self.assertEqual([one["status"] for one in await self.listed("/unmapped-codes", "*")], ["mapped", "open"])
        self.assertEqual((await self.listed("/code-overrides"), await self.listed("/code-overrides", "north")),
                         ([], [made]))  # fmt: skip
        _, done = await self.ask("POST", f"/unmapped-codes/{theirs['id']}/requeue", {})
        self.assertEqual((done["converted_again"], done["following"], done["retried"]), (2, 0, 0))
        self.assertEqual([claim.tenant for claim in await self.convert()], ["north", "north"])
        self.assertEqual((await self.ask("DELETE", f"/code-overrides/{made['id']}"))[0], 204)

    async def test_dead_letters_and_rejects(self) -> None:
        """In groups and in bulk, of one tenant or of all; a reject names the tenant of its listener."""
        for tenant in ("default", "north"):
            await self.inbox.store([adt(9, tenant=tenant, ordering_key=None)])
            await self.end_as(Status.DEAD_LETTER)
            refused = (now(), "6f1e1b5e-0c38-4b3c-9c51-0242ac120002", "lab", "10.0.0.1", "no MSH", b"x", 1, tenant)
            await self.inbox.reject(Rejected(*refused))
        for tenant, count in (("default", 1), ("north", 1), ("*", 2), ("west", 0)):
            self.assertEqual(sum(one["count"] for one in await self.listed("/dead-letters/errors", tenant)), count)
            self.assertEqual(len(await self.listed("/rejects", tenant)), count)
        (group,) = await self.listed("/dead-letters/errors", "north")
        for wanted, total in (({}, 1), ({"tenant": "north"}, 1), ({"tenant": "*"}, 2)):
            body = {"fingerprint": group["fingerprint"], "filter": wanted, "dry_run": True}
            self.assertEqual((await self.ask("POST", "/dead-letters/retry", body))[1]["total"], total, wanted)
        body = {"fingerprint": group["fingerprint"], "filter": {"tenant": "north"}}
        _, job = await self.ask("POST", "/dead-letters/discard", body)
        await self.work()
        self.assertEqual((await self.ask("GET", f"/jobs/{job['id']}"))[1]["changed"], 1)
        self.assertEqual(await self.listed("/dead-letters/errors", "north"), [])
        (reject,) = await self.listed("/rejects", "north")
        self.assertEqual((await self.ask("GET", f"/rejects/{reject['id']}"))[1]["tenant"], "north")
        self.assertEqual((await self.ask("DELETE", f"/rejects/{reject['id']}"))[0], 204)

    async def test_every_list_has_tenants(self) -> None:
        """An unknown tenant has no rows; a malformed name is refused or matches nothing."""
        for path in LISTS:
            self.assertEqual(await self.listed(path, "west"), [], path)
            self.assertIn((await self.ask("GET", f"{path}?tenant=a%1fb"))[0], (200, 400), path)
