"""What a message leaves out keeps its stored value; only the null value deletes (HL7 v2.9 section 2.5.3)."""

from __future__ import annotations

import random
from typing import Any

from ipf.config.paths import folder
from ipf.errors import Problem
from ipf.fhir.model.json import dumps, loads
from ipf.hl7.message import Message
from ipf.mapping.language.identity_table import IdentityTable, SnapshotRow
from ipf.mapping.library.maps import Library
from ipf.mapping.library.service import result_json
from ipf.ports import Json
from ipf.rest.write.unit import UnitResult
from tests.corpus import samples
from tests.flows.omitted_fields import TWIN, Feed, Lines, items, lines, variants, with_field
from tests.rest.world import OnMemory, OnPostgres, Suite, World

NUMBER = "1001^^^NORTH^MR"
WHOLE = f"PID|1||{NUMBER}||DOE^JANE||19800101|F||2106-3^White^HL70005|1 Main^^Town||555-1|555-9|ENG|M|||987-65-4321"
VISIT = "PV1|1|I|W^1^2^NORTH|||P^3|123^DOC^A|124^REF^B||MED||||7|||||V1" + "|" * 25 + "20240101"


def message(kind: str, *segments: str) -> Lines:
    """A message of one sender."""
    head = f"MSH|^~\\&|HIS|NORTH|IPF|X|20240101120000||{kind}|1|P|2.5.1"
    return [line.split("|") for line in (head, "EVN||20240101", *segments)]


def pid(**fields: str) -> str:
    """A PID with the number of the person and these fields (`_13="555"`)."""
    made = ["PID", "1", "", NUMBER, *[""] * 36]
    for name, value in fields.items():
        made[int(name[1:])] = value
    return "|".join(made).rstrip("|")


def pv1(**fields: str) -> str:
    """A PV1 of the visit V1."""
    made = ["PV1", "1", *[""] * 52]
    made[19] = "V1"
    for name, value in fields.items():
        made[int(name[1:])] = value
    return "|".join(made).rstrip("|")


A28, A08, A40 = "ADT^A28^ADT_A05", "ADT^A08^ADT_A01", "ADT^A40^ADT_A39"
A01, A02, A03, A13 = "ADT^A01^ADT_A01", "ADT^A02^ADT_A02", "ADT^A03^ADT_A03", "ADT^A13^ADT_A01"


class OmittedSuite(Suite):
    """One person, told of by several messages."""

    world: World

    def feed(self, library: Library | None = None) -> Feed:
        """Messages into the store of this test."""
        feed = Feed(library)
        feed.world = self.world
        return feed

    async def one(self, kind: str) -> Json:
        """The only resource of a type."""
        answer = await self.world.send("GET", f"{kind}?_count=100")
        (found,) = [one["resource"] for one in loads(answer.body).get("entry", ())]
        resource: Json = found
        return resource

    async def told(self, kind: str, *messages: Lines, library: Library | None = None) -> Json:
        """The resource after these messages."""
        feed = self.feed(library)
        for one in messages:
            await feed.tell(one)
        return await self.one(kind)

    async def test_a_field_that_is_left_out_stays(self) -> None:
        """Of the person, whatever message tells little of it."""
        whole = await self.told("Patient", message(A28, WHOLE))
        for kind, *more in (
            (A08, pv1()),
            (A40, "MRG|1002^^^NORTH^MR"),
            (A03, pv1(_45="20240105")),
            ("VXU^V04^VXU_V04", "ORC|RE||V7", "RXA|0|1|20240102||08^HepB^CVX|1"),
        ):
            await self.feed().tell(message(kind, pid(_5="DOE^JANE"), *more))
            answer = await self.world.send("GET", "Patient?identifier=1001")
            (after,) = [one["resource"] for one in loads(answer.body)["entry"]]
            for name in ("name", "birthDate", "gender", "address", "telecom", "maritalStatus", "communication"):
                self.assertEqual(after[name], whole[name], (kind, name))
            self.assertEqual(after["extension"], whole["extension"])

    async def test_null_deletes(self) -> None:
        """A field, an identifier of a field, one number of a list."""
        first = message(A28, WHOLE.replace(NUMBER, f"{NUMBER}~77^^^GOV^NI~88^^^OTHER&1.2.3&ISO^PI"))
        whole = await self.told("Patient", first)
        self.assertEqual(len(whole["identifier"]), 4)
        after = await self.told("Patient", message(A08, pid(_7='""', _13='""', _19='""'), pv1()))
        self.assertNotIn("birthDate", after)
        self.assertEqual([one["value"] for one in after["telecom"]], ["555-9"])
        self.assertEqual([one["value"] for one in after["identifier"]], ["1001", "77", "88"])
        deleting = message(A08, pid(_3=f'{NUMBER}~""^^^GOV^NI'), pv1())
        after = await self.told("Patient", deleting)
        self.assertEqual([one["value"] for one in after["identifier"]], ["1001", "88"])
        self.assertEqual(after["gender"], "female")
        deleting = message(A08, pid(_3=f'{NUMBER}~""^^^X&1.2.3&ISO'), pv1())
        after = await self.told("Patient", deleting)
        self.assertEqual([one["value"] for one in after["identifier"]], ["1001"])

    async def test_a_repeating_field_replaces_what_it_sent_before(self) -> None:
        """And not what other fields sent into the same list."""
        await self.told("Patient", message(A28, pid(_5="DOE^JANE", _13="1~2^PRN^CP", _14="9")))
        after = await self.told("Patient", message(A08, pid(_13="3"), pv1()))
        self.assertEqual([(one["value"], one["use"]) for one in after["telecom"]], [("3", "home"), ("9", "work")])
        again = await self.told("Patient", message(A08, pid(_13="3", _14="9"), pv1()))
        self.assertEqual(again["meta"], after["meta"])  # the same content is no new version

    async def test_a_visit(self) -> None:
        """Doctors, service, beginning, diagnoses and class of the visit."""
        first = message(A01, WHOLE, VISIT, "DG1|1||I10^Hypertension^I10|||A")
        whole = await self.told("Encounter", first)
        after = await self.told("Encounter", message(A08, pid(), pv1()))
        self.assertEqual(after, whole)
        after = await self.told("Encounter", message(A08, pid(), pv1(_8="125^NEW^C")))
        doctors = [(one["type"][0]["coding"][0]["code"], one["individual"]["display"]) for one in after["participant"]]
        self.assertEqual(doctors, [("ATND", "A DOC"), ("REF", "C NEW")])
        after = await self.told("Encounter", message(A03, pid(), pv1(_36="01", _45="20240105")))
        self.assertEqual(after["period"], {"start": "2024-01-01", "end": "2024-01-05"})
        self.assertEqual((after["status"], after["class"]["code"]), ("finished", "IMP"))
        self.assertEqual({one["status"] for one in after["location"]}, {"completed"})
        self.assertEqual(after["hospitalization"]["admitSource"], whole["hospitalization"]["admitSource"])

    async def test_an_update_does_not_open_a_visit_again(self) -> None:
        """A08 with the class of the visit, after A03; A13 does, and takes the discharge back."""
        await self.told("Encounter", message(A01, WHOLE, VISIT), message(A03, pid(), pv1(_36="01", _45="20240105")))
        after = await self.told("Encounter", message(A08, pid(), pv1(_2="I")))
        self.assertEqual((after["status"], after["period"]["end"]), ("finished", "2024-01-05"))
        after = await self.told("Encounter", message(A13, pid(), pv1(_2="I")))
        self.assertEqual((after["status"], after["period"]), ("in-progress", {"start": "2024-01-01"}))
        self.assertNotIn("dischargeDisposition", after["hospitalization"])

    async def test_a_status_by_the_class_alone(self) -> None:
        """It follows the class, as long as no event has said the status."""
        after = await self.told("Encounter", message(A08, pid(_5="DOE^JANE"), pv1()))
        self.assertEqual((after["status"], after["class"]["code"]), ("unknown", "UNK"))
        after = await self.told("Encounter", message(A08, pid(), pv1(_2="P")))
        self.assertEqual(after["status"], "planned")
        after = await self.told("Encounter", message(A08, pid(), pv1(_2="I")))
        self.assertEqual((after["status"], after["class"]["code"]), ("in-progress", "IMP"))
        after = await self.told("Encounter", message(A03, pid(), pv1(_45="20240105")))
        after = await self.told("Encounter", message(A08, pid(), pv1(_2="P")))
        self.assertEqual(after["status"], "finished")

    async def test_diagnoses(self) -> None:
        """A set without action codes replaces the one before; action codes change one at a time."""
        one, two = "DG1|1||I10^Hypertension^I10|||A", "DG1|2||E11^Diabetes^I10|||F"
        await self.told("Encounter", message(A01, WHOLE, VISIT, one, two))
        after = await self.told("Encounter", message(A08, pid(), pv1(), two))
        self.assertEqual(len(after["diagnosis"]), 1)
        acted = one + "|" * 14 + "|A"
        self.assertEqual((one.count("|"), acted.count("|")), (6, 21))
        after = await self.told("Encounter", message(A08, pid(), pv1(), acted))
        self.assertEqual(len(after["diagnosis"]), 2)

    async def test_a_diagnosis_that_was_deleted(self) -> None:
        """It holds again when it is told without an action code."""
        one = "DG1|1||I10^Hypertension^I10|||A"
        after = await self.told("Condition", message(A01, WHOLE, VISIT, one + "|" * 15 + "D"))
        self.assertEqual(after["verificationStatus"]["coding"][0]["code"], "entered-in-error")
        after = await self.told("Condition", message(A08, pid(), pv1(), one))
        self.assertNotIn("verificationStatus", after)

    async def test_a_pending_transfer(self) -> None:
        """It stays until the transfer."""
        after = await self.told("Encounter", message(A01, WHOLE, VISIT), message(A08, pid(), pv1(_42="X^9^1")))
        after = await self.told("Encounter", message(A08, pid(), pv1()))
        self.assertEqual([one["status"] for one in after["location"]], ["active", "completed", "reserved"])
        after = await self.told("Encounter", message(A02, pid(), pv1(_3="X^9^1")))
        self.assertEqual([one["status"] for one in after["location"]], ["active", "completed"])

    async def test_an_order_of_a_drug(self) -> None:
        """What an update leaves out stays with the drug, and never goes to another one."""
        head, orc = "RDE^O11^RDE_O11", "ORC|{}|R77"
        first = message(head, pid(_5="DOE^JANE"), orc.format("NW"), "RXE||A1^Drug A^L|5||mg", "RXR|PO^Oral^HL70162")
        await self.told("MedicationRequest", first)
        same = message(head, pid(_5="DOE^JANE"), orc.format("XO"), "RXE||A1^Drug A^L")
        after = await self.told("MedicationRequest", same)
        self.assertTrue(after["dosageInstruction"][0]["doseAndRate"])
        other = message(head, pid(_5="DOE^JANE"), orc.format("XO"), "RXE||B2^Drug B^L")
        after = await self.told("MedicationRequest", other)
        self.assertEqual(after["medicationCodeableConcept"]["coding"][0]["code"], "B2")
        self.assertNotIn("doseAndRate", str(after.get("dosageInstruction")))

    async def test_an_allergy(self) -> None:
        """What an AL1 leaves out, and the action code of an IAM."""
        whole = await self.told("AllergyIntolerance", message(A28, WHOLE, "AL1|1|DA|PEN^Penicillin^L|SV|rash"))
        after = await self.told("AllergyIntolerance", message(A08, pid(), pv1(), "AL1|1||PEN^Penicillin^L"))
        self.assertEqual(after, whole)
        deleted = message("ADT^A60^ADT_A60", pid(), "IAM|1||PEN^Penicillin^L|||D")
        after = await self.told("AllergyIntolerance", deleted)
        self.assertEqual(after["verificationStatus"]["coding"][0]["code"], "entered-in-error")
        self.assertNotIn("clinicalStatus", after)
        self.assertEqual(after["criticality"], whole["criticality"])

    async def test_another_way_to_say_it(self) -> None:
        """ "True" does not replace the time of death; a time of death replaces "true"."""
        said = pid(_5="DOE^JANE", _30="Y")
        self.assertIs((await self.told("Patient", message(A28, said)))["deceasedBoolean"], True)
        after = await self.told("Patient", message(A08, pid(_29="20240103"), pv1()))
        self.assertEqual(after["deceasedDateTime"], "2024-01-03")
        after = await self.told("Patient", message(A08, pid(_30="Y"), pv1()))
        self.assertEqual(after["deceasedDateTime"], "2024-01-03")
        after = await self.told("Patient", message(A08, pid(_30="N"), pv1()))
        self.assertEqual((after["deceasedBoolean"], "deceasedDateTime" in after), (False, False))

    async def test_what_a_client_has_written(self) -> None:
        """It stays until a message says the same element; an extension until a message has one with its url."""
        stored = await self.told("Patient", message(A28, pid(_5="DOE^JANE", _13="1")))
        more = {"url": "http://example.org/consent", "valueBoolean": True}
        label = {"security": [{"system": "http://example.org", "code": "VIP"}]}
        changed = {**stored, "extension": [more], "photo": [{"url": "http://example.org/1.png"}], "meta": label}
        await self.world.send("PUT", f"Patient/{stored['id']}", changed)
        after = await self.told("Patient", message(A08, pid(_10="2106-3^White^HL70005", _14="2"), pv1()))
        self.assertIn(more, after["extension"])
        self.assertEqual(len(after["extension"]), 2)
        self.assertEqual(after["photo"], changed["photo"])
        self.assertEqual(after["meta"]["security"], label["security"])
        self.assertEqual([one["value"] for one in after["telecom"]], ["1", "2"])

    async def test_a_sender_of_snapshots(self) -> None:
        """What it leaves out is deleted, where the installation says so."""
        table = IdentityTable((), [SnapshotRow("HIS", frozenset(("ADT_A08",)))])
        library = Library.load(folder("maps"), compiled=False, identity=table)
        whole = await self.told("Patient", message(A28, WHOLE), library=library)
        after = await self.told("Patient", message("ADT^A31^ADT_A05", pid(_5="DOE^JANE")), library=library)
        self.assertEqual(after, whole)
        after = await self.told("Patient", message(A08, pid(_5="DOE^JANE"), pv1()), library=library)
        self.assertNotIn("birthDate", after)
        self.assertNotIn("telecom", after)
        self.assertEqual([one["value"] for one in after["identifier"]], ["1001", "987-65-4321"])

    async def test_the_result_names_what_is_kept(self) -> None:
        """For the preview of a replay."""
        await self.told("Patient", message(A28, WHOLE))
        found = await self.feed().tell(message(A08, pid(_5="DOE^JANET"), pv1()))
        assert isinstance(found, UnitResult)
        (kept,) = [one.kept for one in found.entries if one.version and one.version.resource_type == "Patient"]
        self.assertLessEqual({"birthDate", "gender", "telecom", "address"}, set(kept))


class OmittedTests(OmittedSuite, OnMemory):
    """In memory; the generated messages here only."""

    def test_a_trace_names_what_an_update_keeps(self) -> None:
        """The fields of each element, and the elements that the message leaves out."""
        text = "\r".join("|".join(one) for one in message(A08, pid(_5="DOE^JANE", _13="1"), pv1())).encode() + b"\r"
        found = result_json(samples.library().run(Message.parse(text), trace=True))["updates"]
        (person,) = [one for one in found if one["resource_type"] == "Patient"]
        self.assertEqual(person["sources"]["name"], ["PID-5"])
        self.assertLessEqual({"birthDate", "gender", "address"}, set(person["retained"]))
        self.assertNotIn("telecom", person["retained"])

    async def test_every_field_of_every_sample(self) -> None:
        """A seeded sample: `test_omitted_campaign` takes all of them."""
        chosen = random.Random(32)
        every = [(name, place) for name in samples.names() for place in variants(lines(name))]
        checked = [await check(self, name, number, place) for name, (number, place) in chosen.sample(every, 200)]
        self.assertGreater(sum(checked), 150)


class PostgresOmittedTests(OmittedSuite, OnPostgres):
    """On PostgreSQL."""


async def check(test: Any, name: str, number: int, place: int) -> bool:
    """A sample, then the sample without one field, then with null in it.

    What only this field says stays the first time.  The second time it goes, unless the rest of the message says it.
    False: one of the messages is refused.
    """
    whole = lines(name)
    field = f"{whole[number][0]}-{place}"
    without = with_field(whole, number, place, "")
    feed, deleting, fresh = Feed(), Feed(), Feed()
    try:
        await feed.tell(whole)
        said = feed.said_by(field)
        await feed.tell(without)
        await fresh.tell(without)
        await deleting.tell(whole)
        await deleting.tell(with_field(whole, number, place, '""'))
    except Problem:
        return False  # what is refused is not stored
    after, deleted, alone = feed.by_number(), deleting.by_number(), fresh.by_number()
    is_single = sum(segment[0] == whole[number][0] for segment in whole) == 1
    for key, element, known in said:
        where = name, field, key, element
        if not is_said_again(alone.get(key, {}), element, known):
            test.assertLessEqual(texts(known), texts(items(after.get(key, {}), element)), where)
        if is_single and key in alone and TWIN not in key:
            left = {one for one in texts(known) if '"reference"' not in one}  # another number may name the same
            left &= texts(items(deleted.get(key, {}), element))
            test.assertLessEqual(left, texts(items(alone[key], element)), where)
    return True


def is_said_again(alone: Json, element: str, known: list[Any]) -> bool:
    """Whether the rest of the message says the element too, and so replaces what the field said."""
    return element in alone and not texts(known) <= texts(items(alone, element))


def texts(values: list[Any]) -> set[str]:
    """Values that can be compared as a set."""
    return {dumps(one).decode() for one in values}
