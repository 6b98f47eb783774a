"""Which records an operation leaves: one for each patient, committed with what it writes; what a record shows."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from twisted.logger import LogEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from ipf.errors import Category, Problem, WriteConflict
from ipf.fhir.model.json import loads
from ipf.ports import Answer, Caller, Json, Request, Version
from ipf.ports.audit.records import FHIR, MOST_ENTITIES, Audit, AuditContext, AuditFilter
from ipf.rest.audit.recorder import audited
from ipf.rest.operations.subscription_status import set_status
from ipf.security.audit.records import records_of
from ipf.security.audit.rules import id_suffixes
from ipf.security.audit.target import Asked
from ipf.store.audit.audit import PostgresAuditStore
from tests.fakes.audit import MemoryAuditStore
from tests.rest.audit.test_audit import NURSE, Trail
from tests.rest.world import BASE, CORRELATION_ID, OnMemory, OnPostgres, Suite, create, patient, unit

CONTEXT = AuditContext("default", FHIR, "search", "E", 0, 200, "a")
NOW = datetime(2026, 1, 2, tzinfo=UTC)


def version(reference: str, *patients: str) -> Version:
    """A version that refers to these patients."""
    resource_type, _, id = reference.partition("/")
    body = ",".join(f'{{"reference":"Patient/{one}"}}' for one in patients)
    return Version(1, resource_type, id, 1, NOW, f'{{"participant":[{body}]}}'.encode())


def records(url: str, *about: Version, status: int = 200, **more: Any) -> list[Audit]:
    """The records of a GET."""
    path, _, query = url.partition("?")
    pairs = tuple((name, value) for name, _, value in (one.partition("=") for one in query.split("&") if one))
    request = Request("GET", tuple(path.split("/")), pairs, {}, b"", BASE, CORRELATION_ID)
    return records_of(request, Answer(status, about=about), 0.001, 1000, id_suffixes(), CONTEXT)


def shown(made: list[Audit]) -> list[tuple[str, str, str]]:
    """Patients, entities and target of each record."""
    return [
        (" ".join(one.all_patients), " ".join(one.entities).replace("/_history/1", ""), one.request_target)
        for one in made
    ]


class RecordTests(SynchronousTestCase):
    """`records_of` and `target_for` as tables."""

    def test_one_record_for_each_patient(self) -> None:
        both = version("Appointment/a", "1", "2")
        one, two, nobodys = version("Observation/o", "1"), version("Observation/p", "2"), version("Location/l")
        linked = version("Patient/1", "9")
        table: dict[str, tuple[tuple[Version, ...], list[tuple[str, str, str]]]] = {
            "Patient/1": ((linked,), [("Patient/1", "Patient/1", "Patient/1")]),
            "Observation/o": ((one,), [("Patient/1", "Observation/o", "Observation/o")]),
            "Appointment/a": ((both,), [("Patient/1", "Appointment/a", "Appointment/a"),
                                        ("Patient/2", "Appointment/a", "Appointment/a")]),
            "Location/l": ((nobodys,), [("", "Location/l", "Location/l")]),
            "Observation?code=x": (
                (one, two, nobodys, linked, one),
                [("Patient/1", "Observation/o Patient/1", "Observation?code=x"),
                 ("Patient/2", "Observation/p", "Observation?code=x"), ("", "Location/l", "Observation?code=x")],
            ),
            "Patient?_id=1,2": (
                (linked,), [("Patient/1", "Patient/1", "Patient?_id=1"), ("Patient/2", "", "Patient?_id=2"),
                            ("", "", "Patient?_id=1%2C2")],
            ),
            "Observation?patient=1": ((), [("Patient/1", "", "Observation?patient=1")]),
            "Observation?patient=1,2&code=x": (
                (), [("Patient/1", "", "Observation?patient=1&code=x"),
                     ("Patient/2", "", "Observation?patient=2&code=x"),
                     ("", "", "Observation?patient=1%2C2&code=x")],
            ),
            "Patient/2/$everything": (
                (both,), [("Patient/1", "Appointment/a", "Patient/$everything"),
                          ("Patient/2", "Appointment/a", "Patient/2/$everything")],
            ),
            "Observation": ((), [("", "", "Observation")]),
        }  # fmt: skip
        for url, (about, expected) in table.items():
            self.assertEqual(shown(records(url, *about)), expected, url)
        for url, expected in (("Patient/1", ("Patient/1", "Patient/1")), ("Observation/o", ("", "Observation/o"))):
            self.assertEqual(shown(records(url, status=404)), [(*expected, url)])

    def test_no_record_names_the_patient_of_another(self) -> None:
        """Whatever is found: what the record of one patient shows depends on the request and on him alone."""
        about = [version(f"Observation/o{number}", str(number)) for number in range(1, 5)]
        for url in ("Observation?patient=1,2,3,4", "Patient/2/Observation?_revinclude=Provenance:target",
                    "Observation?subject=Patient/3", "Observation?patient.identifier=4,3"):  # fmt: skip
            alone = {one.all_patients[0]: one for one in records(url, *about) if one.all_patients}
            for number, one in enumerate(about, 1):
                (record,) = [r for r in records(url, one) if r.all_patients == [f"Patient/{number}"]]
                self.assertEqual(record.target, alone[f"Patient/{number}"].target, url)
                texts = " ".join((record.request_target, *record.entities, *record.all_patients))
                named = set(re.findall(r"Patient/(\d)", texts)) | set(re.findall(r"o(\d)", texts))
                self.assertEqual(named | set(re.findall(r"=(\d)", texts)), {str(number)}, (url, texts))

    def test_what_remains_of_a_query(self) -> None:
        table = {
            "Patient?identifier=urn:mrn|7": "Patient?identifier=urn:mrn|7",
            "Patient?identifier=7,8&_count=5": "Patient?identifier=&_count=5",
            "Patient?_has:Observation:patient:code=x": "Patient?_has:Observation:patient:code=",
            "Patient?name:exact=A": "Patient?name:exact=",
            "Patient?link=2": "Patient?link=",
            "Patient?family=A&birthdate=2000-01-01": "Patient?family=A&birthdate=2000-01-01",
            "Patient?family=A&_revinclude=Observation:patient": "Patient?family=&_revinclude=Observation:patient",
            "Observation?patient=1&code=x&_sort=date": "Observation?patient=1&code=x&_sort=date",
            "Observation?subject=Patient/2,Patient/1,Group/3": "Observation?subject=Patient/1",
            "Observation?subject:missing=true": "Observation?subject:missing=",
            "Observation?subject.name=x": "Observation?subject.name=",
            "Observation?performer=2": "Observation?performer=",
            "Observation?_text=a&_content=b&_cursor=c&unknown=d": "Observation?_text=&_content=&_cursor=&unknown=",
            "Patient/2/Observation?code=x": "Patient/Observation?code=x",
            "Patient/1/_history?_since=2020": "Patient/1/_history?_since=2020",
        }
        for url, expected in table.items():
            path, _, query = url.partition("?")
            pairs = [(name, value) for name, _, value in (one.partition("=") for one in query.split("&"))]
            target = Asked(tuple(path.split("/")), pairs).target_for("Patient/1")
            for code, character in (("%3A", ":"), ("%7C", "|"), ("%2F", "/")):
                target = target.replace(code, character)
            self.assertEqual(target, expected, url)

    def test_a_search_with_a_form(self) -> None:
        form = {"content-type": "application/x-www-form-urlencoded"}
        asked = Request("POST", ("Patient", "_search"), (), form, b"family=A&_id=2", BASE, CORRELATION_ID)
        made = records_of(asked, Answer(200), 0, 1000, id_suffixes(), CONTEXT)
        self.assertEqual(shown(made), [("Patient/2", "", "Patient/_search?family=A&_id=2")])

    def test_a_posted_export(self) -> None:
        """Whether it was de-identified is in its record."""
        for body, query in (
            (b'{"resourceType":"Parameters","parameter":[{"name":"_deident","valueBoolean":true}]}', "?_deident=true"),
            (b'{"parameter":[{"name":"_type","valueString":"Patient"},4,{"name":"x"}]}', "?_type=Patient"),
            (b'{"parameter":4}', ""),
            (b"[1]", ""),
            (b"{", ""),
            (b"", ""),
        ):
            asked = Request("POST", ("$export",), (), {}, body, BASE, CORRELATION_ID)
            made = records_of(asked, Answer(202), 0, 1000, id_suffixes(), CONTEXT)
            self.assertEqual([target for _, _, target in shown(made)], [f"$export{query}"], body)

    def test_no_entity_is_left_out(self) -> None:
        about = [version(f"Observation/{number}", "1") for number in range(2 * MOST_ENTITIES + 1)]
        made = records("Observation?code=x", *about)
        self.assertEqual([len(one.entities) for one in made], [MOST_ENTITIES, MOST_ENTITIES, 1])
        self.assertEqual({one.patients for one in made}, {("Patient/1",)})
        self.assertEqual(len({one.id for one in made}), 3)

    def test_ids_tell_nothing_but_the_time(self) -> None:
        """RFC 9562: version 7, variant 10; all other bits are random."""
        new = id_suffixes()
        made = [new() for _ in range(2000)]
        self.assertEqual(len(set(made)), 2000)
        for one in made:
            self.assertTrue(re.fullmatch(r"7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", one), one)
        steps = [int(after[1:4], 16) - int(before[1:4], 16) for before, after in pairwise(made)]
        self.assertLess(sum(step == 1 for step in steps), 20)


def bundle(kind: str, *entries: Json) -> Json:
    """A Bundle of creates."""
    return {"resourceType": "Bundle", "type": kind, "entry": [
        {"fullUrl": f"urn:uuid:{number}", "resource": one, "request": {"method": "POST", "url": one["resourceType"]}}
        for number, one in enumerate(entries)
    ]}  # fmt: skip


def observation(subject: str) -> Json:
    """An Observation of a patient."""
    return {"resourceType": "Observation", "status": "final", "code": {"text": "x"}, "subject": {"reference": subject}}


class TransactionAuditSuite(Suite):
    """Records of writes, on both stores."""

    trail: Trail

    async def rows(self) -> list[Audit]:
        """All records, oldest first."""
        found: list[Audit] = await self.trail.store.find("default", AuditFilter(), 500, oldest_first=True)
        return found

    async def test_the_record_is_committed_with_the_write(self) -> None:
        """The recorder gets nothing; status and versions are those of the answer."""
        send = self.trail.send
        made = loads((await send("POST", "Patient", patient("1"))).body)["id"]
        await send("PUT", f"Patient/{made}", patient("1", id=made, active=True))
        done = loads((await send("POST", "Observation", observation(f"Patient/{made}"))).body)["id"]
        await send("DELETE", f"Observation/{done}")
        rows = await self.rows()
        self.assertEqual(
            [(one.context.interaction, one.context.status, one.entities, one.all_patients) for one in rows],
            [("create", 201, (f"Patient/{made}/_history/1",), [f"Patient/{made}"]),
             ("update", 200, (f"Patient/{made}/_history/2",), [f"Patient/{made}"]),
             ("create", 201, (f"Observation/{done}/_history/1",), [f"Patient/{made}"]),
             ("delete", 204, (f"Observation/{done}/_history/2",), [f"Patient/{made}"])],
        )  # fmt: skip
        self.assertEqual({(one.context.agent, one.context.address) for one in rows}, {("u-17", "192.0.2.9")})
        self.assertEqual(self.queued, [])

    async def test_what_writes_nothing_is_recorded_as_well(self) -> None:
        made = loads((await self.trail.send("POST", "Patient", patient("1"))).body)["id"]
        await self.trail.send("PUT", f"Patient/{made}", patient("1", id=made))
        await self.trail.send("POST", "Patient", patient("1"), if_none_exist="identifier=urn:mrn|1")
        await self.trail.send("DELETE", "Patient/nobody")
        await self.trail.send("POST", "Patient", {"resourceType": "Patient", "gender": "F"})
        rows = await self.rows()
        self.assertEqual(
            [(one.context.interaction, one.context.status, one.all_patients) for one in rows[1:]],
            [("update", 200, [f"Patient/{made}"]), ("create", 200, [f"Patient/{made}"]),
             ("delete", 204, ["Patient/nobody"]), ("create", 422, [])],
        )  # fmt: skip

    async def test_a_transaction_of_several_patients(self) -> None:
        entries = [patient("1"), patient("2"), observation("urn:uuid:0"), observation("urn:uuid:1")]
        entries.append({"resourceType": "Location", "name": "ward"})
        for kind in ("transaction", "batch"):
            if kind == "batch":
                entries = [patient("1"), patient("2"), {"resourceType": "Location", "name": "ward"}]
            before = len(await self.rows())
            answer = await self.trail.send("POST", "", bundle(kind, *entries))
            self.assertEqual(answer.status, 200)
            rows = (await self.rows())[before:]
            self.assertEqual({one.context.interaction for one in rows}, {kind})
            self.assertEqual(len({(one.correlation_id, one.at) for one in rows}), 1)
            named = sorted(
                (len(one.all_patients), *sorted(text.partition("/")[0] for text in one.entities)) for one in rows
            )
            of_patient = (1, "Observation", "Patient") if kind == "transaction" else (1, "Patient")
            self.assertEqual(named, [(0, "Location"), of_patient, of_patient])
        self.assertEqual(self.queued, [])

    async def test_entries_of_a_batch_that_fail(self) -> None:
        sent = bundle("batch", patient("1"), {"resourceType": "Patient", "gender": "F"})
        sent["entry"].append({"request": {"method": "GET", "url": "Observation/nobody"}})
        await self.trail.send("POST", "", sent)
        rows = await self.rows()
        self.assertEqual(
            sorted((one.context.status, one.request_target) for one in rows),
            [(200, ""), (404, "Observation/nobody"), (422, "")],
        )

    async def test_a_conflict_leaves_no_record_and_a_repeat_no_second(self) -> None:
        """The store refuses the first two commits, so the plan is made again."""
        store, refusals = self.world.store, [WriteConflict(), WriteConflict()]
        begin = store.transaction

        def transaction() -> Any:
            return Refusing(begin(), refusals)

        store.transaction = transaction
        answer = await self.trail.send("POST", "Patient", patient("1"))
        self.assertEqual((answer.status, refusals, len(await self.rows())), (201, [], 1))
        refusals += [WriteConflict() for _ in range(100)]
        answer = await self.trail.send("POST", "Patient", patient("2"))
        rows = await self.rows()
        self.assertEqual((answer.status, rows[1].context.status, len(rows)), (409, 409, 2))

    async def test_merges(self) -> None:
        """Each transaction records both Patients apart, and what it moved."""
        ids = [loads((await self.trail.send("POST", "Patient", patient(one))).body)["id"] for one in ("1", "2")]
        await self.trail.send("POST", "Observation", observation(f"Patient/{ids[0]}"))
        before = len(await self.rows())
        references = [{"name": f"{name}-patient", "valueReference": {"reference": f"Patient/{id}"}}
                      for name, id in zip(("source", "target"), ids, strict=True)]  # fmt: skip
        sent = {"resourceType": "Parameters", "parameter": references}
        answer = await self.trail.send("POST", "Patient/$merge", sent)
        self.assertEqual(answer.status, 200, answer.body)
        rows = (await self.rows())[before:]
        self.assertEqual({(one.context.interaction, len(one.all_patients)) for one in rows}, {("operation", 1)})
        moved = [one.all_patients for one in rows if any(text.startswith("Observation") for text in one.entities)]
        self.assertEqual(moved, [[f"Patient/{ids[1]}"]])
        self.assertEqual(self.queued, [])

    async def test_what_the_service_changes_itself(self) -> None:
        subscription = {
            "resourceType": "Subscription", "status": "requested", "reason": "x", "criteria": "Patient?",
            "channel": {"type": "rest-hook", "endpoint": "https://sub.example/", "header": ["Authorization: x"]},
        }  # fmt: skip
        answer = await self.trail.send("POST", "Subscription", subscription)
        self.assertEqual(answer.status, 201, answer.body)
        id, repository = loads(answer.body)["id"], self.world.repository
        for status in ("active", "off"):
            await set_status(
                "default", id, status, None, repository.store, repository.matcher, repository.clock,
                draft=self.trail.drafts, correlation_id=CORRELATION_ID,
            )  # fmt: skip
        await self.collect()
        rows = await self.rows()
        self.assertEqual(
            [(one.context.agent, one.context.interaction, one.entities) for one in rows],
            [("u-17", "create", (f"Subscription/{id}/_history/1",))]
            + [("ipf", "update", (f"Subscription/{id}/_history/{number}",)) for number in (2, 3)],
        )

    async def test_converted_messages(self) -> None:
        """A message and its repeat: one record, in the transaction.  A refused one: by the queue."""
        noted: list[Audit] = []
        store = audited(self.commit, noted.append, lambda: self.world.now, id_suffixes())
        for _ in range(2):
            await store([unit(create(patient("7")), receipt="m7"), unit(create(patient("8")), receipt="m8")])
        await self.collect()
        rows = await self.rows()
        self.assertEqual([(one.context.agent, len(one.all_patients)) for one in rows], [("ipf", 1), ("ipf", 1)])
        self.assertEqual(noted, [])

        async def refuse(units: Any) -> Any:
            return [Problem(Category.CONFLICT, "no") for _ in units]

        await audited(refuse, noted.append, lambda: self.world.now, id_suffixes())([unit(create(patient("9")))])
        self.assertEqual([one.context.status for one in noted], [409])

    async def commit(self, units: Any) -> Any:
        """Store units in the world."""
        return await self.world.commit(*units)

    async def collect(self) -> None:
        """Bring what was committed in memory to the trail."""
        await self.trail.store.append(getattr(self.world.store, "audits", []))

    @property
    def queued(self) -> list[Audit]:
        """What was recorded outside of the transactions."""
        return [one for one in self.trail.noted if one not in self.trail.committed]


class Refusing:
    """A transaction whose commit raises the first of `refusals`."""

    def __init__(self, within: Any, refusals: list[WriteConflict]) -> None:
        self._within = within
        self._refusals = refusals

    async def __aenter__(self) -> Any:
        self._transaction = await self._within.__aenter__()
        return self

    async def __aexit__(self, *failed: Any) -> Any:
        return await self._within.__aexit__(*failed)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transaction, name)

    async def commit(self, writes: Any, reads: Any = None) -> str:
        """The refusal, or the commit."""
        if self._refusals:
            raise self._refusals.pop(0)
        reason: str = await self._transaction.commit(writes, reads)
        return reason


class TransactionAuditOnMemory(TransactionAuditSuite, OnMemory):
    """On the stores in memory."""

    async def setUp(self) -> None:
        await super().setUp()
        self.trail = Trail(self.world, MemoryAuditStore())

    async def test_records_that_the_store_refuses_are_left_to_the_queue(self) -> None:
        self.world.store.audit_refusal = "SQLSTATE 42501"
        answer = await self.trail.send("POST", "Patient", patient("1"))
        self.assertEqual((answer.status, [one.context.status for one in self.queued]), (201, [201]))


class TransactionAuditOnPostgres(TransactionAuditSuite, OnPostgres):
    """SQL commits records with writes."""

    async def setUp(self) -> None:
        await super().setUp()
        self.trail = Trail(self.world, PostgresAuditStore(self.database))

    async def test_a_record_that_cannot_be_written_fails_no_request(self) -> None:
        """Under a savepoint: the write is committed, the reason is a warning without values."""
        await self.database.many(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            " RAISE EXCEPTION 'no record of % today', NEW.agent; END $$"
        )
        await self.database.many(
            "CREATE TRIGGER refuse BEFORE INSERT ON audit_records FOR EACH ROW EXECUTE FUNCTION refuse()"
        )
        warned: list[str] = []

        def observe(event: LogEvent) -> None:
            if event.get("event") == "audit_not_written":
                warned.append(event["reason"])

        globalLogPublisher.addObserver(observe)
        self.addCleanup(globalLogPublisher.removeObserver, observe)
        self.patch(self.trail, "store", MemoryAuditStore())
        count = self.trail.counted
        answer = await self.trail.send("POST", "Patient", patient("1"))
        made = loads(answer.body)["id"]
        self.assertEqual((answer.status, count), (201, [("deferred", 1)]))
        self.assertEqual((await self.trail.send("GET", f"Patient/{made}")).status, 200)
        self.assertEqual(await self.database.many("SELECT count(*) FROM audit_records"), [(0,)])
        self.assertEqual([one.entities for one in self.queued], [(f"Patient/{made}/_history/1",)])
        self.assertEqual(warned, ["SQLSTATE P0001"])

    async def test_two_hundred_patients(self) -> None:
        entries = [patient(str(number)) for number in range(200)]
        await self.trail.send("POST", "", bundle("transaction", *entries), caller=Caller("x", scopes=NURSE.scopes))
        rows = await self.rows()
        self.assertEqual((len(rows), {len(one.entities) for one in rows}, self.queued), (200, {1}, []))
        waiting = await self.database.many("SELECT count(*) FROM audit_unchained")
        self.assertEqual(waiting, [(200,)])
