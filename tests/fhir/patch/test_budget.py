"""Patches whose selectors multiply with what is stored end at a budget; ordinary ones on large resources do not."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem
from ipf.fhir.patch import fhirpath_patch as fhirpath_module
from ipf.fhir.patch.fhirpath_patch import fhirpath_patch
from ipf.fhir.patch.xml_patch import xml_patch
from ipf.ports import Json
from tests.rest.world import World

NUMBERS = 1000
PATIENT: Json = {
    "resourceType": "Patient", "id": "a", "active": True,
    "identifier": [{"system": "urn:a", "value": f"n{number}"} for number in range(NUMBERS)],
}  # fmt: skip


def parameters(*paths: str) -> Json:
    """A FHIRPath Patch that deletes what the paths find."""
    parts = [[{"name": "type", "valueCode": "delete"}, {"name": "path", "valueString": path}] for path in paths]
    return {"resourceType": "Parameters", "parameter": [{"name": "operation", "part": part} for part in parts]}


def xml(selector: str, count: int) -> bytes:
    operation = f'<replace sel="{selector}"><active value="false"/></replace>'
    return f'<diff xmlns="http://hl7.org/fhir">{operation * count}</diff>'.encode()


EACH_OF_EACH = "Patient.identifier.where(value = 'n999' or " + " or ".join(["value.toChars().count() = 1"] * 400) + ")"
MANY = (*["Patient.identifier.where(false)"] * 1999, EACH_OF_EACH)
FIRST = "[identifier/system/@value='urn:a']" * 50


class PathTests(TestCase):
    def problem(self, *paths: str) -> Problem:
        return self.assertRaises(Problem, fhirpath_patch(parameters(*paths)), PATIENT)

    def test_criteria_of_many_operations(self) -> None:
        """Two thousand operations share the steps of one patch."""
        self.assertIn("steps", self.problem(*MANY).text)

    def test_elements_count(self) -> None:
        self.patch(fhirpath_module, "MOST_STEPS", 1000)
        problem = self.problem("Patient.identifier.value.extension")
        self.assertEqual((problem.category, problem.place), (Category.COSTLY, "Parameters.parameter[0]"))
        self.assertIn("more than 1000 steps", problem.text)

    def test_criteria_on_many_elements(self) -> None:
        changed = fhirpath_patch(parameters(*[f"Patient.identifier.where(value = 'n{n}')" for n in range(100)]))(
            PATIENT
        )
        self.assertEqual(len(changed["identifier"]), NUMBERS - 100)


class SelectorTests(TestCase):
    def test_selectors_of_many_operations(self) -> None:
        """One operation is within the budget, two thousand are not."""
        selector = f"/Patient{FIRST}/active"
        self.assertFalse(xml_patch(xml(selector, 1))(PATIENT)["active"])
        problem = self.assertRaises(Problem, xml_patch(xml(selector, 2000)), PATIENT)
        self.assertIs(problem.category, Category.COSTLY)
        self.assertIn("the XML Patch takes more than 100000000 steps", problem.text)

    def test_many_plain_operations(self) -> None:
        self.assertFalse(xml_patch(xml("/Patient/active", 2000))(PATIENT)["active"])


class RequestTests(TestCase):
    async def test_the_answer_names_the_budget(self) -> None:
        world = World()
        await world.send("PUT", "Patient/a", PATIENT)
        sent = (
            (parameters(*MANY), "application/fhir+json"),
            (xml(f"/Patient{FIRST}/active", 2000), "application/xml-patch+xml"),
        )
        for body, kind in sent:
            answer = await world.send("PATCH", "Patient/a", body, content_type=kind)
            self.assertEqual(answer.status, 400, answer.body)
            self.assertIn(b"steps", answer.body)
        self.assertEqual(len((await world.body("Patient/a"))["identifier"]), NUMBERS)
