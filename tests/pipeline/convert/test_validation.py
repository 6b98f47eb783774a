"""Converted messages under each validation mode: what is stored, logged and refused, and by which rule and field."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from twisted.logger import globalLogPublisher
from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem
from ipf.fhir.validation.findings import Finding
from ipf.fhir.validation.validator import Validator
from ipf.mapping.library.maps import Library, MappingResult
from ipf.mapping.library.origins import Check, explained
from ipf.pipeline.convert.validation import MessageValidation
from ipf.ports import Claimed

MAP = """
/// url = "urn:site:map:ADT_A01"
/// types = "ADT_A01"
group ADT_A01(source src : ADT_A01, target bundle : Bundle) {
  src.PID as pid -> bundle.entry as e, e.resource = create('Patient') as patient then {
    pid.PID_8 as sex -> patient.gender = sex "sex";
    pid.PID_5 as name -> patient.name as n then {
      name.XPN_1 as family -> n.family = family "family";
    };
  };
  src.PV1 as pv1 -> bundle.entry as e, e.resource = create('Observation') as o, o.status = 'final',
    o.value = create('Quantity') as q, q.comparator = (pv1.PV1_2) "class";
}
"""
SEX, CLASS = 6, 11
"""Lines of the map."""

_CHECK = Validator().validate


def claimed(*segments: str) -> Claimed:
    """A claimed ADT^A01."""
    head = "MSH|^~\\&|APP|FAC|RCV|RF|20260101120000||ADT^A01^ADT_A01|MSG1|P|2.5.1"
    raw = "\r".join((head, *segments)).encode()
    return Claimed(7, 1, "c-7", datetime.now(UTC), "APP", "MSG1", "ADT_A01", raw, "", 0)


class ValidationTests(TestCase):
    def setUp(self) -> None:
        folder = Path(self.mktemp())
        (folder / "messages").mkdir(parents=True)
        (folder / "messages" / "ADT_A01.fml").write_text(MAP, encoding="utf-8")
        self.library = Library.load(folder)
        self.counted: list[str] = []
        self.explained = 0
        self.lines: list[str] = []
        observer = lambda event: self.lines.append(str(event.get("log_format", "")))  # noqa: E731
        globalLogPublisher.addObserver(observer)
        self.addCleanup(globalLogPublisher.removeObserver, observer)

    def invalid(self, outcome: str) -> None:
        self.counted.append(outcome)

    async def checks(self, tenant: str) -> Check:
        return _CHECK

    async def explain(self, message: Claimed) -> MappingResult:
        self.explained += 1
        return self.library.explain(message, trace=True)

    async def judge(self, message: Claimed, *, refuse: bool, here: bool = True) -> Problem | None:
        validation = MessageValidation(self.checks, self.explain if here else None, self, refuse=refuse)
        return await validation(message, self.library.transform(message))

    async def test_a_valid_message_passes(self) -> None:
        """It is not mapped again."""
        problem = await self.judge(claimed("EVN|A01", "PID|||||Hansen|||female"), refuse=True)
        self.assertEqual((problem, self.explained, self.counted), (None, 0, []))

    async def test_refuse(self) -> None:
        """The problem names the entry, the element, the file and line of the map and the field; not the value."""
        problem = await self.judge(claimed("EVN|A01", "PID|||||Hansen|||SECRET"), refuse=True)
        assert problem is not None
        self.assertEqual((problem.category, problem.is_permanent), (Category.INVALID, True))
        self.assertEqual(
            str(problem),
            "Bundle.entry[0].resource: not valid: Patient.gender: no code of "
            f"http://hl7.org/fhir/ValueSet/administrative-gender; made by messages/ADT_A01.fml:{SEX} "
            "(ADT_A01 'sex') from PID-8[1]",
        )
        self.assertEqual(self.counted, ["refused"])

    async def test_several_findings(self) -> None:
        """The text has the first and the number of others; each is an issue."""
        problem = await self.judge(claimed("EVN|A01", "PID|||||Hansen|||SECRET", "PV1||SECRET"), refuse=True)
        assert problem is not None
        self.assertIn(" (and 1 more)", problem.text)
        self.assertEqual([one.place for one in problem.issues], [f"Bundle.entry[{n}].resource" for n in (0, 1)])
        self.assertIn("Observation.value.ofType(Quantity).comparator: ", problem.issues[1].text)
        self.assertIn(f"messages/ADT_A01.fml:{CLASS} (ADT_A01 'class') from PV1", problem.issues[1].text)
        self.assertNotIn("SECRET", str(problem.issues))

    async def test_warn(self) -> None:
        """The message is stored; one log line has the same texts."""
        problem = await self.judge(claimed("EVN|A01", "PID|||||Hansen|||SECRET"), refuse=False)
        self.assertEqual((problem, self.counted), (None, ["stored"]))
        line = next(one for one in self.lines if "event=validation" in one)
        self.assertIn("message_id=7 errors=1", line)
        self.assertIn(f"messages/ADT_A01.fml:{SEX}", line)
        self.assertNotIn("SECRET", line)

    async def test_findings_are_kept_beside_unread_fields(self) -> None:
        """By element without indexes, with rule, map and field; an element that is wrong twice counts once."""
        message = claimed("EVN|A01", "PID|||||Hansen|||SECRET")
        mapped = self.library.transform(message)
        before = mapped.unread()
        validation = MessageValidation(self.checks, self.explain, self, refuse=False)
        await validation(message, mapped)
        added = [one for one in mapped.unread() if one not in before]
        self.assertEqual([(one.kind, one.path) for one in added], [("invalid", "Patient.gender")])
        self.assertIn(f"; made by messages/ADT_A01.fml:{SEX} (ADT_A01 'sex') from PID-8[1]", added[0].reason)
        self.assertNotIn("SECRET", added[0].reason)

    async def test_maps_that_run_elsewhere(self) -> None:
        problem = await self.judge(claimed("EVN|A01", "PID|||||Hansen|||SECRET"), refuse=True, here=False)
        assert problem is not None
        self.assertEqual(self.explained, 0)
        self.assertNotIn("made by", str(problem))


class OriginTests(TestCase):
    def test_findings_outside_of_entries_and_of_absent_elements(self) -> None:
        """The Bundle itself has no step; an element that nobody made is that of the nearest element around it."""
        bundle: dict[str, Any] = {"entry": [{"resource": {"resourceType": "Patient"}}]}
        at_bundle = explained(bundle, [Finding("error", "structure", "bdl-7: twice", "Bundle")])[0]
        self.assertEqual((at_bundle.rule, at_bundle.element, at_bundle.entry), ("bdl-7", "Bundle", None))
        self.assertEqual(at_bundle.text, "Bundle: bdl-7: twice")
        resource = explained(bundle, [Finding("error", "required", "x", "Bundle.entry[0].resource")])[0]
        self.assertEqual((resource.rule, resource.element, resource.step), ("required", "Patient", None))
