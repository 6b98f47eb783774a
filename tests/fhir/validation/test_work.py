"""The work of validation grows with the size of what is validated: counted in steps of the interpreter, not in time."""

from __future__ import annotations

from functools import partial

from twisted.trial.unittest import TestCase

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
