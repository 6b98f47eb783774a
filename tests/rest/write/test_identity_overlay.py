"""An equal number of another person: a conflict, a warning, or neither."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

from ipf.mapping.language.identity_table import Identifies, IdentityTable, Row
from ipf.ports import Json
from ipf.ports.identity import AnswerKind, ConflictKind, IdentityConflict
from ipf.ports.queries.entries import Entry
from tests.fakes.identity import MemoryIdentityAnswers
from tests.rest.world import OnMemory, create, put, unit
from tests.rest.write.messages import answer, kinds, message, patients, resources, store, with_table

OK, OVERLAY, AMBIGUOUS = "ok", "overlay", "ambiguous"
NUMBER = "440001^^^NORTH^MR"
MAN, WOMAN = ("Holt^Carl", "19480302", "M"), ("Imani^Ruth", "19990714", "F")
OTHER = dict(zip(("family", "born", "sex"), WOMAN, strict=True))


def person(fields: tuple[str, str, str], number: str = NUMBER, event: str = "ADT^A08", *more: str) -> str:
    """A message about a person: name, birth date, sex."""
    name, born, sex = fields
    return message(event, "EVN||20260101", f"PID|||{number}||{name}||{born}|{sex}", *more)


def result(fields: tuple[str, str, str], filler: str) -> str:
    """A result of a person."""
    name, born, sex = fields
    obr = f"OBR|1||{filler}|T^Test|||20260101||||||||||||||||||F"
    return message("ORU^R01", f"PID|||{NUMBER}||{name}||{born}|{sex}", obr, "OBX|1|NM|GLU^Glucose||5|mg/dL|||||F")


def warned(results: list[Any]) -> list[str]:
    """The texts of the warnings of the last message about Patients, without the place."""
    return [text.partition("has another ")[2] for kind, text in results[-1].warnings if kind == "Patient"]


# The man, then a message: the end, and what differs according to its warning.
NEIGHBOURS: list[tuple[str, str, tuple[str, str, str], str, str]] = [
    ("another person", NUMBER, WOMAN, OVERLAY, ""),
    ("the same again", NUMBER, MAN, OK, ""),
    ("a marriage", NUMBER, ("Imani^Carl", "19480302", "M"), OK, "family name"),
    ("another birth date", NUMBER, ("Holt^Carl", "19990714", "M"), OK, "birth date"),
    ("another sex", NUMBER, ("Holt^Carl", "19480302", "F"), OK, "sex"),
    ("name and sex", NUMBER, ("Imani^Carl", "19480302", "F"), OK, "family name and another sex"),
    ("a relative", NUMBER, ("Holt^Ruth", "19990714", "F"), OK, "birth date and another sex"),
    ("case, accents, blanks, hyphens", NUMBER, ("  H-Ó LT ^Ruth", "19990714", "F"), OK, "birth date and another sex"),
    ("the previous name of the message", NUMBER, ("Imani^Ruth~Holt^Ruth^^^^^M", "19990714", "F"), OK,
     "birth date and another sex"),
    ("a sex that is not known", NUMBER, ("Imani^Ruth", "19990714", "U"), OK, "family name and another birth date"),
    ("no sex", NUMBER, ("Imani^Ruth", "19990714", ""), OK, "family name and another birth date"),
    ("no birth date", NUMBER, ("Imani^Ruth", "", "F"), OK, "family name and another sex"),
    ("no name", NUMBER, ("", "19990714", "F"), OK, "birth date and another sex"),
    ("null", NUMBER, ('""', '""', '""'), OK, ""),
    ("nothing", NUMBER, ("", "", ""), OK, ""),
    ("the year alone", NUMBER, ("Imani^Ruth", "1948", "F"), OK, "family name and another sex"),
    ("another year alone", NUMBER, ("Imani^Ruth", "1999", "F"), OVERLAY, ""),
    ("another number", "440002^^^NORTH^MR", WOMAN, OK, ""),
    ("another authority", "440001^^^SOUTH^MR", WOMAN, OK, ""),
]  # fmt: skip

MARRIED = ("Imani^Carl~Holt^Carl^^^^^M", "19480302", "M")


class OverlayTests(OnMemory):
    answers: Any

    async def setUp(self) -> None:
        await super().setUp()
        self.world.now = datetime.now(UTC) - timedelta(hours=1)  # answers have the time of the database
        self.answers = MemoryIdentityAnswers(self.world.store, lambda: self.world.now)

    async def test_neighbours(self) -> None:
        """NEIGHBOURS: a conflict writes nothing and names the candidate without data of a patient."""
        for what, number, fields, end, differing in NEIGHBOURS:
            with self.subTest(what):
                await self.setUp()
                first = await store(self.world, person(MAN))
                self.assertEqual(warned(first), [])
                (before,) = await resources(self.world, "Patient")
                results = await store(self.world, person(fields, number))
                self.assertEqual(kinds(results), [end])
                if end == OVERLAY:
                    finding = results[0].finding
                    self.assertEqual(
                        (finding.resource_type, finding.candidates), ("Patient", (f"Patient/{before['id']}",))
                    )
                    self.assertEqual(await resources(self.world, "Patient"), [before])
                    for value in ("440001", "Holt", "Imani", "1948", "1999"):
                        self.assertNotIn(value, results[0].text)
                else:
                    told = [f"{differing}; the number decides"] if differing else []
                    self.assertEqual(warned(results), told)

    async def test_a_previous_name_that_is_stored(self) -> None:
        """The maiden name of the stored Patient counts as equal."""
        ends = await store(self.world, person(MARRIED), person(("Holt^Ruth", "19990714", "F")))
        self.assertEqual(kinds(ends), [OK, OK])

    async def test_kinds_of_numbers(self) -> None:
        """Every kind that identifies; one that does not is weak: the person contradicts, as before."""
        for kind, end in (("MR", OVERLAY), ("NI", OVERLAY), ("SS", OVERLAY), ("PI", OVERLAY), ("", OVERLAY),
                          ("AN", "contradiction")):  # fmt: skip
            await self.setUp()
            number = f"440001^^^NORTH^{kind}"
            self.assertEqual(
                kinds(await store(self.world, person(MAN, number), person(WOMAN, number))), [OK, end], kind
            )

    async def test_every_number_of_differences(self) -> None:
        """0 to 3 differences under every setting of the kind: a conflict where the setting is reached."""
        for limit in range(4):
            library = with_table(IdentityTable([Row("NORTH", "MR", Identifies.ALWAYS, overlay=limit)]))
            for chosen in product((False, True), repeat=3):
                await self.setUp()
                fields = [other if differs else own for differs, own, other in zip(chosen, MAN, WOMAN, strict=True)]
                texts = person(MAN), person((fields[0], fields[1], fields[2]))
                _, end = kinds(await store(self.world, *texts, library=library))
                expected = OVERLAY if limit and sum(chosen) >= limit else OK
                self.assertEqual(end, expected, (limit, chosen))

    async def test_every_event_and_structure(self) -> None:
        """A result, an order, a vaccination, a document under the number are no data of the man either."""
        name, born, sex = WOMAN
        pid = f"PID|||{NUMBER}||{name}||{born}|{sex}"
        bodies = {
            "ADT^A01": ("EVN||20260101", pid, "PV1||I|W^1^1||||||||||||||||V1"),
            "ADT^A03": ("EVN||20260101", pid, "PV1||I|W^1^1||||||||||||||||V1"),
            "ADT^A31": ("EVN||20260101", pid, "PV1||N"),
            "ORU^R01": (pid, "OBR|1||F1|T^Test", "OBX|1|NM|GLU^Glucose||5|mg/dL|||||F"),
            "ORM^O01": (pid, "ORC|NW|P1", "OBR|1|P1||T^Test"),
            "OML^O21": (pid, "ORC|NW|P1", "OBR|1|P1||T^Test"),
            "VXU^V04": (pid, "ORC|RE||F1", "RXA|0|1|20260101||08^HepB^CVX|999"),
            "MDM^T02": ("EVN||20260101", pid, "PV1||N", "TXA|1|DS|TX|||||||||DOC1", "OBX|1|TX|||Text"),
            "SIU^S12": ("SCH|A1|A1||||CHECK", pid, "RGS|1", "AIS|1||X^Exam|20260101"),
            "BAR^P01": ("EVN||20260101", pid, "PV1||N"),
        }  # fmt: skip
        for event, segments in bodies.items():
            await self.setUp()
            ends = await store(self.world, person(MAN), message(event, *segments))
            self.assertEqual(kinds(ends), [OK, OVERLAY], event)
            self.assertEqual(len(await resources(self.world, "Patient")), 1)

    async def test_a_map_with_requests_of_its_own(self) -> None:
        """What a map finds by a condition or an id is a person too."""
        await store(self.world, person(MAN))
        (stored,) = await resources(self.world, "Patient")
        woman = {"resourceType": "Patient", "identifier": stored["identifier"], "gender": "female",
                 "name": [{"family": "Imani"}], "birthDate": "1999-07-14"}  # fmt: skip
        search = f"Patient?identifier={stored['identifier'][0]['system']}|440001"
        for entry in (put(woman, search), create(woman, search), put({**woman, "id": stored["id"]})):
            for one, end in ((entry, OVERLAY), (replaced(entry, stored), OK)):
                receipt = f"{entry.method}{entry.id}{end}"
                self.assertEqual(kinds(await self.world.commit(unit(one, receipt=receipt))), [end], entry)
                await self.world.commit(unit(put({name: part for name, part in stored.items() if name != "meta"})))
        self.assertEqual(kinds(await self.world.commit(unit(put({**woman, "id": stored["id"]})))), [OK])  # a client may

    async def test_declared_changes(self) -> None:
        """A change of the number, a merge: the event says that the data changes."""
        prior = "MRG|440009^^^NORTH^MR"
        for event in ("ADT^A47^ADT_A30", "ADT^A46^ADT_A30"):
            await self.setUp()
            ends = await store(self.world, person(MAN, "440009^^^NORTH^MR"), person(WOMAN, NUMBER, event, prior))
            self.assertEqual((kinds(ends), warned(ends)), ([OK, OK], []), event)
        for event in ("ADT^A40^ADT_A39", "ADT^A34^ADT_A30", "ADT^A18^ADT_A18", "ADT^A39^ADT_A39"):
            await self.setUp()
            texts = person(MAN), person(WOMAN, "440009^^^NORTH^MR"), person(WOMAN, NUMBER, event, prior)
            ends = await store(self.world, *texts)
            self.assertEqual((kinds(ends), warned(ends)), ([OK, OK, OK], []), event)

    async def test_after_a_merge_the_prior_person_counts(self) -> None:
        """A message under the prior number names the person of the prior record, of the survivor, or a third one."""
        merge = person(MAN, NUMBER, "ADT^A40^ADT_A39", "MRG|440009^^^NORTH^MR||||||Imani^Ruth")
        third = ("Lund^Eva", "20010101", "F")
        for fields, end in ((WOMAN, OK), (MAN, OK), (third, OVERLAY)):
            await self.setUp()
            texts = person(MAN), person(WOMAN, "440009^^^NORTH^MR"), merge, person(fields, "440009^^^NORTH^MR")
            self.assertEqual(kinds(await store(self.world, *texts))[-1], end, fields)

    async def test_apart(self) -> None:
        """Two Patients share the number from then on; each message finds its own by the person, or is ambiguous."""
        _, conflict = await store(self.world, person(MAN), person(WOMAN))
        await answer(self.world, self.answers, conflict, "apart", AnswerKind.APART)
        texts = person(WOMAN), person(MAN), person(WOMAN), result(WOMAN, "F1"), result(MAN, "F2")
        self.assertEqual(kinds(await store(self.world, *texts)), [OK] * 5)
        self.assertEqual(await patients(self.world), [("Holt", "440001 MR"), ("Imani", "440001 MR")])
        reports = await resources(self.world, "DiagnosticReport")
        self.assertEqual(len({one["subject"]["reference"] for one in reports}), 2)
        for fields, end in ((("", "", ""), AMBIGUOUS), (("", "", "M"), AMBIGUOUS), (("Holt", "", ""), AMBIGUOUS),
                            (("Imani", "", ""), OK), (("", "", "F"), OK)):  # fmt: skip
            self.assertEqual(kinds(await store(self.world, result(fields, "F3"))), [end], fields)

    async def test_take(self) -> None:
        """The data of the record was wrong: it is the woman's; a later message of the man is a conflict again."""
        _, conflict = await store(self.world, person(MAN), person(WOMAN))
        (man,) = await resources(self.world, "Patient")
        await answer(self.world, self.answers, conflict, man["id"])
        self.assertEqual(kinds(await store(self.world, person(WOMAN), person(WOMAN), person(MAN))), [OK, OK, OVERLAY])
        self.assertEqual(await patients(self.world), [("Imani", "440001 MR")])

    async def test_a_second_number_of_another_person(self) -> None:
        """The man's record number beside the national number of the woman: both are candidates."""
        texts = (person(MAN), person(WOMAN, "9^^^SOUTH^MR~N1^^^GOV^NI"), person(MAN, f"{NUMBER}~N1^^^GOV^NI"))
        results = await store(self.world, *texts)
        self.assertEqual(kinds(results), [OK, OK, OVERLAY])
        assert isinstance(results[2], IdentityConflict)
        self.assertEqual((results[2].finding.kind, len(results[2].finding.candidates)), (ConflictKind.OVERLAY, 2))


def replaced(entry: Entry, stored: Json) -> Entry:
    """The entry with the name of the stored Patient."""
    resource = {**(entry.resource or {}), "name": stored["name"]}
    return replace(entry, resource=resource)
