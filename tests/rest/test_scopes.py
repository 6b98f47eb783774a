"""Scopes in each interaction, on the in-memory store and on PostgreSQL."""

from __future__ import annotations

from typing import Any

from ipf.fhir.model.json import dumps, loads
from ipf.ports import ANONYMOUS, OPEN, Answer, Caller, Json
from ipf.ports.grants import CreatorGrants
from ipf.store.resources.writing.grants import PostgresGrants
from tests.fakes.grants import MemoryGrants
from tests.rest.interactions.pages import entries
from tests.rest.world import BASE, OnMemory, OnSharedPostgres, Suite, World
from tests.security.test_scopes import ADA, BOB, DOCTOR, LAB, OTHERS, VITAL, VITALS

ORDER: Json = {"resourceType": "ServiceRequest", "id": "sr", "status": "active", "intent": "order",
               "subject": {"reference": "Patient/p1"}}  # fmt: skip
SEEN: Json = {**VITALS, "performer": [{"reference": "Practitioner/d"}], "basedOn": [{"reference": "ServiceRequest/sr"}]}
VITALS_ONLY = f"system/Observation.cruds?category={VITAL}"
SUBSCRIPTION: Json = {
    "resourceType": "Subscription", "status": "requested", "reason": "test", "criteria": "Patient?gender=male",
    "channel": {"type": "rest-hook", "endpoint": "https://subscriber.example.org/hook", "header": ["Authorization: x"]},
}  # fmt: skip

# (scopes, method, url, expected): a status, or the matches of a Bundle.
TABLE: list[tuple[str, str, str, Any]] = [
    ("system/Patient.r", "GET", "Patient/p1", 200),
    ("system/Patient.r", "HEAD", "Patient/p1", 200),
    ("system/Patient.r", "GET", "Patient/p1/_history", 200),
    ("system/Patient.r", "GET", "Patient/p1/_history/1", 200),
    ("system/Patient.s", "GET", "Patient/p1", 401),
    ("system/Patient.s", "GET", "Patient/p1/_history/1", 401),
    ("system/Patient.r", "GET", "Patient", 401),
    ("system/Patient.r", "GET", "Patient/_history", 401),
    ("system/Patient.s", "GET", "Patient", ["Patient/p1", "Patient/p2"]),
    ("system/Patient.s", "GET", "Patient/_history", 200),
    ("system/Patient.read", "GET", "Patient/p1", 200),
    ("system/Patient.read", "GET", "Patient", ["Patient/p1", "Patient/p2"]),
    ("system/Patient.write", "GET", "Patient/p1", 401),
    ("system/Observation.cruds", "GET", "Patient/p1", 401),
    ("system/Observation.cruds", "GET", "Patient/nobody", 401),
    ("", "GET", "Patient/p1", 401),
    ("", "GET", "metadata", 200),
    ("", "OPTIONS", "Patient", 204),
    # within the limits of a scope
    (VITALS_ONLY, "GET", "Observation/o1", 200),
    (VITALS_ONLY, "GET", "Observation/o2", 404),
    (VITALS_ONLY, "GET", "Observation/o2/_history/1", 404),
    (VITALS_ONLY, "GET", "Observation/o2/_history", 404),
    (VITALS_ONLY, "GET", "Observation", ["Observation/o1", "Observation/o3"]),
    (VITALS_ONLY, "GET", "Observation?category=laboratory", []),
    (VITALS_ONLY, "GET", "Observation?_id=o2", []),
    (VITALS_ONLY, "GET", "Observation?subject=Patient/p1", ["Observation/o1"]),
    (VITALS_ONLY, "GET", "?_type=Observation", ["Observation/o1", "Observation/o3"]),
    (VITALS_ONLY, "GET", "Patient/p1/Observation", ["Observation/o1"]),
    (VITALS_ONLY, "DELETE", "Observation/o2", 204),
    (VITALS_ONLY, "DELETE", "Observation/none", 204),
    (VITALS_ONLY, "GET", "$export?_type=Observation", 401),
    # over several types
    ("system/Patient.rs", "GET", "", ["Patient/p1", "Patient/p2"]),
    ("system/Patient.rs", "GET", "?_type=Patient", ["Patient/p1", "Patient/p2"]),
    ("system/Patient.rs", "GET", "?_type=Patient,Observation", 401),
    ("system/Patient.rs", "GET", "_history", 200),
    ("", "GET", "", 401),
    ("", "GET", "_history", 401),
    ("openid", "GET", "_history", 401),
    ("system/Observation.s", "GET", "Patient/p1/*", 401),
    ("system/Patient.r", "GET", "Patient/p1/*", 401),
    ("system/Patient.rs", "GET", "Patient/p1/*", ["Patient/p1"]),
    ("system/Patient.r system/Observation.s", "GET", "Patient/p1/*", ["Observation/o1", "Observation/o2"]),
    ("system/Patient.rs", "GET", "Patient/p1/Observation", 401),
    # what other resources say
    ("system/Patient.rs", "GET", "Patient?_has:Observation:patient:category=vital-signs", 401),
    ("system/Observation.rs", "GET", "Observation?patient.gender=male", 401),
    ("system/Observation.rs", "GET", "Observation?_filter=patient.gender eq male", 401),
    ("system/Observation.rs", "GET", "Observation?_filter=not(patient.gender eq male)", 401),
    ("system/Observation.rs system/Patient.s", "GET", "Observation?_filter=patient.gender eq male", ["Observation/o3"]),
    ("system/Observation.rs system/Patient.s?gender=female", "GET", "Observation?_filter=patient.gender eq male", []),
    (VITALS_ONLY, "GET", "Observation?_content=final", ["Observation/o1", "Observation/o3"]),
    (VITALS_ONLY, "GET", "Observation?_filter=status pr true", ["Observation/o1", "Observation/o3"]),
    (VITALS_ONLY, "GET", "Patient/p1/Observation", ["Observation/o1"]),
    ("system/Observation.rs system/Patient.s", "GET", "Observation?patient.gender=male", ["Observation/o3"]),
    ("system/Observation.rs system/Patient.s?gender=female", "GET", "Observation?patient.gender=male", []),
    (f"system/Patient.s {VITALS_ONLY}", "GET", "Patient?_has:Observation:patient:category=laboratory", []),
    ("system/Patient.rs", "GET", "Patient?_list=l", 401),
    # operations
    ("system/Patient.rs", "GET", "Patient/p1/$everything", ["Patient/p1"]),
    ("system/Patient.rs", "GET", "Patient/p1/$everything?_type=Observation", 401),
    ("system/Observation.rs", "GET", "Patient/p1/$everything", 401),
    ("system/Patient.s system/Observation.rs", "GET", "Patient/p1/$everything", 401),
    ("system/Patient.r system/Observation.s", "GET", "Patient/p1/$everything", ["Observation/o1", "Observation/o2"]),
    ("system/Patient.rs", "GET", "$reindex", 401),
    ("system/SearchParameter.r", "POST", "$reindex", 401),
    ("system/Patient.rs", "GET", "Patient/p1/$nothing", 401),
    # a type, an address and a method that are not there
    ("system/Patient.rs", "GET", "Nothing", 404),
    ("system/Patient.rs", "GET", "Patient/p1/nothing/1/2", 401),
    ("system/Patient.cruds", "GET", "Patient/p1/nothing/1/2", 404),
]

PATIENT_TABLE: list[tuple[str, str, str, Any]] = [
    ("patient/*.rs", "GET", "Patient/p1", 200),
    ("patient/*.rs", "GET", "Patient/p2", 404),
    ("patient/*.rs", "GET", "Patient", ["Patient/p1"]),
    ("patient/*.rs", "GET", "Observation", ["Observation/o1", "Observation/o2"]),
    ("patient/*.rs", "GET", "Observation/o3", 404),
    ("patient/*.rs", "GET", "Observation?subject=Patient/p2", []),
    ("patient/*.rs", "GET", "Patient/p2/Observation", []),
    ("patient/*.rs", "GET", "Patient/p2/$everything", 404),
    ("patient/*.rs", "GET", "Practitioner/d", 200),
    ("patient/*.rs", "GET", "Subscription", 401),
    ("patient/*.rs", "GET", "$export?_type=Patient", 401),
    ("patient/*.rs", "GET", "Patient/$export", 401),
    ("patient/*.rs", "DELETE", "Observation/o1", 401),
    ("patient/*.cruds", "DELETE", "Observation/o3", 204),
    ("patient/*.cruds", "GET", "Observation/o3", 404),
    ("patient/*.cruds", "DELETE", "Practitioner/d", 401),
    ("patient/*.cruds", "DELETE", "Observation/o1", 204),
]


class ScopeSuite(Suite):
    """Two patients, their observations, a doctor and an order."""

    world: World

    async def fill(self) -> None:
        """Store them."""
        self.world.caller = OPEN
        for resource in (ADA, BOB, DOCTOR, ORDER, SEEN, LAB, OTHERS):
            answer = await self.world.send("PUT", f"{resource['resourceType']}/{resource['id']}", resource)
            self.assertEqual(answer.status, 201, answer.body)

    async def ask(self, scopes: str, method: str, url: str, body: Any = None, **more: Any) -> Answer:
        """One request of a caller with these scopes."""
        patient = more.pop("patient", None)
        self.world.caller = Caller("ada", "app", tuple(scopes.split()), patient=patient)
        return await self.world.send(method, url, body, **more)

    async def check(self, table: list[tuple[str, str, str, Any]], patient: str | None = None) -> None:
        """Every row."""
        await self.fill()
        for scopes, method, url, expected in table:
            later = {"prefer": "respond-async"} if "$export" in url else {}
            answer = await self.ask(scopes, method, url, patient=patient, **later)
            what = (scopes, method, url, answer.body)
            if isinstance(expected, int):
                self.assertEqual(answer.status, expected, what)
            else:
                self.assertEqual((answer.status, sorted(entries(answer))), (200, expected), what)
                if "total" in (bundle := loads(answer.body)):
                    self.assertEqual(bundle["total"], len(expected), what)
            if answer.status == 401:
                self.assertIn('Bearer error="insufficient_scope"', dict(answer.headers)["WWW-Authenticate"])

    async def test_interactions(self) -> None:
        """TABLE."""
        await self.check(TABLE)

    async def test_one_patient(self) -> None:
        """PATIENT_TABLE."""
        await self.check(PATIENT_TABLE, "p1")

    async def test_without_a_token(self) -> None:
        """Without a token: metadata only; 401 otherwise, also for missing resources."""
        await self.fill()
        self.world.caller = ANONYMOUS
        for method, url, status in (("GET", "metadata", 200), ("GET", ".well-known/smart-configuration", 404),
                                    ("GET", "Patient/p1", 401), ("GET", "Patient/none", 401), ("GET", "Nothing", 401),
                                    ("POST", "", 401), ("OPTIONS", "Patient", 401),
                                    ("GET", "a/b/c/d", 401)):  # fmt: skip
            answer = await self.world.send(method, url)
            self.assertEqual(answer.status, status, url)
            if status == 401:
                self.assertEqual(dict(answer.headers)["WWW-Authenticate"], "Bearer")

    async def test_history_contains_visible_versions_only(self) -> None:
        """Each version is checked by its own content; a deletion has none."""
        await self.fill()
        await self.ask("system/*.cruds", "PUT", "Observation/o1", {**LAB, "id": "o1"})
        await self.ask("system/*.cruds", "DELETE", "Observation/o3")
        for url, expected in (("Observation/_history", ["o1", "o3"]), ("_history", ["o1", "o3"])):
            found = loads((await self.ask(VITALS_ONLY, "GET", url)).body).get("entry", ())
            self.assertEqual(sorted(one["resource"]["id"] for one in found), expected)
            self.assertEqual({one["resource"]["meta"]["versionId"] for one in found}, {"1"})
        self.assertEqual((await self.ask(VITALS_ONLY, "GET", "Observation/o1/_history")).status, 404)
        self.assertEqual((await self.ask(VITALS_ONLY, "GET", "Observation/o3")).status, 404)

    async def test_access_decision_is_not_reused_for_another_version(self) -> None:
        await self.fill()
        url, before = "Observation/o1", loads((await self.ask("system/*.cruds", "GET", "Observation/o1")).body)
        for body, status in ((before, 200), ({**LAB, "id": "o1"}, 404), (before, 200)):
            await self.ask("system/*.cruds", "PUT", url, body)
            for _ in range(2):
                self.assertEqual((await self.ask(VITALS_ONLY, "GET", url)).status, status)

    async def test_hierarchies_have_visible_resources_only(self) -> None:
        """What a client may not see has no place in a hierarchy, upwards and downwards."""
        self.world.caller = OPEN
        for id_, above, status in (("site", "", "active"), ("ward", "site", "suspended"), ("room", "ward", "active")):
            part_of = {"partOf": {"reference": f"Location/{above}"}} if above else {}
            location = {"resourceType": "Location", "id": id_, "status": status, **part_of}
            await self.world.send("PUT", f"Location/{id_}", location)
            encounter = {"resourceType": "Encounter", "id": id_, "status": "finished", "class": {"code": "AMB"},
                         "location": [{"location": {"reference": f"Location/{id_}"}}]}  # fmt: skip
            await self.world.send("PUT", f"Encounter/{id_}", encounter)
        for scopes, below, above in (
            ("system/Encounter.rs system/Location.rs", "site ward room", "site ward room"),
            ("system/Encounter.rs system/Location.rs?status=active", "site", "room ward"),
            ("system/Encounter.rs", "site", "room"),
        ):
            for url, expected in (("below=site", below), ("above=room", above)):
                found = entries(await self.ask(scopes, "GET", f"Encounter?location:{url}"))
                self.assertEqual(set(found), {f"Encounter/{one}" for one in expected.split()}, (scopes, url))

    async def test_includes_contain_visible_resources_only(self) -> None:
        """Invisible resources are left out, and their references are not followed."""
        await self.fill()
        url = "Observation?_id=o1&_include=*&_include:iterate=ServiceRequest:subject"
        for scopes, expected in (
            ("system/*.rs", ["Patient/p1", "Practitioner/d", "ServiceRequest/sr"]),
            ("system/Observation.rs system/Practitioner.r", ["Practitioner/d"]),
            ("system/Observation.rs system/Patient.rs?gender=male", []),
            ("system/Observation.rs", []),
        ):
            answer = await self.ask(scopes, "GET", url)
            self.assertEqual(sorted(entries(answer, "include")), expected, scopes)
        url = "Patient?_id=p1&_revinclude=Observation:subject"
        for scopes, expected in ((f"system/Patient.rs {VITALS_ONLY}", ["Observation/o1"]), ("system/Patient.rs", [])):
            self.assertEqual(entries(await self.ask(scopes, "GET", url), "include"), expected)
        answer = await self.ask("patient/*.rs", "GET", "Patient/p1/$everything", patient="p1")
        self.assertEqual(entries(answer, "include"), ["Practitioner/d"])

    async def test_writes_stay_within_the_limits(self) -> None:
        """Access is checked before and after a change, also for patches and conditions."""
        await self.fill()
        test = [{"op": "test", "path": "/status", "value": "amended"}]
        patch = {"content_type": "application/json-patch+json"}
        kind = "category=laboratory"
        for scopes, method, url, body, headers, expected in (
            (VITALS_ONLY, "POST", "Observation", {**VITALS, "id": None}, {}, 201),
            (VITALS_ONLY, "POST", "Observation", {**LAB, "id": None}, {}, 401),
            (VITALS_ONLY, "PUT", "Observation/o1", LAB | {"id": "o1"}, {}, 401),
            (VITALS_ONLY, "PUT", "Observation/o2", VITALS | {"id": "o2"}, {}, 404),
            (VITALS_ONLY, "PUT", "Observation/o2", LAB, {"if_match": 'W/"9"'}, 404),
            (VITALS_ONLY, "PUT", "Observation/new", LAB | {"id": "new"}, {}, 404),
            (VITALS_ONLY, "PUT", "Observation/new", VITALS | {"id": "new"}, {}, 404),
            (f"{VITALS_ONLY} system/Observation.r", "PUT", "Observation/o2", VITALS | {"id": "o2"}, {}, 401),
            (f"{VITALS_ONLY} system/Observation.r", "PUT", "Observation/new", VITALS | {"id": "new"}, {}, 201),
            (VITALS_ONLY, "PUT", "Observation/o1", SEEN | {"status": "amended"}, {}, 200),
            (VITALS_ONLY, "PATCH", "Observation/o2", test, patch, 404),
            (VITALS_ONLY, "PATCH", "Observation/o1", test, patch, 200),
            (VITALS_ONLY, "POST", "Observation", {**VITALS, "id": None}, {"if_none_exist": kind}, 201),
            (VITALS_ONLY, "DELETE", f"Observation?{kind}", None, {}, 204),
            (VITALS_ONLY, "PATCH", f"Observation?{kind}", test, patch, 404),
            ("system/Observation.c", "POST", "Observation", {**VITALS, "id": None}, {"if_none_exist": kind}, 401),
            ("system/Observation.cs", "POST", "Observation", {**VITALS, "id": None}, {"if_none_exist": kind}, 200),
            ("system/Observation.u", "PUT", f"Observation?{kind}", {**LAB, "id": None}, {}, 401),
            ("system/Observation.d", "DELETE", f"Observation?{kind}", None, {}, 401),
            ("system/Observation.r", "PUT", "Observation/o1", VITALS, {}, 401),
            ("system/Observation.cr", "PUT", "Observation/o9", VITALS | {"id": "o9"}, {}, 401),
            ("system/Observation.u", "PUT", "Observation/o9", VITALS | {"id": "o9"}, {}, 201),
            ("patient/*.cruds", "POST", "Observation", {**OTHERS, "id": None}, {}, 401),
            ("patient/*.cruds", "POST", "Observation", {**LAB, "id": None}, {}, 201),
            ("patient/*.cruds", "PUT", "Patient/p2", BOB, {}, 404),
        ):
            sent = (
                {name: value for name, value in body.items() if value is not None} if isinstance(body, dict) else body
            )
            answer = await self.ask(scopes, method, url, sent, patient="p1", **headers)
            self.assertEqual(answer.status, expected, (scopes, method, url, answer.body))
        stored = await self.world.body("Observation/o2")
        self.assertEqual(stored["meta"]["versionId"], "1")

    async def test_conditions_do_not_reveal_other_resources(self) -> None:
        """A conditional write has the same response whether another patient has a match or not."""
        await self.fill()
        ours = {name: value for name, value in LAB.items() if name != "id"}
        patch = {"content_type": "application/json-patch+json"}
        test = [{"op": "test", "path": "/status", "value": "final"}]
        held, absent = "subject=Patient/p2&category=vital-signs", "subject=Patient/p2&category=laboratory"
        own = "subject=Patient/p1"
        entry = {"resource": {**ours, "derivedFrom": [{"reference": "Observation?{}"}]},
                 "request": {"method": "POST", "url": "Observation"}}  # fmt: skip
        bundle = dumps({"resourceType": "Bundle", "type": "transaction", "entry": [entry]}).decode()
        for method, url, body, headers, expected, within in (
            ("POST", "Observation", ours, {"if_none_exist": "{}"}, 201, 412),
            ("PUT", "Observation?{}", ours, {}, 201, 412),
            ("PATCH", "Observation?{}", test, patch, 404, 412),
            ("POST", "", bundle, {}, 412, 412),
            ("DELETE", "Observation?{}", None, {}, 204, 412),
        ):
            for condition, status in ((held, expected), (absent, expected), (own, within)):
                sent = body.replace("{}", condition).encode() if isinstance(body, str) else body
                filled = {name: value.replace("{}", condition) for name, value in headers.items()}
                address = url.replace("{}", condition)
                answer = await self.ask("patient/*.cruds", method, address, sent, patient="p1", **filled)
                self.assertEqual(answer.status, status, (method, condition, answer.body))

    async def test_a_patch_needs_the_right_to_read(self) -> None:
        """Whether a patch succeeds tells of the content; a resource that a patch hides is not in the response."""
        await self.fill()
        kind = {"content_type": "application/json-patch+json"}
        for scopes, gender, new, status, shown in (
            ("system/Patient.u", "female", "other", 401, False),
            ("system/Patient.u", "male", "other", 401, False),
            ("system/Patient.u system/Patient.r?_id=p2", "female", "other", 401, False),
            ("system/Patient.us", "female", "other", 200, True),
            ("system/Patient.u system/Patient.r?gender=other", "other", "male", 200, False),
        ):
            patch = [{"op": "test", "path": "/gender", "value": gender},
                     {"op": "replace", "path": "/gender", "value": new}]  # fmt: skip
            answer = await self.ask(scopes, "PATCH", "Patient/p1", patch, **kind)
            self.assertEqual(answer.status, status, (scopes, answer.body))
            if status == 200:
                self.assertEqual(bool(answer.body), shown, scopes)

    async def test_transactions_entry_by_entry(self) -> None:
        """A transaction fails completely, with a location; a batch has a response per entry."""
        await self.fill()

        def entry(method: str, url: str, resource: Json | None = None, **more: str) -> Json:
            return {"request": {"method": method, "url": url, **more}, **({"resource": resource} if resource else {})}

        new = {name: value for name, value in LAB.items() if name != "id"}
        ours = [
            entry("GET", "Patient/p1"),
            entry("GET", f"{BASE}/Patient?_id=p2"),
            entry("GET", "Observation/o2"),
            entry("POST", "Patient", {"resourceType": "Patient"}),
            entry("POST", "Observation", new),
            entry("PUT", "Patient/p1", ADA),
            entry("DELETE", "Patient/p2"),
            entry("POST", "Patient", {"resourceType": "Patient"}, ifNoneExist="gender=male"),
        ]
        batch = {"resourceType": "Bundle", "type": "batch", "entry": ours}
        answer = await self.ask(f"system/Patient.crs {VITALS_ONLY}", "POST", "", batch)
        statuses = [one["response"]["status"][:3] for one in loads(answer.body)["entry"]]
        self.assertEqual(statuses, ["200", "200", "404", "201", "401", "401", "401", "200"])
        for number in (4, 5, 6):
            whole = {"resourceType": "Bundle", "type": "transaction", "entry": [ours[3], ours[number]]}
            answer = await self.ask(f"system/Patient.crs {VITALS_ONLY}", "POST", "", whole)
            self.assertEqual(answer.status, 401, answer.body)
        answer = await self.ask("system/*.cruds", "GET", "Patient")
        self.assertEqual(len(entries(answer)), 3, "only the batch stored anything")

    async def test_conditional_references_find_visible_resources_only(self) -> None:
        """A reference by search is a search."""
        await self.fill()
        new = {**{name: value for name, value in LAB.items() if name != "id"},
               "subject": {"reference": "Patient?gender=male"}}  # fmt: skip
        bundle = {"resourceType": "Bundle", "type": "transaction",
                  "entry": [{"request": {"method": "POST", "url": "Observation"}, "resource": new}]}  # fmt: skip
        for scopes, status in (("system/Observation.c", 401), ("system/Observation.c system/Patient.r", 401),
                               ("system/Observation.c system/Patient.s?gender=female", 412),
                               ("system/Observation.c system/Patient.s", 200)):  # fmt: skip
            self.assertEqual((await self.ask(scopes, "POST", "", bundle)).status, status, scopes)

    async def test_exports(self) -> None:
        """Export needs unlimited read access to each type, also for the files of a job."""
        await self.fill()
        self.world.export_hours = 1e6  # the clock of this world is not that of PostgreSQL
        answer = await self.ask("system/Patient.rs", "GET", "$export", prefer="respond-async")
        place = dict(answer.headers)["Content-Location"].removeprefix(f"{BASE}/")
        for scopes, status in (("system/Patient.rs", 202), ("system/*.read", 202), ("system/Observation.rs", 401),
                               ("system/Patient.rs?gender=male", 401), ("", 401)):  # fmt: skip
            self.assertEqual((await self.ask(scopes, "GET", place)).status, status, scopes)
        answer = await self.ask("system/*.read", "GET", "$export", prefer="respond-async")
        place = dict(answer.headers)["Content-Location"].removeprefix(f"{BASE}/")
        self.assertEqual((await self.ask("system/Patient.rs", "GET", place)).status, 401)

    async def test_the_creator_of_a_subscription(self) -> None:
        """The grants are those of the client that created it, or replaced its criteria or channel; of nobody else."""
        answer = await self.ask("system/Subscription.crus", "POST", "Subscription", SUBSCRIPTION)
        self.assertEqual(answer.status, 201, answer.body)
        stored = {**SUBSCRIPTION, "id": loads(answer.body)["id"]}
        url = f"Subscription/{stored['id']}"
        narrow = Caller("ada", "app", ("system/Subscription.crus",))
        reader = Caller("ada", "app", ("system/Subscription.crus", "system/Patient.r"))
        wide = Caller("bob", "ehr", ("system/*.cruds",))
        self.assertEqual(await self.writers(stored["id"]), [narrow])
        self.assertEqual((await self.ask("system/Patient.cruds", "POST", "Subscription", SUBSCRIPTION)).status, 401)
        pause = [{"op": "replace", "path": "/status", "value": "off"}]
        moved = {**stored, "channel": {**stored["channel"], "endpoint": "https://bob.example.org/hook"}}
        other = {**moved, "criteria": "Patient?"}
        for caller, method, body, expected in (
            (wide, "PATCH", pause, narrow),
            (wide, "PUT", {**stored, "status": "off", "reason": "other", "end": "2040-01-01T00:00:00Z"}, narrow),
            (wide, "PUT", stored, narrow),
            (reader, "PUT", {**stored, "status": "off"}, reader),  # it reads more of what matches
            (narrow, "PUT", stored, reader),  # a status change with a narrower token
            (OPEN, "PUT", {**stored, "status": "off"}, reader),
            (wide, "PUT", moved, wide),
            (narrow, "PUT", {**moved, "status": "off"}, wide),
            (narrow, "PUT", other, narrow),
            (wide, "PUT", {**other, "channel": {**other["channel"], "header": ["Authorization: y"]}}, wide),
            (wide, "DELETE", None, None),
            (narrow, "PUT", stored, narrow),
            (OPEN, "PUT", moved, None),
            (reader, "PUT", {**moved, "status": "off"}, None),  # whose grants it had not, it has not now
        ):
            self.world.caller = caller
            more = {"content_type": "application/json-patch+json"} if method == "PATCH" else {}
            answer = await self.world.send(method, url, body, **more)
            self.assertIn(answer.status, (200, 201, 204), answer.body)
            if method != "DELETE":
                found = await self.writers(stored["id"])
                self.assertEqual(found, [] if expected is None else [expected], (caller.client, method, body))

    async def writers(self, id: str) -> list[Caller]:
        """As the store keeps them."""
        version = await self.world.repository.store.read(self.world.tenant, "Subscription", id)
        found = await self.grants().writers(self.world.tenant, id, version.version_id if version else 0)
        return [writer.caller for writer in found or ()]

    def grants(self) -> CreatorGrants:
        """Of the store."""
        raise NotImplementedError


class OnMemoryTests(ScopeSuite, OnMemory):
    def grants(self) -> CreatorGrants:
        return MemoryGrants(self.world.store)


class OnPostgresTests(ScopeSuite, OnSharedPostgres):
    """SQL restricts searches, and holds the writers of a Subscription."""

    def grants(self) -> CreatorGrants:
        return PostgresGrants(self.database)
