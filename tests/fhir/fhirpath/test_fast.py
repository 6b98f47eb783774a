"""The fast paths give the results of the general engine, on valid and invalid data."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial import unittest

from ipf.fhir.fhirpath import Expression, FhirPathError, compile
from ipf.fhir.fhirpath.nodes import unwrap

FAST = [
    "Patient.name.family",
    "name.given",
    "name.given.first()",
    "Patient.name[0].given",
    "identifier.where(system = 'a').value",
    "identifier.where(system = 'a' and use = 'b' or value.exists()).value",
    "Patient.name.exists()",
    "Patient.name.where(use = 'a').exists().not()",
    "name.exists(use = 'a')",
    "name.given.empty()",
    "gender = 'a'",
    "gender != 'a'",
    "birthDate",
    "Patient.name.given | Patient.name.family",
    "name | contact.name",
    "Observation.code | Patient.maritalStatus",
    "deceased",
    "Patient.deceased.ofType(boolean)",
    "(Patient.deceased as dateTime)",
    "contact.name.where($this.family = 'b').given",
    "name.where(given = 'a').family",
    "Resource.id",
]
GENERAL = ["birthDate < today()", "name.select(given)", "contained.id", "birthDate.extension('x')", "name.count()"]

text = st.sampled_from(["a", "b", "c"])
extras = st.sampled_from([{"extension": [{"url": "x"}]}, {"id": "1"}])
name = st.fixed_dictionaries(
    {},
    optional={
        "use": text,
        "family": text,
        "_family": extras,
        "given": st.lists(text | st.none(), max_size=3),
        "_given": st.lists(st.none() | extras, max_size=3),
    },
)
identifier = st.fixed_dictionaries({}, optional={"system": text, "value": text, "use": text, "_system": extras})
odd = st.sampled_from([None, "a", 1, [], [None], {}, [[]], {"resourceType": "Patient"}])
patient = st.fixed_dictionaries(
    {"resourceType": st.just("Patient")},
    optional={
        "id": text,
        "name": st.lists(name, max_size=3) | odd,
        "identifier": st.lists(identifier, max_size=3) | odd,
        "gender": text | odd,
        "_gender": extras,
        "birthDate": st.sampled_from(["2015", "2015-02-03"]) | odd,
        "deceasedBoolean": st.booleans(),
        "deceasedDateTime": st.just("2020"),
        "_deceasedDateTime": extras,
        "contact": st.lists(st.fixed_dictionaries({}, optional={"name": name | odd}), max_size=2),
        "maritalStatus": st.fixed_dictionaries({"text": text}),
    },
)


def outcome(run: Any) -> Any:
    """The result, or the error."""
    try:
        return run()
    except FhirPathError:
        return "error"


class FastTest(unittest.TestCase):
    """The specialised expressions, and agreement with the general engine."""

    def test_frequent_expressions_are_specialised(self) -> None:
        for text in FAST:
            self.assertIsNotNone(fast_form(compile(text)), text)

    def test_other_expressions_use_the_general_engine(self) -> None:
        for text in GENERAL:
            self.assertIsNone(fast_form(compile(text)), text)

    @settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
    @given(patient)
    def test_results_agree(self, data: dict[str, Any]) -> None:
        for text in FAST:
            expression = compile(text)
            general = outcome(lambda expression=expression: unwrap(expression.items(data)))
            self.assertEqual(general, outcome(lambda expression=expression: expression.evaluate(data)), text)

    def test_result_is_not_shared(self) -> None:
        data = {"resourceType": "Patient", "name": [{"family": "a"}], "multipleBirthInteger": Decimal(1)}
        compile("Patient.name").evaluate(data).clear()
        self.assertEqual([{"family": "a"}], data["name"])


def fast_form(expression: Expression) -> Any:
    """The fast form for a Patient."""
    return expression._specialise("Patient")
