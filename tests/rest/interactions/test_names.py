"""Names that are found by a later word: pages, conditional writes and transactions, tenants."""

from __future__ import annotations

from ipf.fhir.model.json import dumps, loads
from ipf.ports import Json
from tests.rest.interactions.pages import entries, link
from tests.rest.world import OnMemory, OnSharedPostgres, Suite, World, patient


class NameSuite(Suite):
    world: World

    async def found(self, url: str, tenant: str = "") -> list[str]:
        """Ids of the matches of all pages."""
        ids: list[str] = []
        following: str | None = url
        while following:
            answer = await self.world.send("GET", following, tenant=tenant)
            self.assertEqual(answer.status, 200, answer.body)
            ids += [one.removeprefix("Patient/") for one in entries(answer)]
            following = link(answer, "next")
        return ids

    async def store(self, id: str, family: str, tenant: str = "") -> None:
        """A Patient."""
        answer = await self.world.send("PUT", f"Patient/{id}", patient(id, family, id=id), tenant=tenant)
        self.assertEqual(answer.status, 201, answer.body)
        self.world.pass_time()

    async def test_pages(self) -> None:
        """Each match once, whatever the order, also of names with the word twice."""
        for number, family in enumerate(("Roe Smith", "Smith", "Smith Smith-Smith", "Smit", "Blacksmith")):
            await self.store(f"p{number}", family)
        for sort, expected in (("_id", "p0 p1 p2"), ("-_id", "p2 p1 p0"), ("family", "p0 p1 p2"), ("", "p0 p1 p2")):
            for count in (1, 2, 10):
                url = f"Patient?family=smith&_count={count}" + (f"&_sort={sort}" if sort else "")
                self.assertEqual(await self.found(url), expected.split(), url)
        answer = loads((await self.world.send("GET", "Patient?name=smith&_summary=count")).body)
        self.assertEqual(answer["total"], 3)

    async def test_conditional_writes(self) -> None:
        """A later word makes nobody the one that is meant; of those whose name begins so, several are refused."""
        await self.store("luz", "Carreño Quiñones")
        criteria = "family=quinones"
        created = await self.world.send("POST", "Patient", patient("x", "Quinones"), if_none_exist=criteria)
        self.assertEqual(created.status, 201)
        again = await self.world.send("POST", "Patient", patient("x", "Quinones"), if_none_exist=criteria)
        self.assertEqual((again.status, loads(again.body)["id"]), (200, loads(created.body)["id"]))
        changed = await self.world.send("PUT", f"Patient?{criteria}", patient("y", "Quinones"))
        self.assertEqual((changed.status, loads(changed.body)["id"]), (200, loads(created.body)["id"]))
        await self.store("ana", "Quiñones")
        for method, url, body, headers in (
            ("POST", "Patient", patient("x", "Quinones"), {"if_none_exist": criteria}),
            ("PUT", f"Patient?{criteria}", patient("x", "Quinones"), {}),
            ("DELETE", f"Patient?{criteria}", None, {}),
        ):
            answer = await self.world.send(method, url, body, **headers)
            self.assertEqual(answer.status, 412, (method, answer.body))
        exact = await self.world.send("PUT", "Patient?family:exact=Quiñones", patient("ana", "Quiñones Ruiz", id="ana"))
        self.assertEqual(exact.status, 200, exact.body)
        self.assertEqual(await self.found("Patient?family=ruiz"), ["ana"])

    async def test_transactions(self) -> None:
        """A condition of an entry."""
        entry: Json = {
            "resource": patient("new", "Carreño Quiñones", id="new"),
            "request": {"method": "PUT", "url": "Patient/new"},
        }
        again: Json = {
            "resource": patient("x", "Other"),
            "request": {"method": "POST", "url": "Patient", "ifNoneExist": "family=quinones"},
        }
        bundle: Json = {"resourceType": "Bundle", "type": "transaction", "entry": [entry]}
        self.assertEqual((await self.world.send("POST", "", dumps(bundle))).status, 200)
        answer = await self.world.send("POST", "", dumps({**bundle, "entry": [again]}))
        self.assertTrue(loads(answer.body)["entry"][0]["response"]["status"].startswith("201"), answer.body)
        self.assertEqual(await self.found("Patient?family=quinones"), ["new"])
        about: Json = {
            "resource": {
                "resourceType": "Observation", "status": "final", "code": {"text": "weight"},
                "subject": {"reference": "Patient?family=quinones"},
            },
            "request": {"method": "POST", "url": "Observation"},
        }  # fmt: skip
        answer = await self.world.send("POST", "", dumps({**bundle, "entry": [about]}))
        self.assertEqual(answer.status, 412, answer.body)

    async def test_tenants(self) -> None:
        """A tenant finds its own."""
        await self.store("a", "Carreño Quiñones")
        await self.store("b", "Ruiz Quiñones", "north")
        self.assertEqual(await self.found("Patient?family=quinones"), ["a"])
        self.assertEqual(await self.found("Patient?family=quinones", "north"), ["b"])


class NameTests(NameSuite, OnMemory):
    """In memory."""


class NameOnPostgresTests(NameSuite, OnSharedPostgres):
    """SQL compares names."""
