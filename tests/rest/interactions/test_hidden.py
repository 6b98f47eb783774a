"""Answers that must not depend on resources that the client may not see: one leak a test.

`tests/security/test_two_worlds.py` looks for more of them at random.
"""

from __future__ import annotations

from typing import Any

from ipf.fhir.model.json import loads
from ipf.ports import OPEN, Answer, Caller, Json
from ipf.rest.interactions.histories import many as history_many
from ipf.store.resources.reindex import PostgresReindexQueue
from tests.rest.interactions.pages import entries
from tests.rest.world import BASE, OnMemory, OnSharedPostgres, Suite, World, issues
from tests.security.test_scopes import ADA, BOB, VITAL, observation


class HiddenSuite(Suite):
    """Patient p1 sees his compartment; p2 and her observations are hidden."""

    world: World

    async def store(self, *resources: Json) -> None:
        """Write as somebody without limits."""
        self.world.caller = OPEN
        for resource in resources:
            self.world.pass_time()
            answer = await self.world.send("PUT", f"{resource['resourceType']}/{resource['id']}", resource)
            self.assertLess(answer.status, 300, answer.body)

    async def ask(self, url: str, scopes: str = "patient/*.rs", method: str = "GET", body: Any = None) -> Answer:
        """One request of the patient."""
        self.world.caller = Caller("ada", "app", tuple(scopes.split()), patient="p1")
        return await self.world.send(method, url, body)

    async def pages(self, url: str) -> list[list[str]]:
        """The references on each page."""
        found = []
        while True:
            answer = await self.ask(url)
            bundle = loads(answer.body)
            found.append([one["fullUrl"].removeprefix(f"{BASE}/") for one in bundle.get("entry", ())])
            links = {link["relation"]: link["url"] for link in bundle["link"]}
            if "next" not in links:
                return found
            url = links["next"].removeprefix(f"{BASE}/")

    async def test_pages_of_a_history_are_full(self) -> None:
        """A page is as long as asked for, and no link leads to an empty one."""
        hidden = [observation(f"h{number}", "p2") for number in range(5)]
        await self.store(ADA, hidden[0], observation("o1"), *hidden[1:4], observation("o2"), hidden[4])
        for url in ("_history", "Observation/_history"):
            seen = await self.pages(f"{url}?_count=1")
            self.assertEqual(seen[:2], [["Observation/o2"], ["Observation/o1"]])
            self.assertEqual(len(seen), 3 if url == "_history" else 2)

    async def test_a_history_within_a_restriction_is_bounded(self) -> None:
        self.patch(history_many, "_MOST_SCANNED", 100)
        await self.store(ADA, *[observation(f"h{number}", "p2") for number in range(201)])
        answer = await self.ask("Observation/_history")
        self.assertEqual((answer.status, issues(answer)[0][0]), (400, "too-costly"))
        self.world.caller = OPEN
        self.assertEqual((await self.world.send("GET", "Observation/_history")).status, 200)

    async def test_history_of_one_resource(self) -> None:
        """Hidden versions neither shorten a page nor are they counted."""
        versions = [observation("o1", "p1" if number in (0, 4) else "p2", status=status)
                    for number, status in enumerate(("final", "amended", "final", "amended", "final"))]  # fmt: skip
        await self.store(ADA, *versions)
        self.assertEqual(await self.pages("Observation/o1/_history?_count=1"), [["Observation/o1"]] * 2)
        self.assertNotIn("total", loads((await self.ask("Observation/o1/_history")).body))

    async def test_includes_are_not_truncated_by_hidden_ones(self) -> None:
        """Neither a warning nor fewer resources."""
        await self.store(ADA, BOB)
        lists: list[Json] = [
            {"resourceType": "List", "id": f"l{number}", "status": "current", "mode": "working",
             "subject": {"reference": f"Patient/p{1 if number == 4 else 2}"},
             "entry": [{"item": {"reference": "Patient/p1"}}]} for number in range(5)
        ]  # fmt: skip
        await self.store(*lists)
        self.world.max_page_size = 2
        answer = await self.ask("Patient?_revinclude=List:item")
        self.assertEqual(entries(answer, "include"), ["List/l4"])
        self.assertNotIn(b"OperationOutcome", answer.body)

    async def test_hidden_types_do_not_change_a_search(self) -> None:
        """A parameter that only a hidden type does not know is not ignored."""
        await self.store(ADA, observation("o1"))
        before = (await self.ask("?code=x&_type=Observation")).body, (await self.ask("?code=x")).body
        await self.store({"resourceType": "Appointment", "id": "a", "status": "booked",
                          "participant": [{"actor": {"reference": "Patient/p2"}, "status": "accepted"}]})  # fmt: skip
        self.assertEqual(((await self.ask("?code=x&_type=Observation")).body, (await self.ask("?code=x")).body), before)

    async def test_an_empty_store_and_a_hidden_one(self) -> None:
        """With something granted, a search of everything is empty; with nothing, it is refused."""
        scopes = f"system/Observation.rs?category={VITAL}"
        for _ in range(2):
            self.assertEqual((await self.ask("", scopes)).status, 200)
            self.assertEqual((await self.ask("", "openid")).status, 401)
            await self.store(BOB)

    async def test_deleted_ids(self) -> None:
        """Whether an id was ever taken is not told, nor how often."""
        await self.store(ADA, observation("o2", "p2"))
        self.world.caller = OPEN
        await self.world.send("DELETE", "Observation/o2")
        for id in ("o2", "none"):
            seen = []
            for method, body in (("GET", None), ("DELETE", None), ("PUT", observation(id)), ("PATCH", [])):
                self.world.caller = Caller("ada", "app", ("patient/*.cruds",), patient="p1")
                kind = "application/json-patch+json" if method == "PATCH" else "application/fhir+json"
                answer = await self.world.send(method, f"Observation/{id}", body, content_type=kind)
                seen.append((answer.status, dict(answer.headers).get("ETag")))
            self.assertEqual(seen, [(404, None), (204, None), (404, None), (404, None)])


class OnMemoryTests(HiddenSuite, OnMemory):
    """In memory."""


class OnPostgresTests(HiddenSuite, OnSharedPostgres):
    """SQL restricts searches and histories."""

    async def test_numbers_of_reindex_jobs(self) -> None:
        """They count resources and jobs of everybody."""
        self.world.reindex = PostgresReindexQueue(self.database)
        self.world.caller = OPEN
        self.assertEqual((await self.world.send("POST", "$reindex?type=Patient")).status, 202)
        for scopes, shows in (("patient/*.rs", False), ("system/SearchParameter.rs", False), ("system/*.rs", True)):
            (job,) = loads((await self.ask("$reindex", scopes)).body)["parameter"]
            names = {part["name"] for part in job["part"]}
            self.assertEqual({"id", "done", "of"} <= names, shows, scopes)
            self.assertEqual({"id", "done", "of"} & names != set(), shows, scopes)
            self.assertIn("status", names)
