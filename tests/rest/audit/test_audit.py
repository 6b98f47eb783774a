"""The audit trail of the FHIR server: what leaves a record, what stands in it, how it is found; on both stores."""

from __future__ import annotations

from base64 import b64decode
from dataclasses import replace
from datetime import UTC, datetime
from itertools import product
from typing import Any
from urllib.parse import parse_qsl

from ipf.fhir.model.json import dumps, loads
from ipf.ports import ANONYMOUS, OPEN, SYSTEM, Answer, BindingAttempt, Caller, Json, Request, Session, Version
from ipf.ports.audit.records import ADMIN, FHIR, Audit, AuditFilter, millisecond_of
from ipf.rest.audit.audit_store import AuditedStore
from ipf.rest.audit.recorder import audited, binding_recorder, observer, records_of
from ipf.rest.router import handler
from ipf.rest.write.repository import Repository
from ipf.rest.write.unit import Unit
from ipf.security.access import install
from ipf.security.audit import records as audit_records
from ipf.security.audit.draft import NewDraft, drafter
from ipf.security.audit.event import audit_event
from ipf.security.audit.rules import ORIGIN_SYSTEM, AuditRules, clean, id_suffixes, interaction_of, outcome_of
from ipf.security.privacy.labels import LabelRules
from ipf.security.privacy.policy import Privacy
from ipf.store.audit.audit import PostgresAuditStore
from tests.fakes.audit import MemoryAuditStore
from tests.rest.world import BASE, CORRELATION_ID, OnMemory, OnPostgres, Suite, World, create, issues, patient, unit

SUBTYPE = "http://hl7.org/fhir/restful-interaction"
NURSE = Caller(
    subject="u-17", client="ward-app", scopes=("user/*.cruds", "system/*.cruds"), issuer="https://idp.example",
    user="Practitioner/7",
)  # fmt: skip


WRITES = AuditRules()


ID = "0190a0b0-1111-4222-8333-444455556666"


class Trail:
    """A world whose requests are audited; `flush` writes what was noted."""

    def __init__(self, world: World, store: Any, rules: AuditRules = WRITES) -> None:
        self.world = world
        self.store = store
        self.rules = rules
        self.noted: list[Audit] = []
        self.written = 0
        self.numbers = iter(range(1, 10_000))
        self.committed: list[Audit] = []
        self.counted: list[tuple[str, int]] = []

    def new_id_suffix(self) -> str:
        """Ids that grow among equals."""
        return f"7000-8000-{next(self.numbers):012x}"

    @property
    def repository(self) -> Repository:
        """The world's, with the trail in it."""
        whole = self.world.repository
        return replace(whole, store=AuditedStore(whole.store, self.store, BASE))

    async def collect(self, tenant: str = "default") -> None:
        """Note what was committed with writes: it is in the store in memory, or in the trail on PostgreSQL."""
        new: list[Audit] = getattr(self.world.store, "audits", [])[:]
        if new:
            self.world.store.audits.clear()
        else:
            rows = await self.store.find(tenant, AuditFilter(), 500, oldest_first=True)
            known = {one.id for one in self.noted}
            new = [one for one in rows if one.id not in known]
        self.noted[self.written : self.written] = new
        self.committed += new

    @property
    def drafts(self) -> NewDraft:
        """Drafts of the requests that write."""
        return drafter(self.rules, self.new_id_suffix, lambda outcome, count: self.counted.append((outcome, count)))

    async def send(
        self, method: str, url: str, body: Any = None, caller: Caller = NURSE, tenant: str = "default", **headers: str
    ) -> Answer:
        """One request of `caller`, a second after the last; its record is written at once."""
        self.world.pass_time()

        async def identify(request: Request) -> Request:
            return replace(request, caller=caller, address="192.0.2.9")

        observe = observer(self.rules, self.noted.append, lambda: millisecond_of(self.world.now), self.new_id_suffix)
        serve = handler(self.repository, identify, observe, self.drafts)
        answer = await self._asked(serve, method, url, body, tenant, headers)
        await self.collect(tenant)
        await self.store.append(self.noted[self.written :])
        self.written = len(self.noted)
        return answer

    async def _asked(self, serve: Any, method: str, url: str, body: Any, tenant: str, headers: Any) -> Answer:
        path, _, query = url.partition("?")
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        sent = b"" if body is None else body if isinstance(body, bytes) else dumps(body)
        segments = tuple(path.split("/")) if path else ()
        pairs = tuple(parse_qsl(query, keep_blank_values=True))
        answer: Answer = await serve(Request(method, segments, pairs, named, sent, BASE, CORRELATION_ID, tenant))
        return answer

    async def search(self, query: str = "", tenant: str = "default") -> Json:
        """The searchset of `AuditEvent?query`."""
        answer = await self.send("GET", f"AuditEvent?{query}", tenant=tenant)
        if answer.status != 200:
            raise AssertionError(issues(answer))
        bundle: Json = loads(answer.body)
        return bundle

    async def found(self, query: str = "", tenant: str = "default") -> list[str]:
        """subtype+outcome of each match."""
        bundle = await self.search(query, tenant)
        events = [entry["resource"] for entry in bundle.get("entry", [])]
        return [f"{event['subtype'][0]['code']}{event['outcome']}" for event in events]


class AuditSuite(Suite):
    """Requests and their records."""

    trail: Trail

    async def _some(self) -> str:
        """A patient made, read, changed, searched, asked for in vain, deleted; its id."""
        send = self.trail.send
        made = loads((await send("POST", "Patient", patient("1"))).body)["id"]
        await send("GET", f"Patient/{made}")
        await send("PUT", f"Patient/{made}", patient("1", id=made, active=True))
        await send("GET", "Patient?identifier=urn:mrn|1")
        await send("GET", "Patient/nobody")
        await send("DELETE", f"Patient/{made}")
        return str(made)

    async def test_websocket_clients(self) -> None:
        """Each that bound itself, or tried to; what no tenant's is operators see alone; a bug here disturbs nobody."""
        divided = AuditRules(divided=True)
        began, noted = self.world.now, self.trail.noted
        rows = (
            (WRITES, NURSE, ["s1", "s2"], 200, FHIR, 0, ("Subscription/s1", "Subscription/s2")),
            (divided, NURSE, ["s1"], 404, FHIR, 4, ("Subscription/s1",)),
            (divided, ANONYMOUS, ["s1\n x", "s1"], 401, ADMIN, 8, ("Subscription/s1",)),
            (WRITES, OPEN, [], 200, FHIR, 0, ()),
        )
        for rules, caller, ids, status, surface, outcome, entities in rows:
            note = binding_recorder(rules, noted.append, self.world.repository.clock, self.trail.new_id_suffix)
            note(
                BindingAttempt(Session("default", caller=caller), "websocket bind", ids, status, "192.0.2.9", ID, began)
            )
            context = noted[-1].context
            self.assertEqual(
                (context.surface, context.outcome, context.status, context.action), (surface, outcome, status, "E")
            )
            self.assertEqual((context.agent, context.address), (caller.subject or "anonymous", "192.0.2.9"))
            self.assertEqual((noted[-1].entities, noted[-1].request_target), (entities, "websocket bind"))
        note(BindingAttempt(None, "websocket bind", (), 200, "", ID, began))
        self.assertEqual((len(noted), len(self.flushLoggedErrors(AttributeError))), (len(rows), 1))
        event = audit_event(noted[0], BASE)
        self.assertEqual(event["entity"][1]["what"], {"reference": "Subscription/s2"})
        self.assertEqual(event["subtype"][0]["code"], "operation")

    async def test_writes_and_failures_always_reads_and_searches_by_switch(self) -> None:
        await self._some()
        self.assertEqual(await self.trail.found("_sort=date"), ["create0", "update0", "read4", "delete0"])
        self.trail.rules = AuditRules(reads=True)
        await self._some()
        self.assertEqual(await self.trail.found("_count=5"), ["delete0", "read4", "update0", "read0", "create0"])
        self.trail.rules = AuditRules(searches=True)
        await self._some()
        self.assertEqual(await self.trail.found("_count=4"), ["delete0", "read4", "search0", "update0"])

    async def test_what_stands_in_a_record(self) -> None:
        made = await self._some()
        (event,) = [entry["resource"] for entry in (await self.trail.search("action=C"))["entry"]]
        self.assertEqual(event["type"]["code"], "rest")
        self.assertEqual((event["subtype"][0]["system"], event["subtype"][0]["code"]), (SUBTYPE, "create"))
        self.assertEqual((event["action"], event["outcome"], event["outcomeDesc"]), ("C", "0", "HTTP 201"))
        user, client, server = event["agent"]
        self.assertEqual(user["who"]["reference"], "Practitioner/7")
        self.assertEqual(user["who"]["identifier"], {"system": "https://idp.example", "value": "u-17"})
        self.assertEqual((user["altId"], user["requestor"], client["requestor"]), ("u-17", True, False))
        self.assertEqual(client["who"]["identifier"], {"system": "https://idp.example", "value": "ward-app"})
        self.assertEqual((client["name"], client["network"]["address"]), ("ward-app", "192.0.2.9"))
        self.assertEqual((server["who"], server["network"]), ({"display": "ipf"}, {"address": BASE, "type": "5"}))
        data, patient, request, request_id, correlation_id = event["entity"]
        self.assertEqual(data["what"], {"reference": f"Patient/{made}/_history/1"})
        self.assertEqual(patient["what"], {"reference": f"Patient/{made}"})
        self.assertEqual(b64decode(request["query"]), b"Patient")
        for one in (request_id, correlation_id):
            self.assertEqual(one["what"]["identifier"]["value"], CORRELATION_ID)
        self.assertEqual(event["source"]["site"], "default")
        self.assertEqual(event["period"]["end"], event["recorded"])

    async def test_it_is_found_by(self) -> None:
        made = await self._some()
        coded = {"resourceType": "Observation", "status": "final", "code": {"text": "x"}}
        lab = Caller(subject="lab", client="lab", scopes=("system/*.cruds",))
        await self.trail.send("POST", "Observation", {**coded, "subject": {"reference": "Patient/p2"}}, caller=lab)
        await self.trail.send("GET", "Patient/x", caller=ANONYMOUS)
        table = {
            f"entity=Patient/{made}": ["delete0", "update0", "create0"],
            f"patient=Patient/{made}&action=D": ["delete0"],
            "patient=p2": ["create0"],
            "patient=Patient/p2&entity=Patient/p2": ["create0"],
            "agent=Practitioner/7": ["delete0", "read4", "update0", "create0"],
            "agent:identifier=|lab": ["create0"],
            "agent-name=ward": ["delete0", "read4", "update0", "create0"],
            "altid=lab": ["create0"],
            "address=192.0.2.9&action=U": ["update0"],
            "outcome=8": ["read8"],
            "outcome=4,8": ["read8", "read4"],
            "outcome:not=0": ["read8", "read4"],
            "action=C,D": ["create0", "delete0", "create0"],
            f"subtype={SUBTYPE}|update": ["update0"],
            "subtype=delete": ["delete0"],
            "type=rest&outcome=8": ["read8"],
            "type=http://terminology.hl7.org/CodeSystem/audit-event-type|rest&outcome=8": ["read8"],
            "type=other": [],
            "date=2026-01-31T08:05:10.120Z": ["create0"],
            "date=lt2026-01-31T08:05:12.000Z": ["create0"],
            "date=gt2026-01-31T08:05:16.500Z&date=le2026-01-31T08:05:17Z": ["read8"],
            "date=ne2026-01-31": [],
            "date=ne2026-01-30&outcome=8": ["read8"],
            "_lastUpdated=ge2026-02-01": [],
            "_lastUpdated=lt2026-02-01&outcome=8": ["read8"],
            "site=default&outcome=8": ["read8"],
            "site=elsewhere": [],
        }
        wrong = {}
        for query, expected in table.items():
            bundle = await self.trail.search(query)
            events = [entry["resource"] for entry in bundle.get("entry", [])]
            found = [f"{event['subtype'][0]['code']}{event['outcome']}" for event in events]
            if found != expected or bundle["total"] != len(expected):
                wrong[query] = found, bundle["total"]
        self.assertEqual(wrong, {})

    async def test_pages(self) -> None:
        for _ in range(7):
            await self.trail.send("GET", "Patient/nobody")
        for sort, order in (("", -1), ("&_sort=date", 1), ("&_sort=-_id", -1)):
            ids: list[str] = []
            url: str | None = f"AuditEvent?_count=3{sort}"
            totals = set()
            while url is not None:
                bundle = loads((await self.trail.send("GET", url)).body)
                totals.add(bundle["total"])
                ids += [entry["resource"]["id"] for entry in bundle.get("entry", [])]
                following = [link["url"] for link in bundle["link"] if link["relation"] == "next"]
                url = following[0].removeprefix(f"{BASE}/") if following else None
            self.assertEqual((len(ids), totals), (7, {7}), sort)
            self.assertEqual(ids, sorted(ids)[::order], sort)

    async def test_counts(self) -> None:
        await self._some()
        for query, total in (("_summary=count", 4), ("_count=0", 4), ("_summary=count&site=default", 4)):
            bundle = await self.trail.search(query)
            self.assertEqual((bundle["total"], bundle.get("entry")), (total, None), query)
        self.assertNotIn("total", await self.trail.search("_total=none"))

    async def test_records_are_resources(self) -> None:
        await self._some()
        event = (await self.trail.search("action=D"))["entry"][0]["resource"]
        read = await self.trail.send("GET", f"AuditEvent/{event['id']}")
        self.assertEqual((read.status, loads(read.body)), (200, event))
        for url in (f"AuditEvent/{event['id']}/_history/1", f"AuditEvent?_id={event['id']}"):
            self.assertEqual((await self.trail.send("GET", url)).status, 200, url)
        history = loads((await self.trail.send("GET", f"AuditEvent/{event['id']}/_history")).body)
        self.assertEqual(len(history["entry"]), 1)
        xml = await self.trail.send("GET", f"AuditEvent/{event['id']}", accept="application/fhir+xml")
        self.assertIn(b"<AuditEvent xmlns", xml.body)
        gone = await self.trail.send("GET", f"AuditEvent/{event['id'][:-1]}e")
        self.assertEqual(gone.status, 404)

    async def test_break_glass(self) -> None:
        """Each such request has a record of its own with the reason, though reads and searches have none."""
        install(Privacy(LabelRules.of(["R"])))
        self.addCleanup(install, None)
        for id in ("a", "b"):
            await self.trail.send("PUT", f"Patient/{id}", {**patient(id), "id": id})
        doctor = replace(NURSE, scopes=("user/*.cruds", "btg"))
        for url in ("Patient/a", "Patient?_sort=_id"):
            for reason in ({}, {"x_break_glass_reason": " found  unconscious "}):
                answer = await self.trail.send("GET", url, caller=doctor, **reason)
                self.assertEqual(answer.status, 200, answer.body)
        noted = [one for one in self.trail.noted if one.context.interaction == "break-glass"]
        self.assertEqual(
            [(one.request_target, one.all_patients) for one in noted],
            [("Patient/a", ["Patient/a"]), ("Patient?_sort=_id", ["Patient/a"]), ("Patient?_sort=_id", ["Patient/b"])],
        )
        self.assertFalse([one for one in self.trail.noted if one.context.interaction in ("read", "search")])
        install(None)  # AuditEvents need the scopes of all protected labels
        self.assertEqual(await self.trail.found("subtype=break-glass"), ["break-glass0"] * len(noted))
        for one in noted:
            event = audit_event(one, BASE)
            self.assertEqual(event["subtype"][0]["code"], "break-glass")
            self.assertEqual(event["purposeOfEvent"][0]["coding"][0]["code"], "BTG")
            (reason,) = [entity for entity in event["entity"] if entity.get("name") == "break-glass"]
            self.assertEqual(reason["detail"], [{"type": "reason", "valueString": "found unconscious"}])

    async def test_they_never_change(self) -> None:
        await self._some()
        event = (await self.trail.search("action=D"))["entry"][0]["resource"]
        one = f"AuditEvent/{event['id']}"
        for method, url in (("PUT", one), ("PATCH", one), ("DELETE", one), ("DELETE", "AuditEvent?action=D"),
                            ("PUT", "AuditEvent?action=D"), ("PATCH", "AuditEvent?action=D"),
                            ("PUT", "AuditEvent/new")):  # fmt: skip
            answer = await self.trail.send(method, url, event)
            self.assertEqual(answer.status, 405, f"{method} {url}")
        for kind, status in (("transaction", 405), ("batch", 200)):
            entry = {"request": {"method": "DELETE", "url": one}}
            answer = await self.trail.send("POST", "", {"resourceType": "Bundle", "type": kind, "entry": [entry]})
            self.assertEqual(answer.status, status)
            if kind == "batch":
                self.assertEqual(loads(answer.body)["entry"][0]["response"]["status"], "405 Method Not Allowed")
        self.assertEqual((await self.trail.send("GET", one)).status, 200)

    async def test_what_clients_create_is_found_beside(self) -> None:
        await self._some()
        created = (await self.trail.store.find("default", AuditFilter(interactions=frozenset({"create"})), 1))[0]
        own = audit_event(created, BASE) | {"recorded": "2020-01-01T00:00:00Z", "outcome": "12"}
        answer = await self.trail.send("POST", "AuditEvent", {k: v for k, v in own.items() if k not in ("id", "meta")})
        self.assertEqual(answer.status, 201)
        self.assertEqual(await self.trail.found("outcome=12"), ["create12"])
        await self.trail.send("GET", "Patient/nobody")
        expected = ["read4", "create12", "delete0", "read4", "update0", "create0"]
        self.assertEqual(await self.trail.found(), expected)
        ids, url = [], "AuditEvent?_count=1"
        for _ in range(6):
            bundle = loads((await self.trail.send("GET", url)).body)
            self.assertEqual(bundle["total"], 6)
            ids.append(bundle["entry"][0]["resource"]["outcome"])
            following = [link["url"] for link in bundle["link"] if link["relation"] == "next"]
            url = following[0].removeprefix(f"{BASE}/") if following else ""
        self.assertEqual((ids, url), (["4", "12", "0", "4", "0", "0"], ""))

    async def test_what_clients_create_is_marked(self) -> None:
        """By the server: a client neither forges the mark of a record of ours nor leaves out its own."""
        await self._some()
        own = await self.trail.search("action=C")
        event = own["entry"][0]["resource"]
        self.assertEqual(event["meta"]["tag"], [{"system": ORIGIN_SYSTEM, "code": "engine"}])
        other = {"system": "urn:x", "code": "y"}
        for tags in ([], event["meta"]["tag"], [other, {"system": ORIGIN_SYSTEM, "code": "engine", "display": "x"}]):
            sent = {**event, "recorded": "2020-01-01T00:00:00Z", "outcome": "12", "meta": {"tag": tags}}
            del sent["id"]
            if not tags:
                del sent["meta"]
            for body in (sent, {"resourceType": "Bundle", "type": "transaction", "entry": [
                {"resource": sent, "request": {"method": "POST", "url": "AuditEvent"}}]}):  # fmt: skip
                url = "AuditEvent" if body is sent else ""
                self.assertLess((await self.trail.send("POST", url, body)).status, 300)
        found = await self.trail.search(f"_tag={ORIGIN_SYSTEM}|client&_count=50")
        tags = [[one["code"] for one in entry["resource"]["meta"]["tag"]] for entry in found["entry"]]
        self.assertEqual(sorted(tags), [["client"]] * 4 + [["y", "client"]] * 2)
        ours = await self.trail.search(f"_tag={ORIGIN_SYSTEM}|engine&_count=50")
        self.assertEqual(found["total"] + ours["total"], (await self.trail.search("_summary=count"))["total"])
        self.assertEqual({entry["resource"]["outcome"] for entry in ours["entry"]} & {"12"}, set())
        times = [entry["resource"]["meta"]["lastUpdated"] for entry in (await self.trail.search("_count=50"))["entry"]]
        self.assertEqual(times, sorted(times, reverse=True))

    async def test_the_trail_of_the_trail_is_for_operators(self) -> None:
        self.trail.rules = AuditRules(reads=True, searches=True)
        await self.trail.send("GET", "AuditEvent?outcome=8")
        await self.trail.send("GET", "AuditEvent/nobody")
        await self.trail.send("GET", "Patient/p/AuditEvent")
        await self.trail.send("GET", "metadata")
        self.assertEqual(await self.trail.found(), [])
        rows = await self.trail.store.find("default", AuditFilter(surface=ADMIN), 10)
        self.assertEqual([one.context.interaction for one in rows], ["search", "search", "read", "search"])

    async def test_tenants_do_not_see_each_others(self) -> None:
        await self.trail.send("POST", "Patient", patient("1"), tenant="north")
        self.assertEqual(await self.trail.found(tenant="north"), ["create0"])
        self.assertEqual(await self.trail.found(tenant="south"), [])
        record = self.trail.noted[0]
        self.assertEqual((await self.trail.send("GET", f"AuditEvent/{record.id}", tenant="south")).status, 404)

    async def test_with_tenants_what_nobody_asked_is_no_tenants(self) -> None:
        """A refused token names no tenant: what it asked for may be about another tenant's patient."""
        for divided, surface in ((False, FHIR), (True, ADMIN)):
            self.trail.rules = AuditRules(divided=divided)
            for caller, status in ((ANONYMOUS, 401), (OPEN, 404), (Caller("ada"), 401)):  # OPEN: not even looked at
                answer = await self.trail.send("GET", "Patient/another", caller=caller)
                self.assertEqual(answer.status, status)
                expected = surface if caller != Caller("ada") else FHIR
                self.assertEqual(self.trail.noted[-1].context.surface, expected, (divided, caller))

    async def test_what_cannot_be_asked(self) -> None:
        for query, status in (("_sort=outcome", 400), ("_cursor=x", 400), ("_cursor=..x", 400), ("agent.name=x", 400)):
            answer = await self.trail.send("GET", f"AuditEvent?{query}")
            self.assertEqual(answer.status, status, query)

    async def test_transactions_name_what_they_wrote(self) -> None:
        bundle = {"resourceType": "Bundle", "type": "transaction", "entry": [
            {"fullUrl": "urn:uuid:1", "resource": patient("5"), "request": {"method": "POST", "url": "Patient"}},
            {"resource": {"resourceType": "Basic", "code": {"text": "x"}, "subject": {"reference": "urn:uuid:1"}},
             "request": {"method": "POST", "url": "Basic"}},
        ]}  # fmt: skip
        await self.trail.send("POST", "", bundle)
        (event,) = [entry["resource"] for entry in (await self.trail.search("subtype=transaction"))["entry"]]
        named = [one["what"]["reference"] for one in event["entity"] if "reference" in one.get("what", {})]
        kinds = [one.partition("/")[0] for one in named]
        self.assertEqual((kinds, event["action"]), (["Patient", "Basic"], "E"))
        await self.trail.send("POST", "", {**bundle, "type": "batch"})
        self.assertEqual(await self.trail.found("_count=1"), ["batch0"])

    async def test_converted_messages(self) -> None:
        noted: list[Audit] = []

        async def submit(units: Any) -> Any:
            return await self.world_commit(*units)

        store = audited(submit, noted.append, lambda: self.trail.world.now, id_suffixes())
        same = unit(create(patient("7")), receipt="m7")
        await store([same])
        await store([same])
        self.assertEqual(noted, [])  # it is committed with the message
        await self.trail.store.append(getattr(self.trail.world.store, "audits", []))
        (record,) = await self.trail.store.find("default", AuditFilter(), 5)
        context = record.context
        self.assertEqual((context.agent, context.interaction, context.outcome), (SYSTEM.subject, "transaction", 0))
        self.assertEqual((context.surface, record.correlation_id), (FHIR, CORRELATION_ID))
        self.assertEqual(record.all_patients, [record.entities[0].partition("/_history/")[0]])

    async def world_commit(self, *units: Unit) -> Any:
        """Store units in the world."""
        return await self.trail.world.commit(*units)


class AuditOnMemory(AuditSuite, OnMemory):
    """On the stores in memory."""

    async def setUp(self) -> None:
        await super().setUp()
        self.trail = Trail(self.world, MemoryAuditStore())

    async def test_an_unforeseen_failure_is_audited_and_raised(self) -> None:
        async def fail(*_: object) -> None:
            raise ValueError("broken")

        self.world.store.read = fail
        with self.assertRaises(ValueError):
            await self.trail.send("GET", "Patient/1")
        self.assertEqual([(one.context.status, one.context.outcome) for one in self.trail.noted], [(500, 8)])

    async def test_a_broken_trail_never_fails_the_request(self) -> None:
        def broken(audit: Audit) -> None:
            raise RuntimeError("no trail")

        observe = observer(AuditRules(), broken, lambda: millisecond_of(self.world.now), id_suffixes())
        answer = await handler(self.world.repository, None, observe)(
            Request("GET", ("Patient", "1"), (), {}, b"", BASE, CORRELATION_ID)
        )
        self.assertEqual(answer.status, 404)
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)

    def test_records_of_exchanges(self) -> None:
        """A record that cannot be made is left out alone; equal contexts are one object; other requests have none."""
        moment = datetime(2026, 1, 2, tzinfo=UTC)
        version = Version(1, "Patient", "1", 3, moment, b"{}", False, "PUT")
        read, shown = Request("GET", ("Patient", "1"), (), {}, b"", BASE, CORRELATION_ID), Answer(200, about=(version,))
        other = replace(read, caller=NURSE)
        broken: Any = Answer(200, about=(None,))
        exchanges = [
            (read, shown, 0.0125, 1000), (read, broken, 0.0, 1001), (read, shown, 0.0, 1002), (other, shown, 0.0, 1003),
            (replace(read, path=("Patient",)), Answer(200), 0.0, 1004), (read, Answer(404), 0.0, 1005),
            (replace(read, path=("AuditEvent", "1")), Answer(200), 0.0, 1006),
        ]  # fmt: skip
        records = records_of(AuditRules(reads=True), id_suffixes(), exchanges)
        self.assertEqual(
            [(one.at, one.context.surface, one.context.agent, one.context.status, one.entities) for one in records],
            [(1000, FHIR, "anonymous", 200, ("Patient/1/_history/3",)),
             (1002, FHIR, "anonymous", 200, ("Patient/1/_history/3",)),
             (1003, FHIR, "u-17", 200, ("Patient/1/_history/3",)),
             (1005, FHIR, "anonymous", 404, ("Patient/1",)),
             (1006, ADMIN, "anonymous", 200, ("AuditEvent/1",))],
        )  # fmt: skip
        self.assertEqual([one.duration_ms for one in records], [12, 0, 0, 0, 0])
        self.assertIs(records[0].context, records[1].context)
        self.assertEqual(len(self.flushLoggedErrors(AttributeError)), 1)

    def test_what_is_passed_over_at_once_would_leave_no_record(self) -> None:
        paths = "", "metadata", "Patient", "Patient/1", "AuditEvent", "AuditEvent/1", "_history", "$export", "$reindex"
        paths += "Patient/$everything", "Patient/_history", "$export-status/1", ".well-known/x", "Patient/1/_history"
        for reads, searches, divided in product((False, True), repeat=3):
            rules, noted = AuditRules(reads, searches, divided), list[Audit]()
            observe = observer(rules, noted.append, lambda: 1, id_suffixes())
            for path, status, method in product(paths, (200, 404), ("GET", "PUT")):
                request = Request(method, tuple(path.split("/")) if path else (), (), {}, b"", BASE, CORRELATION_ID)
                noted.clear()
                observe(request, Answer(status), 0.0)
                expected = rules.surface(interaction_of(request), request, status)
                self.assertEqual([one.context.surface for one in noted], [expected] if expected else [], (rules, path))

    def test_interactions(self) -> None:
        table = {
            "GET ": "search", "POST ": "transaction", "POST _search": "search", "GET _history": "history",
            "POST $reindex": "operation", "GET Patient": "search", "POST Patient": "create", "PUT Patient": "update",
            "PATCH Patient": "patch", "DELETE Patient": "delete", "GET Patient/1": "read", "HEAD Patient/1": "read",
            "PUT Patient/1": "update", "PATCH Patient/1": "patch", "DELETE Patient/1": "delete",
            "GET Patient/1/_history": "history", "GET Patient/1/_history/2": "vread", "POST Patient/_search": "search",
            "GET Patient/1/Observation": "search", "GET Patient/1/$everything": "operation",
            "BREW Patient": "operation",
        }  # fmt: skip
        for text, expected in table.items():
            method, _, path = text.partition(" ")
            request = Request(method, tuple(path.split("/")) if path else (), (), {}, b"", BASE, CORRELATION_ID)
            self.assertEqual(interaction_of(request), expected, text)
        self.assertEqual([outcome_of(status) for status in (200, 304, 400, 401, 403, 404, 422, 500, 503)],
                         [0, 0, 4, 8, 4, 4, 4, 8, 8])  # fmt: skip

    def test_patients_whom_resources_are_of(self) -> None:
        row = Version(1, "Patient", "1", 1, datetime(2026, 1, 1, tzinfo=UTC), b'{"resourceType":"Patient","id":"1"}')
        for body, patients in (
            (row.body, ("Patient/1",)),
            (b'{"link":[{"other":{"reference":"Patient/1"}},{"other":{"reference":"Patient/4"}}]}', ("Patient/1",)),
            (b'{"subject":{"reference":"Patient/2"}}', ("Patient/2",)),
            (b'{"participant":[{"who":{"onBehalfOf":{"reference":"http://a/Patient/3/_history/4"}}}]}', ("Patient/3",)),
            (b'{"a":{"reference":"Patient/2"},"b":{"reference":"Patient/5"},"c":{"reference":"Patient/2"}}',
             ("Patient/2", "Patient/5")),
            (b'{"a":{"reference":"http://a/Patient/fhir/Patient/3"},"b":{"reference":"Patient/5/_history/2"}}',
             ("Patient/3", "Patient/5")),
            (rb'{"text":"\"reference\":\"Patient/6\""}', ()),
            (rb'{"a":{"reference":"x\"Patient/6"},"b":{"reference":"http:\\/\\/a/Patient/6"},"c":"Patient/8"}', ()),
            (b'{"subject":{"reference":"Group/7"},"note":"Patient/7"}', ()),
        ):  # fmt: skip
            kind = "Patient" if body == row.body or b"link" in body else "Observation"
            expected = {one: {f"{kind}/1/_history/1": None} for one in patients or ("",)}
            self.assertEqual(audit_records.divided([replace(row, resource_type=kind, body=body)]), expected, body)

    def test_texts_of_others_stay_on_one_line(self) -> None:
        self.assertEqual(clean("a\r\nb\u2028c\x00\x1b[0m"), "a  b c  [0m")
        self.assertEqual(len(clean("x" * 10_000)), 200)
        self.assertEqual(clean("M\u00fcller \u6f22"), "M\u00fcller \u6f22")


class AuditOnPostgres(AuditSuite, OnPostgres):
    """SQL finds and counts records."""

    async def setUp(self) -> None:
        await super().setUp()
        self.trail = Trail(self.world, PostgresAuditStore(self.database))
