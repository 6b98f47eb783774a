"""Who a message is about, from HL7 text to stored resources: typed numbers, orders, conflicts, merges.

Each scenario sends messages one after the other through the maps of the project into one store, as the converter does.

Source: docs/explanation/identity.md
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from ipf.errors import Problem
from ipf.fhir.model.json import loads
from ipf.ports import DEFAULT_TENANT, Json
from ipf.ports.identity import AnswerKind, ConflictKind, IdentityAnswer, IdentityAnswers, IdentityConflict
from ipf.ports.messages.inbox import Claimed
from ipf.rest.write.unit import Unit, UnitResult
from ipf.store.resources.identity import PostgresIdentityAnswers
from tests.corpus import samples
from tests.fakes.identity import MemoryIdentityAnswers
from tests.rest.world import CORRELATION_ID, OnMemory, OnPostgres, Suite, World

HEAD = "MSH|^~\\&|APP|HOSP7|IPF|X|20260101||{}|M1|P|2.5.1"
EVENT = "EVN||20260101"
TYPES = {"ADT": "ADT^A08^ADT_A01", "ORU": "ORU^R01^ORU_R01", "ORM": "ORM^O01^ORM_O01", "A40": "ADT^A40^ADT_A39"}


def adt(numbers: str, name: str = "MUSTER^ANNA", born: str = "19800101", *more: str) -> str:
    """An ADT^A08 of a person with these repetitions of PID-3."""
    return "\n".join((HEAD.format(TYPES["ADT"]), EVENT, f"PID|||{numbers}||{name}||{born}|F", "PV1||N", *more))


def pid(numbers: str, name: str = "MUSTER^ANNA") -> str:
    """A PID segment."""
    return f"PID|||{numbers}||{name}||19800101|F"


def order(person: str, orc: str, obr: str = "1|||GLU^Glucose^L") -> str:
    """An ORM^O01 with one order; `orc`: from ORC-2 on."""
    return "\n".join((HEAD.format(TYPES["ORM"]), person, f"ORC|NW|{orc}", f"OBR|{obr}"))


def result(person: str, placer: str, filler: str, value: str = "5", status: str = "F") -> str:
    """An ORU^R01 with one value."""
    return "\n".join((
        HEAD.format(TYPES["ORU"]),
        person,
        f"OBR|1|{placer}|{filler}|GLU^Glucose^L|||20260101100000{'|' * 15}20260101||LAB|{status}",
        f"OBX|1|NM|GLU^Glucose^L||{value}|mmol/L|||||{status}",
    ))  # fmt: skip


def a40(survivor: str, prior: str) -> str:
    """An ADT^A40: `prior` was merged into `survivor`."""
    return "\n".join((HEAD.format(TYPES["A40"]), EVENT, pid(survivor), f"MRG|{prior}"))


MR = "{}^^^HOSP7^MR"
ONE, TWO, THREE = MR.format(100), MR.format(200), MR.format(300)

# Messages about persons, and the (family, numbers in use) of the Patients afterwards.
Persons = list[tuple[str, list[str]]]
PERSONS: list[tuple[str, list[str], Persons]] = [
    ("a number of type PI is not the number of type MR",
     [adt("100^^^HOSP7^MR~200^^^HOSP7^PI", "PERSONA"), adt("200^^^HOSP7^MR", "PERSONB")],
     [("PERSONA", ["100 MR", "200 PI"]), ("PERSONB", ["200 MR"])]),
    ("nor in the other order",
     [adt("200^^^HOSP7^MR", "PERSONB"), adt("100^^^HOSP7^MR~200^^^HOSP7^PI", "PERSONA")],
     [("PERSONA", ["100 MR", "200 PI"]), ("PERSONB", ["200 MR"])]),
    ("a number of type SS is not the number of type MR",
     [adt("100^^^HOSP7^MR~200^^^HOSP7^SS", "PERSONA"), adt("200^^^HOSP7^MR", "PERSONB")],
     [("PERSONA", ["100 MR", "200 SS"]), ("PERSONB", ["200 MR"])]),
    ("PID-19 is not the number of type MR",
     [adt(ONE, "PERSONA||19800101|F|||||||||||200"), adt("200^^^USSSA^MR", "PERSONB")],
     [("PERSONA", ["100 MR", "200 SS"]), ("PERSONB", ["200 MR"])]),
    ("the same number of another authority is another person",
     [adt("100^^^HOSP7^MR", "PERSONA"), adt("100^^^HOSP8^MR", "PERSONB")],
     [("PERSONA", ["100 MR"]), ("PERSONB", ["100 MR"])]),
    ("PID-2 is secondary",
     [adt(ONE, "PERSONA").replace("PID|||", "PID||200^^^HOSP7^MR|"), adt(TWO, "PERSONB")],
     [("PERSONA", ["100 MR"]), ("PERSONB", ["200 MR"])]),
    ("PID-4 is secondary",
     [adt(f"{ONE}|200^^^HOSP7^MR", "PERSONA").replace("||PERSONA", "|PERSONA"), adt(TWO, "PERSONB")],
     [("PERSONA", ["100 MR"]), ("PERSONB", ["200 MR"])]),
    ("a PI of another domain is secondary",
     [adt(f"{ONE}~55^^^OTHER^PI", "PERSONA"), adt(f"{TWO}~55^^^OTHER^PI", "PERSONB"), adt("55^^^OTHER^PI", "PERSONC")],
     [("PERSONA", ["100 MR"]), ("PERSONB", ["200 MR"]), ("PERSONC", ["55 PI"])]),
    ("a national number identifies across domains",
     [adt(f"{ONE}~N1^^^GOV^NI"), adt("9^^^CLINIC^MR~N1^^^GOV^NI")],
     [("MUSTER", ["9 MR", "N1 NI", "100 MR"])]),
    ("a family shares an account number",
     [adt(f"{ONE}~A1^^^HOSP7^AN", "PERSONA"), adt(f"{TWO}~A1^^^HOSP7^AN", "PERSONB")],
     [("PERSONA", ["100 MR", "A1 AN"]), ("PERSONB", ["200 MR", "A1 AN"])]),
    ("an update finds its Patient by a later number when the first is new",
     [adt(f"{ONE}~N1^^^GOV^NI"), adt("N1^^^GOV^NI", "MUSTER^MARIA")],
     [("MUSTER", ["N1 NI", "100 MR"])]),
    ("the same message again is the same person",
     [adt(f"{ONE}~200^^^HOSP7^PI"), adt(f"{ONE}~200^^^HOSP7^PI")],
     [("MUSTER", ["100 MR", "200 PI"])]),
]  # fmt: skip

# Messages that are stored, and one that only an operator can decide: its kind, type, and number of candidates.
CONFLICTS: list[tuple[str, list[str], str, tuple[ConflictKind, str, int]]] = [
    ("two Patients fit",
     [adt(ONE), adt("9^^^CLINIC^MR~N1^^^GOV^NI")], adt(f"{ONE}~N1^^^GOV^NI"), (ConflictKind.AMBIGUOUS, "Patient", 2)),
    ("a national number with another medical record number of the same hospital",
     [adt(f"{ONE}~N1^^^GOV^NI")], adt(f"{TWO}~N1^^^GOV^NI"), (ConflictKind.CONTRADICTION, "Patient", 1)),
    ("an order of another patient",
     [adt(ONE, "PERSONA"), order(pid(ONE), "P1^EHR|F1^LAB")], order(pid(TWO, "PERSONB"), "P1^EHR|F1^LAB"),
     (ConflictKind.SUBJECT, "ServiceRequest", 1)),
]  # fmt: skip


class IdentityWorld(Suite):
    """Messages into one store."""

    world: World
    count = 0

    async def tell(self, text: str) -> UnitResult | Problem:
        """Convert and store one message."""
        self.count += 1
        message_type = "_".join(text.split("|")[8].split("^")[:2])
        raw = text.replace("\n", "\r").encode() + b"\r"
        now = datetime.now(UTC)
        claimed = Claimed(self.count, 1, CORRELATION_ID, now, "APP", "M1", message_type, raw, "utf-8", 0)
        mapped = samples.library().transform(claimed)
        assert mapped.entries is not None, message_type
        receipt = f"message/{self.count}"
        unit = Unit(DEFAULT_TENANT, mapped.entries, CORRELATION_ID, receipt, references=mapped.references)
        (found,) = await self.world.commit(unit)
        self.world.pass_time()
        assert isinstance(found, UnitResult | Problem)
        return found

    async def store(self, *texts: str) -> UnitResult:
        """Messages that must be stored; the result of the last."""
        for text in texts:
            found = await self.tell(text)
            self.assertIsInstance(found, UnitResult, f"{text}\n{found}")
        assert isinstance(found, UnitResult)
        return found

    async def found(self, search: str) -> list[Json]:
        """The resources that a search finds, oldest first."""
        separator = "&" if "?" in search else "?"
        answer = await self.world.send("GET", f"{search}{separator}_count=100")
        return [one["resource"] for one in loads(answer.body).get("entry", ()) if one["search"]["mode"] == "match"]

    async def patient(self, number: str) -> Json:
        """The Patient with this medical record number in use."""
        found = [one for one in await self.found("Patient") if f"{number} MR" in numbers(one)]
        self.assertEqual(len(found), 1, number)
        return found[0]


class IdentitySuite(IdentityWorld):
    """The scenarios."""

    async def persons(self) -> Persons:
        """Family name and numbers of all Patients."""
        found = [(one["name"][0].get("family", ""), numbers(one)) for one in await self.found("Patient")]
        return sorted(found)

    async def test_persons(self) -> None:
        """PERSONS."""
        for what, messages, expected in PERSONS:
            with self.subTest(what):
                await self.store(*messages)
                self.assertEqual(await self.persons(), expected, what)
                await self.renew()

    async def test_conflicts(self) -> None:
        """CONFLICTS: nothing is written, and the finding names the candidates."""
        for what, before, text, (kind, resource_type, count) in CONFLICTS:
            with self.subTest(what):
                await self.store(*before)
                counts = await self.world.store.counts()
                conflict = await self.tell(text)
                assert isinstance(conflict, IdentityConflict), (what, conflict)
                finding = conflict.finding
                self.assertEqual(
                    (finding.kind, finding.resource_type, len(finding.candidates)), (kind, resource_type, count)
                )
                self.assertEqual(await self.world.store.counts(), counts)
                for value in ("100", "200", "N1", "P1", "MUSTER"):
                    self.assertNotIn(f" {value}", conflict.text)
                await self.renew()

    async def renew(self) -> None:
        """An empty store."""
        raise NotImplementedError

    # -- orders and results

    async def test_a_filler_number_is_no_placer_number(self) -> None:
        """ORC `2002|2001` of one patient, then `2001|` of another."""
        await self.store(order(pid(ONE, "PERSONA"), "2002|2001"), order(pid(TWO, "PERSONB"), "2001|"))
        one, two = await self.patient("100"), await self.patient("200")
        requests = {placer(each): each["subject"]["reference"] for each in await self.found("ServiceRequest")}
        self.assertEqual(requests, {"2002": f"Patient/{one['id']}", "2001": f"Patient/{two['id']}"})

    async def test_two_patients_share_an_accession_number(self) -> None:
        await self.store(result(pid(ONE, "PERSONA"), "", "ACC1", "5"), result(pid(TWO, "PERSONB"), "", "ACC1", "6"))
        for number, value in (("100", 5), ("200", 6)):
            person = f"Patient/{(await self.patient(number))['id']}"
            (seen,) = await self.found(f"Observation?subject={person}")
            (report,) = await self.found(f"DiagnosticReport?subject={person}")
            self.assertEqual(seen["valueQuantity"]["value"], value)
            self.assertEqual(report["result"][0]["reference"], f"Observation/{seen['id']}")
            for based in report.get("basedOn", ()):
                self.assertEqual((await self.world.body(based["reference"]))["subject"]["reference"], person)

    async def test_a_correction_that_names_the_filler_only(self) -> None:
        person = pid(ONE)
        await self.store(order(person, "P1^EHR|F1^LAB", "1|P1^EHR|F1^LAB|GLU^Glucose^L"),
                         result(person, "P1^EHR", "F1^LAB", "5"), result(person, "", "F1^LAB", "6", "C"))  # fmt: skip
        (report,) = await self.found("DiagnosticReport")
        (seen,) = await self.found("Observation")
        self.assertEqual((seen["valueQuantity"]["value"], seen["status"]), (6, "corrected"))
        self.assertEqual(report["status"], "corrected")

    async def test_ambiguous_auxiliaries_do_not_fail_a_message(self) -> None:
        """Two Practitioners with one number: the newest is used, with a warning."""
        await self.store(adt(ONE, "MUSTER^ANNA", "19800101").replace("PV1||N", "PV1||I|W^1^1||||77^Doc^Ann^^^^^^HOSP7"))
        (doctor,) = await self.found("Practitioner")
        again = {name: value for name, value in doctor.items() if name not in ("id", "meta")}
        answer = await self.world.send("POST", "Practitioner", again)
        newest = f"Practitioner/{loads(answer.body)['id']}"
        told = await self.store(
            adt(TWO, "PERSONB").replace("PV1||N", "PV1||I|W^1^1||||77^Doc^Ann^^^^^^HOSP7||||||||||||V2")
        )
        self.assertEqual([kind for kind, _ in told.warnings], ["Practitioner"])
        person = f"Patient/{(await self.patient('200'))['id']}"
        (visit,) = await self.found(f"Encounter?subject={person}")
        self.assertIn(newest, [one["individual"]["reference"] for one in visit["participant"]])
        self.assertEqual(len(await self.found("Practitioner")), 2)

    # -- merges by messages

    async def test_after_a40_the_prior_number_is_the_survivor(self) -> None:
        await self.store(adt(ONE), adt(TWO), order(pid(TWO), "P1^EHR|F1^LAB"), a40(ONE, TWO))
        one, two = await self.patient("100"), await self.patient("200")
        survivor = f"Patient/{one['id']}"
        self.assertEqual((one["active"], two["active"]), (True, False))
        # a result under the prior number belongs to the survivor
        await self.store(result(pid(TWO), "", "F9^LAB"))
        (seen,) = await self.found("Observation")
        self.assertEqual(seen["subject"]["reference"], survivor)
        # an update of the prior patient's order under the survivor's number is no conflict, and makes no second order
        await self.store(order(pid(ONE), "P1^EHR|F1^LAB"))
        (request,) = [each for each in await self.found("ServiceRequest") if placer(each) == "P1"]
        self.assertEqual(request["subject"]["reference"], survivor)
        # an update of the survivor keeps its link, one under the prior number too
        for numbers_of_message in (ONE, TWO):
            await self.store(adt(numbers_of_message))
            after = await self.world.body(survivor)
            self.assertEqual(links(after), [("replaces", f"Patient/{two['id']}")])
            self.assertEqual(links(await self.world.body(f"Patient/{two['id']}")), [("replaced-by", survivor)])
        self.assertEqual(len(await self.found("Patient")), 2)

    async def test_a40_before_the_messages_of_the_prior_patient(self) -> None:
        """The merge overtakes them."""
        await self.store(a40(ONE, TWO), adt(TWO), result(pid(TWO), "", "F1^LAB"), adt(ONE))
        found = {each.get("active") is not False: f"Patient/{each['id']}" for each in await self.found("Patient")}
        self.assertEqual(set(found), {True, False})
        (seen,) = await self.found("Observation")
        self.assertEqual(seen["subject"]["reference"], found[True])
        self.assertEqual(links(await self.world.body(found[False])), [("replaced-by", found[True])])

    async def test_a_chain_of_a40(self) -> None:
        for messages in ([a40(TWO, THREE), a40(ONE, TWO)], [a40(ONE, TWO), a40(TWO, THREE)]):
            await self.store(adt(ONE), adt(TWO), adt(THREE), *messages, result(pid(THREE), "", "F1^LAB"))
            (seen,) = await self.found("Observation")
            self.assertEqual(seen["subject"]["reference"], f"Patient/{(await self.patient('100'))['id']}")
            self.assertEqual(len(await self.found("Patient")), 3)
            await self.renew()

    async def test_a_repeated_a40_changes_nothing(self) -> None:
        await self.store(adt(ONE), adt(TWO), a40(ONE, TWO))
        before = {each["id"]: each["meta"]["versionId"] for each in await self.found("Patient")}
        await self.store(a40(ONE, TWO))
        self.assertEqual({each["id"]: each["meta"]["versionId"] for each in await self.found("Patient")}, before)

    async def test_a_visit_of_the_prior_patient_after_a40(self) -> None:
        """Under the survivor's number it is the same visit, and it moves to the survivor."""
        stay = "PV1||I|W^1^1||||||||||||||||V1^^^HOSP7"
        await self.store(adt(ONE), adt(TWO).replace("PV1||N", stay), a40(ONE, TWO), adt(ONE).replace("PV1||N", stay))
        (visit,) = await self.found("Encounter?class=IMP")
        self.assertEqual(visit["subject"]["reference"], f"Patient/{(await self.patient('100'))['id']}")

    async def test_a40_and_back(self) -> None:
        """A second A40 in the other direction: the other Patient survives."""
        await self.store(adt(ONE), adt(TWO), a40(ONE, TWO), a40(TWO, ONE), result(pid(ONE), "", "F1^LAB"))
        (seen,) = await self.found("Observation")
        self.assertEqual(seen["subject"]["reference"], f"Patient/{(await self.patient('200'))['id']}")
        self.assertEqual(len(await self.found("Patient")), 2)

    async def test_a_correction_across_a40(self) -> None:
        """A result without a number of its own is known by its patient's number: the correction stands beside it."""
        await self.store(adt(ONE), adt(TWO), result(pid(TWO), "", "F1^LAB", "5"), a40(ONE, TWO))
        await self.store(result(pid(ONE), "", "F1^LAB", "6", "C"))
        one, two = await self.patient("100"), await self.patient("200")
        found = {each["status"]: each["subject"]["reference"] for each in await self.found("Observation")}
        self.assertEqual(found, {"final": f"Patient/{two['id']}", "corrected": f"Patient/{one['id']}"})

    # -- answers of operators

    async def test_take(self) -> None:
        """The messages with the key of the answer belong to the Patient that the operator names."""
        await self.store(adt(f"{ONE}~N1^^^GOV^NI"))
        text = adt(f"{TWO}~N1^^^GOV^NI")
        conflict = await self.tell(text)
        assert isinstance(conflict, IdentityConflict)
        await self.answer(conflict, AnswerKind.TAKE, conflict.finding.candidates[0])
        await self.store(text, result(pid(TWO), "", "F1^LAB"))
        (person,) = await self.found("Patient")
        self.assertEqual(sorted(numbers(person)), ["100 MR", "200 MR", "N1 NI"])
        (seen,) = await self.found("Observation")
        self.assertEqual(seen["subject"]["reference"], f"Patient/{person['id']}")

    async def test_apart(self) -> None:
        """They belong to a new Patient; messages of the others are not affected."""
        await self.store(adt(f"{ONE}~N1^^^GOV^NI", "PERSONA"))
        text = adt(f"{TWO}~N1^^^GOV^NI", "PERSONB")
        conflict = await self.tell(text)
        assert isinstance(conflict, IdentityConflict)
        await self.answer(conflict, AnswerKind.APART, "Patient/new-one")
        await self.store(text, text, adt(f"{ONE}~N1^^^GOV^NI", "PERSONA"), result(pid(TWO), "", "F1^LAB"))
        self.assertEqual(await self.persons(), [("PERSONA", ["100 MR", "N1 NI"]), ("PERSONB", ["200 MR", "N1 NI"])])
        (seen,) = await self.found("Observation")
        self.assertEqual(seen["subject"]["reference"], "Patient/new-one")

    async def test_merge_as_an_answer(self) -> None:
        """Two records of one person: merged, and the message goes to the survivor."""
        text = adt(f"{ONE}~N1^^^GOV^NI")
        await self.store(adt(ONE), adt("9^^^CLINIC^MR~N1^^^GOV^NI"), result(pid("9^^^CLINIC^MR"), "", "F1^LAB"))
        conflict = await self.tell(text)
        assert isinstance(conflict, IdentityConflict)
        first, second = [await self.world.body(one) for one in conflict.finding.candidates]
        await self.merge(second, first)
        await self.store(text)
        (seen,) = await self.found("Observation")
        self.assertEqual(seen["subject"]["reference"], conflict.finding.candidates[0])

    async def answer(self, conflict: IdentityConflict, kind: AnswerKind, target: str) -> None:
        """Store an answer of an operator."""
        resource_type, _, id = target.partition("/")
        key = conflict.finding.keys[0].text
        await self.answers.record(IdentityAnswer(resource_type, key, id, kind, "operator"))

    @property
    def answers(self) -> IdentityAnswers:
        """The stored answers."""
        database = self.world.database
        return MemoryIdentityAnswers(self.world.store) if database is None else PostgresIdentityAnswers(database)

    # -- merges by operators

    async def merge(self, source: Json, target: Json, operation: str = "$merge") -> None:
        """$merge or $unmerge."""
        sent = [{"name": "source-patient", "valueReference": {"reference": f"Patient/{source['id']}"}}]
        if operation == "$merge":
            sent.append({"name": "target-patient", "valueReference": {"reference": f"Patient/{target['id']}"}})
        url = f"Patient/{operation}" if operation == "$merge" else f"Patient/{target['id']}/{operation}"
        answer = await self.world.send("POST", url, {"resourceType": "Parameters", "parameter": sent})
        self.assertEqual(answer.status, 200, answer.body)
        self.world.pass_time()

    async def test_merge_and_later_messages(self) -> None:
        await self.store(adt(ONE), adt(TWO), result(pid(TWO), "", "F1^LAB"))
        one, two = await self.patient("100"), await self.patient("200")
        survivor, prior = f"Patient/{one['id']}", f"Patient/{two['id']}"
        await self.merge(two, one)
        (seen,) = await self.found("Observation")
        self.assertEqual(seen["subject"]["reference"], survivor)
        # the prior number, its correction and an update of the survivor
        await self.store(result(pid(TWO), "", "F1^LAB", "6", "C"), result(pid(TWO), "", "F2^LAB"), adt(TWO), adt(ONE))
        self.assertEqual(len(await self.found("Patient")), 2)
        seen = await self.found("Observation")
        self.assertEqual({each["subject"]["reference"] for each in seen}, {survivor})
        self.assertEqual(sorted(each["status"] for each in seen), ["corrected", "final"])
        after = await self.world.body(survivor)
        self.assertEqual(links(after), [("replaces", prior)])
        self.assertEqual(links(await self.world.body(prior)), [("replaced-by", survivor)])
        self.assertIn("100 MR", numbers(after))
        # and back: what the merge moved, not what came since
        await self.merge(two, one, "$unmerge")
        subjects = {each["status"]: each["subject"]["reference"] for each in await self.found("Observation")}
        self.assertEqual(subjects, {"corrected": prior, "final": survivor})
        self.assertEqual([each["value"] for each in (await self.world.body(survivor))["identifier"]], ["100"])
        await self.store(adt(TWO, "MUSTER^MARIA"))
        self.assertEqual((await self.world.body(prior))["name"][0]["given"], ["MARIA"])
        self.assertNotIn("link", await self.world.body(survivor))

    async def test_a_message_between_merge_and_unmerge(self) -> None:
        """What it stored stays with the survivor.  Converted again, it is a conflict; the answer `take` moves it."""
        late = result(pid(TWO), "", "F2^LAB")
        await self.store(adt(ONE), adt(TWO))
        one, two = await self.patient("100"), await self.patient("200")
        await self.merge(two, one)
        await self.store(late)
        await self.merge(two, one, "$unmerge")
        for _ in range(3):  # the report, its value, and what else the message is about
            conflict = await self.tell(late)
            if not isinstance(conflict, IdentityConflict):
                break
            self.assertEqual(conflict.finding.kind, ConflictKind.SUBJECT)
            (seen,) = await self.found("Observation")
            self.assertEqual(seen["subject"]["reference"], f"Patient/{one['id']}")
            self.world.pass_time()
            await self.answer(conflict, AnswerKind.TAKE, conflict.finding.candidates[0])
        (seen,) = await self.found("Observation")
        self.assertEqual(seen["subject"]["reference"], f"Patient/{two['id']}")
        (report,) = await self.found("DiagnosticReport")
        self.assertEqual(report["subject"]["reference"], f"Patient/{two['id']}")

    async def test_merge_after_a40(self) -> None:
        """A40 links; $merge of the same Patients moves what refers to the prior one; its undoing leaves the link."""
        await self.store(adt(ONE), adt(TWO), result(pid(TWO), "", "F1^LAB"), a40(ONE, TWO))
        one, two = await self.patient("100"), await self.patient("200")
        survivor, prior = f"Patient/{one['id']}", f"Patient/{two['id']}"
        (seen,) = await self.found("Observation")
        self.assertEqual(seen["subject"]["reference"], prior)
        for operation, subject in (("$merge", survivor), ("$unmerge", prior)):
            await self.merge(two, one, operation)
            (seen,) = await self.found("Observation")
            self.assertEqual(seen["subject"]["reference"], subject)
            self.assertEqual(links(await self.world.body(prior)), [("replaced-by", survivor)])


def numbers(patient: Json) -> list[str]:
    """`value type` of the numbers that identify."""
    return [
        f"{one['value']} {one.get('type', {}).get('coding', [{}])[0].get('code', '')}".strip()
        for one in patient["identifier"]
        if one.get("use") not in ("old", "secondary")
    ]


def placer(request: Json) -> str:
    """The placer's number of an order."""
    return next((str(one["value"]) for one in request["identifier"] if code(one) == "PLAC"), "")


def code(identifier: Json) -> Any:
    """The code of the type of an identifier."""
    return identifier.get("type", {}).get("coding", [{}])[0].get("code")


def links(patient: Json) -> list[tuple[str, str]]:
    """Type and Patient of each link."""
    return [(one["type"], one["other"]["reference"]) for one in patient.get("link", ())]


class IdentityTests(IdentitySuite, OnMemory):
    async def renew(self) -> None:
        self.world = World()


class PostgresIdentityTests(IdentitySuite, OnPostgres):
    async def renew(self) -> None:
        await OnPostgres.setUp(self)
