"""What messages say and maps once dropped: each class here failed before its rule was written."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import TestCase

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
