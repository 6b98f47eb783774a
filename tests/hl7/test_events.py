"""Trigger events to message structures (table 0354), for the families of messages that hospitals send."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from ipf.hl7.structure import structure, structure_name

FAMILIES = {
    "ADT_A01": "ADT A01 A04 A08 A13",
    "ADT_A02": "ADT A02",
    "ADT_A03": "ADT A03",
    "ADT_A05": "ADT A05 A14 A28 A31",
    "ADT_A06": "ADT A06 A07",
    "ADT_A09": "ADT A09 A10 A11",
    "ADT_A12": "ADT A12",
    "ADT_A15": "ADT A15",
    "ADT_A16": "ADT A16",
    "ADT_A17": "ADT A17",
    "ADT_A18": "ADT A18",
    "ADT_A20": "ADT A20",
    "ADT_A21": "ADT A21 A22 A23 A25 A26 A27 A29 A32 A33",
    "ADT_A24": "ADT A24",
    "ADT_A30": "ADT A30 A34 A35 A36 A46 A47 A48 A49",
    "ADT_A37": "ADT A37",
    "ADT_A38": "ADT A38",
    "ADT_A39": "ADT A39 A40 A41 A42",
    "ADT_A43": "ADT A43",
    "ADT_A45": "ADT A45",
    "ADT_A50": "ADT A50 A51",
    "ADT_A52": "ADT A52 A53",
    "ADT_A54": "ADT A54 A55",
    "ADT_A60": "ADT A60",
    "ADT_A61": "ADT A61 A62",
    "ORU_R01": "ORU R01",
    "ORU_R30": "ORU R30 R31 R32",
    "ORM_O01": "ORM O01",
    "OML_O21": "OML O21",
    "OML_O33": "OML O33",
    "OML_O35": "OML O35",
    "OML_O39": "OML O39",
    "OMG_O19": "OMG O19",
    "VXU_V04": "VXU V04",
    "MDM_T01": "MDM T01 T03 T05 T07 T09 T11",
    "MDM_T02": "MDM T02 T04 T06 T08 T10",
    "SIU_S12": "SIU S12 S13 S14 S15 S16 S17 S18 S19 S20 S21 S22 S23 S24 S26 S27",
    "RDE_O11": "RDE O11 O25",
    "DFT_P03": "DFT P03",
    "DFT_P11": "DFT P11",
    "PPR_PC1": "PPR PC1 PC2 PC3",
}
"""Structure: message code and its trigger events."""


class EventTests(TestCase):
    """What MSH-9 means."""

    def test_structures(self) -> None:
        """By the event alone, with the right MSH-9.3, and with the event put where the structure belongs."""
        for wanted, line in FAMILIES.items():
            code, *events = line.split()
            for event in events:
                for stated in ("", wanted, f"{code}_{event}"):
                    with self.subTest(event=event, stated=stated):
                        self.assertEqual(structure_name(code, event, stated), wanted)
            self.assertIsNotNone(structure(wanted))

    def test_a_swap_has_a_group_for_each_patient(self) -> None:
        """In every version: in most the standard only tells them apart by order."""
        for version in ("2.1", "2.2", "2.3", "2.3.1", "2.4", "2.5", "2.5.1", "2.6", "2.7", "2.8", "2.8.2", "2.9"):
            found = structure("ADT_A17", version)
            assert found is not None
            slot = found.root.slots[-1]
            self.assertEqual((slot.alternatives[0].name, slot.repeats), ("PATIENT", True), version)
            self.assertNotIn("PV1", found.only_at_root)
