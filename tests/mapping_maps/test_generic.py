"""The generic map: events without a map, when the installation says so."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.config.paths import folder
from ipf.errors import Category, Problem
from ipf.mapping.library.maps import Library, MappingResult
from tests.corpus import checks, samples
from tests.mapping_maps.events import numbers, pid, pv1, text

GENERIC = "urn:ipf:map:Generic"
SEGMENTS = (
    pid(account="ACC1"),
    "ZPA|1|own",
    "OBX|1|NM|8302-2^Height^LN||171|cm|||||F",
    "IN1|1|PPO^Harbor|771|Harbor Mutual",
    "PD1||||4411^Osei",
    pv1(),
    "PR1|1||0DTJ4ZZ^Appendectomy^I10P",
    "DG1|1||K35.80^Appendicitis^I10",
    "AL1|1|DA|70618^Penicillin^RXNORM",
    "GT1|1||Marlowe^Tobias||||||||SPO",
    "NK1|1|Marlowe^Tobias|SPO",
    "PV2|||^Pain",
)


@lru_cache(maxsize=1)
def library() -> Library:
    """The maps, with the generic one in use."""
    return Library.load(folder("maps"), compiled=False, generic=True)


def run(message: str, *, trace: bool = False) -> MappingResult:
    """The result for a message."""
    return library().run(samples.parse(message), trace=trace)


def resources(result: MappingResult, resource_type: str) -> list[dict[str, Any]]:
    """The resources of a type."""
    return [one["resource"] for one in result.bundle["entry"] if one["resource"]["resourceType"] == resource_type]


class GenericTests(TestCase):
    """What is taken, and what becomes of it."""

    def test_only_when_it_is_in_use(self) -> None:
        """Without the setting an event without a map is UNMAPPED; with it no query and no answer is taken."""
        self.assertFalse(samples.library().has_map("ADT_Z99") or samples.library().has_map("*"))
        self.assertNotIn("Generic", samples.library().message_types)
        for message_type, taken in (("ADT_Z99", True), ("PEX_P07", True), ("QBP_Q22", False), ("RSP_K22", False)):
            self.assertEqual(library().has_map(message_type), taken, message_type)
        self.assertEqual(library().map_url("ADT_Z99"), GENERIC)
        self.assertEqual(library().map_url("ADT_A01"), "urn:ipf:map:ADT_A01")
        problem = self.assertRaises(Problem, samples.library().run, samples.parse(text("ADT^Z99", *SEGMENTS)))
        self.assertIs(problem.category, Category.UNMAPPED)

    def test_segments_wherever_they_stand(self) -> None:
        """In any order, in a message of unknown and of known structure; a valid Bundle; the warning says why."""
        for event in ("ADT^Z99", "PEX^P07^PEX_P07"):
            for trace in (False, True):
                with self.subTest(event=event, trace=trace):
                    result = run(text(event, *SEGMENTS), trace=trace)
                    self.assertEqual(result.map_url, GENERIC)
                    kind = event.replace("^", "_")[:7]
                    self.assertIn(f"no map for {kind}: the generic map was used", result.warnings)
                    made = {one["resource"]["resourceType"] for one in result.bundle["entry"]}
                    self.assertLessEqual(
                        {"Patient", "Encounter", "Account", "Coverage", "Condition", "Procedure", "Observation"}
                        | {"AllergyIntolerance", "RelatedPerson", "Practitioner", "MessageHeader"},
                        made,
                    )
                    self.assertEqual(checks.faults(result.bundle), [])

    def test_nothing_that_is_stored_of_the_patient_is_overwritten(self) -> None:
        """Nobody knows what the event means."""
        bundle = run(text("ADT^Z99", *SEGMENTS)).bundle
        found = {one["resource"]["resourceType"]: one["request"] for one in bundle["entry"]}
        for resource_type in ("Patient", "Encounter", "Account"):
            self.assertEqual(found[resource_type]["method"], "POST", resource_type)
            self.assertIn("ifNoneExist", found[resource_type])

    def test_several_patients(self) -> None:
        """What follows a PID is of that patient."""
        diagnosis = "DG1|1||{}^Diagnosis^I10"
        message = text("ADT^Z99", pid(), diagnosis.format("A1"), pid("200^^^HOSP^MR"), diagnosis.format("B2"))
        bundle = run(message).bundle
        urls = {
            one["fullUrl"]: numbers(one["resource"])[0] for one in bundle["entry"] if "Patient" in str(one["request"])
        }
        found = {
            one["code"]["coding"][0]["code"]: urls[one["subject"]["reference"]]
            for one in resources(run(message), "Condition")
        }
        self.assertEqual(found, {"A1": "100", "B2": "200"})

    def test_a_message_without_a_patient(self) -> None:
        """It is no message for the generic map, rather than one that leaves nothing."""
        problem = self.assertRaises(Problem, run, text("ADT^Z99", "NPU|W^1^2|O"))
        self.assertIs(problem.category, Category.UNMAPPED)
        self.assertIn("without a PID", problem.text)

    def test_segments_that_it_does_not_read(self) -> None:
        """They are in the warnings."""
        warnings = run(text("ADT^Z99", pid(), "ORC|NW|1", "OBR|1|1")).warnings
        self.assertTrue(any("(ORC) is not part of GENERIC" in one for one in warnings), warnings)
