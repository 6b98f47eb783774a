"""The FHIR interactions, without HTTP."""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from typing import Any

from ipf.fhir.capability import capability_statement
from ipf.fhir.model.definitions import definitions
from ipf.fhir.model.json import dumps, loads
from ipf.fhir.structure.check import check_structure
from ipf.ports import Answer, Json
from ipf.rest.router import ROUTES
from tests.rest.world import BASE, OnMemory, OnSharedPostgres, Suite, World, issues, patient


def header(answer: Answer, name: str) -> str | None:
    """One header of an answer."""
    return dict(answer.headers).get(name)


class Interactions(Suite):
    """Requests to one server."""

    world: World

    async def send(self, method: str, url: str, body: Any = None, **headers: str) -> Answer:
        """One request."""
        return await self.world.send(method, url, body, **headers)

    async def put(self, id: str, **members: Any) -> Answer:
        """Store Patient/`id`."""
        answer = await self.send("PUT", f"Patient/{id}", patient(id, id=id, **members))
        self.assertIn(answer.status, (200, 201), answer.body)
        return answer


class WriteTests(OnMemory, Interactions):
    async def test_create(self) -> None:
        answer = await self.send("POST", "Patient", patient("1"))
        stored = loads(answer.body)
        self.assertEqual(answer.status, 201)
        self.assertEqual(header(answer, "Location"), f"{BASE}/Patient/{stored['id']}/_history/1")
        self.assertEqual(header(answer, "ETag"), 'W/"1"')
        self.assertEqual(header(answer, "Last-Modified"), "Sat, 31 Jan 2026 08:05:09 GMT")
        self.assertEqual(stored["identifier"], patient("1")["identifier"])
        self.assertEqual((await self.send("GET", f"Patient/{stored['id']}")).body, answer.body)

    async def test_prefer(self) -> None:
        minimal = await self.send("POST", "Patient", patient("1"), prefer="return=minimal")
        self.assertEqual((minimal.status, minimal.body), (201, b""))
        self.assertIsNotNone(header(minimal, "Location"))
        outcome = await self.send("POST", "Patient", patient("1"), prefer="respond-async; return=OperationOutcome")
        self.assertIn("created (version 1)", issues(outcome)[0][1])
        whole = await self.send("POST", "Patient", patient("1"), prefer="return=representation")
        self.assertEqual(loads(whole.body)["resourceType"], "Patient")

    async def test_if_none_exist(self) -> None:
        for search in ("identifier=urn:mrn|1", "identifier=urn%3Amrn%7C1", "Patient?identifier=urn:mrn|1"):
            for expected in (201, 200) if search.startswith("identifier=urn:") else (200,):
                answer = await self.send("POST", "Patient", patient("1"), if_none_exist=search)
                self.assertEqual(answer.status, expected, search)
        for search, status in (("nonsense=1", 400), ("", 400), ("a=1&" * 300, 400), ("identifier=%FF", 400)):
            answer = await self.send("POST", "Patient", patient("1"), if_none_exist=search)
            self.assertEqual(answer.status, status, search)
        self.assertEqual(await self.world.store.counts(), {"Patient": 1})

    async def test_update(self) -> None:
        self.assertEqual((await self.put("a")).status, 201)
        again = await self.put("a")
        self.assertEqual((again.status, header(again, "ETag")), (200, 'W/"1"'))
        changed = await self.put("a", active=True)
        self.assertEqual((changed.status, header(changed, "ETag")), (200, 'W/"2"'))

    async def test_if_match(self) -> None:
        await self.put("a")
        body = patient("a", id="a", active=True)
        for tag, status in (('W/"2"', 412), ('W/"x"', 412), ("*", 412), ('W/"1"', 200), ('"2"', 200), ("2", 200)):
            self.assertEqual((await self.send("PUT", "Patient/a", body, if_match=tag)).status, status, tag)
        self.assertEqual((await self.send("DELETE", "Patient/a", if_match='W/"1"')).status, 412)
        self.assertEqual((await self.send("DELETE", "Patient/a", if_match='W/"2"')).status, 204)

    async def test_conditional_update_and_delete(self) -> None:
        url = "Patient?identifier=urn:mrn|1"
        self.assertEqual((await self.send("PUT", url, patient("1"))).status, 201)
        self.assertEqual((await self.send("PUT", url, patient("1", "Neu"))).status, 200)
        await self.send("POST", "Patient", patient("1"))
        ambiguous = await self.send("PUT", url, patient("1"))
        self.assertEqual((ambiguous.status, issues(ambiguous)[0][0]), (412, "multiple-matches"))
        self.assertEqual((await self.send("DELETE", url)).status, 412)
        self.assertEqual((await self.send("DELETE", "Patient?identifier=urn:mrn|2")).status, 204)
        for method, bare in (("DELETE", "Patient"), ("PUT", "Patient"), ("DELETE", "Patient?_format=json")):
            self.assertEqual((await self.send(method, bare, patient("1"))).status, 400)

    async def test_delete(self) -> None:
        await self.put("a")
        gone = await self.send("DELETE", "Patient/a")
        self.assertEqual((gone.status, gone.body, header(gone, "ETag")), (204, b"", 'W/"2"'))
        self.assertEqual((await self.send("GET", "Patient/a")).status, 410)
        self.assertEqual((await self.send("DELETE", "Patient/never")).status, 204)
        outcome = await self.send("DELETE", "Patient/never", prefer="return=OperationOutcome")
        self.assertEqual((outcome.status, issues(outcome)[0][1]), (200, "the resource to delete does not exist"))
        self.assertEqual((await self.put("a")).status, 201)

    async def test_refusals(self) -> None:
        good = patient("1")
        table: list[tuple[str, str, Any, dict[str, str], int, str]] = [
            ("POST", "Patient", b"{", {}, 400, "structure"),
            ("POST", "Patient", b'{"resourceType":"Patient","active":true,"active":false}', {}, 400, "structure"),
            ("POST", "Patient", b"\xff", {}, 400, "structure"),
            ("POST", "Patient", b"[" * 10_000, {}, 400, "structure"),
            ("POST", "Patient", [], {}, 400, "structure"),
            ("POST", "Patient", {}, {}, 400, "value"),
            ("POST", "Patient", {"resourceType": "Observation"}, {}, 400, "value"),
            ("POST", "Patient", good, {"content_type": "text/plain"}, 415, "not-supported"),
            ("POST", "Patient", b"<Patient/>", {"content_type": "application/fhir+xml"}, 400, "structure"),
            ("POST", "Patient", good, {"accept": "text/turtle"}, 406, "not-supported"),
            ("POST", "Patient", good, {"accept": "application/fhir+json; fhirVersion=5.0"}, 406, "not-supported"),
            ("POST", "Patient", good, {"content_type": "application/fhir+json; fhirVersion=3.0"}, 415, "not-supported"),
            ("PUT", "Patient/b", {**good, "id": "a"}, {}, 400, "value"),
            ("PUT", "Patient/b", good, {}, 400, "value"),
            ("PUT", "Patient/a_b", good, {}, 404, "not-found"),
            ("PUT", "Patient/" + "a" * 65, good, {}, 404, "not-found"),
            ("POST", "Nonsense", {"resourceType": "Nonsense"}, {}, 404, "not-found"),
            ("POST", "Patient/a", good, {}, 405, "not-supported"),
            ("PATCH", "Patient/a/_history", good, {}, 405, "not-supported"),
            ("POST", "Patient/$everything", good, {}, 404, "not-found"),
            ("GET", "Patient/a/_history/1/2", None, {}, 404, "not-found"),
            ("DELETE", "", None, {}, 405, "not-supported"),
        ]
        for method, url, body, headers, status, code in table:
            answer = await self.send(method, url, body, **headers)
            self.assertEqual((answer.status, issues(answer)[0][0]), (status, code), (method, url, body))
        self.assertEqual(await self.world.store.counts(), {})

    async def test_method_not_allowed_lists_allowed_methods(self) -> None:
        answer = await self.send("POST", "Patient/a")
        self.assertEqual(header(answer, "Allow"), "GET, HEAD, PUT, PATCH, DELETE, OPTIONS")

    async def test_structure(self) -> None:
        for member, value, place in (
            ("nonsense", 1, "Patient.nonsense"),
            ("name", {"family": "x"}, "Patient.name"),
            ("name", [{"famly": "x"}], "Patient.name[0].famly"),
            ("name", ["x"], "Patient.name[0]"),
            ("active", "true", "Patient.active"),
            ("gender", 1, "Patient.gender"),
            ("birthDate", ["2000"], "Patient.birthDate"),
            ("deceasedInteger", 1, "Patient.deceasedInteger"),
            ("multipleBirthInteger", "1", "Patient.multipleBirthInteger"),
            ("_name", [], "Patient._name"),
            ("name", [], "Patient.name"),
            ("name", [{}], "Patient.name[0]"),
            ("maritalStatus", {}, "Patient.maritalStatus"),
            ("_birthDate", {"value": 1}, "Patient._birthDate.value"),
            ("contained", [{"resourceType": "Nonsense"}], "Patient.contained[0].resourceType"),
            ("contained", [{"resourceType": "Location", "x": 1}], "Patient.contained[0].x"),
            ("extension", [{"url": "u", "extension": [{"url": 3}]}], "Patient.extension[0].extension[0].url"),
            ("id", "a b", "Patient.id"),
        ):
            answer = await self.send("POST", "Patient", {"resourceType": "Patient", member: value})
            self.assertEqual((answer.status, [place for _, _, place in issues(answer)]), (400, [place]), member)

    async def test_valid_structure(self) -> None:
        good = {
            "resourceType": "Patient",
            "id": "x",
            "birthDate": "2000",
            "_birthDate": {"extension": [{"url": "u", "valueDateTime": "2000-01-01T00:00:00Z"}]},
            "name": [{"given": ["a", None], "_given": [None, {"id": "x"}]}],
            "multipleBirthInteger": 2,
            "contained": [{"resourceType": "Location", "id": "l", "position": {"longitude": 1.50, "latitude": 2}}],
            "managingOrganization": {"reference": "#l"},
        }
        answer = await self.send("POST", "Patient", good)
        self.assertEqual(answer.status, 201, answer.body)

    async def test_deep_nesting_is_refused_not_fatal(self) -> None:
        inner: Json = {"url": "u"}
        for _ in range(110):
            inner = {"url": "u", "extension": [inner]}
        answer = await self.send("POST", "Patient", {"resourceType": "Patient", "extension": [inner]})
        self.assertEqual((answer.status, issues(answer)[0][1]), (400, "nested too deeply"))


class ReadSuite(Interactions):
    async def test_read(self) -> None:
        stored = await self.put("a")
        answer = await self.send("GET", "Patient/a")
        self.assertEqual((answer.status, answer.body), (200, stored.body))
        self.assertEqual((await self.send("HEAD", "Patient/a")).status, 200)
        self.assertEqual((await self.send("GET", "Patient/b")).status, 404)
        self.assertEqual((await self.send("GET", "Observation/a")).status, 404)

    async def test_not_modified(self) -> None:
        stored = await self.put("a")
        modified = header(stored, "Last-Modified") or ""
        self.assertEqual(parsedate_to_datetime(modified), self.world.now.replace(microsecond=0))
        for headers, status in (
            ({"if_none_match": 'W/"1"'}, 304),
            ({"if_none_match": '"7", W/"1"'}, 304),
            ({"if_none_match": 'W/"2"'}, 200),
            ({"if_none_match": 'W/"2"', "if_modified_since": modified}, 200),
            ({"if_modified_since": modified}, 304),
            ({"if_modified_since": "Sat, 31 Jan 2026 08:05:08 GMT"}, 200),
            ({"if_modified_since": "soon"}, 200),
        ):
            self.assertEqual((await self.send("GET", "Patient/a", **headers)).status, status, headers)

    async def test_formats(self) -> None:
        await self.put("a")
        for url, accept, status in (
            ("Patient/a", "*/*", 200),
            ("Patient/a", "application/fhir+json;fhirVersion=4.0", 200),
            ("Patient/a", "text/html, application/xhtml+xml, */*;q=0.8", 200),
            ("Patient/a", "text/html", 406),
            ("Patient/a?_format=json", "text/html", 200),
            ("Patient/a?_format=application/fhir%2Bjson", "", 200),
            ("Patient/a?_format=ttl", "*/*", 406),
        ):
            self.assertEqual((await self.send("GET", url, accept=accept)).status, status, (url, accept))

    async def test_vread(self) -> None:
        first = await self.put("a")
        await self.put("a", active=True)
        await self.send("DELETE", "Patient/a")
        self.assertEqual((await self.send("GET", "Patient/a/_history/1")).body, first.body)
        for number, status in (("2", 200), ("3", 410), ("4", 404), ("x", 404), ("9" * 30, 404), ("-1", 404)):
            self.assertEqual((await self.send("GET", f"Patient/a/_history/{number}")).status, status, number)

    async def test_history(self) -> None:
        await self.put("a")
        await self.put("a", active=True)
        await self.send("DELETE", "Patient/a")
        await self.put("a")
        bundle = loads((await self.send("GET", "Patient/a/_history")).body)
        self.assertEqual((bundle["type"], bundle["total"]), ("history", 4))
        self.assertEqual([entry["request"]["method"] for entry in bundle["entry"]], ["PUT", "DELETE", "PUT", "PUT"])
        self.assertEqual([entry["response"]["etag"] for entry in bundle["entry"]], [f'W/"{n}"' for n in (4, 3, 2, 1)])
        self.assertEqual(["resource" in entry for entry in bundle["entry"]], [True, False, True, True])
        self.assertEqual(bundle["entry"][0]["fullUrl"], f"{BASE}/Patient/a")
        self.assertEqual((await self.send("GET", "Patient/b/_history")).status, 404)

    async def test_history_since(self) -> None:
        await self.put("a")
        self.world.pass_time(60)
        await self.put("a", active=True)
        for since, versions in (
            ("2026-01-31T08:06:09Z", ["2"]),
            ("2026-01-31T09:06:09%2B01:00", ["2"]),
            ("2026-01-31", ["2", "1"]),
            ("2027", []),
        ):
            bundle = loads((await self.send("GET", f"Patient/a/_history?_since={since}")).body)
            found = [entry["resource"]["meta"]["versionId"] for entry in bundle.get("entry", [])]
            self.assertEqual((found, len(bundle["link"])), (versions, 1), since)

    async def test_history_of_many(self) -> None:
        await self.put("a")
        self.world.pass_time()
        await self.send("PUT", "Group/g", {"resourceType": "Group", "id": "g"})
        self.world.pass_time()
        await self.put("b")
        self.world.pass_time()
        await self.send("DELETE", "Patient/a")
        for url, expected in (
            ("_history", ["DELETE Patient/a", "PUT Patient/b", "PUT Group/g", "PUT Patient/a"]),
            ("Patient/_history", ["DELETE Patient/a", "PUT Patient/b", "PUT Patient/a"]),
            ("Group/_history", ["PUT Group/g"]),
            ("Location/_history", []),
            ("_history?_since=2026-01-31T08:05:11Z", ["DELETE Patient/a", "PUT Patient/b"]),
        ):
            seen: list[str] = []
            follow = f"{url}{'&' if '?' in url else '?'}_count=1"
            while follow:
                bundle = loads((await self.send("GET", follow)).body)
                for entry in bundle.get("entry", []):
                    seen.append(f"{entry['request']['method']} {entry['request']['url']}")
                links = {link["relation"]: link["url"] for link in bundle["link"]}
                follow = links.get("next", "").removeprefix(BASE + "/")
                await self.send("PUT", f"Basic/x{len(seen)}", {"resourceType": "Basic", "id": f"x{len(seen)}"})
            self.assertEqual([one for one in seen if "Basic" not in one], expected, url)
        for wrong in (
            "_cursor=x",
            "_cursor=MQ",
            "_since=soon",
            "_count=x",
            "_at=soon",
            "_list=1",
            "_sort=_id",
            "name=x",
        ):
            for url in ("_history", "Patient/_history"):
                self.assertEqual((await self.send("GET", f"{url}?{wrong}")).status, 400, wrong)

    async def test_history_pages(self) -> None:
        for number in range(5):
            await self.put("a", multipleBirthInteger=number)
        url, seen = "Patient/a/_history?_count=2", []
        while url:
            bundle = loads((await self.send("GET", url)).body)
            seen += [int(entry["resource"]["meta"]["versionId"]) for entry in bundle["entry"]]
            links = {link["relation"]: link["url"] for link in bundle["link"]}
            url = links.get("next", "").removeprefix(f"{BASE}/")
        self.assertEqual(seen, [5, 4, 3, 2, 1])
        for query in ("_count=x", "_at=soon", "_before=1e5", "_sort=name", "_list=1"):
            self.assertEqual((await self.send("GET", f"Patient/a/_history?{query}")).status, 400)

    async def test_history_orders_and_times(self) -> None:
        """In both orders, by pages forwards and back, of one resource, a type and the system."""
        for number in range(5):
            await self.put("a", multipleBirthInteger=number)
            self.world.pass_time()
        for path in ("Patient/a/_history", "Patient/_history", "_history"):
            for sort, expected in (("", "54321"), ("_sort=none&", "54321"), ("_sort=_lastUpdated&", "12345")):
                for count in (1, 2, 5):
                    await self._walk_both_ways(f"{path}?{sort}_count={count}", expected)
            for at, expected in (
                ("2026-01-31T08:05:11.5Z", "3"), ("2026-01-31T08:05:11Z", "32"), ("2026-01-31", "54321"),
                ("2026", "54321"), ("2025", ""), ("2027-01-01", "5"), ("2026-01-31T08:05:11Z&_sort=_lastUpdated", "23"),
            ):  # fmt: skip
                bundle = loads((await self.send("GET", f"{path}?_at={at}")).body)
                versions = [entry["resource"]["meta"]["versionId"] for entry in bundle.get("entry", ())]
                self.assertEqual("".join(versions), expected, (path, at))

    async def _walk_both_ways(self, url: str, expected: str) -> None:
        seen = {"next": "", "previous": ""}
        for relation in seen:
            while url:
                bundle = loads((await self.send("GET", url)).body)
                found = "".join(entry["resource"]["meta"]["versionId"] for entry in bundle["entry"])
                seen[relation] = found + seen[relation] if relation == "previous" else seen[relation] + found
                links = {link["relation"]: link["url"].removeprefix(f"{BASE}/") for link in bundle["link"]}
                self.assertEqual("first" in links, len(found) < 5)
                url = links.get(relation, "")
            url = links["self"]
        self.assertEqual(seen, {"next": expected, "previous": expected})

    async def test_tenants_are_isolated(self) -> None:
        await self.put("a")
        for url in ("Patient/a", "Patient/a/_history", "Patient/a/_history/1"):
            self.assertEqual((await self.world.send("GET", url, tenant="other")).status, 404)


class SearchSuite(Interactions):
    async def found(self, method: str, url: str, body: bytes | None = None, **headers: str) -> Json:
        """A searchset."""
        answer = await self.send(method, url, body, **headers)
        self.assertEqual(answer.status, 200, answer.body)
        bundle: Json = loads(answer.body)
        self.assertEqual(bundle["type"], "searchset")
        return bundle

    async def test_search(self) -> None:
        stored = await self.put("1")
        await self.put("2")
        bundle = await self.found("GET", "Patient?identifier=urn:mrn|1")
        self.assertEqual(bundle["total"], 1)
        self.assertEqual(bundle["link"], [{"relation": "self", "url": f"{BASE}/Patient?identifier=urn%3Amrn%7C1"}])
        (entry,) = bundle["entry"]
        self.assertEqual((entry["fullUrl"], entry["search"]), (f"{BASE}/Patient/1", {"mode": "match"}))
        self.assertEqual(entry["resource"], loads(stored.body))
        nothing = await self.found("GET", "Patient?identifier=urn:mrn|9")
        self.assertEqual((nothing["total"], "entry" in nothing), (0, False))

    async def test_post(self) -> None:
        await self.put("1")
        form = "application/x-www-form-urlencoded"
        body = b"identifier=urn%3Amrn%7C1&_format=json"
        bundle = await self.found("POST", "Patient/_search?_id=1", body, content_type=form)
        self.assertEqual(bundle["total"], 1)
        self.assertEqual(
            (await self.send("POST", "Patient/_search", b"{}", content_type="application/json")).status, 415
        )
        self.assertEqual((await self.send("POST", "Patient/_search", b"a=%FF", content_type=form)).status, 400)

    async def test_pages(self) -> None:
        for number in range(5):
            await self.put(str(number))
        url, seen = "Patient?_count=2", []
        while url:
            bundle = await self.found("GET", url)
            seen += [entry["resource"]["id"] for entry in bundle["entry"]]
            links = {link["relation"]: link["url"] for link in bundle["link"]}
            self.assertEqual(links["self"], f"{BASE}/{url}")
            url = links.get("next", "").removeprefix(f"{BASE}/")
        self.assertEqual(seen, list("01234"))

    async def test_count_only(self) -> None:
        await self.put("1")
        bundle = await self.found("GET", "Patient?_summary=count")
        self.assertEqual((bundle["total"], "entry" in bundle), (1, False))


class MetadataTests(OnMemory, Interactions):
    async def test_metadata(self) -> None:
        statement = loads((await self.send("GET", "metadata")).body)
        self.assertEqual((statement["resourceType"], statement["fhirVersion"]), ("CapabilityStatement", "4.0.1"))
        self.assertEqual(statement["implementation"]["url"], BASE)
        resources = {resource["type"]: resource for resource in statement["rest"][0]["resource"]}
        self.assertGreater(len(resources), 140)
        parameters = {parameter["name"] for parameter in resources["Patient"]["searchParam"]}
        self.assertLessEqual({"_id", "identifier", "name", "birthdate"}, parameters)
        codes = {one["code"] for one in resources["Patient"]["interaction"]}
        self.assertLessEqual({"read", "vread", "update", "patch", "delete", "create", "search-type"}, codes)
        self.assertLessEqual({"history-instance", "history-type"}, codes)
        system = {one["code"] for one in statement["rest"][0]["interaction"]}
        self.assertLessEqual({"transaction", "batch", "history-system"}, system)
        check_structure(statement)

    async def test_modes(self) -> None:
        terminology = loads((await self.send("GET", "metadata?mode=terminology")).body)
        self.assertEqual(terminology["resourceType"], "TerminologyCapabilities")
        check_structure(terminology)
        self.assertEqual((await self.send("GET", "metadata?mode=nonsense")).status, 400)
        self.assertEqual((await self.send("GET", ".well-known/smart-configuration")).status, 404)
        self.assertEqual((await self.send("GET", ".well-known/nonsense")).status, 404)

    async def test_every_route_is_in_the_capability_statement(self) -> None:
        """Every route is in the CapabilityStatement or in the list of exceptions."""
        routes = {(shape, method) for shape, methods in ROUTES.items() for method in methods}
        with_none = capability_statement(definitions(), [], base_url=BASE, version="1")
        self.assertEqual(with_none["rest"][0]["resource"][0]["interaction"], [])
        whole = dumps(capability_statement(definitions(), routes, base_url=BASE, version="1"))
        own = ("$export-", "$job-", "$reindex")
        for shape, _ in routes:
            if "$" in shape and not shape.startswith(own) and "$dry-run" not in shape:
                self.assertIn(f'"name":"{shape.rpartition("$")[2]}"'.encode(), whole)


class ReadTests(OnMemory, ReadSuite):
    pass


class ReadOnPostgresTests(OnSharedPostgres, ReadSuite):
    """SQL pages and orders histories."""


class SearchTests(OnMemory, SearchSuite):
    pass


class SearchOnPostgresTests(OnSharedPostgres, SearchSuite):
    """SQL finds and counts."""
