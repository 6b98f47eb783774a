"""OBX below SAC in laboratory orders: an Observation of the specimen in the container, in each version and place."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from ipf.hl7.message import Message
from ipf.ports import Json
from tests.corpus import samples

HEAD = "MSH|^~\\&|LAB|X|||20240101||OML^O21^OML_O21|1|P|{}\rPID|1||1^^^N^MR||A^B\r"
SAC = "SAC|A{0}^LAB|ACC{0}^LAB|C{0}^LAB\rOBX|9|NM|3141-9^Volume^LN||4|mL|||||F\r"
ORDER = "ORC|NW|P1\rOBR|1|P1||GLU^Glucose^L\r"
OBX, SPM = "OBX|1|NM|718-7^Hb^LN||12|g/dL|||||F\r", "SPM|1|S1^LAB||SER^Serum^HL70487\r"
ONE = SAC.format(1)
BODIES = {
    "before the order": ONE + ORDER + OBX,
    "after the order": ORDER + ONE,
    "after results": ORDER + OBX + ONE,
    "after SPM": ORDER + OBX + SPM + ONE,
    "several": ONE + SAC.format(2) + ORDER,
    "for two orders": ONE + ORDER + ORDER.replace("P1", "P2"),
    "without a number": ONE.replace("A1^LAB|ACC1^LAB|C1^LAB", "|||||SER") + ORDER,
    "SPM before the order": SPM + ONE + ORDER,
}
VERSIONS = ("2.3", "2.4", "2.5", "2.5.1", "2.6", "2.7", "2.8", "2.9")


class ContainerTests(TestCase):
    def resources(self, text: str) -> tuple[list[Json], list[str]]:
        """The resources, and what was not read."""
        result = samples.library().run(Message.parse(text.encode()))
        lost = [one.path for one in result.unread() if one.kind in ("unread", "dropped")]
        return [one["resource"] | {"url": one["fullUrl"]} for one in result.bundle["entry"]], lost

    def test_each_version_and_place(self) -> None:
        """Nothing is lost: the specimen has the container, the Observation names the specimen."""
        for version in VERSIONS:
            for name, body in BODIES.items():
                made, lost = self.resources(HEAD.format(version) + body)
                place = version, name
                self.assertEqual(lost, [], place)
                specimens = {one["url"]: one for one in made if one["resourceType"] == "Specimen"}
                told = [one for one in made if one.get("code", {}).get("coding", [{}])[0].get("code") == "3141-9"]
                self.assertEqual(len(told), 2 if name == "several" else 1, place)
                for one in told:
                    specimen = specimens[one["specimen"]["reference"]]
                    self.assertEqual(one["subject"], specimen["subject"], place)
                    if name != "without a number":
                        self.assertTrue(specimen["container"], place)

    def test_a_container_before_orders(self) -> None:
        """Version 2.4: each order names its specimen, which is one."""
        made, _ = self.resources(HEAD.format("2.4") + BODIES["for two orders"])
        (specimen,) = [one["url"] for one in made if one["resourceType"] == "Specimen"]
        named = [one["specimen"] for one in made if one["resourceType"] == "ServiceRequest"]
        self.assertIn([{"reference": specimen}], named)
