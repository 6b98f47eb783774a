"""Observation/$lastn on the in-memory world and on PostgreSQL."""

from __future__ import annotations

from typing import Any

from ipf.fhir.model.json import loads
from ipf.ports import OPEN, Caller
from tests.contracts.lastn import LAB, seen
from tests.contracts.resources import patient
from tests.rest.world import OnMemory, OnSharedPostgres, Suite, World, issues

OBSERVATIONS = (
    seen("a1", "a", "2024-01-01"), seen("a2", "a", "2024-01-02"), seen("b1", "b", "2024-01-03", category=LAB),
    seen("b2", "b", "2024-01-04", status="preliminary"), seen("other", "a", "2024-05-05", "bob"),
)  # fmt: skip


def parameters(**values: Any) -> dict[str, Any]:
    """A Parameters resource."""
    kinds = {int: "valuePositiveInt", str: "valueString", bool: "valueBoolean", dict: "valueCoding"}
    found = [{"name": name, kinds[type(value)]: value} for name, value in values.items()]
    return {"resourceType": "Parameters", "parameter": found}


class LastnSuite(Suite):
    """Observations of two patients."""

    world: World

    async def fill(self) -> None:
        """Store them."""
        self.world.caller = OPEN
        for one in (patient("ann", active=True), patient("bob"), *OBSERVATIONS):
            answer = await self.world.send("PUT", f"{one['resourceType']}/{one['id']}", one)
            self.assertEqual(answer.status, 201, answer.body)

    async def bundle(self, query: str, body: Any = None, **headers: str) -> dict[str, Any]:
        """The searchset."""
        method = "GET" if body is None else "POST"
        answer = await self.world.send(method, f"Observation/$lastn{query}", body, **headers)
        self.assertEqual(answer.status, 200, answer.body)
        bundle: dict[str, Any] = loads(answer.body)
        self.assertEqual(bundle["type"], "searchset")
        return bundle

    async def found(self, query: str, body: Any = None, **headers: str) -> str:
        """The ids of the matches, in order."""
        entries = (await self.bundle(query, body, **headers)).get("entry", ())
        return " ".join(one["resource"]["id"] for one in entries if one["search"]["mode"] == "match")

    async def test_what_is_found(self) -> None:
        await self.fill()
        for query, expected in (
            ("?patient=ann&code=a", "a2"), ("?patient=ann&code=a,b", "a2 b2"), ("?max=2&patient=ann&code=a", "a2 a1"),
            ("?subject=Patient/ann&category=laboratory", "b1"), ("?patient=nobody&code=a", ""),
            ("?patient=http://localhost:8090/fhir/Patient/ann&code=a", "a2"),
            ("?patient=ann&code=a,b&status=final&max=1", "a2 b1"), ("?patient.active=true&code=a", "a2"),
            ("?patient=ann&combo-code=b", "b2"), ("?patient=ann&code=a&_format=json&_pretty=true", "a2"),
        ):  # fmt: skip
            self.assertEqual(await self.found(query), expected, query)
        self.assertEqual(await self.found("?patient=ann&code=a", tenant="north"), "")

    async def test_parameters_in_the_body(self) -> None:
        await self.fill()
        body = parameters(patient="ann", code="a", max=2)
        self.assertEqual(await self.found("", body), "a2 a1")
        self.assertEqual(await self.found("?code=a&max=2", parameters(patient="ann")), "a2 a1")
        bundle = await self.bundle("", body)
        self.assertIn("/Observation/$lastn?max=2&patient=ann&code=a", bundle["link"][0]["url"])
        self.assertEqual((bundle["total"], len(bundle["link"])), (2, 1))
        answer = await self.world.send("POST", "Observation/$lastn", parameters(patient="ann", code={"code": "a"}))
        self.assertEqual((answer.status, issues(answer)[0][2]), (400, "code"))

    async def test_what_is_missing_or_wrong_is_named(self) -> None:
        for query, code, place in (
            ("", "required", "patient"), ("?code=a", "required", "patient"), ("?patient=ann", "required", "code"),
            ("?patient:missing=true&code=a", "required", "patient"), ("?patient=ann&status=final", "required", "code"),
            ("?patient=ann&code=a&max=0", "value", "max"), ("?patient=ann&code=a&max=-1", "value", "max"),
            ("?patient=ann&code=a&max=1&max=2", "value", "max"), ("?patient=ann&code=a&max=x", "value", "max"),
            ("?patient=ann&code=a&date=x", "value", "date"),
            ("?patient:wrong=ann&code=a", "not-supported", "patient:wrong"),
        ):  # fmt: skip
            answer = await self.world.send("GET", f"Observation/$lastn{query}")
            self.assertEqual((answer.status, issues(answer)[0][2]), (400, place), (query, answer.body))
            self.assertEqual(issues(answer)[0][0], code, query)
        self.assertEqual((await self.world.send("GET", "Patient/$lastn?patient=ann&code=a")).status, 404)
        self.assertEqual((await self.world.send("PUT", "Observation/$lastn?patient=ann&code=a")).status, 405)

    async def test_parameters_of_other_searches(self) -> None:
        """Ignored and named, or refused."""
        await self.fill()
        for name in ("_sort=date", "_count=1", "_cursor=x", "unheard=1"):
            query = f"?patient=ann&code=a,b&{name}"
            self.assertEqual(await self.found(query), "a2 b2")
            bundle = await self.bundle(query)
            note = bundle["entry"][-1]
            self.assertEqual(note["search"]["mode"], "outcome")
            self.assertIn(name.partition("=")[0], note["resource"]["issue"][0]["diagnostics"])
            self.assertNotIn(name, bundle["link"][0]["url"])
            answer = await self.world.send("GET", f"Observation/$lastn{query}", prefer="handling=strict")
            self.assertEqual((answer.status, issues(answer)[0][2]), (400, name.partition("=")[0]))

    async def test_summary_and_includes(self) -> None:
        await self.fill()
        bundle = await self.bundle("?patient=ann&code=a,b&_summary=count")
        self.assertEqual((bundle["total"], bundle.get("entry", [])), (2, []))
        bundle = await self.bundle("?patient=ann&code=a,b&_include=Observation:subject&_elements=status")
        modes = [(one["resource"]["id"], one["search"]["mode"]) for one in bundle["entry"]]
        self.assertEqual(modes, [("a2", "match"), ("b2", "match"), ("ann", "include")])
        self.assertNotIn("effectiveDateTime", bundle["entry"][0]["resource"])

    async def test_limits_of_the_caller(self) -> None:
        await self.fill()
        for scopes, of, query, expected in (
            ("patient/Observation.s", "ann", "?patient=ann&code=a", "a2"),
            ("patient/Observation.s", "bob", "?patient=ann&code=a", ""),
            ("patient/Observation.s", "bob", "?patient=ann,bob&code=a", "other"),
            ("system/Observation.s?status=final", None, "?patient=ann&code=a,b", "a2 b1"),
            ("system/Observation.s?category=laboratory", None, "?patient=ann&code=a,b&max=5", "b1"),
        ):
            self.world.caller = Caller("ada", "app", (scopes,), patient=of)
            self.assertEqual(await self.found(query), expected, (scopes, query))
        for scopes in ("system/Patient.rs", "system/Observation.r"):
            self.world.caller = Caller("ada", "app", (scopes,))
            answer = await self.world.send("GET", "Observation/$lastn?patient=ann&code=a")
            self.assertEqual(answer.status, 401, scopes)

    async def test_more_than_a_page_is_refused(self) -> None:
        await self.fill()
        self.world.max_page_size = 2
        self.assertEqual(await self.found("?patient=ann&code=a,b"), "a2 b2")
        answer = await self.world.send("GET", "Observation/$lastn?patient=ann&code=a,b&max=2")
        self.assertEqual((answer.status, issues(answer)[0][0]), (400, "too-costly"))

    async def test_in_a_batch(self) -> None:
        await self.fill()
        request = {"method": "GET", "url": "Observation/$lastn?patient=ann&code=a"}
        batch = {"resourceType": "Bundle", "type": "batch", "entry": [{"request": request}]}
        answer = loads((await self.world.send("POST", "", batch)).body)
        self.assertEqual(answer["entry"][0]["resource"]["entry"][0]["resource"]["id"], "a2")


class MemoryLastn(LastnSuite, OnMemory):
    """In memory."""


class PostgresLastn(LastnSuite, OnSharedPostgres):
    """SQL takes the last of each code."""
