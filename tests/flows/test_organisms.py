"""From the socket to the stored resource: a susceptibility whose organism is in an earlier message."""

from __future__ import annotations

from tests.flows.engine import EngineTestCase

FAMILY = "engine"


class OrganismTests(EngineTestCase):
    def test_organism_of_an_earlier_message(self) -> None:
        """The stored Observation refers to it."""
        head = "MSH|^~\\&|ORGANISMS|GENERAL|||20260301||ORU^R01^ORU_R01|{}|P|2.5.1\rPID|1||ORGANISM1^^^B^MR||X\r"
        culture = "OBR|1|P1|ORGF1|600-7^Culture^LN\rOBX|1|CWE|600-7^Bacteria^LN|1|112283007^E. coli^SCT||||||F\r"
        parent = "600-7&Bacteria&LN^1^E. coli|||^ORGF1&LAB"
        test = f"OBR|1|P2|ORGF2|50545-3^Susc^LN{'|' * 22}{parent}\rOBX|1|ST|18906-8^Cipro^LN||S||||||F\r"
        for control_id, body in (("O1", culture), ("O2", test)):
            self.send((head.format(control_id) + body).encode())
            self.row("ORGANISMS", control_id, "DELIVERED")
        (found,) = self.found("Observation?patient.identifier=ORGANISM1&code=18906-8")
        (organism,) = self.found("Observation?patient.identifier=ORGANISM1&code=600-7")
        (parent,) = found["derivedFrom"]
        self.assertEqual(parent["reference"], f"Observation/{organism['id']}")
        self.assertEqual((parent["display"], parent["identifier"]["value"]), ("E. coli", "ORGF1"))
