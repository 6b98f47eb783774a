"""The types of the definitions change the way of an evaluation, not its result, on valid and invalid data."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial import unittest

from ipf.fhir.fhirpath import Expression, FhirNode, FhirPathError, compile

EXPRESSIONS = [
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
    "birthDate < @2015-02-01",
    "birthDate + 1 year",
    "birthDate.is(date) and gender is code",
    "name.select(given)",
    "name.select(given.first() & family)",
    "name.given.count()",
    "name.given.distinct()",
    "name.given.where($this = 'a' or $index > 0)",
    "contained.id",
    "contained.where(name.exists()).name.family",
    "contained.ofType(Patient).name.where(use = 'a').family",
    "contained.select(id | name.given)",
    "birthDate.extension('x').url",
    "gender.extension.url",
    "name.family.id",
    "name.given.hasValue()",
    "name.family.first().is(string)",
    "name.family.first() is System.String",
    "name.given.first().type().name",
    "name.given.ofType(string)",
    "name.ofType(HumanName).use",
    "name.ofType(Address)",
    "deceased is boolean",
    "deceased as boolean = true",
    "deceased.exists() and deceased != true",
    "name.children().count()",
    "descendants().ofType(string)",
    "contact.repeat(name)",
    "iif(gender = 'a', name.family, name.given)",
    "iif(gender.exists(), gender, 1)",
    "name.given.aggregate($total & $this, '')",
    "name.given.join(',').length()",
    "name.first().given.last().upper()",
    "name ~ name and name = name",
    "name.exists() and contained.contained.empty() or deceased.exists()",
    "name.given.empty() xor contact.name.family.exists()",
    "contained.where($this is Patient).name.family",
    "contained.all($this is Observation)",
    "contained.select($this is Resource)",
    "name.select($index)",
    "name.given.first().substring(1, {}).lower()",
    "name.given.where($this.startsWith('a') or matches('b+')).first()",
    "name.given.first() + '-' + name.family.last()",
    "name.given.first().replace(gender, 'x')",
    "name.given.count() > 1 and birthDate >= @2015",
    "name.given contains 'a'",
    "name.all(family.exists() xor given.exists())",
    "name.use.intersect(gender | 'a')",
    "%resource.name.given.first() = %context.name.given.first()",
    "name.defineVariable('n').select(%n.family | given)",
    "name.sort(family).use",
    "multipleBirth + 1 > 2 implies multipleBirth.toString() = '2'",
]

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
        "contained": st.lists(
            st.fixed_dictionaries(
                {},
                optional={
                    "resourceType": st.sampled_from(["Patient", "Foo"]),
                    "id": text,
                    "name": st.lists(name, max_size=2),
                },
            )
            | odd,
            max_size=2,
        )
        | odd,
        "multipleBirthInteger": st.integers(0, 3),
        "contact": st.lists(st.fixed_dictionaries({}, optional={"name": name | odd}), max_size=2),
        "maritalStatus": st.fixed_dictionaries({"text": text}),
    },
)


def outcome(expression: Expression, focus: Any) -> Any:
    """The result, or the error."""
    try:
        return expression.evaluate(focus)
    except FhirPathError:
        return "error"


class TypesTest(unittest.TestCase):
    """Each expression on data of known and of unknown type."""

    @settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
    @given(patient)
    def test_results_agree(self, data: dict[str, Any]) -> None:
        for text in EXPRESSIONS:
            expression = compile(text)
            untyped = outcome(expression, FhirNode(data, "Patient"))
            self.assertEqual(untyped, outcome(expression, data), text)

    def test_result_is_not_shared(self) -> None:
        data = {"resourceType": "Patient", "name": [{"family": "a"}], "multipleBirthInteger": Decimal(1)}
        for text in ("Patient.name", "name.where(true)", "$this", "'a'"):
            compile(text).evaluate(data).clear()
            self.assertEqual(1, len(compile(text).evaluate(data)))
        self.assertEqual([{"family": "a"}], data["name"])
