"""Message administration through HTTP on PostgreSQL: every row of the contract's tables.

Source: interface specification "Message administration", "Ingested message" (states), "Limits", "Errors".
"""

from __future__ import annotations

from ipf.ports import Rejected, Status
from tests.wire.admin.operators import OperatorsTest, adt, now

LIST = [
    "id", "received_at", "source_protocol", "source_system", "source_id", "message_type", "status", "attempt_count",
    "last_attempt_at", "last_error", "delivered_at", "correlation_id", "tenant", "permanent",
]  # fmt: skip


class ContractTest(OperatorsTest):
    """Tables of the contract."""

    async def in_each_state(self) -> dict[str, int]:
        """One message in each state, by state."""
        ids = {}
        for number, status in enumerate((Status.DEAD_LETTER, Status.DELIVERED, Status.FAILED)):
            await self.inbox.store([adt(number, ordering_key=None)])
            if status is Status.DELIVERED:
                (claim,) = await self.convert(1)
                ids[str(status)] = claim.id
            else:
                ids[str(status)] = await self.end_as(status)
                await self.database.many("UPDATE message_states SET ready_at = 'infinity' WHERE status = 'FAILED'")
        await self.inbox.store([adt(3, ordering_key=None)])
        (claim,) = await self.inbox.claim("w", 1)
        ids["TRANSFORMING"] = claim.id
        await self.inbox.store([adt(4, ordering_key=None)])
        ids["RECEIVED"] = claim.id + 1
        return ids

    async def test_states_and_operations(self) -> None:
        """The admin operation matrix, with the conflict body."""
        matrix = {
            "RECEIVED": (409, 409), "TRANSFORMING": (409, 409), "DELIVERED": (409, 409), "FAILED": (200, 409),
            "DEAD_LETTER": (200, 204),
        }  # fmt: skip
        ids = await self.in_each_state()
        for state, (_, delete) in matrix.items():
            if delete == 409:
                await self.refused("DELETE", f"/messages/{ids[state]}", "delete", state, ids[state])
        for state, (retry, _) in matrix.items():
            if retry == 409:
                await self.refused("POST", f"/messages/{ids[state]}/retry", "retry", state, ids[state])
                continue
            status, body = await self.ask("POST", f"/messages/{ids[state]}/retry")
            shown = (body["status"], body["attempt_count"], body["next_attempt_at"], body["last_error"])
            self.assertEqual((status, shown), (200, ("RECEIVED", 0, None, None)), state)
        await self.inbox.store([adt(9, ordering_key=None)])
        await self.database.many("UPDATE message_states SET status = 'DEAD_LETTER' WHERE status = 'RECEIVED'")
        self.assertEqual(await self.ask("DELETE", f"/messages/{ids['DEAD_LETTER']}"), (204, None))
        self.assertEqual((await self.ask("GET", f"/messages/{ids['DEAD_LETTER']}"))[0], 404)

    async def test_large_bodies(self) -> None:
        """The operator API reads a megabyte; archives of profiles have a limit of their own."""
        status, body = await self.ask("POST", "/messages/1/retry", {"x": "y" * 1_100_000})
        self.assertEqual((status, body["message"]), (413, "the body has more than 1048576 bytes"))

    async def refused(self, method: str, path: str, action: str, state: str, number: int) -> None:
        status, body = await self.ask(method, path)
        self.assertEqual(list(body), ["error", "message", "id", "currentStatus"])
        self.assertEqual((status, body["error"]), (409, f"invalid_state_for_{action}"))
        self.assertEqual((body["id"], body["currentStatus"]), (number, state))
        self.assertIn(state, body["message"])

    async def test_list_filters_and_totals(self) -> None:
        """One state or all; totals match the filter, with and without index."""
        ids = await self.in_each_state()
        status, body = await self.ask("GET", "/messages")
        self.assertEqual((status, body["total"], [item["id"] for item in body["items"]]), (200, 5, [5, 4, 3, 2, 1]))
        self.assertEqual(list(body["items"][0]), LIST)
        self.assertEqual(list(body), ["total", "limit", "offset", "items"])
        for state, number in ids.items():
            for query in (f"status={state}", f"status={state}&source_system=LAB", f"status={state}&text=hansen"):
                _, body = await self.ask("GET", f"/messages?{query}")
                self.assertEqual((body["total"], [item["id"] for item in body["items"]]), (1, [number]), query)
        for query, total in (
            ("source_id=C0", 1), ("source_id=C", 0), ("message_type=ADT_A01", 5), ("message_type=ADT_A08", 0),
            ("source_system=LAB&message_type=ADT_A01", 5), ("source_system=X", 0), ("status=", 5),
            ("error=NO%20MAP", 2), ("error=other", 0), ("permanent=false", 2), ("permanent=true", 0),
            ("patient=P1", 5), ("patient=p2", 0), ("text=p1%20hans*", 5),
            ("received_from=2000-01-01", 5), ("received_to=2000-01-01T00:00:00Z", 0),
            ("received_from=2000-01-01T00:00%2B01:00&status=DELIVERED", 1), ("text=a%00b", 0),
        ):  # fmt: skip
            self.assertEqual((await self.ask("GET", f"/messages?{query}"))[1]["total"], total, query)

    async def test_limit_and_offset(self) -> None:
        """Default 50, clamped to 1..500; negatives become 0; rounded down to a page."""
        await self.inbox.store([adt(number) for number in range(120)])
        for query, limit, offset, count in (
            ("", 50, 0, 50), ("limit=0", 1, 0, 1), ("limit=-5", 1, 0, 1), ("limit=501", 500, 0, 120),
            ("limit=50&offset=37", 50, 0, 50), ("limit=50&offset=99", 50, 50, 50), ("limit=50&offset=100", 50, 100, 20),
            ("offset=-1", 50, 0, 50), ("limit=50&offset=5000", 50, 5000, 0), ("limit=&offset=", 50, 0, 50),
        ):  # fmt: skip
            status, body = await self.ask("GET", f"/messages?{query}")
            shown = (status, body["total"], body["limit"], body["offset"], len(body["items"]))
            self.assertEqual(shown, (200, 120, limit, offset, count), query)

    async def test_refusals(self) -> None:
        """400, 404 and 405 have the same form."""
        for method, path, status, code in (
            ("GET", "/messages?status=delivered", 400, "invalid_status"),
            ("GET", "/messages?limit=ten", 400, "bad_request"),
            ("GET", "/messages?permanent=yes", 400, "bad_request"),
            ("GET", "/messages?received_from=yesterday", 400, "bad_request"),
            ("GET", "/messages?text=%25", 400, "bad_request"),
            ("GET", "/messages/abc", 400, "bad_request"),
            ("GET", "/messages/99", 404, "not_found"),
            ("POST", "/messages/99/retry", 404, "not_found"),
            ("DELETE", "/messages/99", 404, "not_found"),
            ("GET", "/messages/99/effects", 404, "not_found"),
            ("GET", "/messages/99/conversions", 404, "not_found"),
            ("GET", "/messages/x/effects", 400, "bad_request"),
            ("PUT", "/messages", 405, "bad_request"),
            ("GET", "/nothing", 404, "not_found"),
        ):
            found, body = await self.ask(method, path)
            self.assertEqual((found, body["error"], list(body)), (status, code, ["error", "message"]), path)

    async def test_tokens(self) -> None:
        """401 except for the OpenAPI document; the second token is read-only."""
        await self._listen("s3cret", "look")
        await self.inbox.store([adt(1)])
        for path in ("/messages", "/messages/1", "/messages/1/effects", "/jobs", "/rejects", "/config", "/x"):
            self.assertEqual((await self.ask("GET", path))[0], 401, path)
            self.assertEqual(self.headers.getRawHeaders("www-authenticate"), ["Bearer"])
        self.assertEqual((await self.ask("GET", "/openapi.json"))[0], 200)
        self.assertEqual((await self.ask("GET", "/jobs", Authorization="Bearer look"))[0], 200)
        replay = {"ids": [1]}
        self.assertEqual((await self.ask("POST", "/messages/replay", replay, Authorization="Bearer look"))[0], 403)
        self.assertEqual((await self.ask("POST", "/messages/replay", replay, Authorization="Bearer s3cret"))[0], 202)

    async def test_rejects(self) -> None:
        """Listed newest first, returned with the stored bytes, deleted."""
        for number in range(3):
            await self.inbox.reject(Rejected(now(), "6f1e1b5e-0c38-4b3c-9c51-0242ac120002", "lab", "10.0.0.1",
                                             f"no MSH {number}", b"\x00\xffraw", 700))  # fmt: skip
        status, body = await self.ask("GET", "/rejects?limit=2")
        self.assertEqual((status, body["total"], [one["id"] for one in body["items"]]), (200, 3, [3, 2]))
        self.assertEqual((await self.ask("GET", "/rejects?limit=2&offset=4"))[1]["total"], 3)
        _, body = await self.ask("GET", "/rejects/3")
        self.assertEqual((body["reason"], body["size"], body["raw"]), ("no MSH 2", 700, "\x00\ufffdraw"))
        self.assertEqual(await self.ask("DELETE", "/rejects/3"), (204, None))
        for method in ("GET", "DELETE"):
            self.assertEqual((await self.ask(method, "/rejects/3"))[0], 404)

    async def test_settings_in_effect(self) -> None:
        """Secrets are redacted; defaults are marked."""
        _, body = await self.ask("GET", "/config")
        found = {one["name"]: one for one in body["settings"]}
        self.assertEqual((found["IPF_MAX_ATTEMPTS"]["value"], found["IPF_MAX_ATTEMPTS"]["defaulted"]), (7, False))
        self.assertEqual(found["IPF_ADMIN_AUTH_TOKEN"]["value"], "********")
        self.assertEqual(found["IPF_MLLP_LISTEN"]["value"], ["tcp:2575"])
        self.assertEqual((found["IPF_DB_URL"]["value"], found["IPF_DB_URL"]["defaulted"]), (None, True))
        self.assertNotIn("s3cret", str(body))
