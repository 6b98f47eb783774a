"""Index entries of resources."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.fhir.fhirpath.language.parser import parse
from ipf.fhir.index.contained import CONTAINED
from ipf.fhir.index.entries import PART_LIMIT, normalise, string_value, token_value
from ipf.fhir.index.extract import extract
from ipf.fhir.index.lastn import LASTN
from ipf.fhir.index.paths import NotSimple, element_paths, presence
from ipf.fhir.index.sources import sources
from ipf.fhir.index.values import indexer_for
from ipf.fhir.model import json
from ipf.fhir.model.dates import FOREVER, date_range
from ipf.fhir.model.definitions import definitions
from ipf.ports.queries.index import EMPTY
from tests.fhir.examples import examples
from tests.reference import needs_reference

UCUM = "http://unitsofmeasure.org"
TEXTS: list[tuple[dict[str, Any], set[tuple[str, str]]]] = [
    ({"resourceType": "Patient", "active": False}, {("active", "false\t"), ("deceased", "false\t")}),
    ({"resourceType": "Patient", "deceasedBoolean": False}, {("deceased", "false\t")}),
    ({"resourceType": "Patient", "deceasedDateTime": "2020"}, {("deceased", "true\t")}),
    (
        {"resourceType": "Patient", "identifier": [{"system": "urn:a", "value": "1"}, {"value": "2"}, {"system": "b"}]},
        {("identifier", "1\turn:a"), ("identifier", "2\t"), ("identifier", "\tb")},
    ),
    (
        {"resourceType": "Patient", "name": [{"family": "M\u00fcller-L\u00fcdenscheidt", "given": ["Ann  Marie"]}]},
        {
            ("family", "muller-ludenscheidt\tM\u00fcller-L\u00fcdenscheidt"),
            ("given", "ann marie\tAnn  Marie"),
            ("family:word", "ludenscheidt"),
            ("given:word", "marie"),
        },
    ),
    (
        {"resourceType": "Patient", "telecom": [{"system": "phone", "value": "555"}]},
        {("telecom", "555\tphone")},
    ),
    ({"resourceType": "Patient", "meta": {"tag": [{"code": "t"}], "profile": ["http://p|1"]}}, {("_tag", "t\t")}),
    ({"resourceType": "Patient", "meta": {"profile": ["http://p"], "source": "urn:s"}}, {("_source", "urn:s")}),
    (
        {
            "resourceType": "Condition",
            "code": {"text": "High  Fever ", "coding": [{"display": "Fi\u00e8vre", "code": 1}, 7]},
        },
        {("code:text", " high fever"), ("code:text", " fievre")},
    ),
    ({"resourceType": "Condition", "subject": {"reference": "Patient/1/_history/4"}}, {("subject", "Patient/1")}),
    ({"resourceType": "Condition", "subject": {"reference": "#p", "display": "x"}}, set()),
    (
        {"resourceType": "Observation", "component": [{"code": {"coding": [{"code": "c", "system": "s"}]}}]},
        {("component-code", "c\ts")},
    ),
    (
        {"resourceType": "ValueSet", "url": "http://a/b", "compose": {"include": [{"system": "urn:c"}]}},
        {("url", "http://a/b"), ("reference", "urn:c")},
    ),
    (
        {
            "resourceType": "Bundle",
            "type": "document",
            "entry": [{"resource": {"resourceType": "Composition", "id": "c"}}],
        },
        {("type", "document\t"), ("composition", "Composition/c"), ("message", "Composition/c")},
    ),
    (
        {"resourceType": "Patient", "identifier": [{"value": "a\tb\u001fc", "system": "s\n"}]},
        {("identifier", "a b c\ts ")},
    ),
]
MALFORMED: list[dict[str, Any]] = [
    {"resourceType": "Nonsense", "id": "1"},
    {"resourceType": ["Patient"]},
    {"resourceType": "Patient", "name": "x", "birthDate": 7, "telecom": [None, 5, [["x"]]], "identifier": {"value": 1}},
    {"resourceType": "Patient", "deceasedBoolean": {"a": 1}, "address": [{"line": {"x": 1}}], "meta": [], "link": None},
    {"resourceType": "Observation", "valueQuantity": {"value": "7"}, "effectivePeriod": 3, "subject": {"reference": 9}},
    {"resourceType": "Bundle", "entry": "x"},
]


class Texts(TestCase):
    """Tokens, strings, references and URIs."""

    def test_entries(self) -> None:
        for resource, expected in TEXTS:
            found = extract(resource)
            self.assertLessEqual(expected, found.texts, resource)

    def test_contained_references_and_missing_elements_give_no_entries(self) -> None:
        self.assertEqual(len(extract({"resourceType": "Condition", "subject": {"reference": "#p"}})), 0)
        self.assertEqual(extract({"resourceType": "Nonsense"}), EMPTY)

    def test_contained_resources(self) -> None:
        """Their texts are entries of the container, under a code of their own; what they contain is not looked at."""
        inside = {
            "resourceType": "Medication",
            "id": "m",
            "status": "active",
            "contained": [{"resourceType": "Patient"}],
        }
        resource = {"resourceType": "Condition", "contained": [inside, {"resourceType": "X"}, {"resourceType": 1}, 2]}
        found = {("$contained", "Medication\nm"), ("$contained", "Medication.status\nactive\t"), ("$contained", "X\n")}
        self.assertEqual(extract(resource).texts, found)
        self.assertEqual(extract({"resourceType": "Condition", "contained": "m"}), EMPTY)

    def test_invalid_resources_are_indexed(self) -> None:
        for resource in MALFORMED:
            extract(resource)

    def test_extensions_are_indexed_by_value(self) -> None:
        url = "http://hl7.org/fhir/StructureDefinition/patient-extensions-Patient-mothersMaidenName"
        resource = {"resourceType": "Patient", "extension": [{"url": "other", "valueString": "x"}]}
        self.assertNotIn("mothersMaidenName", {code for code, _ in extract(resource).texts})
        resource["extension"].append({"url": url, "valueString": "Smith"})  # type: ignore[attr-defined]  # a list above
        self.assertIn(("mothersMaidenName", "smith\tSmith"), extract(resource).texts)


class Ranges(TestCase):
    """Dates, numbers and quantities."""

    def test_dates(self) -> None:
        first, last = date_range("2020-01-01"), date_range("2020-02")
        assert first is not None and last is not None
        table: list[tuple[dict[str, Any], set[tuple[str, int, int]]]] = [
            ({"effectiveDateTime": "2020-02"}, {("date", *last)}),
            ({"effectivePeriod": {"start": "2020-01-01", "end": "2020-02"}}, {("date", first[0], last[1])}),
            ({"effectivePeriod": {"start": "2020-01-01"}}, {("date", first[0], FOREVER)}),
            ({"effectivePeriod": {"end": "2020-02"}}, {("date", -FOREVER, last[1])}),
            ({"effectiveTiming": {"event": ["2020-02", "2020-01-01"]}}, {("date", first[0], last[1])}),
            ({"effectiveTiming": {"repeat": {"frequency": 1}}}, set()),
            ({"effectiveDateTime": "soon"}, set()),
        ]
        for content, expected in table:
            self.assertEqual(extract({"resourceType": "Observation", **content}).dates, expected)

    def test_quantities(self) -> None:
        infinity, unit = Decimal("Infinity"), f"{UCUM}\tmg\tmilligram\t"
        full = {"value": Decimal("5.40"), "system": UCUM, "code": "mg", "unit": "milligram"}
        table: list[tuple[dict[str, Any], set[tuple[str, Decimal, Decimal, str]]]] = [
            ({"valueQuantity": full}, {("value-quantity", Decimal("5.4"), Decimal("5.4"), unit)}),
            ({"valueQuantity": {**full, "comparator": "<"}}, {("value-quantity", -infinity, Decimal("5.4"), unit)}),
            ({"valueQuantity": {"value": 5}}, {("value-quantity", Decimal(5), Decimal(5), "\t\t\t")}),
            ({"valueQuantity": {"unit": "mg"}}, set()),
        ]
        for content, expected in table:
            self.assertEqual(extract({"resourceType": "Observation", **content}).quantities, expected)

    def test_numbers_have_no_unit(self) -> None:
        found = extract({"resourceType": "RiskAssessment", "prediction": [{"probabilityDecimal": Decimal("0.9")}]})
        self.assertEqual(found.quantities, {("probability", Decimal("0.9"), Decimal("0.9"), "")})


class Values(TestCase):
    """The index form of values."""

    def test_normalised(self) -> None:
        table = [
            ("  A  b\tC ", "a b c"),
            ("\u00c9l\u00e8ve", "eleve"),
            ("Stra\u00dfe", "strasse"),
            ("\u738b", "\u738b"),
            ("", ""),
        ]
        for text, expected in table:
            self.assertEqual(normalise(text), expected)

    def test_long_values_are_truncated_and_stay_distinct(self) -> None:
        one, other = "\u00e9" * 5000 + "1", "\u00e9" * 5000 + "2"
        for value in (string_value, lambda text: token_value(text, text)):
            self.assertNotEqual(value(one), value(other))
            self.assertEqual(value(one), value(one))
            self.assertLessEqual(len(value(one).encode()), 2 * PART_LIMIT + 1)


class Compiler(TestCase):
    """The search parameters of R4 that need no FHIRPath."""

    def test_all_expressions_but_two_are_simple_and_have_values(self) -> None:
        simple, general = set(), set()
        for resource_type in definitions().resource_types:
            for parameter in definitions().search_parameters(resource_type).values():
                if parameter.expression:
                    (simple if _is_simple(parameter.expression, resource_type) else general).add(parameter.url)
        prefix = "http://hl7.org/fhir/SearchParameter/"
        self.assertEqual(general, {prefix + "Bundle-composition", prefix + "Bundle-message"})
        of_r4 = {url for url in simple if url.startswith(prefix) and not url.startswith(prefix + "SubscriptionTopic-")}
        self.assertEqual(len(of_r4), 1379)  # of 1,381, composites among them

    def test_every_simple_parameter_has_values_that_can_be_indexed(self) -> None:
        for resource_type in definitions().resource_types:
            for code, source in sources(resource_type).items():
                kind = definitions().search_parameters(resource_type)[code].type
                if source.paths:
                    self.assertTrue(any(indexer_for(kind, one.type_path, (code,)) for one in source.paths), code)

    def test_redundant_parameters_have_no_entries(self) -> None:
        table = [
            ("Patient", "phonetic", ("name", "family", "given"), "", ""),
            ("RelatedPerson", "phonetic", ("name",), "", ""),
            ("Patient", "phone", ("telecom",), "", "phone"),
            ("Observation", "combo-code", ("code", "component-code"), "", ""),
            ("Observation", "patient", ("subject",), "Patient", ""),
            ("Coverage", "patient", ("beneficiary",), "", ""),
            ("Patient", "family", ("family",), "", ""),
        ]
        for resource_type, code, codes, refers_to, system in table:
            source = sources(resource_type)[code]
            self.assertEqual((source.codes, source.refers_to, source.system), (codes, refers_to, system))

    def test_source_parameters_have_their_own_entries(self) -> None:
        for resource_type in definitions().resource_types:
            known = sources(resource_type)
            for source in known.values():
                for code in source.codes:
                    self.assertIn(code, known[code].codes)


@needs_reference
class Examples(TestCase):
    """The published examples."""

    def test_every_example_is_indexed(self) -> None:
        for name, text in examples().items():
            resource = json.loads(text)
            if resource.get("resourceType") in definitions().resource_types:
                codes = {entry[0].removesuffix(":text").removesuffix(":word") for entry in extract(resource).texts}
                self.assertLessEqual(codes - {LASTN, CONTAINED}, set(sources(resource["resourceType"])), name)


def _is_simple(expression: str, resource_type: str) -> bool:
    node = parse(expression)
    try:
        return bool(presence(node, resource_type) or element_paths(node, resource_type))
    except NotSimple:
        return False
