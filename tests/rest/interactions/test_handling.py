"""Unknown parameters: ignored and named in searches, refused where `strict` is asked for, and always in conditions."""

from __future__ import annotations

from ipf.fhir.model.json import dumps, loads
from ipf.ports import Answer, Json
from ipf.rest.router import handler
from tests.contracts.search import WORLD
from tests.rest.interactions.pages import entries, flat, link
from tests.rest.world import OnMemory, issues, patient

FORM = "application/x-www-form-urlencoded"
LENIENT, STRICT = "handling=lenient", "handling=strict"
JSON_PATCH = "application/json-patch+json"

IGNORED = (
    # request, matches, self link, names in the outcome
    ("Patient?nonsense=1", "Patient/ann Patient/bob Patient/cid", "Patient", "nonsense"),
    ("Patient?nonsense=1&gender=male", "Patient/bob", "Patient?gender=male", "nonsense"),
    ("Patient?nonsense:exact=1&nonsense=2&_id=bob", "Patient/bob", "Patient?_id=bob", "nonsense:exact nonsense"),
    ("Patient?_totalMethod=count&_id=bob", "Patient/bob", "Patient?_id=bob", "_totalMethod"),
    ("Patient?_query=q&_id=bob", "Patient/bob", "Patient?_id=bob",
     "_query"),
    ("Patient?near=1|2&_id=bob", "Patient/bob", "Patient?_id=bob", "near"),
    ("Patient?_sort=nonsense,-_id&_id=bob,cid", "Patient/cid Patient/bob", "Patient?_sort=-_id&_id=bob%2Ccid",
     "_sort=nonsense"),
    ("Patient?_include=Patient:nonsense&_include=Patient:organization&_id=ann", "Patient/ann",
     "Patient?_include=Patient%3Aorganization&_id=ann", "_include=Patient:nonsense"),
    ("Patient?_revinclude=Nonsense:a&_revinclude=Patient:b&_id=ann", "Patient/ann", "Patient?_id=ann",
     "_revinclude=Nonsense:a _revinclude=Patient:b"),
    ("Observation?subject:Patient.nonsense=x&_id=bp", "Observation/bp", "Observation?_id=bp",
     "subject:Patient.nonsense"),
    ("Observation?patient.nonsense.name=x&_id=bp", "Observation/bp", "Observation?_id=bp", "patient.nonsense.name"),
    ("Patient?_has:Observation:patient:nonsense=x&_id=bob", "Patient/bob", "Patient?_id=bob",
     "_has:Observation:patient:nonsense"),
    ("Patient?_has:Observation:nonsense:code=x&_id=bob", "Patient/bob", "Patient?_id=bob",
     "_has:Observation:nonsense:code"),
    ("Patient/ann/Observation?nonsense=1&_id=bp", "Observation/bp", "Patient/ann/Observation?_id=bp", "nonsense"),
    ("Patient/ann/*?nonsense=1&_id=bp", "Observation/bp", "Patient/ann/*?_id=bp", "nonsense"),
    ("?_type=Patient,Encounter&gender=male&_id=bob", "Patient/bob", "?_id=bob&_type=Patient%2CEncounter", "gender"),
    ("?_type=Encounter,Patient&gender=male", "Encounter/e1 Patient/ann Patient/bob Patient/cid",
     "?_type=Encounter%2CPatient", "gender"),
)  # fmt: skip
REFUSED = (
    "Patient?birthdate=soon", "Patient?gender:nonsense=male", "Patient?gender:text=x", "Patient?birthdate=xx2020",
    "Patient?_count=x", "Patient?_total=x", "Patient?_include:x=Patient:organization", "Patient?_include=Patient",
    "Observation?subject:Nonsense.name=x", "Observation?code.name=x", "Patient?_has:Observation=x",
    "Patient?_has:Nonsense:patient:code=x", "?_type=Nonsense", "Patient?_list=$current-problems",
)  # fmt: skip
"""What cannot be understood is refused in every mode: another search would be answered."""


class HandlingTests(OnMemory):
    async def fill(self) -> None:
        """Store WORLD."""
        for one in WORLD:
            await self.world.send("PUT", f"{one['resourceType']}/{one['id']}", one)

    def named(self, answer: Answer) -> list[str]:
        """The parameters that the OperationOutcome entry names; there is one at most."""
        found = [one for one in loads(answer.body).get("entry", ()) if one["search"]["mode"] == "outcome"]
        self.assertLessEqual(len(found), 1)
        said: list[Json] = found[0]["resource"]["issue"] if found else []
        self.assertEqual({one["severity"] for one in said} - {"warning"}, set())
        return [one["diagnostics"].split()[2] for one in said]

    async def test_ignored_and_named(self) -> None:
        await self.fill()
        for url, expected, own, names in IGNORED:
            for prefer in ("", LENIENT, "return=minimal", "handling=other"):
                answer = await self.world.send("GET", url, **({"prefer": prefer} if prefer else {}))
                self.assertEqual(answer.status, 200, (url, answer.body))
                found = entries(answer)
                self.assertEqual(found if "_sort" in url else sorted(found), expected.split(), url)
                self.assertEqual(link(answer, "self"), own, url)
                self.assertEqual(self.named(answer), names.split(), url)
            refused = await self.world.send("GET", url, prefer=f"return=minimal, {STRICT}")
            self.assertEqual((refused.status, issues(refused)[0][0]), (400, "not-supported"), url)
            followed = await self.world.send("GET", own)
            self.assertEqual((sorted(entries(followed)), self.named(followed)), (sorted(expected.split()), []), own)

    async def test_posted_searches(self) -> None:
        await self.fill()
        answer = await self.world.send("POST", "Patient/_search?nonsense=1", b"gender=male&other=2", content_type=FORM)
        self.assertEqual((entries(answer), self.named(answer)), (["Patient/bob"], ["nonsense", "other"]))
        self.assertEqual(link(answer, "self"), "Patient?gender=male")
        answer = await self.world.send("POST", "Patient/_search", b"other=2", content_type=FORM, prefer=STRICT)
        self.assertEqual(answer.status, 400)

    async def test_pages_repeat_what_was_used(self) -> None:
        await self.fill()
        pages, url = [], "Patient?nonsense=1&_sort=-_id,nonsense&_count=1"
        while url:
            answer = await self.world.send("GET", url)
            self.assertEqual(answer.status, 200, answer.body)
            pages.append(entries(answer))
            url = link(answer, "next") or ""
        self.assertEqual(flat(pages), ["Patient/cid", "Patient/bob", "Patient/ann"])

    async def test_in_a_batch(self) -> None:
        await self.fill()
        entry = {"request": {"method": "GET", "url": "Patient?nonsense=1&_id=bob"}}
        bundle = {"resourceType": "Bundle", "type": "batch", "entry": [entry]}
        found = loads((await self.world.send("POST", "", bundle)).body)["entry"][0]["resource"]
        self.assertEqual([one["search"]["mode"] for one in found["entry"]], ["match", "outcome"])
        found = loads((await self.world.send("POST", "", bundle, prefer=STRICT)).body)["entry"][0]
        self.assertEqual(found["response"]["status"][:3], "400")

    async def test_what_cannot_be_understood(self) -> None:
        await self.fill()
        for url in REFUSED:
            for prefer in (LENIENT, STRICT):
                self.assertEqual((await self.world.send("GET", url, prefer=prefer)).status, 400, url)

    async def test_operations_refuse_by_name(self) -> None:
        """A parameter that is ignored would widen what is returned or exported; a client may ask for it."""
        await self.fill()
        for url, status in (("Patient/ann/$everything?nonsense=1", 200), ("Patient/ann/_history?nonsense=1", 400)):
            self.assertEqual((await self.world.send("GET", url)).status, 400, url)
            self.assertEqual((await self.world.send("GET", url, prefer=LENIENT)).status, status, url)
        for url, status in (("$export?nonsense=1", 202), ("Patient/$export?_elements=id", 202)):
            answer = await self.world.send("GET", url, prefer="respond-async")
            self.assertEqual((answer.status, issues(answer)[0][0]), (400, "not-supported"), url)
            answer = await self.world.send("GET", url, prefer=f"respond-async, {LENIENT}")
            self.assertEqual(answer.status, status, url)

    async def test_the_setting(self) -> None:
        """`strict` is the default of the server; a request chooses."""
        from dataclasses import replace

        await self.fill()
        strict = handler(replace(self.world.repository, strict_search=True))
        for prefer, status in ((None, 400), (LENIENT, 200), (STRICT, 400), ("handling=other", 400)):
            request = self.world.request("GET", "Patient?nonsense=1", **({"prefer": prefer} if prefer else {}))
            self.assertEqual((await strict(request)).status, status, prefer)

    async def test_conditions_are_always_strict(self) -> None:
        """Whatever the request prefers: without the unknown parameter they would mean other resources."""
        await self.world.send("PUT", "Patient/a", patient("1", id="a"))
        search = "identifier=urn:mrn|1&nonsense=1"
        operations = dumps([{"op": "add", "path": "/active", "value": True}])
        for prefer in ({}, {"prefer": LENIENT}):
            for method, url, body, headers in (
                ("POST", "Patient", patient("1"), {"if_none_exist": search}),
                ("POST", "Patient", patient("1"), {"if_none_exist": "nonsense=1"}),
                ("PUT", f"Patient?{search}", patient("1"), {}),
                ("PUT", "Patient?nonsense=1", patient("1"), {}),
                ("DELETE", f"Patient?{search}", None, {}),
                ("DELETE", "Patient?nonsense=1", None, {}),
                ("PATCH", f"Patient?{search}", operations, {"content_type": JSON_PATCH}),
                ("PATCH", "Patient?nonsense=1", operations, {"content_type": JSON_PATCH}),
            ):
                answer = await self.world.send(method, url, body, **headers, **prefer)
                self.assertEqual((answer.status, issues(answer)[0][2]), (400, "nonsense"), (method, url))
            await self._conditional_entries(search, prefer)
        self.assertEqual(await self.world.store.counts(), {"Patient": 1})
        self.assertEqual(len(await self.world.versions("Patient/a")), 1)

    async def _conditional_entries(self, search: str, prefer: dict[str, str]) -> None:
        """The same in transactions, and in a conditional reference."""
        observation = {"resourceType": "Observation", "status": "final", "code": {"text": "x"}}
        referring = {**observation, "subject": {"reference": f"Patient?{search}"}}
        for request, resource in (
            ({"method": "POST", "url": "Patient", "ifNoneExist": search}, patient("1")),
            ({"method": "PUT", "url": f"Patient?{search}"}, patient("1")),
            ({"method": "DELETE", "url": f"Patient?{search}"}, None),
            ({"method": "POST", "url": "Observation"}, referring),
        ):
            entry = {"request": request} | ({"resource": resource} if resource else {})
            bundle = {"resourceType": "Bundle", "type": "transaction", "entry": [entry]}
            answer = await self.world.send("POST", "", bundle, **prefer)
            self.assertEqual((answer.status, "nonsense" in issues(answer)[0][1]), (400, True), request)

    async def test_criteria_are_always_strict(self) -> None:
        channel = {
            "type": "rest-hook", "endpoint": "https://x.test/a", "payload": "application/fhir+json",
            "header": ["Authorization: Bearer abc"],
        }  # fmt: skip
        sent = {"resourceType": "Subscription", "status": "requested", "reason": "x", "channel": channel}
        for criteria in ("Patient?nonsense=1", "Patient?gender=male&nonsense=1", "Observation?subject.nonsense=1"):
            answer = await self.world.send("POST", "Subscription", {**sent, "criteria": criteria}, prefer=LENIENT)
            self.assertEqual((answer.status, issues(answer)[0][2]), (422, "Subscription.criteria"), criteria)
