"""Any text gives a result or a FhirPathError in bounded time."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial import unittest

from ipf.fhir.fhirpath import FhirPathError, compile
from ipf.fhir.fhirpath.evaluation.context import Host
from ipf.fhir.fhirpath.evaluation.registry import FUNCTIONS
from ipf.fhir.fhirpath.language.parser import parse, parse_prefix

PATIENT: dict[str, Any] = {
    "resourceType": "Patient",
    "active": True,
    "birthDate": "1974-12-25",
    "_birthDate": {"extension": [{"url": "http://example.org/time", "valueDateTime": "1974-12-25T14:35:45-05:00"}]},
    "name": [{"family": "Müller", "given": ["Anna", None], "_given": [None, {"extension": []}]}, {"use": "old"}],
    "multipleBirthInteger": 2,
    "contained": [{"resourceType": "Observation", "valueQuantity": {"value": Decimal("1.50"), "code": "mg"}}],
}
WORDS = [
    *sorted(FUNCTIONS),
    *("Patient", "name", "given", "birthDate", "contained", "value", "multipleBirth", "active", "Quantity", "string"),
    *("1", "0", "-1", "2.50", "'a'", "'(a+)+$'", "''", "true", "{}", "@2015-02", "@2015-02-04T14:34:28Z", "@T14:30"),
    *("1 'mg'", "4 days", "1 year", "%context", "%resource", "%x", "$this", "$index", "$total", "9999999999"),
    *(".", ".", ".", "(", ")", "(", ")", "[", "]", ",", "|", "&", "+", "-", "*", "/", "div", "mod", "=", "!=", "~"),
    *("!~", "<", ">", "<=", ">=", "in", "contains", "is", "as", "and", "or", "xor", "implies", " "),
]
LIMITS = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))


def run(text: str) -> None:
    """Compile and evaluate; only FhirPathError may be raised."""
    try:
        compile(text).evaluate(PATIENT, {"x": ["1", 2, {"a": 1}]})
    except FhirPathError as error:
        assert error.kind in ("syntax", "semantic", "execution")


@st.composite
def calls(draw: st.DrawFn) -> str:
    """Chains of function calls with arguments of every kind."""
    text = draw(st.sampled_from(["name", "Patient.birthDate", "1", "'ab'", "@2015", "2 'cm'", "contained", "{}"]))
    for _ in range(draw(st.integers(1, 4))):
        name = draw(st.sampled_from(sorted(FUNCTIONS)))
        arguments = draw(st.lists(st.sampled_from([*WORDS[-70:-40], "$this", "given", "1", "'x'"]), max_size=2))
        text += f".{name}({', '.join(arguments)})"
    return text


class FuzzTest(unittest.TestCase):
    """Random texts, random words, random calls, random data."""

    @LIMITS
    @given(st.text(max_size=80))
    def test_any_text(self, text: str) -> None:
        run(text)

    @LIMITS
    @given(st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join))
    def test_any_words(self, text: str) -> None:
        run(text)

    @LIMITS
    @given(calls())
    def test_any_calls(self, text: str) -> None:
        run(text)

    @LIMITS
    @given(st.text(alphabet="ab.() '->,;x", max_size=40), st.integers(0, 10))
    def test_any_prefix(self, text: str, start: int) -> None:
        try:
            _, end = parse_prefix(text, min(start, len(text)))
        except FhirPathError:
            return
        self.assertLessEqual(end, len(text))

    @LIMITS
    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.decimals(allow_nan=False),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.sampled_from(["resourceType", "name", "_name", "given", "family", "value"]), inner)
            ),
            max_leaves=12,
        )
    )
    def test_any_data(self, data: Any) -> None:
        if isinstance(data, dict):
            data = {**data, "resourceType": "Patient"}
        for text in ("Patient.name.given.first()", "name.family = 'x'", "name.where(use='a').given | name.family"):
            try:
                compile(text).evaluate(data)
            except FhirPathError:
                pass


class LimitTest(unittest.TestCase):
    """Texts that try to exhaust stack, memory or time: without limits they would take hours."""

    def refused(self, text: str) -> None:
        self.assertRaises(FhirPathError, lambda: compile(text).evaluate({"resourceType": "Patient"}))

    def test_deep_brackets(self) -> None:
        self.refused("(" * 50_000 + "1")
        self.refused("a[" * 50_000)
        self.refused("-" * 50_000 + "1")

    def test_long_chains(self) -> None:
        self.refused("+".join(["1"] * 20_000))
        self.refused(".".join(["a"] * 20_000))

    def test_maximum_depth_evaluates(self) -> None:
        self.assertEqual([199], compile("+".join(["1"] * 199)).evaluate({"resourceType": "Patient"}))
        nested = "(" * 59 + "1" + ")" * 59
        self.assertEqual([1], compile(nested).evaluate({"resourceType": "Patient"}))
        self.assertIsNotNone(parse("iif(true," * 30 + "1" + ")" * 30))

    def test_endless_repeat(self) -> None:
        self.refused("1.repeat($this + 1)")
        self.refused("'a'.repeat($this & 'a')")

    def test_growing_totals(self) -> None:
        numbers = "(" + "|".join(map(str, range(100))) + ")"
        self.refused(f"{numbers}.aggregate($total & $total & 'aaaaaaaaaaaaaaaaaaaa', 'a')")
        self.refused(f"{numbers}.aggregate($total.combine($total), 1)")
        self.assertEqual([], compile(f"{numbers}.aggregate($total * $total, 3)").evaluate({}))

    def test_nested_loops(self) -> None:
        numbers = "(" + "|".join(map(str, range(100))) + ")"
        self.refused(f"{numbers}.select({numbers}.select({numbers}.select({numbers}.count())))")

    def test_comparisons_count_what_they_contain(self) -> None:
        """A large structure that is compared, or a long text that is made, for each of many items."""
        data = {"resourceType": "Bundle", "entry": [{"resource": {**PATIENT, "id": str(n)}} for n in range(1000)]}
        long = "'" + "x" * 5000 + "'.replace('x', '" + "y" * 1000 + "')"
        for text in (
            "entry.select(%resource ~ %resource)",
            "entry.select(%resource = %resource)",
            "entry.select(%resource != %resource)",
            "entry.select(%resource in %resource)",
            "entry.select(%resource | %resource)",
            "entry.select(%resource.entry.distinct())",
            "entry.select(%resource.entry.isDistinct())",
            "entry.select(%resource.entry.intersect(%resource.entry))",
            "entry.select(%resource.entry.exclude(%resource.entry))",
            "entry.select(%resource.entry.subsetOf(%resource.entry))",
            "entry.select(%resource.entry.supersetOf(%resource.entry))",
            "entry.select(%resource.entry.union(%resource.entry))",
            "entry.select(%resource.repeat(entry))",
            f"entry.select({long})",
            f"entry.select({long} & '')",
            f"entry.select({long} + '')",
            f"entry.select({long}.substring(1))",
            f"entry.select({long}.encode('hex'))",
            "entry.where(%resource.entry.resource.id.empty())",
            "entry.where(%resource.entry.nothing.exists())",
            "entry.where(%x.empty())",
            "entry.select(%x.tail().tail().count())",
            "entry.select(%x.count())",
            "entry.select(%x.ofType(String).count())",
            "entry.select(%x.sort().first())",
            "entry.select(%x.max())",
            "entry.select(%x ~ %x)",
            "entry.select(%x.subsetOf(%x))",
            "entry.aggregate($total.combine(%x).count())",
            "entry.select(defineVariable('v' & $index.toString()).select(1))",
            "entry.repeatAll(%x)",
            "entry.select(%long.matches('^(a|b|ab)*(c?d?){100}$'))",
            "entry.select(%long.replaceMatches('(a|b|ab)+(c?d?){100}$', ''))",
            "entry.select(%long.matches($index.toString() & '(a|b|ab)*(c?d?){100}$'))",
        ):
            given = {"x": ["x"] * 1000, "long": "ab" * 1000}
            with self.assertRaises(FhirPathError, msg=text[:60]) as caught:
                compile(text).evaluate(data, given, host=Host(steps=50_000))
            self.assertIn("steps", str(caught.exception), text[:60])

    def test_references_are_found_in_an_index(self) -> None:
        """Each `resolve()` is one lookup: a large Bundle is within the steps."""
        entries = [{"resource": {"resourceType": "Patient", "id": str(n), "link": []}} for n in range(2000)]
        data = {"resourceType": "Bundle", "entry": entries}
        text = "entry.select(('Patient/' & $index.toString()).resolve()).count()"
        self.assertEqual([2000], compile(text).evaluate(data, host=Host(steps=50_000)))

    def test_a_long_list_is_within_the_steps(self) -> None:
        """What search parameters read of a List of 100,000 entries."""
        entries = [{"item": {"reference": f"Patient/{n}"}} for n in range(100_000)]
        data = {"resourceType": "List", "entry": entries}
        patient = {"resourceType": "Patient"}
        found = compile("List.entry.item.where(resolve() is Patient)").evaluate(data, resolve=lambda one: patient)
        self.assertEqual(100_000, len(found))

    def test_deep_data(self) -> None:
        data: Any = {"x": 1}
        for _ in range(20_000):
            data = {"item": [data]}
        data["resourceType"] = "Questionnaire"
        for text in ("Questionnaire.descendants().count()", "Questionnaire = Questionnaire", "item | item"):
            try:
                compile(text).evaluate(data)
            except FhirPathError:
                pass
