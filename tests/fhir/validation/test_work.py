"""The work of validation grows with the size of what is validated: counted in steps of the interpreter, not in time."""

from __future__ import annotations

from functools import partial
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.fhir.fhirpath import Expression
from ipf.fhir.profiles.library import Structures
from ipf.fhir.validation import findings as limits
from ipf.fhir.validation.validator import Validator
from ipf.ports import Json
from tests.steps import steps_of


def contained(count: int) -> Json:
    """A Patient that refers to each of its contained resources."""
    return {
        "resourceType": "Patient",
        "contained": [{"resourceType": "Organization", "id": f"o{number}", "name": "a"} for number in range(count)],
        "generalPractitioner": [{"reference": f"#o{number}"} for number in range(count)],
    }


def bundle(count: int) -> Json:
    """Entries that refer to the next one."""
    urls = [f"urn:uuid:{number:08d}-0000-4000-8000-000000000000" for number in range(count + 1)]
    subjects = [{"resourceType": "Basic", "code": {"text": "a"}, "subject": {"reference": url}} for url in urls[1:]]
    entries = [{"fullUrl": url, "resource": one} for url, one in zip(urls, subjects, strict=False)]
    return {"resourceType": "Bundle", "type": "collection", "entry": entries}


def answers(count: int) -> Json:
    """Items within each other's reach."""
    items = [{"linkId": f"i{number}", "answer": [{"valueBoolean": True}]} for number in range(count)]
    return {"resourceType": "QuestionnaireResponse", "questionnaire": "urn:q", "status": "completed", "item": items}


def form(count: int) -> Json:
    """Each item depends on the one before."""
    first = {"linkId": "i0", "type": "boolean"}
    items = [
        {"linkId": f"i{number}", "type": "boolean",
         "enableWhen": [{"question": f"i{number - 1}", "operator": "=", "answerBoolean": True}]}
        for number in range(1, count)
    ]  # fmt: skip
    return {"resourceType": "Questionnaire", "url": "urn:q", "status": "active", "item": [first, *items]}


class WorkTests(TestCase):
    def test_work_is_linear(self) -> None:
        for make in (contained, bundle, answers, form):
            validator = Validator(questionnaire=lambda url: form(400) if url == "urn:q" else None)
            validator.validate(make(3))
            small, large = make(100), make(400)
            less, more = steps_of(partial(validator.validate, small)), steps_of(partial(validator.validate, large))
            self.assertLess(more, 5 * less, make.__name__)


EXPENSIVE = "%resource.descendants().count() > 0"
BASE = "http://hl7.org/fhir/StructureDefinition/"


def profile(*elements: Json, url: str = "urn:p", of: str = "Observation", **members: object) -> Json:
    """A profile with this differential."""
    return {"resourceType": "StructureDefinition", "url": url, "name": "P", "status": "active", "kind": "resource",
            "abstract": False, "type": of, "derivation": "constraint", "baseDefinition": BASE + of,
            "differential": {"element": list(elements)}, **members}  # fmt: skip


def rule(key: str = "x-1", expression: str = EXPENSIVE) -> Json:
    return {"key": key, "severity": "error", "human": "h", "expression": expression}


def element(path: str, **members: object) -> Json:
    return {"id": path, "path": path, **members}


def components(count: int) -> Json:
    one = {"code": {"text": "c"}, "valueString": "x", "extension": [{"url": "urn:e", "valueString": "x"}]}
    return {"resourceType": "Observation", "status": "final", "code": {"text": "x"}, "component": [one] * count}


CONSTRAINED = profile(element("Observation.component", constraint=[rule()]))
BY_PROFILE = profile(
    element("Observation.component", constraint=[rule(expression="%resource.conformsTo('urn:inner')")])
)
INNER = profile(element("Observation.component", constraint=[rule()]), url="urn:inner")
SLICED = profile(
    element("Observation.component", slicing={"rules": "open", "discriminator": [
        {"type": "value", "path": "extension('urn:e').value"}]}),
    {"id": "Observation.component:a", "path": "Observation.component", "sliceName": "a"},
    element("Observation.component.extension"),
)  # fmt: skip


def extension(**members: object) -> Json:
    """Its definition; where it may stand is a matter of FHIRPath."""
    found = profile(element("Extension.url", fixedUri="urn:e"), url="urn:e", of="Extension", **members)
    return {**found, "kind": "complex-type"}


PLACED = extension(context=[{"type": "fhirpath", "expression": "Observation.descendants()"}])
INVARIANT = extension(context=[{"type": "element", "expression": "Element"}], contextInvariant=[EXPENSIVE])


STEPS = 200_000


class BudgetTests(TestCase):
    def setUp(self) -> None:
        self.patch(limits, "MOST_STEPS", STEPS)

    def test_all_rules_share_the_steps(self) -> None:
        """Whatever evaluates them: together they take no more than the budget, and one finding names it."""
        budgets: list[Any] = []
        evaluate = Expression.evaluate

        def noted(self: Expression, *args: Any, **named: Any) -> list[Any]:
            budgets.append(named.get("budget"))
            return evaluate(self, *args, **named)

        self.patch(Expression, "evaluate", noted)
        for known in ([CONSTRAINED], [BY_PROFILE, INNER], [PLACED], [INVARIANT]):
            budgets.clear()
            found = {one["url"]: one for one in known}
            validator = Validator(Structures(found.get))
            findings = validator.validate(components(2000), [one["url"] for one in known if one["type"] != "Extension"])
            costly = [one for one in findings if one.code == "too-costly"]
            self.assertEqual(len(costly), 1, known[0])
            self.assertEqual((costly[0].severity, costly[0] is findings[0]), ("error", True))
            self.assertIn(f"{STEPS} steps", costly[0].text)
            self.assertTrue(costly[0].location.startswith("Observation"), costly[0].location)
            self.assertEqual(len({id(one) for one in budgets if one is not None}), 1, known[0])
            self.assertGreater(budgets[-1].steps_left, -STEPS, known[0])

    def test_ordinary_resources_need_a_little_of_it(self) -> None:
        for known in (CONSTRAINED, BY_PROFILE, PLACED, INVARIANT, SLICED):
            every = {one["url"]: one for one in (known, INNER)}
            validator = Validator(Structures(every.get))
            names = [known["url"]] if known["type"] != "Extension" else []
            findings = validator.validate(components(30), names)
            self.assertNotIn("too-costly", {one.code for one in findings})

    def test_each_validation_has_its_own(self) -> None:
        validator = Validator(Structures({"urn:p": CONSTRAINED}.get))
        self.assertEqual(validator.validate(components(2000), ["urn:p"])[0].code, "too-costly")
        self.assertNotIn("too-costly", {one.code for one in validator.validate(components(3), ["urn:p"])})
