"""What messages say and maps once dropped: each class here failed before its rule was written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.trial.unittest import TestCase

from tests.corpus import samples
from tests.mapping_maps.facts import at
from tests.mapping_maps.test_orders import HEAD, found, made

OBSERVATION, REQUEST, SPECIMEN = "Observation", "ServiceRequest", "Specimen"


def values(resource: dict[str, Any], path: str) -> list[Any]:
    """The values at a path."""
    return list(at(resource, path.split(".")))


class CoverageTests(TestCase):
    """IN1-36 and IN1-49."""

    def test_policy_number_beside_the_insured_id(self) -> None:
        """The ID of the insured is the subscriber's; the policy number stays an identifier."""
        coverage = made(HEAD.format("ADT^A08") + f"IN1|1|P1|C1|ACME{'|' * 32}POL-5{'|' * 13}INS-7", "Coverage")
        self.assertEqual(coverage["subscriberId"], "INS-7")
        [policy] = [one for one in coverage["identifier"] if one.get("type") == {"text": "policy number"}]
        self.assertEqual(policy["value"], "POL-5")

    def test_policy_number_alone(self) -> None:
        """Both."""
        coverage = made(HEAD.format("ADT^A08") + f"IN1|1|P1|C1|ACME{'|' * 32}POL-5", "Coverage")
        self.assertEqual((coverage["subscriberId"], values(coverage, "identifier.value")[-1]), ("POL-5", "POL-5"))


CHARGED = """ORC|NW|P-1^EHR
OBR|1|P-1^EHR||24323-8^CMP^LN
NTE|1||order note
OBX|1|NM|8302-2^Height^LN||170|cm|||||F
NTE|1||observation note
FT1|1|TX-1||20260309|20260310|CG|CHG100^Office visit^L
ORC|NW|P-2^EHR
OBR|1|P-2^EHR||718-7^HB^LN
OBX|1|NM|8302-2^Height^LN||171|cm|||||F"""


class ChargeTests(TestCase):
    """Orders of a DFT."""

    def test_observations_of_orders(self) -> None:
        """Each names its order, that of the message and that of a charge, with its notes."""
        text = HEAD.format("DFT^P03") + CHARGED
        held = {one["valueQuantity"]["value"]: one for one in found(text, OBSERVATION)}
        self.assertEqual(set(held), {170, 171})
        self.assertEqual(values(held[170], "note.text"), ["observation note"])
        orders = {values(one, "identifier.value")[0]: one for one in found(text, REQUEST)}
        self.assertEqual(values(orders["P-1"], "note.text"), ["order note"])
        self.assertTrue(all(len(one["basedOn"]) == 1 for one in held.values()))
        self.assertNotEqual(held[170]["basedOn"], held[171]["basedOn"])

    def test_observations_without_an_order(self) -> None:
        """They are about the patient."""
        text = HEAD.format("DFT^P03") + "OBX|1|NM|8302-2^Height^LN||170|cm|||||F\nFT1|1|TX-1||2026||CG|C1"
        observation = made(text, OBSERVATION)
        self.assertIn("subject", observation)
        self.assertEqual(found(text, REQUEST), [])


class CollectorCommentTests(TestCase):
    """OBR-39, in results and in orders."""

    def test_without_a_specimen(self) -> None:
        """It is about the collection, so it makes the specimen."""
        for kind in ("ORU^R01", "OML^O21"):
            with self.subTest(kind=kind):
                text = HEAD.format(kind) + f"ORC|NW|1|2\nOBR|1|1|2|T{'|' * 35}^hemolysed"
                self.assertEqual(values(made(text, SPECIMEN), "note.text"), ["hemolysed"])

    def test_with_specimens(self) -> None:
        """It is said of each."""
        for kind in ("ORU^R01", "OML^O21"):
            for segments, wanted in (("SPM|1|S1", 1), ("SPM|1|S1\nSPM|2|S2", 2)):
                with self.subTest(kind=kind, wanted=wanted):
                    obr = f"ORC|NW|1|2\nOBR|1|1|2|T||||||C1^Taker{'|' * 29}^hemolysed\n"
                    held = found(HEAD.format(kind) + obr + segments, SPECIMEN)
                    self.assertEqual([values(one, "note.text") for one in held], [["hemolysed"]] * wanted)
                    self.assertTrue(all("collector" in one["collection"] for one in held))


def numbers(text: str) -> list[list[str]]:
    """The numbers of each order."""
    return [values(one, "identifier.value") for one in found(text, REQUEST)]


FURTHER = "ORC|NW|1^A||||||||||7^Doc^Ann\nOBR|1|1^A||T1\nOBX|1|ST|Q||yes||||||F\nOBR|2|{}||T2\nOBX|1|NM|718-7||5||||||F"


class FurtherOrderTests(TestCase):
    """A second OBR of one ORC is an order, not a prior result."""

    def test_what_the_orc_says_is_said_of_each(self) -> None:
        """Event, provider and observations."""
        for kind in ("OML^O21", "ORM^O01"):
            for version in ("2.3", "2.4", "2.5", "2.5.1", "2.6", "2.7", "2.8.2"):
                with self.subTest(kind=kind, version=version):
                    text = HEAD.format(kind).replace("2.5.1", version) + FURTHER.format("2^A")
                    held = found(text, REQUEST)
                    self.assertEqual(numbers(text), [["1"], ["2"]])
                    self.assertEqual([one["status"] for one in held], ["active", "active"])
                    self.assertEqual([one["requester"]["display"] for one in held], ["Ann Doc", "Ann Doc"])
                    self.assertEqual([len(one["supportingInfo"]) for one in held], [1, 1])
                    self.assertEqual(found(text, "DiagnosticReport"), [])

    def test_where_orc_and_obr_share_a_group(self) -> None:
        """OMG: the second one is an order without an event."""
        text = HEAD.format("OMG^O19") + FURTHER.format("2^A")
        self.assertEqual(numbers(text), [["1"], ["2"]])
        self.assertEqual([one["status"] for one in found(text, REQUEST)], ["active", "active"])

    def test_by_specimen(self) -> None:
        """OML O33: each is for the specimen."""
        text = HEAD.format("OML^O33") + "SPM|1|S1\n" + FURTHER.format("2^A")
        self.assertEqual(numbers(text), [["1"], ["2"]])
        self.assertEqual([len(one["specimen"]) for one in found(text, REQUEST)], [1, 1])

    def test_numbers(self) -> None:
        """The number of ORC counts when that of OBR is the same; another one is further when there is one OBR."""
        text = HEAD.format("ORM^O01")
        self.assertEqual(numbers(text + "ORC|NW|1^A|2^B\nOBR|1|1|2|T"), [["1", "2"]])
        [only] = found(text + "ORC|NW|1^A|2^B\nOBR|1|1|2|T", REQUEST)
        self.assertEqual(values(only, "identifier.system"), ["urn:ipf:authority:A", "urn:ipf:authority:B"])
        self.assertEqual(numbers(text + "ORC|NW|1|2\nOBR|1|3|4|T"), [["3", "1", "4", "2"]])
        self.assertEqual(numbers(text + "ORC|NW|1|2\nOBR|1|1|4|T"), [["1", "4", "2"]])


class OrderSpecimenTests(TestCase):
    """What OBR says of specimens."""

    def test_source_of_a_general_order(self) -> None:
        """ORM has no SPM: OBR-15 makes the specimen, as in OML."""
        for version in ("2.3", "2.5.1"):
            with self.subTest(version=version):
                text = HEAD.format("ORM^O01").replace("2.5.1", version) + f"ORC|NW|1\nOBR|1|1||T{'|' * 11}BLD"
                self.assertEqual(values(made(text, SPECIMEN), "type.coding.code"), ["BLD"])
                self.assertEqual(len(made(text, REQUEST)["specimen"]), 1)

    def test_sources_of_one_number(self) -> None:
        """Two tests of one number from two sources are of two specimens."""
        for kind in ("ORM^O01", "OML^O21", "ORU^R01"):
            with self.subTest(kind=kind):
                source = "|" * 11
                text = HEAD.format(kind) + f"ORC|NW|1|2\nOBR|1|1|2|T1{source}BLD\nOBR|2|1|2|T2{source}UR"
                held = found(text, SPECIMEN)
                self.assertEqual([values(one, "type.coding.code") for one in held], [["BLD"], ["UR"]])

    def test_fasting_of_several_specimens(self) -> None:
        """The patient fasted for each."""
        obr = f"ORC|NW|1\nOBR|1|1||T{'|' * 9}F^Fasting^HL70916\nSPM|1|S1\nSPM|2|S2"
        held = found(HEAD.format("OML^O21") + obr, SPECIMEN)
        self.assertEqual(
            [values(one, "collection.fastingStatusCodeableConcept.coding.code") for one in held], [["F"]] * 2
        )


class SameNumberTests(TestCase):
    """Several tests of one placer's number are several orders."""

    def test_each_obr_is_an_order(self) -> None:
        """With its code and notes; entries of one message have conditions of their own."""
        for kind in ("ORM^O01", "OML^O21", "OMG^O19"):
            for second in ("OBR|2|1^A||T2", "ORC|NW|1^A\nOBR|2|1^A||T2"):
                with self.subTest(kind=kind, second=second[:3]):
                    text = HEAD.format(kind) + f"ORC|NW|1^A\nOBR|1|1^A||T1\nNTE|1||first\n{second}\nNTE|1||second"
                    held = found(text, REQUEST)
                    self.assertEqual([values(one, "code.coding.code") for one in held], [["T1"], ["T2"]])
                    self.assertEqual([values(one, "note.text") for one in held], [["first"], ["second"]])
                    self.assertEqual(len(conditions(text)[REQUEST]), 2)

    def test_the_same_test_twice(self) -> None:
        """Two new orders are two; a status of the first is no second."""
        text = HEAD.format("ORM^O01") + "ORC|NW|1^A\nOBR|1|1^A||BC\nORC|{}|1^A\nOBR|2|1^A||BC"
        self.assertEqual(len(found(text.format("NW"), REQUEST)), 2)
        self.assertEqual(len(found(text.format("SC"), REQUEST)), 1)

    def test_each_result_names_its_order(self) -> None:
        """Two OBR of one number, each with its report."""
        text = HEAD.format("ORU^R01") + "ORC|RE|1^A\nOBR|1|1^A|9^L|T1\nOBX|1|NM|A||1\nOBR|2|1^A|9^L|T2\nOBX|1|NM|B||2"
        orders = {values(one, "code.coding.code")[0] for one in found(text, REQUEST)}
        self.assertEqual(orders, {"T1", "T2"})
        self.assertEqual(len({one["basedOn"][0]["reference"] for one in found(text, "DiagnosticReport")}), 2)


PRIOR = (
    "ORC|NW|1^A\nOBR|1|1^A||T1\n{}ORC|PR|8^A|9^L\nOBR|1|8^A|9^L|718-7^HB^LN|||20250101\nOBX|1|NM|718-7^HB^LN||5||||||F"
)
RESULT = "ORC|RE|8^A|9^L\nOBR|1|8^A|9^L|718-7^HB^LN|||20250101\nOBX|1|NM|718-7^HB^LN||5||||||F"


class PriorResultTests(TestCase):
    """PRIOR_RESULT of OML."""

    def test_kept_and_not_written_over(self) -> None:
        """Report and observation by the keys of the message that brought them, created once, supporting the order."""
        stored = conditions(HEAD.format("ORU^R01") + RESULT)
        for kind in ("OML^O21", "OML^O33"):
            for whose in ("", "PID|1||1^^^B^MR||X\n"):
                with self.subTest(kind=kind, whose=whose):
                    specimen = "SPM|1|S1\n" if kind == "OML^O33" else ""
                    text = HEAD.format(kind) + specimen + PRIOR.format(whose)
                    for resource_type in ("DiagnosticReport", OBSERVATION):
                        self.assertEqual(conditions(text)[resource_type], stored[resource_type])
                        self.assertTrue(all("subject" in one for one in found(text, resource_type)))
                        self.assertEqual(methods(text)[resource_type], {"POST"})
                    [order] = [one for one in found(text, REQUEST) if "supportingInfo" in one]
                    self.assertEqual(values(order, "identifier.value"), ["1"])
                    self.assertEqual(len(found(text, "Patient")), 1)

    def test_of_another_person(self) -> None:
        """Somebody else's result stays somebody else's."""
        text = HEAD.format("OML^O21") + PRIOR.format("PID|1||2^^^B^MR||Mother\n")
        patients = {one["identifier"][0]["value"]: one for one in found(text, "Patient")}
        self.assertEqual(set(patients), {"1", "2"})
        report, order = made(text, "DiagnosticReport"), found(text, REQUEST)[0]
        self.assertNotEqual(report["subject"], order["subject"])


class SegmentOrderTests(TestCase):
    """OBX before PV1."""

    def test_results_keep_their_patient_and_visit(self) -> None:
        """In each version; the early OBX is about the patient."""
        body = "OBX|1|NM|8302-2^Height^LN||170||||||F\nPV1|1|I|W^1||||||||||||||||V1\n" + RESULT
        for version in ("2.3", "2.3.1", "2.4", "2.5.1", "2.6", "2.7", "2.8.2"):
            with self.subTest(version=version):
                text = HEAD.format("ORU^R01").replace("2.5.1", version) + body
                held = found(text, OBSERVATION)
                self.assertEqual(len(held), 2)
                self.assertTrue(all("reference" in one["subject"] for one in held))
                self.assertIn("encounter", made(text, "DiagnosticReport"))
                self.assertIn("encounter", made(text, REQUEST))

    def test_orders(self) -> None:
        """It makes no order of its own."""
        body = "OBX|1|NM|8302-2^Height^LN||170||||||F\nPV1|1|I|W^1||||||||||||||||V1\nORC|NW|1\nOBR|1|1||T"
        for kind in ("ORM^O01", "OML^O21", "OMG^O19"):
            with self.subTest(kind=kind):
                text = HEAD.format(kind) + body
                self.assertEqual(numbers(text), [["1"]])
                self.assertIn("encounter", made(text, REQUEST))
                self.assertIn("reference", made(text, OBSERVATION)["subject"])

    def test_admissions(self) -> None:
        """Observation and visit."""
        text = HEAD.format("ADT^A01") + "OBX|1|NM|8302-2^Height^LN||170||||||F\nPV1|1|I|W^1||||||||||||||||V1"
        self.assertIn("subject", made(text, OBSERVATION))
        self.assertIn("subject", made(text, "Encounter"))


class AnswerTests(TestCase):
    """Questions at order entry."""

    def test_each_order_has_its_own(self) -> None:
        """The answer for one order does not replace that for another one, told without a time."""
        body = "ORC|NW|{0}^A\nOBR|1|{0}^A||T\nOBX|1|ST|PREG||{1}||||||F"
        for kind in ("ORM^O01", "OML^O21", "OMG^O19"):
            with self.subTest(kind=kind):
                first, second, again = (
                    conditions(HEAD.format(kind) + body.format(*one))[OBSERVATION]
                    for one in (("1", "N"), ("2", "Y"), ("1", "Y"))
                )
                self.assertNotEqual(first, second)
                self.assertEqual(first, again)


def conditions(text: str) -> dict[str, set[str]]:
    """The condition of each entry, by type."""
    return _of_entries(text, lambda one: str(one.get("ifNoneExist") or one["url"].partition("?")[2]))


def methods(text: str) -> dict[str, set[str]]:
    """The method of each entry, by type."""
    return _of_entries(text, lambda one: str(one["method"]))


def _of_entries(text: str, part: Callable[[dict[str, Any]], str]) -> dict[str, set[str]]:
    by_type: dict[str, set[str]] = {}
    for entry in samples.library().transform_message(samples.parse(text))["entry"]:
        by_type.setdefault(entry["resource"]["resourceType"], set()).add(part(entry["request"]))
    return by_type


class PlaceTests(TestCase):
    """ROL and IAM in ADT, of every version and after every group."""

    def test_allergies(self) -> None:
        """IAM, which no structure of A01 has, is about the patient wherever it stands."""
        before = (
            "",
            "PR1|1||P1^Proc^L||20260101\n",
            "IN1|1|P1|C1|ACME\n",
            "AL1|1|DA|ASP^Aspirin^L\n",
            "GT1|1||G^Guarantor\n",
        )
        for version in ("2.2", "2.3", "2.3.1", "2.4", "2.5.1", "2.8"):
            for event in ("A01", "A04", "A08", "A28", "A31"):
                for segments in before:
                    with self.subTest(version=version, event=event, segments=segments):
                        text = _admission(version, event) + segments + "IAM|1|DA|PEN^Penicillin^L|SV|Rash|A\n"
                        codes = [values(one, "code.coding.code")[0] for one in found(text, "AllergyIntolerance")]
                        self.assertEqual(codes, ["ASP", "PEN"] if segments.startswith("AL1") else ["PEN"])

    def test_roles(self) -> None:
        """ROL after PID or PV1 is of the patient or the visit, also where the stated version has it below PR1 only."""
        for version in ("2.3", "2.3.1", "2.4", "2.5.1", "2.8"):
            with self.subTest(version=version):
                text = _admission(version, "A01") + "ROL|1|AD|AT^Attending^HL70443|9^Doc\nIAM|1|DA|PEN^Penicillin^L\n"
                [encounter] = found(text, "Encounter")
                self.assertEqual(values(encounter, "participant.type.coding.code"), ["ATND", "AT"])
                text = _admission(version, "A01") + "PR1|1||P1^Proc^L||20260101\nROL|1|AD|PP^Primary^HL70443|9^Doc\n"
                self.assertEqual(len(found(text, "Procedure")), 1)


def _admission(version: str, event: str) -> str:
    head = f"MSH|^~\\&|A|B|||20260310120000||ADT^{event}|1|P|{version}\nEVN|{event}|20260310\n"
    return f"{head}PID|1||1^^^B^MR||X^Y\nPV1|1|I|W^1|||||||||||||||||V1\n"


class CurrencyTests(TestCase):
    """MO.2 and MSH-17."""

    def test_currency(self) -> None:
        """What is stated, else that of the country of the message, when it is known."""
        for country, price, currency in (
            ("NOR", "100", "NOK"),
            ("DEU", "100", "EUR"),
            ("NOR", "100&USD", "USD"),
            ("XXX", "100", None),
            ("", "100", None),
            ("NOR", "", None),
        ):
            with self.subTest(country=country, price=price):
                head = f"MSH|^~\\&|A|B|||20260310120000||DFT^P03|1|P|2.5.1|||||{country}\n"
                text = f"{head}EVN|P03|20260310\nPID|1||1^^^B^MR||X\nFT1|1|TX-1||20260309||CG|C^X^L||||{price}"
                [charge] = found(text, "ChargeItem")
                self.assertEqual(charge.get("priceOverride", {}).get("currency"), currency)
