"""Transaction and batch Bundles."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem
from ipf.fhir.model.json import dumps, loads
from ipf.ports import Answer, Json
from ipf.rest.interactions.bundle_entries import entry_of
from ipf.rest.interactions.transaction import entries_of
from ipf.rest.write.unit import Method
from tests.contracts.resources import gather_all
from tests.rest.world import BASE, OnMemory, OnPostgres, Suite, World, issues, patient


def bundle(kind: str, *entries: Json) -> Json:
    """A Bundle of these entries."""
    return {"resourceType": "Bundle", "type": kind, "entry": list(entries)}


def entry(method: str, url: str, resource: Json | None = None, full_url: str | None = None, **request: str) -> Json:
    """One entry."""
    made: Json = {"request": {"method": method, "url": url, **request}}
    if resource is not None:
        made["resource"] = resource
    if full_url is not None:
        made["fullUrl"] = full_url
    return made


class EntriesTests(TestCase):
    def test_entries(self) -> None:
        made = entries_of(
            bundle(
                "transaction",
                entry("POST", "Patient", patient("1"), "urn:uuid:1", ifNoneExist="identifier=urn:mrn|1"),
                entry("PUT", "Patient?identifier=urn%3Amrn%7C1", patient("1")),
                entry("PUT", "Patient/a", patient("1", id="a"), ifMatch='W/"3"'),
                entry("DELETE", "/Patient/a"),
                entry("DELETE", "Patient?_id=a"),
            )
        )
        self.assertEqual([one.method for one in made], [Method.CREATE, *[Method.UPDATE] * 2, *[Method.DELETE] * 2])
        self.assertEqual([one.id for one in made], [None, None, "a", "a", None])
        self.assertEqual([one.condition is not None for one in made], [True, True, False, False, True])
        self.assertEqual(made[0].condition.canonical, made[1].condition.canonical)  # type: ignore[union-attr]  # both are there
        self.assertEqual((made[0].full_url, made[2].if_match, made[4].place), ("urn:uuid:1", 3, "Bundle.entry[4]"))
        self.assertEqual(entries_of({"resourceType": "Bundle", "type": "transaction"}), ())

    def test_entries_in_memory_and_from_json_are_equal(self) -> None:
        once = "identifier=urn:mrn|1"
        for item in (
            entry("POST", "Patient", patient("1"), "urn:uuid:1"),
            entry("POST", "Patient", patient("1", id="a"), "urn:uuid:1", ifNoneExist=once),
            entry("POST", "Patient", patient("1"), "urn:uuid:1", ifNoneExist="a?" + once),
            entry("PUT", "Patient?" + once, patient("1"), "urn:uuid:1"),
            entry("PUT", "Patient?" + once, patient("1", id="a"), "urn:uuid:1"),
            entry("PUT", "Patient/a", patient("1", id="a"), "urn:uuid:1"),
            entry("PUT", "Patient/a", patient("1"), "urn:uuid:1"),
            entry("PUT", "/Patient/a", patient("1", id="a"), "urn:uuid:1"),
            entry("PUT", "Patient/a", patient("1", id="a"), "urn:uuid:1", ifMatch='W/"3"'),
            entry("PUT", "Patient/a", patient("1", id="a"), "urn:uuid:1", ifNoneMatch="*"),
            entry("DELETE", "Patient/a", patient("1", id="a"), "urn:uuid:1"),
            entry("POST", "Patient", patient("1"), "urn:uuid:1") | {"link": []},
        ):
            self.assertEqual(entries_of(bundle("transaction", item)), (entry_of(item, "Bundle.entry[0]"),), item)

    def test_refused_entries(self) -> None:
        for item, category in (
            ({}, Category.REQUIRED),
            (None, Category.REQUIRED),
            ({"request": {"method": "POST"}}, Category.REQUIRED),
            ({"request": {"method": ["PUT"], "url": "Patient/a"}}, Category.REQUIRED),
            (entry("PUT", "Patient/a", patient("1"), ifMatch=1), Category.MALFORMED),  # type: ignore[arg-type]
            (entry("POST", "Patient", patient("1"), ifNoneExist=[]), Category.MALFORMED),  # type: ignore[arg-type]
            (entry("POST", "Patient", patient("1"), full_url=7), Category.MALFORMED),  # type: ignore[arg-type]
            (entry("GET", "Patient/a"), Category.NOT_SUPPORTED),
            (entry("PATCH", "Patient/a", patient("1")), Category.NOT_SUPPORTED),
            (entry("POST", "Patient/a", patient("1")), Category.VALUE),
            (entry("POST", "Patient"), Category.VALUE),
            (entry("POST", "Patient", {"resourceType": "Observation"}), Category.VALUE),
            (entry("PUT", "Patient", patient("1")), Category.VALUE),
            (entry("PUT", "Patient/a/b", patient("1")), Category.VALUE),
            (entry("PUT", "Patient/a_b", patient("1")), Category.VALUE),
            (entry("PUT", "Patient/a", patient("1", id="b")), Category.VALUE),
            (entry("PUT", "Patient/a", patient("1", id="b"), "urn:uuid:1"), Category.VALUE),
            (entry("PUT", "Patient?identifier=1", {"resourceType": "Group"}, "urn:uuid:1"), Category.VALUE),
            (entry("POST", "Patient", {"resourceType": "Group"}, "urn:uuid:1"), Category.VALUE),
            (entry("POST", "Patient", patient("1"), "urn:uuid:1", ifNoneExist=[]), Category.MALFORMED),  # type: ignore[arg-type]
            (entry("PUT", "Patient?", patient("1"), "urn:uuid:1"), Category.VALUE),
            (entry("PATCH", "Patient/a", patient("1", id="a"), "urn:uuid:1"), Category.NOT_SUPPORTED),
            (entry("DELETE", "Patient"), Category.VALUE),
            (entry("DELETE", "Patient?nonsense=1"), Category.NOT_SUPPORTED),
        ):
            with self.assertRaises(Problem) as raised:
                entries_of(bundle("transaction", item))  # type: ignore[arg-type]  # some are wrong on purpose
            self.assertEqual(raised.exception.category, category, item)


class TransactionCase(Suite):
    """Bundles sent to one server."""

    world: World

    async def post(self, kind: str, *entries: Json, **headers: str) -> Answer:
        """Send a Bundle."""
        return await self.world.send("POST", "", bundle(kind, *entries), **headers)

    async def responses(self, kind: str, *entries: Json, **headers: str) -> list[Json]:
        """The entries of the answer."""
        answer = await self.post(kind, *entries, **headers)
        self.assertEqual(answer.status, 200, answer.body)
        found = loads(answer.body)
        self.assertEqual(found["type"], f"{kind}-response")
        items: list[Json] = found["entry"]
        return items


class TransactionSuite(TransactionCase):
    async def test_transaction(self) -> None:
        await self.world.send("PUT", "Patient/old", patient("old", id="old"))
        encounter = {"resourceType": "Encounter", "subject": {"reference": "urn:uuid:1"}}
        answers = await self.responses(
            "transaction",
            entry("GET", "Encounter?subject=Patient/new"),
            entry("POST", "Encounter", encounter, "urn:uuid:2"),
            entry("PUT", "Patient/new", patient("new", id="new"), "urn:uuid:1"),
            entry("DELETE", "Patient/old"),
            entry("GET", f"{BASE}/Patient/new"),
            entry("GET", "Patient/new/_history"),
            entry("GET", "_history"),
            entry("POST", "Patient/_search?_id=new"),
            entry("GET", "Patient/new/$everything"),
        )
        statuses = [one["response"]["status"] for one in answers]
        self.assertEqual(statuses, ["200 OK", "201 Created", "201 Created", "204 No Content", *["200 OK"] * 5])
        self.assertEqual(answers[0]["resource"]["total"], 1)
        self.assertEqual(answers[2]["response"]["location"], f"{BASE}/Patient/new/_history/1")
        self.assertEqual(answers[2]["response"]["etag"], 'W/"1"')
        self.assertEqual(answers[2]["response"]["lastModified"], "2026-01-31T08:05:09.120Z")
        self.assertNotIn("resource", answers[2])
        self.assertEqual(answers[4]["resource"]["id"], "new")
        self.assertEqual([one["resource"]["total"] for one in answers[5:8:2]], [1, 1])
        self.assertEqual(len(answers[6]["resource"]["entry"]), 4)
        self.assertEqual(len(answers[8]["resource"]["entry"]), 2)
        self.assertEqual(len(await self.world.versions("Patient/new")), 1)

    async def test_representation(self) -> None:
        (one,) = await self.responses(
            "transaction", entry("POST", "Patient", patient("1")), prefer="return=representation"
        )
        self.assertEqual(one["resource"]["meta"]["versionId"], "1")

    async def test_deletions_by_search_and_by_version(self) -> None:
        for number in ("1", "2"):
            await self.world.send("PUT", f"Patient/p{number}", patient(number, id=f"p{number}"))
        both = entry("DELETE", "Patient?identifier=urn:mrn|1,urn:mrn|2")
        self.assertEqual((await self.post("transaction", both)).status, 412)
        stale = entry("DELETE", "Patient/p1", ifMatch='W/"2"')
        self.assertEqual((await self.post("transaction", entry("DELETE", "Patient/p2"), stale)).status, 412)
        self.assertEqual(await self.world.store.counts(), {"Patient": 2})
        again = {**patient("2"), "id": "p2"}
        clash = [entry("DELETE", "Patient?identifier=urn:mrn|2"), entry("PUT", "Patient/p2", again)]
        self.assertEqual((await self.post("transaction", *clash)).status, 400)
        answers = await self.responses(
            "transaction",
            entry("DELETE", "Patient/p1", ifMatch='W/"1"'),
            entry("DELETE", "Patient?identifier=urn:mrn|2"),
            entry("DELETE", "Patient?identifier=urn:mrn|3"),
        )
        self.assertEqual({one["response"]["status"] for one in answers}, {"204 No Content"})
        self.assertEqual(await self.world.store.counts(), {})

    async def test_references_in_both_directions(self) -> None:
        """Forwards and backwards, by URN and by URL, with conditional references; a deletion removes a match."""
        await self.world.send("PUT", "Patient/old", patient("1", id="old"))
        note = {"resourceType": "Encounter", "subject": {"reference": "Patient?identifier=urn:mrn|1"}}
        letter = {"resourceType": "Encounter", "subject": {"reference": f"{BASE}/Patient/temp"}}
        linked = patient("1", link=[{"other": {"reference": "urn:uuid:r"}, "type": "refer"}])
        related = {"resourceType": "RelatedPerson", "patient": {"reference": "Patient/temp"}}
        answers = await self.responses(
            "transaction",
            entry("POST", "Encounter", note),
            entry("POST", "Encounter", letter),
            entry("POST", "Patient", linked, f"{BASE}/Patient/temp"),
            entry("POST", "RelatedPerson", related, "urn:uuid:r"),
            entry("DELETE", "Patient/old"),
            prefer="return=representation",
        )
        made = f"Patient/{answers[2]['resource']['id']}"
        self.assertEqual([one["resource"]["subject"]["reference"] for one in answers[:2]], [made, made])
        self.assertEqual(answers[3]["resource"]["patient"]["reference"], made)
        self.assertEqual(
            answers[2]["resource"]["link"][0]["other"]["reference"], f"RelatedPerson/{answers[3]['resource']['id']}"
        )

    async def test_one_failure_fails_the_transaction(self) -> None:
        good = entry("PUT", "Patient/a", patient("a", id="a"))
        for bad, status, place in (
            (entry("PUT", "Patient/b", patient("b", id="b"), ifMatch='W/"1"'), 412, "Bundle.entry[1]"),
            (
                entry("POST", "Patient", {"resourceType": "Patient", "x": 1}),
                400,
                "Bundle.entry[1].resource (Patient.x)",
            ),
            (entry("PUT", "Patient/a", patient("b", id="a")), 400, "Bundle.entry[1]"),
            (entry("POST", "Nonsense", {"resourceType": "Nonsense"}), 400, ""),
            (entry("OPTIONS", "Patient"), 400, "Bundle.entry[1].request.method"),
        ):
            answer = await self.post("transaction", good, bad)
            self.assertEqual(answer.status, status, answer.body)
            if place:
                self.assertEqual(issues(answer)[0][2], place)
        self.assertEqual(await self.world.store.counts(), {})

    async def test_a_failing_read_fails_the_transaction(self) -> None:
        """Nothing is stored, and the error names the entry."""
        await self.world.send("PUT", "Patient/old", patient("old", id="old"))
        write, removal = entry("PUT", "Patient/a", patient("a", id="a")), entry("DELETE", "Patient/old")
        place = "Bundle.entry[2].request.url"
        for bad, status, named in (
            (entry("GET", "Patient/missing"), 404, place),
            (entry("GET", "Patient/old"), 410, place),
            (entry("GET", "Patient?birthdate=x"), 400, f"{place} (birthdate)"),
            (entry("GET", "Nonsense/1"), 404, place),
            (entry("GET", "Patient/a/$everything?nonsense=1"), 400, f"{place} (nonsense)"),
            (entry("POST", "Patient/$merge", {"resourceType": "Parameters"}), 400, place),
            (entry("GET", "$export"), 400, place),
        ):
            answer = await self.post("transaction", write, removal, bad, entry("GET", "Patient/a"))
            self.assertEqual((answer.status, issues(answer)[0][2]), (status, named), answer.body)
            self.assertEqual(await self.world.store.counts(), {"Patient": 1})
            self.assertEqual(len(await self.world.versions("Patient/old")), 1)
        self.assertEqual((await self.post("transaction", entry("GET", "Patient/missing"))).status, 404)
        self.assertEqual((await self.post("transaction", write, entry("GET", "Patient/a"))).status, 200)

    async def test_a_failing_read_fails_a_large_transaction(self) -> None:
        writes = [entry("PUT", f"Patient/p{n}", patient(str(n), id=f"p{n}", language="x" * 200)) for n in range(600)]
        self.assertGreater(len(dumps(bundle("transaction", *writes))), 100_000)
        answer = await self.post("transaction", *writes, entry("GET", "Patient/missing"))
        self.assertEqual((answer.status, issues(answer)[0][2]), (404, "Bundle.entry[600].request.url"))
        self.assertEqual(await self.world.store.counts(), {})
        answers = await self.responses("transaction", *writes, entry("GET", "Patient?_summary=count"))
        self.assertEqual(answers[600]["resource"]["total"], 600)

    async def test_many_transactions_with_reads_at_once(self) -> None:
        """They wait for each other rather than for a connection that none of them gives back."""
        read = entry("GET", "Patient?nonsense=1&_summary=count")
        sent = [self.post("transaction", entry("POST", "Patient", patient(str(n))), read) for n in range(20)]
        self.assertEqual([one.status for one in await gather_all(sent)], [200] * 20)

    async def test_invalid_transactions(self) -> None:
        for body in (
            bundle("history"),
            {"resourceType": "Patient"},
            {"resourceType": "Bundle", "type": "transaction", "entry": {}},
        ):
            self.assertEqual((await self.world.send("POST", "", body)).status, 400)
        self.assertEqual((await self.post("transaction")).status, 200)


class BatchTests(OnMemory, TransactionCase):
    async def test_batch(self) -> None:
        await self.world.send("PUT", "Patient/old", patient("old", id="old"))
        answers = await self.responses(
            "batch",
            entry("GET", "Patient/new"),
            entry("PUT", "Patient/new", patient("new", id="new")),
            entry("PUT", "Patient/b", patient("b", id="b"), ifMatch='W/"1"'),
            entry("POST", "Patient", {"resourceType": "Patient", "x": 1}),
            entry("DELETE", "Patient/old"),
            entry("GET", "Nonsense/1"),
            entry("GET", "Patient/new", ifNoneMatch='W/"1"'),
        )
        statuses = [int(one["response"]["status"][:3]) for one in answers]
        self.assertEqual(statuses, [200, 201, 412, 400, 204, 404, 304])
        self.assertEqual(answers[0]["resource"]["id"], "new")
        for number in (2, 3, 5):
            self.assertEqual(answers[number]["response"]["outcome"]["resourceType"], "OperationOutcome")

    async def test_bad_items(self) -> None:
        items: list[Any] = [None, {}, entry("GET", "Patient?name=%FF"), {"request": {"method": {}, "url": "Patient/1"}}]
        answers = await self.responses("batch", *items)
        self.assertEqual([one["response"]["status"][:3] for one in answers], ["400"] * 4)


class TransactionTests(OnMemory, TransactionSuite):
    pass


class TransactionOnPostgresTests(OnPostgres, TransactionSuite):
    """SQL commits and rolls back."""
