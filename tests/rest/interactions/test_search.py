"""Search interactions: includes, types, compartments, pages, warnings."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import parse_qsl, quote, urlsplit

from ipf.fhir.model.json import loads
from ipf.ports import Answer, Json, Terminology
from tests.contracts.search import WORLD
from tests.rest.interactions.pages import PagesSuite, entries, flat, link
from tests.rest.world import BASE, OnMemory, OnSharedPostgres, issues

FORM = "application/x-www-form-urlencoded"


class Codes:
    """A terminology of one value set and one hierarchy."""

    async def expand(
        self, tenant: str, url: str, resource_type: str, parameters: Sequence[str]
    ) -> frozenset[tuple[str, str]]:
        """Weight and temperature."""
        return frozenset({("http://loinc.org", "29463-7"), ("http://loinc.org", "8310-5")})

    async def related(
        self, tenant: str, system: str, code: str, relation: str, resource_type: str, parameters: Sequence[str]
    ) -> frozenset[str]:
        """`vital` is above blood pressure."""
        return frozenset({"vital", "85354-9"} if (code, relation) == ("vital", "below") else {code})


class SearchSuite(PagesSuite):
    """On a world with WORLD in it."""

    async def test_includes(self) -> None:
        """Forward, backward, all, only of a type, and repeated."""
        await self.fill()
        table = [
            ("Observation?_id=bp&_include=Observation:subject", "Patient/ann"),
            ("Observation?_id=bp&_include=Observation:patient", "Patient/ann"),
            ("Observation?_id=bp&_include=Observation:subject:Group", ""),
            ("Observation?_id=bp&_include=Patient:organization", ""),
            ("Observation?_id=bp&_include=*", "Patient/ann Encounter/e1"),
            ("Observation?_id=bp&_include=Observation:*", "Patient/ann Encounter/e1"),
            ("Observation?_id=bp,mass&_include=Observation:subject", "Patient/ann"),
            ("Observation?_id=bp&_include=Observation:subject&_include:iterate=Patient:organization",
             "Patient/ann Organization/east"),
            ("Observation?_id=bp&_include=Observation:subject&_include:iterate=Patient:organization"
             "&_include:iterate=Organization:partof", "Patient/ann Organization/east Organization/west"),
            ("Observation?_id=bp&_include:iterate=*", "Patient/ann Encounter/e1 Organization/east Organization/west"),
            ("Patient?_id=ann&_revinclude=Observation:subject", "Observation/bp Observation/mass"),
            ("Patient?_id=ann&_revinclude=Encounter:patient&_revinclude:iterate=Observation:encounter",
             "Encounter/e1 Observation/bp"),
            ("Organization?_id=west&_revinclude=Organization:partof&_revinclude:iterate=Patient:organization",
             "Organization/east Patient/ann"),
            ("Patient?_id=bob&_include=Patient:general-practitioner", ""),
            ("Patient?_id=ann&_revinclude=Observation:subject:Group", ""),
            ("Patient?_id=ann&_revinclude=Observation:subject:Patient", "Observation/bp Observation/mass"),
            ("Patient?_id=ann&_revinclude=*", "Encounter/e1 Observation/bp Observation/mass RiskAssessment/r1"),
            ("Patient?_id=ann&_revinclude=Encounter:*", "Encounter/e1"),
            ("Organization?_id=west&_revinclude=*", "Organization/east"),
            ("Organization?_id=west&_revinclude:iterate=*",
             "Organization/east Patient/ann Encounter/e1 Observation/bp Observation/mass RiskAssessment/r1"),
            ("Organization?_id=west&_revinclude:iterate=Organization:*&_revinclude:iterate=Patient:organization:Organization",
             "Organization/east Patient/ann"),
            ("Organization?_id=east&_revinclude=Patient:organization&_revinclude=Observation:subject", "Patient/ann"),
            ("Organization?_id=east&_revinclude=Patient:organization&_include:iterate=Patient:organization"
             "&_include:iterate=Organization:partof", "Patient/ann Organization/west"),
            ("?_type=Patient,Organization&_id=ann,west&_revinclude=Organization:partof", "Organization/east"),
        ]  # fmt: skip
        for url, expected in table:
            answer = await self.world.send("GET", url)
            self.assertEqual(sorted(entries(answer, "include")), sorted(expected.split()), url)
            self.assertEqual(loads(answer.body)["total"], len(entries(answer)), url)

    async def test_limits_of_includes(self) -> None:
        """What a limit leaves out is said; cycles end by themselves."""
        for number in range(14):
            of = {"partOf": {"reference": f"Organization/c{(number + 1) % 14}"}} if number != 11 else {}
            body = {"resourceType": "Organization", "id": f"c{number}", "name": "x", **of}
            await self.world.send("PUT", f"Organization/c{number}", body)
        further = "&_include:iterate=Organization:partof"
        for first, count, words in ((1, 10, []), (0, 10, ["10 steps"]), (12, 10, ["10 steps"]), (10, 1, [])):
            answer = await self.world.send("GET", f"Organization?_id=c{first}{further}")
            self.assertEqual(len(entries(answer, "include")), count, first)
            self.check_warning(answer, words)
        back = await self.world.send("GET", "Organization?_id=c11&_revinclude:iterate=Organization:partof")
        self.assertEqual(len(entries(back, "include")), 10)
        self.check_warning(back, ["10 steps"])
        self.world.max_page_size = 4
        for url in (f"Organization?_id=c0{further}", "Organization?_id=c11&_revinclude:iterate=*"):
            answer = await self.world.send("GET", url)
            self.assertEqual(len(entries(answer, "include")), 4)
            self.check_warning(answer, ["more than 4 resources"])

    def check_warning(self, answer: Answer, words: list[str]) -> None:
        """The OperationOutcome among the entries has one issue for each of these words, or is not there."""
        found = [one["resource"] for one in loads(answer.body)["entry"] if one["search"]["mode"] == "outcome"]
        texts = [issue["diagnostics"] for outcome in found for issue in outcome["issue"]]
        self.assertEqual(len(texts), len(words), texts)
        for text, word in zip(texts, words, strict=True):
            self.assertIn(word, text)

    async def test_absolute_references_to_this_server(self) -> None:
        """The URL of a resource of this server finds relative and absolute references to it."""
        await self.fill()
        await self.world.send("PUT", "Encounter/abs", {
            "resourceType": "Encounter", "id": "abs", "status": "planned", "class": {"code": "AMB"},
            "subject": {"reference": f"{BASE}/Patient/ann"},
        })  # fmt: skip
        await self.world.send("PUT", "Organization/far", {
            "resourceType": "Organization", "id": "far", "name": "x",
            "partOf": {"reference": "http://other/fhir/Organization/1"},
        })  # fmt: skip
        for url, expected in (
            (f"Observation?_id=bp&subject={BASE}/Patient/ann", ["Observation/bp"]),
            (f"Observation?_id=bp&subject:Patient={BASE}/Patient/ann,Patient/x", ["Observation/bp"]),
            (f"Observation?_id=bp&subject={BASE}/Patient/nobody", []),
            (f"Observation?_id=bp&subject={BASE}/", []),
            (f"Encounter?_id=abs&subject={BASE}/Patient/ann", ["Encounter/abs"]),
            ("Observation?_id=bp&subject=http://elsewhere/Patient/ann", []),
            (f"Observation?_id=bp&subject={BASE}/Patient/ann/_history/1", ["Observation/bp"]),
            (f"Observation?_id=bp&patient={BASE}/Patient/ann", ["Observation/bp"]),
            (f"Observation?_id=bp&subject:Group={BASE}/Patient/ann", []),
            (f"Observation?_id=bp&encounter.subject={BASE}/Patient/ann", ["Observation/bp"]),
            (f"Encounter?_has:Observation:encounter:subject={BASE}/Patient/ann", ["Encounter/e1"]),
            (f'Observation?_id=bp&_filter=subject re "{BASE}/Patient/ann"', ["Observation/bp"]),
            (f"?_type=Observation,Encounter&_id=bp,e1&subject={BASE}/Patient/ann", ["Observation/bp", "Encounter/e1"]),
            (f"Patient?organization:below={BASE}/Organization/west", ["Patient/ann"]),
            ("Organization?partof=http://other/fhir/Organization/1", ["Organization/far"]),
            ("Organization?partof:Organization=http://other/fhir/Organization/1/_history/4", ["Organization/far"]),
            ("Organization?partof=Organization/1", []),
            ("Organization?partof=http://third/fhir/Organization/1", []),
        ):
            self.assertEqual(entries(await self.world.send("GET", url)), expected, url)

    async def test_system(self) -> None:
        """Over all types, or those named, page by page, in order."""
        await self.fill()
        everything = [f"{one['resourceType']}/{one['id']}" for one in WORLD]
        for url in ("?_count=4", "?_count=50", "?_lastUpdated=gt2020&_count=3"):
            self.assertEqual(sorted(flat(await self.pages(url))), sorted(everything), url)
        pages = await self.pages("?_type=Patient,Encounter&_count=2")
        self.assertEqual(pages, [["Patient/ann", "Patient/bob"], ["Patient/cid", "Encounter/e1"]])
        without_any = await self.world.send("GET", "?_type=Basic,Patient&_count=50")  # no page comes before its first
        self.assertEqual((entries(without_any)[0], link(without_any, "previous")), ("Patient/ann", None))
        self.assertEqual(entries(await self.world.send("GET", "?_type=Patient&gender=male")), ["Patient/bob"])
        self.assertEqual(entries(await self.world.send("POST", "_search", b"_type=Patient&_id=ann",
                                                       content_type="application/x-www-form-urlencoded")),
                         ["Patient/ann"])  # fmt: skip
        counted = loads((await self.world.send("GET", "?_summary=count")).body)
        self.assertEqual((counted["total"], "entry" in counted), (len(WORLD), False))
        for url in ("?_type=", "?_type=Nonsense", "?_cursor=x", "?_cursor=Patient~x~1",
                    "?_type=Patient&_cursor=Encounter~~1"):  # fmt: skip
            self.assertEqual((await self.world.send("GET", url)).status, 400, url)

    async def test_posted(self) -> None:
        """Compartments; `_format`, `_pretty`, `_summary` and `_elements` in the body."""
        await self.fill()
        for url, body, expected in (
            ("Patient/ann/Observation/_search", b"code=29463-7", ["Observation/mass"]),
            ("Patient/ann/Observation/_search?code=29463-7", b"", ["Observation/mass"]),
            ("Patient/ann/*/_search", b"_type=Encounter", ["Encounter/e1"]),
            ("Patient/_search", b"_elements=name&_pretty=true&family=smithers", ["Patient/cid"]),
        ):
            answer = await self.world.send("POST", url, body, content_type=FORM)
            self.assertEqual(entries(answer), expected, (url, answer.body))
        (entry,) = loads(answer.body)["entry"]
        self.assertEqual(set(entry["resource"]), {"resourceType", "id", "meta", "name"})
        self.assertIn(b"\n  ", answer.body)
        summary = await self.world.send("POST", "Patient/_search", b"_summary=text", content_type=FORM)
        self.assertNotIn(b"Smith", summary.body)
        xml = await self.world.send("POST", "Patient/_search", b"_format=xml&_count=1", content_type=FORM)
        self.assertEqual((xml.content_type[:20], xml.body[:5]), ("application/fhir+xml", b"<?xml"))
        for url, body, status in (
            ("Patient/_search", b"_format=turtle", 406), ("Patient/_search", b"_elements=nme", 400),
            ("Group/g/Observation/_search", b"", 404), ("Patient/ann/Observation/_history", b"", 404),
        ):  # fmt: skip
            self.assertEqual((await self.world.send("POST", url, body, content_type=FORM)).status, status, (url, body))

    async def test_compartments(self) -> None:
        """What belongs to a patient or an encounter."""
        await self.fill()
        table = [
            ("Patient/ann/Observation", "Observation/bp Observation/mass"),
            ("Patient/ann/Observation?code=29463-7", "Observation/mass"),
            ("Patient/ann/*", "Observation/bp Observation/mass Encounter/e1 RiskAssessment/r1 Patient/ann"),
            ("Patient/ann/*?_type=Encounter,Observation&_lastUpdated=gt2020",
             "Observation/bp Observation/mass Encounter/e1"),
            ("Encounter/e1/Observation", "Observation/bp"), ("Patient/nobody/Observation", ""),
        ]  # fmt: skip
        for url, expected in table:
            answer = await self.world.send("GET", url)
            self.assertEqual(answer.status, 200, answer.body)
            self.assertEqual(sorted(entries(answer)), sorted(expected.split()), url)
        self.assertEqual(len(flat(await self.pages("Patient/ann/*?_count=2"))), 5)
        for url in ("Observation/bp/Patient", "Patient/ann/Organization", "Patient/ann/Nonsense"):
            self.assertEqual((await self.world.send("GET", url)).status, 404, url)

    async def test_includes_have_the_order_of_the_resource(self) -> None:
        """Of the references that fit below the limit the first ones are kept, in each process and store."""
        ids = ["7", "3", "9", "1", "8", "2", "Observation"]
        performers = [{"reference": f"Practitioner/{id}"} for id in ids]
        for resource in (
            *({"resourceType": "Practitioner", "id": id} for id in ids),
            {
                "resourceType": "Observation",
                "id": "many",
                "status": "final",
                "code": {"text": "x"},
                "performer": performers,
            },
        ):
            answer = await self.world.send("PUT", f"{resource['resourceType']}/{resource['id']}", resource)
            self.assertEqual(answer.status, 201, answer.body)
        answer = await self.world.send("GET", "Observation?_id=many&_include=Observation:performer")
        self.assertEqual([one["resource"]["id"] for one in loads(answer.body)["entry"]], ["many", *ids])

    async def test_links_contain_the_used_parameters(self) -> None:
        """Ignored parameters are missing in the links and named in an outcome."""
        await self.fill()
        url = "Patient?Cookie=Chip&gender=male&_sort=cookie&_include=Patient:cookie&_count=1"
        self.assertEqual((await self.world.send("GET", url, prefer="handling=strict")).status, 400)
        answer = await self.world.send("GET", url)
        self.assertEqual(entries(answer), ["Patient/bob"])
        self.assertEqual(link(answer, "self"), "Patient?gender=male&_count=1")
        outcome = loads(answer.body)["entry"][-1]
        self.assertEqual(outcome["search"]["mode"], "outcome")
        said = [issue["diagnostics"] for issue in outcome["resource"]["issue"]]
        self.assertEqual([text.split()[2] for text in said], ["Cookie", "_sort=cookie", "_include=Patient:cookie"])
        posted = await self.world.send("POST", "Patient/_search?_count=1", b"gender=male",
                                       content_type="application/x-www-form-urlencoded")  # fmt: skip
        self.assertEqual(dict(parse_qsl(urlsplit(link(posted, "self") or "").query)), {"_count": "1", "gender": "male"})

    async def test_hierarchies(self) -> None:
        """References above and below, by chains too; a circle ends; versions of canonical URLs."""
        await self.fill()
        for id_, above in (("site", "room"), ("ward", "site"), ("room", "ward"), ("other", "")):
            part_of = {"partOf": {"reference": f"Location/{above}"}} if above else {}
            await self.world.send("PUT", f"Location/{id_}", {"resourceType": "Location", "id": id_, **part_of})
            encounter = {
                "resourceType": "Encounter",
                "id": f"in-{id_}",
                "status": "finished",
                "class": {"code": "AMB"},
                "location": [{"location": {"reference": f"Location/{id_}"}}],
            }
            await self.world.send("PUT", f"Encounter/in-{id_}", encounter)
        for version in ("1", "1.2", "1.2.7", "1.20", "2"):
            await self.world.send("PUT", f"QuestionnaireResponse/q{version}", {
                "resourceType": "QuestionnaireResponse", "id": f"q{version}", "status": "completed",
                "questionnaire": f"http://acme.org/Questionnaire/q|{version}"})  # fmt: skip
        await self.world.send("PUT", "Location/site", {"resourceType": "Location", "id": "site"})
        table = [
            ("Encounter?location:below=ward", "in-ward in-room"), ("Encounter?location:below=Location/room", "in-room"),
            ("Encounter?location:below=site", "in-site in-ward in-room"), ("Encounter?location:above=site", "in-site"),
            ("Encounter?location:above=room", "in-site in-ward in-room"), ("Location?partof:below=site", "ward room"),
            ("Encounter?location:below=ward,other", "in-ward in-room in-other"),
            ("Encounter?location:below=nowhere", ""),
            ("Location?_has:Encounter:location:location:below=ward", "ward room"),
            ("Patient?organization:below=west", "ann"), ("Observation?patient.organization:below=west", "bp mass"),
            ("Observation?patient.organization:above=west", ""), ("Patient?organization:above=east", "ann"),
            ("QuestionnaireResponse?questionnaire:below=http://acme.org/Questionnaire/q|1", "q1 q1.2 q1.2.7 q1.20"),
            ("QuestionnaireResponse?questionnaire:below=http://acme.org/Questionnaire/q|1.2", "q1.2 q1.2.7"),
            ("QuestionnaireResponse?questionnaire:above=http://acme.org/Questionnaire/q|1.2.7", "q1 q1.2 q1.2.7"),
            ("QuestionnaireResponse?questionnaire:below=http://acme.org", "q1 q1.2 q1.2.7 q1.20 q2"),
            ("QuestionnaireResponse?questionnaire:below=http://acme.org/Questionnaire/q", "q1 q1.2 q1.2.7 q1.20 q2"),
        ]  # fmt: skip
        for url, expected in table:
            found = entries(await self.world.send("GET", url))
            self.assertEqual({one.partition("/")[2] for one in found}, set(expected.split()), url)
        circle = {"resourceType": "Location", "id": "site", "partOf": {"reference": "Location/room"}}
        await self.world.send("PUT", "Location/site", circle)
        for relation in ("above", "below"):
            found = entries(await self.world.send("GET", f"Encounter?location:{relation}=ward"))
            self.assertEqual(len(found), 3)
        for url, status in (
            ("Observation?patient:below=ann", 400), ("Encounter?location:below=http://x.org/Location/1", 400),
            ("Encounter?location:below=Patient/ann", 200),
        ):  # fmt: skip
            self.assertEqual((await self.world.send("GET", url)).status, status, url)

    async def test_distances(self) -> None:
        """A match of `near` says how far it is."""
        where = {"position": {"latitude": 46.758, "longitude": 7.628}}
        await self.world.send("PUT", "Location/thun", {"resourceType": "Location", "id": "thun", **where})
        for url in ("Location?near=46.948|7.4474|30|km", "Location?near=46.948|7.4474|30|km&_include=*&x=1"):
            (entry, *_) = loads((await self.world.send("GET", url)).body)["entry"]
            (extension,) = entry["search"]["extension"]
            self.assertEqual(entry["search"]["mode"], "match")
            self.assertEqual(extension["url"].rpartition("/")[2], "location-distance")
            self.assertEqual(round(float(extension["valueDistance"]["value"]), 1), 25.2)

    async def test_lists_and_value_sets(self) -> None:
        """`_list`, `:in`, `:not-in` and `:below`."""
        await self.fill()
        entry = [{"item": {"reference": text}} for text in ("Patient/cid", "Observation/bp", "Patient/gone")]
        enumerable: Json = {"resourceType": "List", "id": "l", "status": "current", "mode": "working", "entry": entry}
        await self.world.send("PUT", "List/l", enumerable)
        self.assertEqual(entries(await self.world.send("GET", "Patient?_list=l")), ["Patient/cid"])
        self.assertEqual(entries(await self.world.send("GET", "Patient?_list=other")), [])
        refused = await self.world.send("GET", "Observation?code:in=http://v")
        self.assertEqual((refused.status, issues(refused)[0][2]), (400, "code:in"))
        self.terminology(Codes())
        for url, expected in (
            ("Observation?code:in=http://v", "mass light temp"), ("Observation?code:not-in=http://v", "bp low smoke"),
            ("Observation?code:below=http://loinc.org|vital", "bp low"), ("Observation?code:above=x|y", ""),
            ("Patient?_has:Observation:patient:code:below=http://loinc.org|vital", "ann bob"),
        ):  # fmt: skip
            found = [one.partition("/")[2] for one in entries(await self.world.send("GET", url))]
            self.assertEqual(sorted(found), sorted(expected.split()), url)

    def terminology(self, terminology: Terminology) -> None:
        """Give the server a terminology."""
        self.world.terminology = terminology

    async def test_chains_are_refused_in_writes_and_subscriptions(self) -> None:
        """Parameters on other resources are refused where a resource is matched on its own."""
        await self.fill()
        patient = {"resourceType": "Patient"}
        answer = await self.world.send("POST", "Patient", patient, if_none_exist="organization.name=East")
        self.assertEqual((answer.status, issues(answer)[0][0]), (400, "not-supported"))
        for criteria in ("Observation?patient.name=x", "Patient?_has:Observation:patient:code=1",
                         "Observation?code:in=http://v", "Patient?_list=1"):  # fmt: skip
            subscription = {
                "resourceType": "Subscription", "status": "requested", "reason": "r", "criteria": criteria,
                "channel": {"type": "rest-hook", "endpoint": "https://example.org/hook"},
            }  # fmt: skip
            answer = await self.world.send("POST", "Subscription", subscription)
            self.assertEqual(answer.status, 422, answer.body)
            said = " ".join(text for _, text, _ in issues(answer))
            self.assertIn(criteria.partition("?")[2].partition("=")[0], said)

    async def test_odd_requests(self) -> None:
        """Any parameter value gives 4xx with an outcome, or a result."""
        await self.fill()
        values = ["'; DROP TABLE resources;--", "\x00", "\x1f", "%", "9" * 400, "x" * 9000, "~~", "*", ":", "|"]
        names = ["_count", "_sort", "_include", "_revinclude", "_has:Observation:patient:code", "_cursor", "_type",
                 "_total", "_summary", "_list", "name:exact", "link.name", "_has:a", "_filter", "'; --"]  # fmt: skip
        for name in names:
            for value in values:
                for path in ("Patient", "", "Patient/ann/*"):
                    url = f"{path}?{quote(name)}={quote(value)}"
                    answer = await self.world.send("GET", url)
                    self.assertIn(answer.status, (200, 400, 404), (url[:200], answer.body[:300]))
        self.assertEqual(len(entries(await self.world.send("GET", "Patient"))), 3)


class SearchTests(SearchSuite, OnMemory):
    """In memory."""


class SearchOnPostgresTests(SearchSuite, OnSharedPostgres):
    """SQL finds, sorts and pages."""

    async def test_orders_over_types(self) -> None:
        """Merged by time, or by id, in pages."""
        await self.fill()
        in_time = [f"{one['resourceType']}/{one['id']}" for one in WORLD]
        for count in (3, 7, 50):
            self.assertEqual(flat(await self.pages(f"?_sort=_lastUpdated&_count={count}")), in_time)
            self.assertEqual(flat(await self.pages(f"?_sort=-_lastUpdated&_count={count}")), in_time[::-1])
        by_id = flat(await self.pages("?_type=Patient,Observation&_sort=_id&_count=2"))
        self.assertEqual([one.partition("/")[2] for one in by_id],
                         ["ann", "bob", "bp", "cid", "light", "low", "mass", "smoke", "temp"])  # fmt: skip
