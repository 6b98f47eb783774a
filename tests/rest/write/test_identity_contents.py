"""One number for several things inside of messages: each stays what it is."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

from ipf.ports import Json
from tests.corpus import samples
from tests.rest.world import OnMemory, Suite, World
from tests.rest.write.messages import kinds, message, resources, store

PID = "PID|||1^^^B^MR||Holt^Carl"


def obx(code: str, value: str, number: str = "R7001^LAB", sub_id: str = "", status: str = "F") -> str:
    """A result with OBX-21."""
    return f"OBX|1|NM|{code}|{sub_id}|{value}|mmol/L|||||{status}||||||||||{number}"


def oru(filler: str, *results: str, person: str = PID) -> str:
    """Results of an order."""
    return message("ORU^R01", person, f"OBR|1||{filler}|T^Test|||20260101||||||||||||||||||F", *results)


def ordered(numbers: tuple[str, str], result: str, in_orc: bool) -> str:
    """A result of an order with these numbers of placer and filler, in ORC or in OBR."""
    placer, filler = numbers
    orc = [f"ORC|RE|{placer}|{filler}"] if in_orc else []
    obr = "OBR|1||" if in_orc else f"OBR|1|{placer}|{filler}"
    return message("ORU^R01", PID, *orc, f"{obr}|T^Test|||20260101||||||||||||||||||F", result)


def specimens(*kinds_of_specimen: str) -> str:
    """Specimens with one SPM-2."""
    spm = [f"SPM|{place}|S1^P&S1^F||{kind}" for place, kind in enumerate(kinds_of_specimen, 1)]
    return message("OML^O21", PID, "ORC|NW|P1", "OBR|1|P1||T^Test", *spm)


def kin(*names: str) -> str:
    """Next of kin with one NK1-33."""
    nk1 = [f"NK1|{place}|{name}|FAM|||||||||||||||||||||||||||||77^^^B^XX" for place, name in enumerate(names, 1)]
    return message("ADT^A08", "EVN||20260101", PID, *nk1)


def vaccinations(*codes: str) -> str:
    """Vaccinations under one ORC-3."""
    groups = [f"ORC|RE||V1\nRXA|0|1|20260101||{code}|999" for code in codes]
    return message("VXU^V04", PID, *"\n".join(groups).split("\n"))


def fields(segment: str, **held: str) -> str:
    """A segment with these fields, by number (`f3`)."""
    last = max(int(name[1:]) for name in held)
    return "|".join([segment, *(held.get(f"f{number}", "") for number in range(1, last + 1))])


def diagnoses(*of: str) -> str:
    """Diagnoses with one DG1-20."""
    return message("ADT^A08", "EVN||20260101", PID, "PV1||I", *(fields("DG1", f3=one, f20="DX1^LAB") for one in of))


def procedures(*of: str) -> str:
    """Procedures with one PR1-19."""
    return message("ADT^A08", "EVN||20260101", PID, "PV1||I", *(fields("PR1", f3=one, f19="PX1^LAB") for one in of))


def problems(*of: str) -> str:
    """Problems with one PRB-4."""
    return message("PPR^PC1", PID, *(fields("PRB", f1="AD", f2="20260101", f3=one, f4="PB1^LAB") for one in of))


def allergies(*of: str) -> str:
    """Allergies with one IAM-7."""
    return message(
        "ADT^A60", "EVN||20260101", PID, *(fields("IAM", f1="1", f3=one, f6="A", f7="AL1^LAB") for one in of)
    )


def given(*of: str, time: str = "202601010800+0000") -> str:
    """Administrations with one RXA-29."""
    made = (fields("RXA", f1="0", f2="1", f3=time, f5=one, f6="1", f29="TAG1^LAB") for one in of)
    return message("RAS^O17", PID, *(line for one in made for line in ("ORC|RE|P1", one, "RXR|PO")))


def codes(concept: Json) -> str:
    """The first code of a CodeableConcept, else its text."""
    return concept["coding"][0].get("code", "") if concept.get("coding") else concept.get("text", "")


def product(resource: Json) -> Json | None:
    """The product of an administration."""
    found: Json | None = resource.get("medicationCodeableConcept")
    return found


def told(resource: Json) -> str:
    """What tells a resource from others of its number."""
    if resource["resourceType"] == "RelatedPerson":
        return " ".join([*resource["name"][0].get("given", ()), resource["name"][0].get("family", "")])
    return codes(resource.get("code") or resource.get("type") or resource.get("vaccineCode") or product(resource) or {})


K, NA, CL = "2823-3^Potassium^LN", "2951-2^Sodium^LN", "2075-0^Chloride^LN"
# The messages that make several things of one number: the type, the maker, three contents, and what tells them apart.
KINDS: list[tuple[str, Callable[..., str], tuple[str, str, str], tuple[str, str, str]]] = [
    ("Observation", lambda *of: oru("F1", *(obx(one, "5") for one in of)), (K, NA, CL), ("2823-3", "2951-2", "2075-0")),
    ("Specimen", specimens, ("BLD^Blood^HL70487", "UR^Urine^HL70487", "SER^Serum^HL70487"), ("BLD", "UR", "SER")),
    ("RelatedPerson", kin, ("Holt^Ruth", "Holt^Carl", "Lund^Eva"), ("Ruth Holt", "Carl Holt", "Eva Lund")),
    ("Condition", diagnoses, ("E11^Diabetes^I10", "J45^Asthma^I10", "I10^Hypertension^I10"), ("E11", "J45", "I10")),
    ("Condition", problems, ("E11^Diabetes^I10", "J45^Asthma^I10", "I10^Hypertension^I10"), ("E11", "J45", "I10")),
    ("AllergyIntolerance", allergies, ("7^Penicillin^L", "2^Codeine^L", "1^ASA^L"), ("7", "2", "1")),
    ("Procedure", procedures, ("47562^Chole^C4", "44970^Appendectomy^C4", "1^Other^C4"), ("47562", "44970", "1")),
    ("MedicationAdministration", given, ("A^Aspirin^L", "B^Insulin^L", "C^Heparin^L"), ("A", "B", "C")),
    ("Immunization", vaccinations, ("08^HepB^CVX", "20^DTaP^CVX", "03^MMR^CVX"), ("08", "20", "03")),
]  # fmt: skip


class ContentSuite(Suite):
    """From the message to the stored resources."""

    world: World

    async def told(self, resource_type: str) -> list[str]:
        """What the stored resources of a type are of."""
        return sorted([told(one) for one in await resources(self.world, resource_type)])

    async def test_one_number_for_several_things(self) -> None:
        """In one message, in several, in any order, and all of it again: each is stored once, and nothing is lost."""
        for resource_type, make, contents, names in KINDS:
            for chosen in permutations(contents):
                sequences = ([make(*chosen)], [make(one) for one in chosen], [make(chosen[0]), make(*chosen[1:])])
                for texts in sequences:
                    with self.subTest(resource_type, chosen=chosen):
                        await self.renew()
                        again = [make(one) for one in chosen]
                        results = await store(self.world, *texts, *texts, *again, make(*chosen[::-1]))
                        self.assertEqual(set(kinds(results)), {"ok"})
                        self.assertEqual(await self.told(resource_type), sorted(names))

    async def test_a_later_order_does_not_overwrite(self) -> None:
        """Sodium of a later order: potassium stays as the older report shows it, and a warning says why."""
        results = await store(self.world, oru("F1", obx(K, "5")), oru("F2", obx(NA, "140")))
        (warning,) = [text for kind, text in results[1].warnings if kind == "Observation"]
        self.assertIn("the content contradicts; a new one is made", warning)
        found = {codes(one["code"]): one for one in await resources(self.world, "Observation")}
        self.assertEqual(
            {code: one["valueQuantity"]["value"] for code, one in found.items()}, {"2823-3": 5, "2951-2": 140}
        )
        self.assertEqual({one["meta"]["versionId"] for one in found.values()}, {"1"})
        for report in await resources(self.world, "DiagnosticReport"):
            (seen,) = report["result"]
            code = "2823-3" if any(one["value"] == "F1" for one in report["identifier"]) else "2951-2"
            self.assertEqual(seen["reference"], f"Observation/{found[code]['id']}")

    async def test_neighbours_of_a_result(self) -> None:
        """A stored result, then another one with the same OBX-21: how many there are.

        In one message two of them are one only when nothing of the second would be lost.
        """
        for what, first, second, count in (
            ("the same", obx(K, "5"), obx(K, "5"), 1),
            ("a correction", obx(K, "5"), obx(K, "6", status="C"), 1),
            ("another code", obx(K, "5"), obx(NA, "6"), 2),
            ("another number", obx(K, "5"), obx(K, "6", "R7002^LAB"), 2),
            ("another authority", obx(K, "5"), obx(K, "6", "R7001^XRAY"), 2),
            ("another sub-ID", obx(K, "5", sub_id="1"), obx(K, "6", sub_id="2"), 2),
            ("the same sub-ID", obx(K, "5", sub_id="1"), obx(K, "6", sub_id="1"), 1),
            ("a sub-ID on one side", obx(K, "5", sub_id="1"), obx(K, "6"), 1),
            ("a code of another system with the same name", obx(K, "5"), obx("KAL^POTASSIUM^L", "6"), 1),
            ("a code of another system with another name", obx(K, "5"), obx("NAT^Sodium^L", "6"), 2),
            ("a second code", obx(K, "5"), obx("KAL^Kalium^L^2823-3^Potassium^LN", "6"), 1),
            ("the same name of another code", obx("A^Culture^L", "5"), obx("B^Culture^L", "6"), 2),
            ("no code, the same text", obx("^Potassium", "5"), obx("^POTASSIUM", "6"), 1),
            ("no code, another text", obx("^Potassium", "5"), obx("^Sodium", "6"), 2),
        ):
            with self.subTest(what):
                await self.renew()
                results = await store(self.world, oru("F1", first), oru("F1", second))
                self.assertEqual(kinds(results), ["ok", "ok"])
                self.assertEqual(len(await resources(self.world, "Observation")), count)
                await self.renew()
                await store(self.world, oru("F1", first, second))
                self.assertEqual(len(await resources(self.world, "Observation")), 1 if what == "the same" else 2)

    async def values(self) -> dict[str, int]:
        """How many stored results have each value, all in their first version or not."""
        found: dict[str, int] = {}
        for one in await resources(self.world, "Observation"):
            key = f"{one['valueQuantity']['value']} v{one['meta']['versionId']}"
            found[key] = found.get(key, 0) + 1
        return found

    async def test_changes_of_what_a_number_is_of(self) -> None:
        """An equal number: what does not contradict updates, also when it says less or has a second code."""
        for resource_type, make, contents, _ in KINDS:
            if make not in (diagnoses, problems, allergies, procedures, given):
                continue
            code, name, system = contents[0].split("^")
            for second, count in (
                (contents[0], 1),
                (f"{code}^Renamed^{system}", 1),
                (f"{code}^{name}^{system}^X^Other^L2", 1),
                (f"X^{name}^L2", 1),
                ("X^Other^L2", 2),
                (contents[1], 2),
                (f"Y^{name}^{system}", 2),
            ):
                with self.subTest(make.__name__, second=second):
                    await self.renew()
                    self.assertEqual(kinds(await store(self.world, make(contents[0]), make(second))), ["ok", "ok"])
                    self.assertEqual(len(await resources(self.world, resource_type)), count)

    async def test_the_time_of_an_administration(self) -> None:
        """The tag of a bag, given twice: two administrations; told again, one."""
        at = ("202601010800+0000", "202601011200+0000")
        texts = [given("A^Aspirin^L", time=time) for time in (*at, *at)]
        self.assertEqual(kinds(await store(self.world, *texts)), ["ok"] * 4)
        self.assertEqual(len(await resources(self.world, "MedicationAdministration")), 2)

    async def test_the_order_of_a_result(self) -> None:
        """The same OBX-21 and OBX-3 again: under a later order another result, under the same order a correction."""
        for what, first, second, is_same in (
            ("the same filler's number", ("", "F1"), ("", "F1"), True),
            ("the same placer's number", ("P1", ""), ("P1", ""), True),
            ("both", ("P1", "F1"), ("P1", "F1"), True),
            ("the filler's number comes later", ("P1", ""), ("P1", "F1"), True),
            ("the correction has the filler's number only", ("P1", "F1"), ("", "F1"), True),
            ("another filler's number", ("", "F1"), ("", "F2"), False),
            ("another placer's number", ("P1", ""), ("P2", ""), False),
            ("both are others", ("P1", "F1"), ("P2", "F2"), False),
        ):
            for in_orc in (False, True):
                for number in ("R7001^LAB", "1", "77^LAB", ""):
                    with self.subTest(what, in_orc=in_orc, number=number):
                        await self.renew()
                        texts = (
                            ordered(first, obx(K, "5", number), in_orc),
                            ordered(second, obx(K, "6", number), in_orc),
                        )
                        self.assertEqual(kinds(await store(self.world, *texts)), ["ok", "ok"])
                        is_without = (
                            len(number) < 7 and first[1] != second[1]
                        )  # the key has the filler's, else the placer's
                        if is_same and not is_without:
                            self.assertEqual(await self.values(), {"6 v2": 1})
                        else:
                            self.assertEqual(await self.values(), {"5 v1": 1, "6 v1": 1})
                        await store(self.world, texts[1])
                        self.assertEqual(sum((await self.values()).values()), 1 + (not is_same or is_without))

    async def test_what_is_told_with_an_order(self) -> None:
        """Answers, observations of a specimen and of a vaccination: another order makes another one."""

        def answer(order: str, value: str, number: str) -> str:
            return message("OML^O21", PID, f"ORC|NW|{order}", f"OBR|1|{order}||T^Test", obx(K, value, number))

        def specimen(order: str, value: str, number: str) -> str:
            spm = f"SPM|1|{order}S&P||BLD"
            obr = f"OBR|1|{order}|{order}F|T^Test|||20260101||||||||||||||||||F"
            return message("ORU^R01", PID, obr, spm, obx(K, value, number))

        def vaccination(order: str, value: str, number: str) -> str:
            return message(
                "VXU^V04", PID, f"ORC|RE||{order}", "RXA|0|1|20260101||08^HepB^CVX|999", obx(K, value, number)
            )

        for make in (answer, specimen, vaccination):
            for number in ("R7001^LAB", "1", ""):
                with self.subTest(make.__name__, number=number):
                    await self.renew()
                    sent = (make("P1", "5", number), make("P2", "6", number), make("P1", "7", number))
                    self.assertEqual(kinds(await store(self.world, *sent)), ["ok"] * 3)
                    self.assertEqual(await self.values(), {"7 v2": 1, "6 v1": 1})

    async def test_a_correction_of_a_report_whose_order_was_known(self) -> None:
        """The order came first and has the placer's number only: a correction by the filler's is of the same report."""
        order = message("OML^O21", PID, "ORC|NW|P1", "OBR|1|P1||T^Test")
        for number in ("R7001^LAB", "1"):
            with self.subTest(number=number):
                await self.renew()
                results = (ordered(("P1", "F1"), obx(K, "5", number), True), oru("F1", obx(K, "6", number, status="C")))
                self.assertEqual(kinds(await store(self.world, order, *results)), ["ok"] * 3)
                self.assertEqual(await self.values(), {"6 v2": 1})
                await store(self.world, oru("F2", obx(K, "7", number)))
                self.assertEqual(await self.values(), {"6 v2": 1, "7 v1": 1})

    async def test_orders_of_a_message(self) -> None:
        """The same OBX-21 and OBX-3 under two orders of one message, and the same order told twice."""
        for number in ("R7001^LAB", "1"):
            await self.renew()
            two = oru("F1", obx(K, "5", number), "OBR|2||F2|T^Test|||20260101", obx(K, "6", number))
            for _ in range(2):
                await store(self.world, two)
                self.assertEqual(await self.values(), {"5 v1": 1, "6 v1": 1})
            corrected = oru("F1", obx(K, "7", number, status="C"))
            self.assertEqual(kinds(await store(self.world, corrected)), ["ok"])
            self.assertEqual(await self.values(), {"6 v1": 1, "7 v2": 1})
        await self.renew()
        await store(self.world, oru("F1", obx(K, "5"), "OBR|2||F1|T^Test|||20260101", obx(K, "5")))
        self.assertEqual(await self.values(), {"5 v1": 1})

    async def test_a_constant_number(self) -> None:
        """The same OBX-21 in all results of a test: none is lost; later each is found, and corrected by time."""
        for number in ("R7001^LAB", "1", ""):
            with self.subTest(number=number):
                await self.renew()
                series = [(str(hour), f"202601010{hour}00+0000") for hour in range(4, 8)]
                texts = [
                    f"{obx(K, value, number)}".replace("F||||||||||", f"F|||{time}|||||||") for value, time in series
                ]
                for _ in range(2):
                    self.assertEqual(kinds(await store(self.world, oru("F1", *texts))), ["ok"])
                    self.assertEqual(await self.values(), {f"{value} v1": 1 for value, _ in series})
                await store(self.world, oru("F1", *texts[:2], texts[2].replace("||6|", "||16|"), texts[3]))
                self.assertEqual(await self.values(), {"4 v1": 1, "5 v1": 1, "16 v2": 1, "7 v1": 1})

    async def test_a_constant_number_without_an_order(self) -> None:
        """A weight of each admission, under OBX-21 of a counter or of a constant: each time is a result of its own."""
        for number in ("1", "R7001^LAB"):
            await self.renew()
            for value, time in (("70", "20260101"), ("71", "20260201"), ("71.5", "20260201")):
                weight = obx("29463-7^Weight^LN", value, number).replace("F||||||||||", f"F|||{time}|||||||")
                await store(self.world, message("ADT^A08", "EVN||20260101", PID, "PV1||I", weight))
            self.assertEqual(await self.values(), {"70 v1": 1, "71.5 v2": 1})

    async def test_of_another_patient(self) -> None:
        """The same test under the number is a conflict, as before; nothing changes its patient."""
        other = PID.replace("1^^^B", "2^^^B")
        results = await store(self.world, oru("F1", obx(K, "5")), oru("F2", obx(K, "6"), person=other))
        self.assertEqual(kinds(results), ["ok", "subject"])

    async def renew(self) -> None:
        """An empty store."""
        raise NotImplementedError


class ContentTests(ContentSuite, OnMemory):
    async def renew(self) -> None:
        await self.setUp()

    async def test_for_another_fhir_server(self) -> None:
        """The conditions of several things of one number differ."""
        for resource_type, make, contents, _ in KINDS:
            made: Any = samples.library().transform_message(samples.parse(make(*contents)))
            urls = [one["request"]["url"] for one in made["entry"] if one["resource"]["resourceType"] == resource_type]
            self.assertEqual((len(urls), len(set(urls))), (3, 3), urls)
