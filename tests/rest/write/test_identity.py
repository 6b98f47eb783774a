"""Which resource a message means: numbers with their types, subjects, merged Patients, answers of operators."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from twisted.internet.defer import Deferred, gatherResults

from ipf.mapping.language.identity_table import Identifies, IdentityTable, Row
from ipf.ports import Json
from ipf.ports.identity import AnswerKind, ConflictKind, IdentityConflict
from ipf.rest.write.commit import preview
from ipf.rest.write.unit import UnitResult
from ipf.store.resources.identity import PostgresIdentityAnswers
from ipf.store.resources.resources import PostgresFhirStore
from tests import postgres
from tests.fakes.identity import MemoryIdentityAnswers
from tests.rest.world import OnMemory, OnPostgres, Suite, World, put, unit
from tests.rest.write.messages import (
    adt,
    answer,
    kinds,
    message,
    numbers,
    patients,
    resources,
    store,
    unit_of,
    with_table,
)

OK, AMBIGUOUS, CONTRADICTION, SUBJECT = "ok", "ambiguous", "contradiction", "subject"

SEQUENCES: list[tuple[str, list[str], list[str], list[tuple[str, str]]]] = [
    (
        "a number of one type never finds one of another",
        [adt("100^^^HOSP7^MR~200^^^HOSP7^PI", "PersonA"), adt("200^^^HOSP7^MR", "PersonB")],
        [OK, OK],
        [("PersonA", "100 MR, 200 PI"), ("PersonB", "200 MR")],
    ),
    (
        "nor does a social security number",
        [adt("100^^^HOSP7^MR~200^^^HOSP7^SS", "PersonA"), adt("200^^^HOSP7^MR", "PersonB")],
        [OK, OK],
        [("PersonA", "100 MR, 200 SS"), ("PersonB", "200 MR")],
    ),
    (
        "any number that identifies finds the patient, not only the first",
        [adt("100^^^HOSP7^MR~9^^^GOV^NI", "A"), adt("9^^^GOV^NI", "Aa"), adt("7^^^LAB^PI~9^^^GOV^NI", "Ab")],
        [OK, OK, OK],
        [("Ab", "100 MR, 7 PI, 9 NI")],
    ),
    (
        "PID-2, PID-4 and the number of another domain are stored and identify nobody",
        [
            adt("100^^^HOSP7^MR~55^^^HOSP9^PI", "A", second="2^^^HOSP7", fourth="4^^^HOSP7"),
            adt("2^^^HOSP7^MR", "B"),
            adt("4^^^HOSP7", "C"),
            adt("55^^^HOSP9^PI", "D"),
        ],
        [OK, OK, OK, OK],
        [
            ("A", "100 MR, 2 secondary, 4 secondary, 55 PI secondary"),
            ("B", "2 MR"),
            ("C", "4"),
            ("D", "55 PI"),
        ],
    ),
    (
        "a message with a secondary number alone is found by it",
        [adt("", "A", second="2^^^HOSP7"), adt("", "B", second="2^^^HOSP7")],
        [OK, OK],
        [("B", "2")],
    ),
    (
        "without a type on one side, the person must agree",
        [
            adt("100^^^HOSP7^MR", "Muster", "19700101"),
            adt("100^^^HOSP7", "Other", "19700101"),
            adt("100^^^HOSP7", "Muster", "19710101"),
            adt("100^^^HOSP7", "MÜSTER", "1970"),
            adt("100^^^HOSP7", "Muster"),
        ],
        [OK, CONTRADICTION, CONTRADICTION, OK, OK],
        [("Muster", "100 MR")],
    ),
    (
        "a type that comes later is kept",
        [adt("100^^^HOSP7", "A"), adt("100^^^HOSP7^MR", "A"), adt("100^^^HOSP7", "A"), adt("100^^^HOSP7^MR", "B")],
        [OK, OK, OK, OK],
        [("B", "100 MR")],
    ),
    (
        "two with the number, neither of the type of the message",
        [adt("100^^^HOSP7^MR", "A"), adt("100^^^HOSP7^PI", "A"), adt("100^^^HOSP7", "A")],
        [OK, OK, AMBIGUOUS],
        [("A", "100 MR"), ("A", "100 PI")],
    ),
    (
        "a message with the numbers of two patients",
        [adt("100^^^HOSP7^MR", "A"), adt("9^^^GOV^NI", "B"), adt("100^^^HOSP7^MR~9^^^GOV^NI", "A")],
        [OK, OK, AMBIGUOUS],
        [("A", "100 MR"), ("B", "9 NI")],
    ),
    (
        "a match by a later number must not contradict the first",
        [adt("100^^^HOSP7^MR~9^^^GOV^NI", "A"), adt("101^^^HOSP7^MR~9^^^GOV^NI", "A")],
        [OK, CONTRADICTION],
        [("A", "100 MR, 9 NI")],
    ),
    (
        "a later number may be corrected, but not with the person",
        [
            adt("100^^^HOSP7^MR~8^^^GOV^NI", "A", "1970"),
            adt("100^^^HOSP7^MR~9^^^GOV^NI", "A", "1970"),
            adt("100^^^HOSP7^MR~7^^^GOV^NI", "B", "1980"),
        ],
        [OK, OK, CONTRADICTION],
        [("A", "100 MR, 9 NI")],
    ),
    (
        "numbers that the message does not name stay",
        [adt("100^^^HOSP7^MR~9^^^GOV^NI~V1^^^HOSP7^VN", "A"), adt("100^^^HOSP7^MR~V2^^^HOSP7^VN", "A")],
        [OK, OK],
        [("A", "100 MR, 9 NI, V2 VN")],
    ),
    (
        "a placeholder identifies nobody",
        [adt("100^^^HOSP7^MR", "A", ssn="000-00-0000"), adt("101^^^HOSP7^MR", "B", ssn="000-00-0000")],
        [OK, OK],
        [("A", "000-00-0000 SS, 100 MR"), ("B", "000-00-0000 SS, 101 MR")],
    ),
    (
        "mother and child share an account",
        [
            adt("100^^^HOSP7^MR~A1^^^HOSP7^AN", "Muster", "1990"),
            adt("101^^^HOSP7^MR~A1^^^HOSP7^AN", "Muster", "2026"),
            adt("A1^^^HOSP7^AN", "Muster", "2026"),
        ],
        [OK, OK, AMBIGUOUS],
        [("Muster", "100 MR, A1 AN"), ("Muster", "101 MR, A1 AN")],
    ),
    (
        "an account alone finds a patient who agrees",
        [adt("100^^^HOSP7^MR~A1^^^HOSP7^AN", "M", "1990"), adt("A1^^^HOSP7^AN", "M", "2026")],
        [OK, CONTRADICTION],
        [("M", "100 MR, A1 AN")],
    ),
]


class IdentitySuite(Suite):
    """Patients."""

    world: World
    answers: Any

    async def test_sequences(self) -> None:
        """Each row: messages in order, how each ends, and the Patients at the end."""
        for what, texts, ends, expected in SEQUENCES:
            with self.subTest(what):
                await self.empty()
                self.assertEqual(kinds(await store(self.world, *texts)), ends)
                self.assertEqual(await patients(self.world), expected)

    async def test_batches(self) -> None:
        """The same when all messages of a row are stored in one transaction."""
        for what, texts, ends, expected in SEQUENCES:
            with self.subTest(what):
                await self.empty()
                self.assertEqual(kinds(await self.world.commit(*map(unit_of, texts))), ends)
                self.assertEqual(await patients(self.world), expected)

    async def empty(self) -> None:
        """Delete all Patients."""
        for one in await resources(self.world, "Patient"):
            await self.world.send("DELETE", f"Patient/{one['id']}")

    async def test_the_table_of_an_installation(self) -> None:
        """Numbers of a region identify; those of the laboratory do not; PID-4 does where it is configured."""
        rows = (
            Row("REGION", "PI", Identifies.ALWAYS),
            Row("LAB", "MR", Identifies.NEVER),
            Row("OLDHIS", "", Identifies.ALWAYS, secondary=True),
        )
        library = with_table(IdentityTable(rows))
        texts = [
            adt("100^^^HOSP7^MR~5^^^REGION^PI~7^^^LAB^MR", "A", fourth="44^^^OLDHIS"),
            adt("5^^^REGION^PI", "Aa"),
            adt("44^^^OLDHIS", "Ab"),
            adt("200^^^HOSP8^PI~7^^^LAB^MR", "B"),
        ]
        self.assertEqual(kinds(await store(self.world, *texts, library=library)), [OK] * 4)
        self.assertEqual(await patients(self.world), [("Ab", "100 MR, 44, 5 PI, 7 MR"), ("B", "200 PI, 7 MR")])

    async def test_the_text_of_a_conflict(self) -> None:
        """Type, query without values, candidates, and what to do; the finding has the values."""
        await store(self.world, adt("100^^^HOSP7^MR", "A"), adt("9^^^GOV^NI", "B"))
        ids = [f"Patient/{one['id']}" for one in await resources(self.world, "Patient")]
        (conflict,) = await store(self.world, adt("100^^^HOSP7^MR~9^^^GOV^NI", "A"))
        self.assertEqual(
            conflict.text,
            "Patient: the identifier of type MR of urn:ipf:authority:HOSP7 or identifier of type NI of "
            f"urn:ipf:authority:GOV matches more than one resource ({ids[0]}, {ids[1]}); "
            "answer it with `ipfctl identity` or /admin/identity-conflicts",
        )
        self.assertRegex(conflict.place, r"^Bundle\.entry\[\d+\]$")
        finding = conflict.finding
        self.assertEqual((finding.kind, finding.resource_type), (ConflictKind.AMBIGUOUS, "Patient"))
        self.assertEqual([key.text for key in finding.keys],
                         ["urn:ipf:authority:HOSP7|MR|100", "urn:ipf:authority:GOV|NI|9"])  # fmt: skip
        self.assertEqual(finding.candidates, tuple(ids))

    async def test_answers(self) -> None:
        """Take: this Patient from now on; apart: a new one with the id of the answer, found by its number later."""
        texts = [adt("100^^^HOSP7^MR~9^^^GOV^NI", "A"), adt("101^^^HOSP7^MR~9^^^GOV^NI", "B")]
        _, conflict = await store(self.world, *texts)
        (known,) = await resources(self.world, "Patient")
        await answer(self.world, self.answers, conflict, known["id"])
        again = [texts[1], adt("101^^^HOSP7^MR", "C"), adt("100^^^HOSP7^MR", "D")]
        self.assertEqual(kinds(await store(self.world, *again)), [OK, OK, OK])
        self.assertEqual(await patients(self.world), [("D", "100 MR, 101 MR, 9 NI")])
        (conflict,) = await store(self.world, adt("102^^^HOSP7^MR~9^^^GOV^NI", "E"))
        await answer(self.world, self.answers, conflict, "new-one", AnswerKind.APART)
        later = adt("102^^^HOSP7^MR~9^^^GOV^NI", "F"), adt("100^^^HOSP7^MR~9^^^GOV^NI", "G"), adt("102^^^HOSP7^MR", "H")
        self.assertEqual(kinds(await store(self.world, *later)), [OK, OK, OK])
        self.assertEqual(await patients(self.world), [("G", "100 MR, 101 MR, 9 NI"), ("H", "102 MR, 9 NI")])
        self.assertEqual((await self.world.body("Patient/new-one"))["name"][0]["family"], "H")

    async def test_an_answer_does_not_cover_another_person(self) -> None:
        """Two Patients have one number: after an answer the same person goes on, another one is a conflict again."""
        kind = {"coding": [{"system": "http://terminology.hl7.org/CodeSystem/v2-0203", "code": "MR"}]}
        for family in ("One", "Two"):
            number = {"system": "urn:ipf:authority:HOSP7", "value": "900", "type": kind}
            await self.world.send("POST", "Patient", {
                "resourceType": "Patient", "identifier": [number], "name": [{"family": family}]})  # fmt: skip
        (conflict,) = await store(self.world, adt("900^^^HOSP7^MR", "Three"))
        taken = conflict.finding.candidates[1].removeprefix("Patient/")
        await answer(self.world, self.answers, conflict, taken)
        later = [adt("900^^^HOSP7^MR", one) for one in ("Three", "Three", "Four")]
        self.assertEqual(kinds(await store(self.world, *later)), [OK, OK, "ambiguous"])
        self.assertEqual((await self.world.body(f"Patient/{taken}"))["name"][0]["family"], "Three")

    async def test_a_merged_patient_stands_for_its_survivor(self) -> None:
        """A message under the prior number updates the survivor, whose links and numbers stay; a further merge too."""
        merge = adt("1^^^HOSP7^MR", "A", event="ADT^A40^ADT_A39", more="MRG|2^^^HOSP7^MR")
        first = [adt("1^^^HOSP7^MR", "A"), adt("2^^^HOSP7^MR~8^^^GOV^NI", "A")]
        self.assertEqual(kinds(await store(self.world, *first, merge, merge)), [OK] * 4)
        later = [adt("1^^^HOSP7^MR", "B"), adt("2^^^HOSP7^MR", "C"), adt("8^^^GOV^NI", "D"), adt("1^^^HOSP7^MR", "E")]
        self.assertEqual(kinds(await store(self.world, *later, merge)), [OK] * 5)
        prior, survivor = await self.pair()
        self.assertEqual((prior["active"], survivor["active"]), (False, True))
        self.assertEqual(prior["link"], [link(survivor, "replaced-by")])
        self.assertEqual(survivor["link"], [link(prior, "replaces")])
        chain = adt("2^^^HOSP7^MR", "A", event="ADT^A40^ADT_A39", more="MRG|3^^^HOSP7^MR")
        self.assertEqual(kinds(await store(self.world, chain, adt("3^^^HOSP7^MR", "F"))), [OK, OK])
        survivor = await self.world.body(f"Patient/{survivor['id']}")
        self.assertEqual(survivor["name"][0]["family"], "F")
        self.assertEqual(len(survivor["link"]), 2)

    async def test_a_merge_in_the_other_direction(self) -> None:
        """The record that was merged is in use again, and the other one is not."""
        there = adt("1^^^HOSP7^MR", "A", event="ADT^A40^ADT_A39", more="MRG|2^^^HOSP7^MR")
        back = adt("2^^^HOSP7^MR", "A", event="ADT^A40^ADT_A39", more="MRG|1^^^HOSP7^MR")
        self.assertEqual(kinds(await store(self.world, there, back)), [OK, OK])
        prior, survivor = await self.pair()
        self.assertEqual((numbers(prior), numbers(survivor)), ("1 MR", "2 MR"))
        self.assertEqual(survivor["link"], [link(prior, "replaces")])
        self.assertEqual(prior["link"], [link(survivor, "replaced-by")])

    async def pair(self) -> tuple[Json, Json]:
        """The Patient that is not in use, and the one that is."""
        found = await resources(self.world, "Patient")
        self.assertEqual(len(found), 2)
        prior, survivor = sorted(found, key=lambda one: one["active"])
        return prior, survivor

    async def test_a_preview_decides_as_the_conversion(self) -> None:
        """It says what would be updated, created or refused, and writes nothing."""
        first = unit_of(adt("100^^^HOSP7^MR~9^^^GOV^NI", "A"))
        await self.world.commit(first)
        parts = self.world.repository
        for text, end in (
            (adt("100^^^HOSP7^MR", "B"), "updated"),
            (adt("200^^^HOSP7^MR", "B"), "created"),
            (adt("101^^^HOSP7^MR~9^^^GOV^NI", "B"), CONTRADICTION),
        ):
            (result,) = (await preview(unit_of(text), parts.store, parts.matcher, parts.clock)).results
            if isinstance(result, UnitResult):
                found = next(
                    str(one.outcome)
                    for one in result.entries
                    if one.version is not None and one.version.resource_type == "Patient"
                )
                self.assertEqual(found, end)
            else:
                self.assertEqual(kinds([result]), [end])
        self.assertEqual(await patients(self.world), [("A", "100 MR, 9 NI")])

    async def test_two_writers_of_one_new_patient(self) -> None:
        """Under different numbers: one Patient, or a conflict."""
        first, second = adt("100^^^HOSP7^MR~9^^^GOV^NI", "A"), adt("9^^^GOV^NI", "A")
        writers = [Deferred.fromCoroutine(self.world.commit(unit_of(text))) for text in (first, second)]
        results = [one for found in await gatherResults(writers) for one in found]
        self.assertEqual(kinds(results), [OK, OK])
        self.assertEqual(await patients(self.world), [("A", "100 MR, 9 NI")])

    async def test_two_writers_of_a_new_number(self) -> None:
        """One adds a number to a patient, the other makes a patient of it: one Patient."""
        await store(self.world, adt("100^^^HOSP7^MR", "A"))
        first, second = adt("100^^^HOSP7^MR~9^^^GOV^NI", "A"), adt("9^^^GOV^NI", "A")
        writers = [Deferred.fromCoroutine(self.world.commit(unit_of(text))) for text in (first, second)]
        results = [one for found in await gatherResults(writers) for one in found]
        ends = kinds(results)
        self.assertEqual(ends[1], OK)
        self.assertEqual(len(await patients(self.world)), 1 if ends[0] == OK else 2)


ORDER = "PID|||{}^^^HOSP7^MR||{}^Ada\nORC|NW|{}|{}\nOBR|1|{}|{}|T^Test"


def order(person: str, placer: str = "", filler: str = "", control: str = "NW") -> str:
    """An order of a patient."""
    pid = f"PID|||{person}^^^HOSP7^MR||P{person}^Ada"
    return message("ORM^O01", pid, f"ORC|{control}|{placer}|{filler}", f"OBR|1|{placer}|{filler}|T^Test")


def result(person: str, placer: str = "", filler: str = "", value: str = "5", status: str = "F") -> str:
    """A result of a patient."""
    pid = f"PID|||{person}^^^HOSP7^MR||P{person}^Ada"
    obr = f"OBR|1|{placer}|{filler}|T^Test|||20260101||||||||||||||||||{status}"
    return message("ORU^R01", pid, obr, f"OBX|1|NM|GLU^Glucose||{value}|mg/dL|||||{status}")


def visit(person: str, number: str, event: str = "ADT^A01") -> str:
    """An admission."""
    return adt(f"{person}^^^HOSP7^MR", f"P{person}", event=event, more=f"PV1||I|||||||||||||||||{number}")


class SubjectSuite(Suite):
    """All that belongs to a patient."""

    world: World
    answers: Any

    async def orders(self) -> list[str]:
        """Family of the subject and numbers of each order, sorted."""
        families = {f"Patient/{one['id']}": one["name"][0]["family"] for one in await resources(self.world, "Patient")}
        found = await resources(self.world, "ServiceRequest")
        return sorted(f"{families[one['subject']['reference']]}: {numbers(one)}" for one in found)

    async def test_a_filler_number_is_no_placer_number(self) -> None:
        """Two orders of two patients."""
        self.assertEqual(kinds(await store(self.world, order("1", "2002", "2001"), order("2", "2001"))), [OK, OK])
        self.assertEqual(await self.orders(), ["P1: 2001 FILL, 2002 PLAC", "P2: 2001 PLAC"])

    async def test_an_order_keeps_its_patient(self) -> None:
        """An order, a visit, a document with the number of another patient's is a conflict; nothing of it is stored."""
        document = "TXA|1|DS|TX|||||||||DOC1\nOBX|1|TX|||Text"
        for first, second in (
            (order("1", "2001"), order("2", "2001")),
            (visit("1", "V1"), visit("2", "V1")),
            (
                message("MDM^T02", "PID|||1^^^HOSP7^MR||A", document),
                message("MDM^T02", "PID|||2^^^HOSP7^MR||B", document),
            ),
        ):
            _, conflict = await store(self.world, first, second)
            self.assertIsInstance(conflict, IdentityConflict)
            self.assertEqual(conflict.finding.kind, ConflictKind.SUBJECT)
            self.assertRegex(conflict.finding.subject, "^Patient/")
            self.assertIn("matches a resource of another patient", conflict.text)
        self.assertEqual(len(await resources(self.world, "Patient")), 1)

    async def test_a_map_with_requests_of_its_own(self) -> None:
        """Its conditions count, and still nothing changes its patient; a client may change what it wants."""
        await store(self.world, visit("1", "V1"), visit("2", "V2"))
        one, two = await resources(self.world, "Encounter")
        moved = {**one, "subject": two["subject"]}
        search = "Encounter?identifier=urn:ipf:authority:HOSP7|V1"
        for entry in (put({name: part for name, part in moved.items() if name != "id"}, search), put(moved)):
            (conflict,) = await self.world.commit(unit(entry, receipt="own"))
            self.assertEqual(kinds([conflict]), [SUBJECT])
            self.assertEqual(conflict.finding.candidates, (f"Encounter/{one['id']}",))
            self.assertEqual(conflict.finding.keys[0].text, "urn:ipf:authority:HOSP7|VN|V1")
        self.assertEqual(kinds(await self.world.commit(unit(put({**one, "status": "finished"}), receipt="own"))), [OK])
        self.assertEqual(kinds(await self.world.commit(unit(put(moved)))), [OK])

    async def test_results_of_two_patients_share_an_accession_number(self) -> None:
        """Both are stored, each with an order of its own patient; and again."""
        for _ in range(2):
            results = await store(self.world, result("1", filler="A1"), result("2", filler="A1"))
            self.assertEqual(kinds(results), [OK, OK])
        self.assertEqual(await self.orders(), ["P1: A1 FILL", "P2: A1 FILL"])
        self.assertEqual(len(await resources(self.world, "DiagnosticReport")), 2)
        self.assertEqual(len(await resources(self.world, "Observation")), 2)

    async def test_a_correction_names_only_the_filler(self) -> None:
        """Of two orders of the patient the newest counts, with a warning; the result is stored."""
        texts = order("1", "2001", "A1"), order("1", "2002", "A1"), result("1", filler="A1", value="6", status="C")
        results = await store(self.world, *texts)
        self.assertEqual(kinds(results), [OK, OK, OK])
        self.assertEqual([kind for kind, _ in results[2].warnings], ["ServiceRequest"])
        self.assertIn("2 resources of type ServiceRequest match; the newest is used", results[2].warnings[0][1])
        (report,) = await resources(self.world, "DiagnosticReport")
        (used,) = await resources(self.world, "ServiceRequest?identifier=2002")
        self.assertEqual(report["basedOn"], [{"reference": f"ServiceRequest/{used['id']}"}])

    async def test_a_doctor_twice(self) -> None:
        """Two resources of one number: the newest, with a warning, and the message is stored."""
        doctor = {"resourceType": "Practitioner", "identifier": [{"system": "urn:ipf:authority:HOSP7", "value": "D1"}]}
        for number in range(2):
            await self.world.send("PUT", f"Practitioner/d{number}", {**doctor, "id": f"d{number}"},
                                  content_type="application/fhir+json")  # fmt: skip
        (end,) = await store(self.world, adt("1^^^HOSP7^MR", more="PV1||I|||||D1^Doc|||||||||||||V1"))
        self.assertEqual([kind for kind, _ in end.warnings], ["Practitioner"])
        (encounter,) = await resources(self.world, "Encounter")
        self.assertEqual(encounter["participant"][0]["individual"]["reference"], "Practitioner/d1")

    async def test_the_number_of_a_doctor_with_another_type(self) -> None:
        """Another type is another number; without a type it is the same doctor."""
        for typed in ("", "^^^^^^^^^^^DN", "^^^^^^^^^^^XX", ""):
            pv1 = f"PV1||I|||||D1^Doc{typed}|||||||||||||V1"
            self.assertEqual(kinds(await store(self.world, adt("1^^^HOSP7^MR", more=pv1))), [OK])
        self.assertEqual(len(await resources(self.world, "Practitioner")), 1)
        other = "PV1||I|||||D2^Doc^^^^^^^^^^^DN|||||||||||||V1", "PV1||I|||||D2^Doc^^^^^^^^^^^XX|||||||||||||V1"
        await store(self.world, *(adt("1^^^HOSP7^MR", more=pv1) for pv1 in other))
        self.assertEqual(len(await resources(self.world, "Practitioner")), 3)

    async def test_a_visit_of_a_merged_patient(self) -> None:
        """The survivor and the prior Patient are one person: the visit goes on, and is then the survivor's."""
        merge = adt("1^^^HOSP7^MR", "P1", event="ADT^A40^ADT_A39", more="MRG|2^^^HOSP7^MR")
        texts = visit("2", "V2"), visit("1", "V1"), merge, visit("1", "V2", "ADT^A08"), visit("2", "V1", "ADT^A08")
        self.assertEqual(kinds(await store(self.world, *texts)), [OK] * 5)
        subjects = {one["subject"]["reference"] for one in await resources(self.world, "Encounter")}
        self.assertEqual(len(subjects), 1)

    async def test_an_answer_for_another_patient_counts_once(self) -> None:
        """The visit moves to the patient of the waiting message; the other patient's next message is a new conflict."""
        _, conflict = await store(self.world, visit("1", "V1"), visit("2", "V1"))
        (encounter,) = await resources(self.world, "Encounter")
        await answer(self.world, self.answers, conflict, encounter["id"])
        self.assertEqual(kinds(await store(self.world, visit("2", "V1"), visit("2", "V1"))), [OK, OK])
        self.assertEqual(kinds(await store(self.world, visit("1", "V1"))), [SUBJECT])
        (conflict,) = await store(self.world, visit("1", "V1"))
        await answer(self.world, self.answers, conflict, "apart", AnswerKind.APART)
        self.assertEqual(kinds(await store(self.world, visit("1", "V1"), visit("2", "V1"), visit("1", "V1"))), [OK] * 3)
        found = await resources(self.world, "Encounter")
        self.assertEqual(len({one["subject"]["reference"] for one in found}), 2)
        self.assertEqual({one["id"] for one in found}, {encounter["id"], "apart"})

    async def test_a_move_that_the_map_allows(self) -> None:
        """A45: the visit goes to the patient of PID, from the one of MRG; from a third one it is a conflict."""
        move = message(
            "ADT^A45", "EVN||20260101", "PID|||1^^^HOSP7^MR||P1", "MRG|2^^^HOSP7^MR||||V2", "PV1||I|||||||||||||||||V2"
        )
        ends = kinds(await store(self.world, visit("1", "V1"), visit("2", "V2"), move))
        self.assertEqual(ends, [OK, OK, OK])
        found = await resources(self.world, "Encounter")
        self.assertEqual(len({one["subject"]["reference"] for one in found}), 1)
        self.assertEqual(kinds(await store(self.world, visit("3", "V3"), move.replace("V2", "V3"))), [OK, SUBJECT])


def link(patient: Json, kind: str) -> Json:
    """A link to a Patient."""
    return {"other": {"reference": f"Patient/{patient['id']}"}, "type": kind}


class _Memory(OnMemory):
    answers: Any

    async def setUp(self) -> None:
        await super().setUp()
        self.world.now = datetime.now(UTC) - timedelta(hours=1)  # answers have the time of the database
        self.answers = MemoryIdentityAnswers(self.world.store, lambda: self.world.now)


class IdentityWithRowSecurityTests(IdentitySuite, OnPostgres):
    """SQL finds and locks who is meant, within the tenant."""

    answers: Any

    async def setUp(self) -> None:
        self.database = await postgres.database(self, "fhir", tenants=True)
        self.world = World(PostgresFhirStore(self.database), database=self.database)
        self.world.now = datetime.now(UTC) - timedelta(hours=1)
        self.answers = PostgresIdentityAnswers(self.database)


class IdentityTests(IdentitySuite, _Memory):
    pass


class SubjectTests(SubjectSuite, _Memory):
    pass
