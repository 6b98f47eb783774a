"""Patient $merge and $unmerge, on the in-memory store and on PostgreSQL."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import TestCase

from ipf.fhir.model.json import dumps, loads
from ipf.fhir.validation.validator import Validator
from ipf.ports import OPEN, Answer, Caller, Json, Request, Version
from ipf.ports.fhir.integrity import Referrers
from ipf.rest.operations import merge
from ipf.rest.operations.merge_record import move_back, move_references
from ipf.security.audit.records import records_of
from ipf.security.audit.rules import AuditRules, ContextCache, id_suffixes
from tests.rest.world import BASE, CORRELATION_ID, OnMemory, OnSharedPostgres, Suite, World, issues

MRN = {"coding": [{"system": "http://terminology.hl7.org/CodeSystem/v2-0203", "code": "MR"}]}
OLD_NUMBER: Json = {"type": MRN, "system": "urn:mrn", "value": "100"}
NEW_NUMBER: Json = {"type": MRN, "system": "urn:mrn", "value": "200"}
SOURCE: Json = {"resourceType": "Patient", "id": "s", "identifier": [OLD_NUMBER], "name": [{"family": "Muster"}]}
TARGET: Json = {"resourceType": "Patient", "id": "t", "active": True, "identifier": [NEW_NUMBER]}
THIRD: Json = {"resourceType": "Patient", "id": "u"}


def refer(id: str) -> Json:
    """A reference to a Patient."""
    return {"reference": f"Patient/{id}"}


def visit(id: str, subject: str) -> Json:
    """An Encounter."""
    kind = {"system": "http://terminology.hl7.org/CodeSystem/v3-ActCode", "code": "IMP"}
    return {"resourceType": "Encounter", "id": id, "status": "planned", "class": kind, "subject": refer(subject)}


def booking(id: str, *actors: str) -> Json:
    """An Appointment with these actors."""
    participants = [{"actor": refer(one), "status": "accepted"} for one in actors]
    return {"resourceType": "Appointment", "id": id, "status": "proposed", "participant": participants}


GROUP: Json = {"resourceType": "Group", "id": "g", "type": "person", "actual": True,
               "member": [{"entity": refer("t")}, {"entity": refer("s")}]}  # fmt: skip
RELATIVE: Json = {"resourceType": "RelatedPerson", "id": "r", "patient": refer("s")}


def parameters(**values: Any) -> Json:
    """Parameters; `_` stands for `-`, a list for repetitions."""
    found = []
    for name, value in values.items():
        for one in value if isinstance(value, list) else [value]:
            member = {"resource": one} if isinstance(one, dict) and "resourceType" in one else _typed(one)
            found.append({"name": name.replace("_", "-"), **member})
    return {"resourceType": "Parameters", "parameter": found}


def _typed(value: Any) -> Json:
    if isinstance(value, bool):
        return {"valueBoolean": value}
    if isinstance(value, str):
        return {"valueString": value}
    return {"valueReference" if "reference" in value else "valueIdentifier": value}


def member(answer: Answer, name: str) -> Json:
    """A parameter of the response."""
    found: Json = next(one["resource"] for one in loads(answer.body)["parameter"] if one["name"] == name)
    return found


def content(resource: Json) -> Json:
    """A resource without meta."""
    return {name: value for name, value in resource.items() if name != "meta"}


# What a resource refers to before and after: (resource, paths, the same resource with the target).
PATHS: list[tuple[Json, list[str]]] = [
    (visit("e", "s"), ["subject"]),
    (booking("a", "s", "u"), ["participant.actor"]),
    (booking("a", "t", "s"), ["participant[1].actor"]),
    ({"resourceType": "Basic", "contained": [visit("e", "s")]}, ["contained.subject"]),
    ({"resourceType": "Basic", "extension": [{"url": "urn:x", "valueReference": refer("s")}]},
     ["extension.valueReference"]),
    ({"resourceType": "Basic", "subject": {"reference": "Patient/s/_history/1"}}, []),
    ({"resourceType": "Basic", "subject": {"reference": "http://other/fhir/Patient/s"}}, []),
    ({"resourceType": "Basic", "subject": {"reference": "Patient/s2"}}, []),
]  # fmt: skip


class PathTests(TestCase):
    def test_references_move_and_move_back(self) -> None:
        for resource, paths in PATHS:
            moved = loads(dumps(resource))
            self.assertEqual(move_references(moved, "Patient/s", "Patient/t"), paths)
            self.assertNotIn({"reference": "Patient/s"}, list(_references(moved)))
            self.assertEqual(moved != resource, bool(paths))
            self.assertEqual(move_back(moved, paths, "Patient/t", "Patient/s"), bool(paths))
            self.assertEqual(moved, resource)

    def test_a_list_in_another_order(self) -> None:
        moved = booking("a", "s", "u")
        paths = move_references(moved, "Patient/s", "Patient/t")
        moved["participant"].reverse()
        move_back(moved, paths, "Patient/t", "Patient/s")
        self.assertEqual(moved, booking("a", "u", "s"))


def _references(value: Any) -> Any:
    if isinstance(value, list):
        for one in value:
            yield from _references(one)
    elif isinstance(value, dict):
        yield value
        for one in value.values():
            yield from _references(one)


class MergeSuite(Suite):
    """A source with a visit, an appointment, a group and a relative; a target with a visit."""

    world: World

    async def fill(self, *more: Json) -> None:
        """Store them."""
        self.world.caller = OPEN
        visits = visit("e1", "s"), visit("e2", "t")
        for one in (SOURCE, TARGET, THIRD, *visits, booking("a", "s", "u"), GROUP, RELATIVE, *more):
            await self.put(one)

    async def put(self, resource: Json, tenant: str = "") -> None:
        """An update."""
        answer = await self.world.send("PUT", f"{resource['resourceType']}/{resource['id']}", resource, tenant)
        self.assertIn(answer.status, (200, 201), answer.body)

    async def merge(self, source: str = "s", target: str = "t", **more: Any) -> Answer:
        """$merge by ids."""
        self.world.pass_time()
        sent = parameters(source_patient=refer(source), target_patient=refer(target), **more)
        return await self.world.send("POST", "Patient/$merge", sent)

    async def unmerge(self, source: str = "s", target: str = "t", **more: Any) -> Answer:
        """$unmerge by ids."""
        self.world.pass_time()
        return await self.world.send(
            "POST", f"Patient/{target}/$unmerge", parameters(source_patient=refer(source), **more)
        )

    async def subject(self, reference: str) -> str:
        """The subject of a resource."""
        found: str = (await self.world.body(reference))["subject"]["reference"]
        return found

    async def provenances(self) -> list[Json]:
        """All Provenances, oldest first."""
        found = loads((await self.world.send("GET", "Provenance?_count=100")).body).get("entry", [])
        return sorted((one["resource"] for one in found), key=lambda one: str(one["recorded"]))

    async def test_merge(self) -> None:
        await self.fill()
        answer = await self.merge(reason="one person")
        self.assertEqual(answer.status, 200, answer.body)
        source, target = await self.world.body("Patient/s"), await self.world.body("Patient/t")
        self.assertEqual(source["active"], False)
        self.assertEqual(source["link"], [{"other": refer("t"), "type": "replaced-by"}])
        self.assertEqual(source["identifier"], [OLD_NUMBER])
        self.assertEqual(target["link"], [{"other": refer("s"), "type": "replaces"}])
        self.assertEqual(target["identifier"], [NEW_NUMBER, {**OLD_NUMBER, "use": "old"}])
        self.assertEqual(target["active"], True)
        self.assertEqual(await self.subject("Encounter/e1"), "Patient/t")
        actors = [one["actor"]["reference"] for one in (await self.world.body("Appointment/a"))["participant"]]
        self.assertEqual(actors, ["Patient/t", "Patient/u"])
        members = [one["entity"]["reference"] for one in (await self.world.body("Group/g"))["member"]]
        self.assertEqual(members, ["Patient/t", "Patient/t"])
        self.assertEqual((await self.world.body("RelatedPerson/r"))["patient"], refer("t"))
        self.assertEqual(member(answer, "result"), target)
        self.assertEqual(
            member(answer, "outcome")["issue"][0]["diagnostics"],
            "4 resources (Appointment 1, Encounter 1, Group 1, RelatedPerson 1) now refer to Patient/t instead of "
            "Patient/s",
        )
        self.assertEqual(len(await self.world.versions("Encounter/e2")), 1)
        self.assertEqual(
            {one.last_updated for one in answer.about}, {(await self.world.versions("Group/g"))[1].last_updated}
        )

    async def test_its_record(self) -> None:
        await self.fill()
        self.world.caller = Caller("ada", "app", ("system/*.cruds",), user="Practitioner/7")
        self.assertEqual((await self.merge(reason="one person")).status, 200)
        self.world.caller = OPEN
        (record,) = await self.provenances()
        self.assertEqual(record["agent"], [{"who": {"reference": "Practitioner/7"}}])
        self.assertEqual(record["reason"], [{"text": "one person"}])
        self.assertEqual(record["activity"]["coding"][0]["code"], "merge")
        self.assertEqual([one["what"]["reference"] for one in record["entity"]],
                         ["Patient/s/_history/1", "Patient/t/_history/1"])  # fmt: skip
        changes = {
            one["reference"]: [each.get("valueString") or each["valueIdentifier"]["value"] for each in one["extension"]]
            for one in record["target"]
        }
        self.assertEqual(changes, {
            "Patient/s/_history/2": ["link", "active"], "Patient/t/_history/2": ["link", "100"],
            "Encounter/e1/_history/2": ["subject"], "Appointment/a/_history/2": ["participant.actor"],
            "Group/g/_history/2": ["member[1].entity"], "RelatedPerson/r/_history/2": ["patient"],
        })  # fmt: skip
        for name in ("s", "t"):
            found = loads((await self.world.send("GET", f"Provenance?target=Patient/{name}")).body)
            self.assertEqual(found["total"], 1)
        errors = [one for one in Validator().validate(record) if one.severity in ("error", "fatal")]
        self.assertEqual(errors, [])

    async def test_unmerge_restores(self) -> None:
        everything = ("Patient/s", "Patient/t", "Encounter/e1", "Appointment/a", "Group/g", "RelatedPerson/r")
        await self.fill()
        before = {one: content(await self.world.body(one)) for one in everything}
        await self.merge()
        answer = await self.unmerge(reason="two persons")
        self.assertEqual(answer.status, 200, answer.body)
        for one in everything:
            self.assertEqual(content(await self.world.body(one)), before[one], one)
        self.assertEqual(content(member(answer, "source")), SOURCE)
        self.assertEqual(content(member(answer, "result")), TARGET)
        merged, undone = await self.provenances()
        self.assertEqual(undone["activity"]["coding"][0]["code"], "unmerge")
        self.assertEqual(undone["reason"], [{"text": "two persons"}])
        self.assertEqual(undone["entity"][0]["what"]["reference"], f"Provenance/{merged['id']}")
        self.assertEqual(merged["occurredPeriod"]["end"], undone["occurredDateTime"])
        self.assertEqual([one for one in Validator().validate(undone) if one.severity in ("error", "fatal")], [])

    async def test_undone_once(self) -> None:
        await self.fill()
        await self.merge()
        await self.unmerge()
        answer = await self.unmerge()
        self.assertEqual(answer.status, 422)
        self.assertEqual(issues(answer)[0][1], "Patient/s is not merged into Patient/t, or no longer")
        self.assertEqual((await self.merge()).status, 200)  # and merged again
        self.assertEqual(await self.subject("Encounter/e1"), "Patient/t")
        self.assertEqual((await self.unmerge()).status, 200)
        self.assertEqual(await self.subject("Encounter/e1"), "Patient/s")

    async def test_later_changes_stay(self) -> None:
        await self.fill(visit("gone", "s"))
        await self.merge()
        await self.put({**visit("e1", "t"), "status": "finished"})
        await self.put({**booking("a", "u", "t"), "status": "booked"})
        await self.put(visit("new", "t"))
        await self.put({**await self.world.body("Patient/t"), "gender": "female"})
        await self.put({**await self.world.body("Patient/s"), "gender": "male"})
        await self.put({**GROUP, "member": [{"entity": refer("u")}]})
        await self.world.send("DELETE", "Encounter/gone")
        answer = await self.unmerge()
        self.assertEqual(answer.status, 200, answer.body)
        self.assertEqual(content(await self.world.body("Encounter/e1")), {**visit("e1", "s"), "status": "finished"})
        self.assertEqual(
            content(await self.world.body("Appointment/a")), {**booking("a", "u", "s"), "status": "booked"}
        )
        self.assertEqual(await self.subject("Encounter/new"), "Patient/t")
        self.assertEqual(await self.subject("Encounter/e2"), "Patient/t")
        self.assertEqual(content(await self.world.body("Patient/t")), {**TARGET, "gender": "female"})
        self.assertEqual(content(await self.world.body("Patient/s")), {**SOURCE, "gender": "male"})
        self.assertEqual((await self.world.body("Group/g"))["member"], [{"entity": refer("u")}])
        self.assertEqual((await self.world.send("GET", "Encounter/gone")).status, 410)

    async def test_refusals(self) -> None:
        await self.fill()
        await self.world.send("DELETE", "Patient/u")
        own, s = parameters, refer("s")
        table: list[tuple[Json, int, str]] = [
            (own(target_patient=s), 400, "the parameter source-patient or source-patient-identifier is required"),
            (own(source_patient=s), 400, "the parameter target-patient or target-patient-identifier is required"),
            (own(source_patient=s, target_patient=s), 422, "source and target of a merge are the same Patient"),
            (own(source_patient=s, target_patient=refer("none")), 404, "Patient/none does not exist"),
            (own(source_patient=s, target_patient=refer("u")), 410, "Patient/u was deleted"),
            (own(source_patient=s, target_patient={"reference": "Encounter/e1"}), 400,
             "target-patient must refer to a Patient of this server"),
            (own(source_patient=s, target_patient={"reference": "http://other/fhir/Patient/t"}), 400,
             "target-patient must refer to a Patient of this server"),
            (own(source_patient=s, target_patient=refer("t"), force=True), 400,
             "this operation has no parameter force"),
            (own(source_patient=s, target_patient=refer("t"), result_patient=SOURCE), 400,
             "the id of result-patient must be that of the target"),
            (own(source_patient=s, target_patient=refer("t"), result_patient=TARGET), 400,
             "result-patient must have a link of type replaces to Patient/s"),
            (own(source_patient_identifier={"system": "urn:mrn", "value": "999"}, target_patient=refer("t")), 404,
             "no Patient has the identifiers of source-patient-identifier"),
            (own(source_patient_identifier={"system": "urn:mrn"}, target_patient=refer("t")), 400,
             "an identifier needs a value"),
            (own(source_patient=s, source_patient_identifier=NEW_NUMBER, target_patient=refer("t")), 422,
             "Patient/s does not have the identifiers of source-patient-identifier"),
        ]  # fmt: skip
        for sent, status, text in table:
            answer = await self.world.send("POST", "Patient/$merge", sent)
            self.assertEqual((answer.status, issues(answer)[0][1]), (status, text))
        self.assertEqual((await self.world.send("POST", "Encounter/$merge", own(source_patient=s))).status, 404)
        self.assertEqual((await self.world.send("GET", "Patient/$merge")).status, 405)
        self.assertEqual((await self.unmerge()).status, 422)
        self.assertEqual(await self.provenances(), [])
        self.assertEqual(len(await self.world.versions("Patient/s")), 1)

    async def test_merged_already(self) -> None:
        await self.fill()
        await self.merge()
        for source, target, text in (
            ("s", "t", "Patient/s is merged into Patient/t already, and nothing refers to it"),
            ("s", "u", "Patient/s is merged into Patient/t already"),
            ("u", "s", "Patient/s is merged into Patient/t: merge into that Patient, or undo that merge first"),
            ("t", "s", "Patient/s is merged into Patient/t: merge into that Patient, or undo that merge first"),
        ):
            answer = await self.merge(source, target)
            self.assertEqual((answer.status, issues(answer)[0][1]), (422, text))
        await self.put(visit("late", "s"))  # a client that does not know of the merge
        self.assertEqual((await self.merge()).status, 200)
        self.assertEqual(await self.subject("Encounter/late"), "Patient/t")
        self.assertEqual((await self.unmerge()).status, 200)
        self.assertEqual(await self.subject("Encounter/late"), "Patient/s")
        self.assertEqual(await self.subject("Encounter/e1"), "Patient/s")
        self.assertEqual(content(await self.world.body("Patient/s")), SOURCE)

    async def test_chains_are_undone_in_reverse_order(self) -> None:
        await self.fill()
        await self.merge("s", "t")
        await self.merge("t", "u")
        self.assertEqual(await self.subject("Encounter/e1"), "Patient/u")
        answer = await self.unmerge("s", "t")
        text = "Patient/t was merged into Patient/u since: undo that merge first"
        self.assertEqual((answer.status, issues(answer)[0][1]), (422, text))
        self.assertEqual((await self.unmerge("t", "u")).status, 200)
        self.assertEqual(await self.subject("Encounter/e1"), "Patient/t")
        self.assertEqual((await self.unmerge("s", "t")).status, 200)
        self.assertEqual(await self.subject("Encounter/e1"), "Patient/s")
        self.assertEqual(await self.subject("Encounter/e2"), "Patient/t")
        self.assertEqual(content(await self.world.body("Patient/t")), TARGET)
        self.assertEqual(content(await self.world.body("Patient/u")), THIRD)

    async def test_two_sources_in_any_order(self) -> None:
        await self.fill(visit("e3", "u"))
        await self.merge("s", "t")
        await self.merge("u", "t")
        self.assertEqual((await self.unmerge("s", "t")).status, 200)
        self.assertEqual([await self.subject(f"Encounter/{one}") for one in ("e1", "e2", "e3")],
                         ["Patient/s", "Patient/t", "Patient/t"])  # fmt: skip
        self.assertEqual((await self.unmerge("u", "t")).status, 200)
        self.assertEqual(await self.subject("Encounter/e3"), "Patient/u")
        self.assertEqual(content(await self.world.body("Patient/t")), TARGET)

    async def test_linked_by_a_message_before(self) -> None:
        """A40 links the Patients and moves nothing; $merge then moves, and its undoing leaves the link."""
        linked = {**SOURCE, "active": False, "link": [{"other": refer("t"), "type": "replaced-by"}]}
        await self.fill()
        await self.put(linked)
        answer = await self.unmerge()
        self.assertEqual(answer.status, 422)
        self.assertIn("by a message or a client, not by $merge", issues(answer)[0][1])
        self.assertEqual((await self.merge()).status, 200)
        self.assertEqual(await self.subject("Encounter/e1"), "Patient/t")
        self.assertEqual(content(await self.world.body("Patient/s")), linked)
        self.assertEqual((await self.unmerge()).status, 200)
        self.assertEqual(await self.subject("Encounter/e1"), "Patient/s")
        self.assertEqual(content(await self.world.body("Patient/s")), linked)

    async def test_identifiers(self) -> None:
        await self.fill()
        sent = parameters(source_patient_identifier=OLD_NUMBER, target_patient_identifier=NEW_NUMBER)
        answer = await self.world.send("POST", "Patient/$merge", sent)
        self.assertEqual(answer.status, 200, answer.body)
        # the copy in the target is old and does not make the number ambiguous
        answer = await self.world.send(
            "POST", "Patient/t/$unmerge", parameters(source_patient_identifier={"system": "urn:mrn", "value": "100"})
        )
        self.assertEqual(answer.status, 200, answer.body)
        await self.put({**THIRD, "identifier": [OLD_NUMBER]})
        answer = await self.world.send("POST", "Patient/$merge", sent)
        text = "several Patients have the identifiers of source-patient-identifier: s, u"
        self.assertEqual((answer.status, issues(answer)[0][1]), (412, text))
        await self.put({**THIRD, "identifier": [{**OLD_NUMBER, "type": {"text": "another kind"}}]})
        self.assertEqual((await self.world.send("POST", "Patient/$merge", sent)).status, 200)

    async def test_result_patient(self) -> None:
        await self.fill()
        result = {**TARGET, "gender": "male", "identifier": [NEW_NUMBER, {"system": "urn:x", "value": "7"}],
                  "link": [{"other": refer("s"), "type": "replaces"}]}  # fmt: skip
        self.assertEqual((await self.merge(result_patient=result)).status, 200)
        self.assertEqual(content(await self.world.body("Patient/t")), result)
        self.assertEqual((await self.unmerge()).status, 200)
        self.assertEqual(content(await self.world.body("Patient/t")), {**TARGET, "gender": "male"})

    async def test_preview(self) -> None:
        await self.fill()
        answer = await self.merge(preview=True)
        self.assertEqual(answer.status, 200, answer.body)
        self.assertEqual(member(answer, "result")["link"], [{"other": refer("s"), "type": "replaces"}])
        self.assertIn("4 resources", member(answer, "outcome")["issue"][0]["diagnostics"])
        self.assertEqual(len(await self.world.versions("Patient/t")), 1)
        self.assertEqual(await self.subject("Encounter/e1"), "Patient/s")
        self.assertEqual(await self.provenances(), [])

    async def test_provenances_and_links_of_others_stay(self) -> None:
        told = {"resourceType": "Provenance", "id": "p", "target": [refer("s")], "recorded": "2026-01-01T00:00:00Z",
                "agent": [{"who": {"display": "x"}}]}  # fmt: skip
        old = {"resourceType": "Patient", "id": "o", "link": [{"other": refer("s"), "type": "replaced-by"}]}
        await self.fill(told, old)
        self.assertEqual((await self.merge()).status, 200)
        self.assertEqual(content(await self.world.body("Provenance/p")), told)
        self.assertEqual(content(await self.world.body("Patient/o")), old)

    async def test_other_tenants_are_not_touched(self) -> None:
        await self.fill()
        for one in (SOURCE, visit("e1", "s")):
            await self.put(one, "other")
        self.assertEqual((await self.merge()).status, 200)
        other = loads((await self.world.send("GET", "Encounter/e1", tenant="other")).body)
        self.assertEqual(other["subject"], refer("s"))
        sent = parameters(source_patient=refer("s"), target_patient=refer("t"))
        self.assertEqual((await self.world.send("POST", "Patient/$merge", sent, tenant="other")).status, 404)

    async def test_pieces(self) -> None:
        """More references than one transaction moves: each transaction has its record, and all are undone."""
        self.patch(merge, "PIECE", 3)  # type: ignore[attr-defined]
        self.patch(merge, "_PAGE", 2)  # type: ignore[attr-defined]
        await self.fill(*[visit(f"v{number}", "s") for number in range(8)])
        answer = await self.merge()
        self.assertIn("12 resources (Appointment 1, Encounter 9,", member(answer, "outcome")["issue"][0]["diagnostics"])
        self.assertEqual({await self.subject(f"Encounter/v{number}") for number in range(8)}, {"Patient/t"})
        self.assertGreater(len(await self.provenances()), 3)
        self.assertEqual(len(await self.world.versions("Patient/t")), 2)
        answer = await self.unmerge()
        self.assertIn("12 resources", member(answer, "outcome")["issue"][0]["diagnostics"])
        self.assertEqual({await self.subject(f"Encounter/v{number}") for number in range(8)}, {"Patient/s"})
        self.assertEqual(content(await self.world.body("Patient/t")), TARGET)
        self.assertEqual((await self.unmerge()).status, 422)

    async def test_concurrent_changes(self) -> None:
        """A change between reading and writing is kept; a reference stored meanwhile is moved too."""
        await self.fill()
        changes = [[{**visit("e1", "s"), "status": "arrived"}], [visit("late", "s")], [visit("later", "s")]]

        async def interfere() -> None:
            for one in changes.pop(0) if changes else ():
                await self.put(one)

        referrers = _Interfering(self.world.referrers, interfere)
        self.patch(type(self.world), "referrers", referrers)  # type: ignore[attr-defined]
        answer = await self.merge()
        self.assertEqual(answer.status, 200, answer.body)
        self.assertEqual(content(await self.world.body("Encounter/e1")), {**visit("e1", "t"), "status": "arrived"})
        self.assertEqual(await self.subject("Encounter/late"), "Patient/t")
        self.assertEqual(await self.subject("Encounter/later"), "Patient/t")
        self.assertEqual(changes, [])
        self.assertEqual((await self.unmerge()).status, 200)
        self.assertEqual(content(await self.world.body("Encounter/e1")), {**visit("e1", "s"), "status": "arrived"})

    async def test_scopes(self) -> None:
        every = "system/Patient.cruds system/Provenance.crus system/Encounter.u system/Appointment.u system/Group.u"
        table = [
            ("system/Patient.cruds system/Provenance.crus system/*.u", None, 200),
            (f"{every} system/RelatedPerson.u", None, 401),
            ("system/Patient.cruds", None, 401),
            ("system/*.rs", None, 401),
            ("system/*.cruds", None, 200),
            ("system/*.cruds?_id=s system/Patient.cruds?gender=female", None, 401),
            ("patient/*.cruds", "s", 401),
        ]
        for scopes, patient, status in table:
            await self.fill()
            self.world.caller = Caller("ada", "app", tuple(scopes.split()), patient=patient)
            self.assertEqual((await self.merge(preview=True)).status, status, scopes)
            self.assertEqual((await self.merge()).status, status, scopes)
            self.world.caller = OPEN
            moved = await self.subject("Encounter/e1") == "Patient/t"
            self.assertEqual(moved, status == 200, scopes)
            self.world.caller = Caller("ada", "app", tuple(scopes.split()), patient=patient)
            undone = await self.unmerge()
            self.assertEqual(undone.status == 200, status == 200, (scopes, undone.status))

    async def test_unmerge_needs_the_same_rights(self) -> None:
        await self.fill()
        await self.merge()
        for scopes in ("system/Patient.cruds system/Provenance.crus", "system/Patient.cruds", "system/*.rs"):
            self.world.caller = Caller("ada", "app", tuple(scopes.split()))
            self.assertEqual((await self.unmerge()).status, 401, scopes)
        self.world.caller = OPEN
        self.assertEqual(await self.subject("Encounter/e1"), "Patient/t")

    async def test_audit(self) -> None:
        """Each Patient has a record."""
        await self.fill()
        answer = await self.merge()
        request = Request("POST", ("Patient", "$merge"), (), {}, b"{}", BASE, CORRELATION_ID)
        context = ContextCache(AuditRules()).of(request, answer.status)
        assert context is not None
        records = records_of(request, answer, 0.0, 0, id_suffixes(), context)
        self.assertEqual([one.entities for one in records], [("Patient/s/_history/2",), ("Patient/t/_history/2",)])


class _Interfering:
    """Referrers; after each page other writers have written something."""

    def __init__(self, referrers: Referrers, interfere: Any) -> None:
        self._referrers = referrers
        self._interfere = interfere

    async def referring(self, tenant: str, reference: str, after: int, limit: int) -> list[Version]:
        """See `ports.Referrers`."""
        found = await self._referrers.referring(tenant, reference, after, limit)
        await self._interfere()
        return found


class MergeTests(MergeSuite, OnMemory):
    pass


class PostgresMergeTests(MergeSuite, OnSharedPostgres):
    """SQL finds what refers to a Patient, and orders concurrent writers."""
