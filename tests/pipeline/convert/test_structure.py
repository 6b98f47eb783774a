"""Messages that become a value which R4 does not permit: none is stored; each names the rule and the field."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem
from ipf.mapping.library.maps import Library, MappingResult
from ipf.pipeline.convert.structure import StructureCheck
from ipf.ports import Claimed, Mapped

MAP = """
/// url = "urn:site:map:ADT_A01"
/// types = "ADT_A01"
group ADT_A01(source src : ADT_A01, target bundle : Bundle) {
  src.PID as pid -> bundle.entry as e, e.resource = create('Patient') as patient then {
    pid.PID_7 as born -> patient.birthDate = (born.toString()) "born";
    pid.PID_8 as sex -> patient.gender = sex "sex";
  };
}
"""
SEX = 7
"""The line of a rule that copies a code."""


def claimed(*segments: str) -> Claimed:
    """A claimed ADT^A01."""
    head = "MSH|^~\\&|APP|FAC|RCV|RF|20260101120000||ADT^A01^ADT_A01|MSG1|P|2.5.1"
    raw = "\r".join((head, *segments)).encode()
    return Claimed(7, 1, "c-7", datetime.now(UTC), "APP", "MSG1", "ADT_A01", raw, "", 0)


class StructureCheckTests(TestCase):
    def setUp(self) -> None:
        folder = Path(self.mktemp())
        (folder / "messages").mkdir(parents=True)
        (folder / "messages" / "ADT_A01.fml").write_text(MAP, encoding="utf-8")
        self.library = Library.load(folder)
        self.counted: list[str] = []
        self.validated = self.explained = 0

    def invalid(self, outcome: str) -> None:
        self.counted.append(outcome)

    async def explain(self, message: Claimed) -> MappingResult:
        self.explained += 1
        return self.library.explain(message, trace=True)

    async def validate(self, message: Claimed, mapped: Mapped) -> Problem | None:
        self.validated += 1
        return Problem(Category.INVALID, "validated")

    async def test_a_wrong_code(self) -> None:
        check = StructureCheck(self.explain, self, self.validate)
        message = claimed("EVN|A01", "PID|||1|||||SECRET")
        problem = await check(message, self.library.transform(message))
        assert problem is not None
        self.assertEqual((problem.category, problem.is_permanent), (Category.INVALID, True))
        self.assertEqual(
            str(problem),
            "Bundle.entry[0].resource: not valid: Patient.gender: no code of "
            f"http://hl7.org/fhir/ValueSet/administrative-gender; made by messages/ADT_A01.fml:{SEX} "
            "(ADT_A01 'sex') from PID-8[1]",
        )
        self.assertEqual((self.counted, self.explained, self.validated), (["refused"], 1, 0))

    async def test_a_wrong_date_costs_no_message(self) -> None:
        """The maps keep it beside the element, as it was sent."""
        for date in ("yesterday", "20201345", "2020-13-45", "20210230"):
            message = claimed("EVN|A01", f"PID|||1||||{date}")
            mapped = self.library.transform(message)
            self.assertIsNone(await StructureCheck(self.explain, self, None)(message, mapped), date)
            (entry,) = mapped.bundle["entry"]
            self.assertEqual(entry["resource"]["_birthDate"]["extension"][0]["valueString"], date)

    async def test_a_valid_message_is_validated_as_the_settings_say(self) -> None:
        message = claimed("EVN|A01", "PID|||1||||2020-01-31|female")
        self.assertIsNone(await StructureCheck(self.explain, self, None)(message, self.library.transform(message)))
        problem = await StructureCheck(self.explain, self, self.validate)(message, self.library.transform(message))
        self.assertEqual(problem and problem.text, "validated")
        self.assertEqual((self.counted, self.explained), ([], 0))

    async def test_maps_that_run_elsewhere(self) -> None:
        """Their Bundles may have anything; the map is not named, deletions have no resource."""
        patient = {"resourceType": "Patient", "born": "x", "birthDate": "yesterday"}
        entries = [
            {"request": {"method": "DELETE", "url": "Patient/1"}},
            {"resource": patient, "request": {"method": "POST", "url": "Patient"}},
        ]
        mapped = Mapped({"resourceType": "Bundle", "type": "transaction", "entry": entries}, "urn:remote")
        problem = await StructureCheck(None, self, None)(claimed("EVN|A01"), mapped)
        assert problem is not None
        self.assertIn("Bundle.entry[1].resource: not valid: Patient.born: Patient has no element born", str(problem))
        self.assertIn("(and 1 more)", problem.text)
        self.assertNotIn("made by", str(problem))
