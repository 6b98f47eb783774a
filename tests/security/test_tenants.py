"""Tenant isolation: every route of the FHIR server, called by one tenant with the data of another.

The routes come from the route table, so new routes are covered.  All data of `beta` contains a marker.  Some ids are
equal in both tenants, some differ.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem
from ipf.fhir.model.json import loads
from ipf.fhir.model.packages import Packages
from ipf.pipeline.maintenance.export import Export
from ipf.ports import ANONYMOUS, SYSTEM, Answer, Caller, Json, Request
from ipf.rest.router import ROUTES
from ipf.rest.terminology.searches import TenantTerminology
from ipf.rest.write.conformance import Conformance
from ipf.security.tenancy import Tenancy, placing
from ipf.store.resources.exports import PostgresExports
from ipf.store.resources.reindex import PostgresReindexQueue
from ipf.store.resources.resources import PostgresFhirStore
from ipf.subscriptions.policy import PERMISSIVE, ChannelPolicy
from tests import postgres
from tests.rest.world import OnPostgres, World

MARK = "BETA"
KEYS = {"ALPHA": "key-a", MARK: "key-b"}  # keys in requests; only responses contain the markers
BY_KEY = f"identifier=urn:mrn|{KEYS[MARK]}"
OTHER = "only-b"
TYPES = ("Patient", "Observation", "Group", "List", "Subscription", "ValueSet", "CodeSystem", "ConceptMap", "Binary")


def resource(kind: str, id: str, mark: str) -> Json:
    """One resource of each type, with the marker in its indexed and its other elements."""
    subject = {"reference": "Patient/shared"}
    channel = {"type": "rest-hook", "endpoint": "https://hook.example.org/" + mark}
    key = KEYS[mark]
    members: dict[str, Json] = {
        "Patient": {"identifier": [{"system": "urn:mrn", "value": key}], "name": [{"family": mark}]},
        "Observation": {"status": "final", "code": {"text": mark}, "subject": subject},
        "Group": {"type": "person", "actual": True, "name": mark, "member": [{"entity": subject}]},
        "List": {"status": "current", "mode": "working", "title": mark, "entry": [{"item": subject}]},
        "Subscription": {"status": "requested", "reason": mark, "criteria": "Patient?", "channel": channel},
        "ValueSet": {
            "url": f"urn:vs:{key}", "title": mark, "status": "active",
            "compose": {"include": [{"system": f"urn:cs:{key}"}]},
        },
        "CodeSystem": {
            "url": f"urn:cs:{key}", "status": "active", "content": "complete",
            "concept": [{"code": key, "display": mark}],
        },
        "ConceptMap": {
            "url": f"urn:cm:{key}", "status": "active",
            "group": [{"source": f"urn:cs:{key}", "target": "urn:t", "element": [
                {"code": key, "target": [{"code": mark, "equivalence": "equal"}]}]}],
        },
        "Binary": {"contentType": "text/plain", "data": b64encode(mark.encode()).decode()},
    }  # fmt: skip
    return {"resourceType": kind, "id": id, **members[kind]}


def operation_parameters(kind: str, operation: str) -> Json:
    """The Parameters of an operation on the data of beta."""
    key, letter = KEYS[MARK], {"ValueSet": "vs", "CodeSystem": "cs", "ConceptMap": "cm"}.get(kind, "x")
    values = {
        "url": {"valueUri": f"urn:{letter}:{key}"},
        "code": {"valueCode": key},
        "system": {"valueUri": f"urn:cs:{key}"},
    }
    names = {"$expand": "url", "$lookup": "code system", "$translate": "url code system"}
    wanted = names.get(operation, "url code" if kind == "CodeSystem" else "url code system").split()
    if operation in ("$merge", "$unmerge"):
        names = ("source-patient", "target-patient")[: 1 if operation == "$unmerge" else 2]
        ids = dict(zip(names, (OTHER, "shared"), strict=False))
        return {
            "resourceType": "Parameters",
            "parameter": [{"name": name, "valueReference": {"reference": f"Patient/{id}"}} for name, id in ids.items()],
        }
    if operation in ("$validate", "$export", "$everything"):
        return {"resourceType": "Parameters"}
    return {"resourceType": "Parameters", "parameter": [{"name": name, **values[name]} for name in wanted]}


class RouteTests(OnPostgres):
    """`alpha`, which has data, and `gamma`, which has none, request the data of `beta`."""

    async def setUp(self) -> None:
        self.database = await postgres.database(self, "fhir", tenants=True)
        self.world = World(PostgresFhirStore(self.database), database=self.database)
        world = self.world
        world.now = datetime.now(UTC)  # PostgreSQL's clock decides when an export ends
        world.policy = ChannelPolicy(PERMISSIVE)
        world.conformance = Conformance(Packages, world.store, lambda: world.now)
        world.terminology = TenantTerminology(world.conformance)
        world.reindex = PostgresReindexQueue(self.database)
        for kind in TYPES:
            for tenant, id, mark in (("alpha", "shared", "ALPHA"), ("beta", "shared", MARK), ("beta", OTHER, MARK)):
                sent = resource(kind, id, mark)
                answer = await world.send("PUT", f"{kind}/{id}", sent, tenant)
                self.assertEqual(answer.status, 201, (kind, answer.body))
        self.job = await self.exported()

    async def exported(self) -> str:
        """A finished export of beta; its id."""
        answer = await self.world.send("GET", "$export", None, "beta", prefer="respond-async")
        self.assertEqual(answer.status, 202, answer.body)
        export = Export(PostgresExports(self.database), self.world.store)
        while await export.step():
            pass
        job = dict(answer.headers)["Content-Location"].rpartition("/")[2]
        self.assertIn(MARK.encode(), (await self.world.send("GET", f"$export-file/{job}/2", None, "beta")).body)
        return job

    def urls(self, shape: str) -> list[str]:
        """URLs of one route for the data of beta."""
        if shape.startswith("$export-"):
            return [shape.replace("[id]", self.job, 1).replace("[id]", "2")]
        found = []
        for kind in TYPES if "[type]" in shape else ("",):
            for id in ("shared", OTHER) if "[id]" in shape else ("",):
                url = shape.replace("[type]", kind, 1).replace("[id]", id).replace("[vid]", "1")
                found += [url.replace("[type]", one) for one in ("Observation", "*")] if "[type]" in url else [url]
        return found

    def body(self, shape: str, method: str, url: str) -> Json | list[Json] | None:
        """A request body that refers to the data of beta."""
        kind, _, id = url.partition("/")
        if method == "PATCH":
            return [{"op": "add", "path": "/language", "value": "de"}]
        if method == "GET" or method == "DELETE":
            return None
        if shape == "":
            urls = [f"Patient/{OTHER}", f"Patient?{BY_KEY}", f"Patient/{OTHER}/_history", "Group?_count=5"]
            entries: list[Json] = [{"request": {"method": "GET", "url": one}} for one in urls]
            return {"resourceType": "Bundle", "type": "batch", "entry": entries}
        if "$" in shape:
            return operation_parameters(kind, url.rpartition("/")[2])
        made = resource(kind, id, "ALPHA") if kind in TYPES else None
        return {name: value for name, value in made.items() if value} if made else None

    async def drive(self, tenant: str, methods: tuple[str, ...]) -> int:
        """Send all requests; no response contains data of beta.  Returns the number of requests."""
        count = 0
        for shape, offered in ROUTES.items():
            for method in offered:
                if method not in methods:
                    continue
                for url in self.urls(shape):
                    await self.ask(tenant, method, url, self.body(shape, method, url))
                    count += 1
        return count

    async def ask(self, tenant: str, method: str, url: str, body: Any) -> Answer:
        """Send one request with every query that could cross tenants, and check the response."""
        kind = "application/json-patch+json" if method == "PATCH" else "application/fhir+json"
        queries = [""]
        if method in ("GET", "DELETE", "PATCH", "PUT") and url in TYPES:
            queries = [f"_id={OTHER}", BY_KEY, "_lastUpdated=gt2000", "_has:Group:member:_id=x"]
        if url in ("_history", "") and method == "GET":
            queries = ["_count=1000", "_type=Patient,Observation"]
        for query in queries:
            answer = await self.world.send(
                method, f"{url}?{query}", body, tenant, content_type=kind, if_none_exist=BY_KEY,
                prefer=f"{'respond-async, ' if '$' in url else ''}return=representation",
            )  # fmt: skip
            received = answer.body + repr(answer.headers).encode()
            self.assertNotIn(MARK.encode(), received, (tenant, method, url, query))
            self.assertNotEqual(answer.status, 500, (tenant, method, url, answer.body))
        return answer

    async def beta(self) -> tuple[bytes, list[Any]]:
        """All data of beta: history, events, jobs."""
        world = self.world
        history = await world.send("GET", "_history?_count=1000", None, "beta")
        rows = await self.database.all_tenants.many(
            "SELECT s.id, s.status, s.last_event_number, s.epoch FROM subscription_states s"
            " JOIN partitions p ON p.id = s.partition_id WHERE p.name = 'beta' ORDER BY s.id"
        )
        job = await world.send("GET", f"$export-status/{self.job}", None, "beta")
        status = await world.send("GET", "metadata", None, "beta")
        return history.body + job.body, [rows, status.status]

    async def test_counts_and_markers(self) -> None:
        """Counts are per tenant; and markers are in the responses to beta, so the tests can detect a leak."""
        await self.counts()
        for url in ("Patient/shared", f"Patient?{BY_KEY}", "_history", "Patient/shared/$everything"):
            received = (await self.world.send("GET", url, None, "beta")).body
            self.assertIn(MARK.encode(), received, (url, received))
        for url in ("ValueSet/$expand", "CodeSystem/$lookup", "ValueSet/$validate-code", "ConceptMap/$translate"):
            received = (await self.world.send("POST", url, self.body("$", "POST", url), "beta")).body
            self.assertIn(MARK.encode(), received, (url, received))

    async def test_no_read_crosses_tenants(self) -> None:
        for tenant in ("alpha", "gamma"):
            self.assertGreater(await self.drive(tenant, ("GET",)), 100)
        for kind in TYPES:
            for url in (f"{kind}/{OTHER}", f"{kind}/{OTHER}/_history", f"{kind}/{OTHER}/_history/1"):
                self.assertEqual((await self.world.send("GET", url, None, "alpha")).status, 404, url)
        for url in (f"$export-status/{self.job}", f"$export-file/{self.job}/2"):
            self.assertEqual((await self.world.send("GET", url, None, "alpha")).status, 404, url)

    async def test_no_write_crosses_tenants(self) -> None:
        before = await self.beta()
        for tenant in ("alpha", "gamma"):
            self.assertGreater(await self.drive(tenant, ("POST", "PUT", "PATCH", "DELETE")), 100)
        self.assertEqual(await self.beta(), before)

    async def counts(self) -> None:
        for tenant, total in (("alpha", 1), ("beta", 2), ("gamma", 0)):
            found = loads((await self.world.send("GET", "Patient?_summary=count", None, tenant)).body)
            self.assertEqual(found["total"], total, tenant)
        response = await self.world.send("POST", "$reindex?_type=Patient", None, "alpha")
        self.assertNotIn(b'"valueInteger":3', response.body)


class ClaimTests(TestCase):
    """From the claim to the tenant."""

    def test_claims(self) -> None:
        anything, listed = Tenancy(True), Tenancy(True, frozenset({"alpha", "beta"}))
        for rule, claim, expected in (
            (Tenancy(), None, "default"),
            (Tenancy(), "alpha", "default"),
            (anything, "alpha", "alpha"),
            (anything, "https://idp.example/t/7", "https://idp.example/t/7"),
            (anything, None, None),
            (anything, "", None),
            (anything, "../beta", None),
            (anything, "default", None),
            (anything, "a b", None),
            (anything, "a\x1fb", None),
            (anything, "a" * 129, None),
            (listed, "beta", "beta"),
            (listed, "default", None),
            (Tenancy(True, frozenset({"default", "beta"})), "default", "default"),
            (listed, "gamma", None),
            (listed, "BETA", None),
        ):
            caller = Caller(subject="s", tenant=claim)
            if expected is not None:
                self.assertEqual(rule.of(caller), expected, claim)
                continue
            with self.assertRaises(Problem) as caught:
                rule.of(caller)
            self.assertEqual(caught.exception.category, Category.FORBIDDEN, claim)
            if claim:
                self.assertNotIn(claim, caught.exception.text)
        self.assertEqual(listed.of(SYSTEM), "default")

    async def test_requests(self) -> None:
        async def identify(request: Request) -> Request:
            return replace(request, caller=self.caller)

        request = Request("GET", ("Patient",), (), {}, b"", "", "", "alpha")
        self.caller = Caller(subject="s", tenant="beta")
        self.assertEqual((await placing(identify, Tenancy(True))(request)).tenant, "beta")
        self.assertIs(placing(identify, Tenancy()), identify)
        self.caller = ANONYMOUS
        found = await placing(identify, Tenancy(True))(request)
        self.assertTrue(found.caller.is_anonymous)
