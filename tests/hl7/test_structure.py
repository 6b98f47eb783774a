"""Segments into groups: by the standard, and lenient with deviations."""

from __future__ import annotations

import importlib.util
import json
from typing import Any

from twisted.trial.unittest import SkipTest, TestCase

from ipf.config.paths import folder
from ipf.hl7.message import Message
from ipf.hl7.structure import parse_syntax, structure, structure_name
from tests.hl7.samples import MSH, SAMPLES


def _tree_text(group: Any) -> str:
    return " ".join(f"{node.name}({_tree_text(node)})" if node.kind == "group" else node.name for node in group.nodes)


def message(kind: str, version: str, segments: str) -> str:
    return (
        MSH
        + f"{kind}|1|P|{version}\r"
        + "".join(f"{name if '|' in name else name + '|1'}\r" for name in segments.split())
    )


# message type, version, segments -> tree without MSH, number of warnings
TREES = [
    ("ADT^A01", "2.5.1", "EVN PID PD1 NK1 NK1 PV1 AL1 PR1 ROL PR1 IN1 IN2 IN1",
     "EVN PID PD1 NK1 NK1 PV1 AL1 PROCEDURE(PR1 ROL) PROCEDURE(PR1) INSURANCE(IN1 IN2) INSURANCE(IN1)", 0),
    # A second ORC is a second order, not a prior result of the first; a prior result says whose it is.
    ("OML^O21", "2.5.1", "PID ORC OBR SPM ORC OBR",
     "PATIENT(PID) ORDER(ORC OBSERVATION_REQUEST(OBR SPECIMEN(SPM))) ORDER(ORC OBSERVATION_REQUEST(OBR))", 0),
    ("OML^O21", "2.5.1", "PID ORC OBR PID ORC OBR OBX",
     "PATIENT(PID) ORDER(ORC OBSERVATION_REQUEST(OBR PRIOR_RESULT(PATIENT_PRIOR(PID) "
     "ORDER_PRIOR(ORC OBR OBSERVATION_PRIOR(OBX)))))", 0),
    # A second OBR of one ORC is a further order of it.
    ("OML^O21", "2.5.1", "PID ORC OBR OBX SPM OBR NTE OBR FT1 OBR ORC OBR",
     "PATIENT(PID) ORDER(ORC OBSERVATION_REQUEST(OBR OBSERVATION(OBX) SPECIMEN(SPM)) OBSERVATION_REQUEST(OBR NTE) "
     "OBSERVATION_REQUEST(OBR) FT1 OBSERVATION_REQUEST(OBR)) ORDER(ORC OBSERVATION_REQUEST(OBR))", 0),
    ("OML^O33", "2.5.1", "PID SPM ORC OBR OBR SPM ORC OBR",
     "PATIENT(PID) SPECIMEN(SPM ORDER(ORC OBSERVATION_REQUEST(OBR) OBSERVATION_REQUEST(OBR))) "
     "SPECIMEN(SPM ORDER(ORC OBSERVATION_REQUEST(OBR)))", 0),
    ("ORM^O01", "2.5.1", "PID ORC OBR OBX OBR",
     "PATIENT(PID) ORDER(ORC ORDER_DETAIL(OBR OBSERVATION(OBX)) ORDER_DETAIL(OBR))", 0),
    ("OMG^O19", "2.5.1", "PID ORC OBR OBX OBR", "PATIENT(PID) ORDER(ORC OBR OBSERVATION(OBX)) ORDER(OBR)", 0),
    # A prior result says so: whose it is (PID), or ORC-1 = PR; an ORC with another event is an order again.
    ("OML^O21", "2.5.1", "PID ORC|NW OBR ORC|PR OBR OBX ORC|PR OBR OBX ORC|NW OBR",
     "PATIENT(PID) ORDER(ORC OBSERVATION_REQUEST(OBR PRIOR_RESULT(ORDER_PRIOR(ORC OBR OBSERVATION_PRIOR(OBX)) "
     "ORDER_PRIOR(ORC OBR OBSERVATION_PRIOR(OBX))))) ORDER(ORC OBSERVATION_REQUEST(OBR))", 0),
    ("OML^O21", "2.5.1", "PID ORC|NW OBR PID PV1 ORC OBR OBX OBR OBX ORC|CA OBR",
     "PATIENT(PID) ORDER(ORC OBSERVATION_REQUEST(OBR PRIOR_RESULT(PATIENT_PRIOR(PID) PATIENT_VISIT_PRIOR(PV1) "
     "ORDER_PRIOR(ORC OBR OBSERVATION_PRIOR(OBX)) ORDER_PRIOR(OBR OBSERVATION_PRIOR(OBX))))) "
     "ORDER(ORC OBSERVATION_REQUEST(OBR))", 0),
    # A segment out of order does not begin another patient, order or prior result.
    ("ORU^R01", "2.5.1", "PID OBX PV1 ORC OBR OBX",
     "PATIENT_RESULT(PATIENT(PID VISIT(PV1)) ORDER_OBSERVATION(OBSERVATION(OBX)) "
     "ORDER_OBSERVATION(ORC OBR OBSERVATION(OBX)))", 1),
    ("ORU^R01", "2.5.1", "PID ORC OBR OBX PV1 PV2 ORC OBR",
     "PATIENT_RESULT(PATIENT(PID VISIT(PV1 PV2)) ORDER_OBSERVATION(ORC OBR OBSERVATION(OBX)) "
     "ORDER_OBSERVATION(ORC OBR))", 2),
    ("OML^O21", "2.5.1", "PID OBX PV1 ORC OBR",
     "PATIENT(PID PATIENT_VISIT(PV1)) ORDER(OBSERVATION_REQUEST(OBSERVATION(OBX))) "
     "ORDER(ORC OBSERVATION_REQUEST(OBR))", 1),
    ("ADT^A01", "2.5.1", "PID PV1", "PID PV1", 0),  # a missing EVN is no reason to lose anything
    ("ADT^A01", "2.5.1", "EVN PID PV1 PD1 NK1", "EVN PID PV1 PD1 NK1", 2),  # out of order
    ("ADT^A01", "2.5.1", "EVN PID PV1 IN2 IN1", "EVN PID PV1 INSURANCE(IN2) INSURANCE(IN1)", 0),  # no IN1
    ("ADT^A01", "2.5.1", "EVN PID PV1 IN1 ZIN IN2 ZZZ", "EVN PID PV1 INSURANCE(IN1 ZIN IN2 ZZZ)", 0),
    ("ADT^A01", "2.5.1", "EVN PID PV1 PV1", "EVN PID PV1 PV1", 1),  # one too many
    ("ADT^A01", "2.5.1", "EVN PID PV1 FT1", "EVN PID PV1 FT1", 1),  # not part of it
    ("ADT^A08^ADT_A08", "2.3", "EVN PID PV1 IN1", "EVN PID PV1 INSURANCE(IN1)", 0),  # MSH-9.3 names the event
    ("ORU^R01", "2.3", "PID PV1 ORC OBR OBX",
     "PATIENT_RESULT(PATIENT(PID VISIT(PV1)) ORDER_OBSERVATION(ORC OBR OBSERVATION(OBX)))", 0),
    ("ORU^R01", "2.5.1", "PID NTE OBR NTE OBX NTE OBX SPM OBX OBR OBX PID OBR",
     "PATIENT_RESULT(PATIENT(PID NTE) ORDER_OBSERVATION(OBR NTE OBSERVATION(OBX NTE) OBSERVATION(OBX) "
     "SPECIMEN(SPM OBX)) ORDER_OBSERVATION(OBR OBSERVATION(OBX))) "
     "PATIENT_RESULT(PATIENT(PID) ORDER_OBSERVATION(OBR))", 0),
    ("ORU^R01", "2.5.1", "OBR OBX", "PATIENT_RESULT(ORDER_OBSERVATION(OBR OBSERVATION(OBX)))", 0),
    ("ORU^R01", "2.5.1", "PID OBR OBX ZOB OBX",
     "PATIENT_RESULT(PATIENT(PID) ORDER_OBSERVATION(OBR OBSERVATION(OBX ZOB) OBSERVATION(OBX)))", 0),
    ("ORM^O01", "2.5", "PID PV1 ORC OBR NTE OBX ORC RXO",
     "PATIENT(PID PATIENT_VISIT(PV1)) ORDER(ORC ORDER_DETAIL(OBR NTE OBSERVATION(OBX))) "
     "ORDER(ORC ORDER_DETAIL(RXO))", 0),
    ("SIU^S13", "2.5", "SCH PID RGS AIS AIS AIP",
     "SCH PATIENT(PID) RESOURCES(RGS SERVICE(AIS) SERVICE(AIS) PERSONNEL_RESOURCE(AIP))", 0),
    ("ADT^A40", "2.5.1", "EVN PID MRG PID MRG", "EVN PATIENT(PID MRG) PATIENT(PID MRG)", 0),
    ("ZZZ^Z01", "2.5", "PID ZZ1 PID", "PID ZZ1 PID", 0),  # nobody knows the structure
]  # fmt: skip

NAMES = {
    ("ADT", "A01", ""): "ADT_A01",
    ("ADT", "A04", ""): "ADT_A01",
    ("ADT", "A08", "ADT_A01"): "ADT_A01",
    ("ADT", "A08", "ADT_A08"): "ADT_A01",
    ("ADT", "A31", ""): "ADT_A05",
    ("ADT", "A40", ""): "ADT_A39",
    ("ORU", "R01", "nonsense"): "ORU_R01",
    ("ACK", "A01", "ACK"): "ACK",
    ("ACK", "A01", ""): "ACK",
    ("MDM", "T06", ""): "MDM_T02",
    ("ZZZ", "Z01", ""): "ZZZ_Z01",
    ("ZZZ", "Z01", "ZZZ_ZZZ"): "ZZZ_ZZZ",
}


class TreeTests(TestCase):
    def test_trees(self) -> None:
        for kind, version, segments, expected, warnings in TREES:
            found = Message.parse(message(kind, version, segments).encode())
            self.assertEqual(_tree_text(found.tree()), f"MSH {expected}", (kind, version, segments))
            self.assertEqual(len(found.warnings), warnings, (segments, found.warnings))

    def test_children_of_the_message(self) -> None:
        found = Message.parse(SAMPLES["dense admission"].encode())
        self.assertEqual(len(found.children("INSURANCE")), 2)
        self.assertEqual(len(found.children("INSURANCE")[0].children("IN2")), 1)
        self.assertEqual(found.children("IN1"), [])  # stands in a group
        self.assertEqual(len(found.segments("IN1")), 2)
        self.assertEqual(found.children("ROL"), [])  # the one there is belongs to the procedure
        self.assertEqual(len(found.children("PROCEDURE")[0].children("ROL")), 1)

    def test_z_segments_at_any_depth(self) -> None:
        found = Message.parse(SAMPLES["z segments"].encode())
        self.assertEqual([len(found.children(name)) for name in ("ZPI", "ZIN", "ZZZ")], [1, 1, 1])
        self.assertEqual(found.children("ZPI")[0].children("ZPI_2")[0].children("2")[0].text, "data")

    def test_z_segments_of_a_group(self) -> None:
        """At any depth of the group, and of no other."""
        body = "PID|||{0}\rOBR|1\rOBX|1\rZLB|{0}a\rNTE|1\rZLB|{0}b\r"
        found = Message.parse((MSH + "ORU^R01|Z1|P|2.5\r" + body.format(1) + body.format(2)).encode())
        values = [[one.children("ZLB_1")[0].text for one in group.children("ZLB")]
                  for group in found.children("PATIENT_RESULT")]  # fmt: skip
        self.assertEqual(values, [["1a", "1b"], ["2a", "2b"]])
        self.assertEqual(len(found.children("ZLB")), 4)

    def test_groups_are_made_on_demand(self) -> None:
        found = Message.parse(SAMPLES["dense admission"].encode())
        found.children("PID")
        self.assertIsNone(found._tree)

    def test_a_group_is_the_same_each_time(self) -> None:
        found = Message.parse(SAMPLES["dense admission"].encode())
        self.assertIs(found.children("INSURANCE")[0], found.children("INSURANCE")[0])
        self.assertIs(found.children("INSURANCE")[0], found.tree().children("INSURANCE")[0])


class TableTests(TestCase):
    def test_names(self) -> None:
        for parts, expected in NAMES.items():
            self.assertEqual(structure_name(*parts), expected, parts)

    def test_nearest_version(self) -> None:
        cases = {
            "2.5.1": "2.5.1",
            "2.9": "2.8.2",
            "": "2.5.1",
            "nonsense": "2.5.1",
            "2.3.2": "2.3.1",
            "1.0": "2.1",
            "2": "2.1",
        }
        for asked, expected in cases.items():
            found = structure("ADT_A01", asked)
            assert found is not None
            self.assertEqual(found.version, expected, asked)
        self.assertIsNone(structure("ZZZ_Z01", "2.5"))

    def test_every_structure_can_be_read(self) -> None:
        tables = json.loads((folder("fhir") / "v2/structures.json").read_text())
        for name, editions in tables["structures"].items():
            for _, syntax in editions:
                self.assertEqual(parse_syntax(syntax).slots[0].alternatives[0].name, "MSH", name)
        for meant in tables["events"].values():
            self.assertIn(meant, tables["structures"])

    def test_the_committed_tables_are_what_the_generator_makes(self) -> None:
        path = folder("fhir") / "v2/generate.py"
        spec = importlib.util.spec_from_file_location("generate_v2", path)
        if importlib.util.find_spec("hl7apy") is None or spec is None or spec.loader is None:
            raise SkipTest("hl7apy is not installed")
        generator = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(generator)
        if generator.digest() != generator.PINNED:
            raise SkipTest("another hl7apy is installed than the tables were made from")
        committed = json.loads((folder("fhir") / "v2/structures.json").read_text())
        self.assertEqual(committed["events"], generator.events())
        self.assertEqual(committed["structures"], generator.structures())
