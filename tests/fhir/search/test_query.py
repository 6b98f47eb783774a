"""Search parameters become tests; unsupported ones are refused by name."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from decimal import Decimal

from hypothesis import given, settings
from hypothesis import strategies as some
from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem
from ipf.fhir.model.definitions import definitions
from ipf.fhir.search.language.query import parse_criteria, parse_query
from ipf.ports.queries.predicates import (
    NOTHING,
    AllOf,
    AnyOf,
    Bound,
    CodedText,
    CodeIn,
    DateRange,
    Has,
    IdIn,
    LastUpdated,
    Linked,
    ListMember,
    Not,
    Present,
    QuantityIn,
    QuantityRange,
    Test,
    TextContains,
    TextEquals,
    TextParts,
    TextPrefix,
    TextSuffix,
    TypedIdentifier,
)
from ipf.ports.queries.search import Sort

UCUM = "http://unitsofmeasure.org"
YEAR_2020 = ((Bound("lo", ">=", 1577836800000000), Bound("hi", "<=", 1609459200000000)),)


def _begins(code: str, prefix: str) -> TextPrefix:
    """The test of a name: any word begins with it."""
    return TextPrefix(code, prefix, (f"{code}:word",))


TESTS: list[tuple[str, Test]] = [
    ("Patient?identifier=urn:a|1", TextEquals("identifier", ("1\turn:a",))),
    ("Patient?identifier=urn:a|1,urn:a|2", TextEquals("identifier", ("1\turn:a", "2\turn:a"))),
    ("Patient?identifier=|1", TextEquals("identifier", ("1\t",))),
    ("Patient?identifier=urn:a|", TextSuffix("identifier", "\turn:a")),
    ("Patient?identifier=1", TextPrefix("identifier", "1\t")),
    ("Patient?identifier=a\\|b|1\\,2\\\\", TextEquals("identifier", ("1,2\\\ta|b",))),
    ("Patient?identifier:not=urn:a|1", Not(TextEquals("identifier", ("1\turn:a",)))),
    ("Patient?identifier:missing=true", Not(Present("identifier", "text"))),
    ("Patient?birthdate:missing=false", Present("birthdate", "date")),
    ("Patient?gender=male", TextEquals("gender", ("male\t",))),
    ("Patient?gender=http://hl7.org/fhir/administrative-gender|male", TextEquals("gender", ("male\t",))),
    ("Patient?deceased=true", TextEquals("deceased", ("true\t",))),
    ("Patient?phone=555", TextEquals("telecom", ("555\tphone",))),
    ("Patient?phone=email|555", NOTHING),
    ("Patient?phone:missing=false", TextSuffix("telecom", "\tphone")),
    ("Patient?family=M%C3%BCl", _begins("family", "mul")),
    ("Patient?given=Ann+M", _begins("given", "ann m")),
    ("Patient?given:exact=Ann", TextEquals("given", ("ann\tAnn",))),
    ("Patient?given:contains=NN", TextContains("given", "nn")),
    ("Patient?given=ann,bob", AnyOf((_begins("given", "ann"), _begins("given", "bob")))),
    ("Patient?phonetic=a", AnyOf((_begins("name", "a"), _begins("family", "a"), _begins("given", "a")))),
    ("RelatedPerson?phonetic=ann", _begins("name", "ann")),
    ("Patient?address-postalcode=30", TextPrefix("address-postalcode", "30")),
    ("Patient?_id=Patient/a", IdIn(("a",))),
    ("Patient?_list=List/7", ListMember("7")),
    ("Patient?identifier:of-type=s|MR|1", TypedIdentifier("Patient", "identifier", "s", "MR", "1")),
    ("Condition?code:text=Head+ache", CodedText("Condition", "code", "head ache")),
    ("Condition?code:in=http://v", CodeIn(("code",), "in", "http://v", True)),
    ("Condition?code:not-in=http://v", Not(CodeIn(("code",), "in", "http://v", True))),
    ("Condition?code:below=s|1", CodeIn(("code",), "below", "s|1", True)),
    ("Patient?gender:in=http://v", CodeIn(("gender",), "in", "http://v", False)),
    ("Encounter?subject:identifier=s|1", TextEquals("subject", ("1\ts",))),
    ("Encounter?subject:Patient.gender=male", Linked("subject", "Patient", (TextEquals("gender", ("male\t",)),))),
    (
        "Observation?patient.organization.identifier=s|1",
        Linked(
            "subject",
            "Patient",
            (Linked("organization", "Organization", (TextEquals("identifier", ("1\ts",)),)),),
        ),
    ),
    (
        "Patient?_has:Observation:patient:code=s|1",
        Has("Observation", "subject", (TextEquals("code", ("1\ts",)),)),
    ),
    (
        "Patient?_has:Observation:patient:_has:Provenance:target:recorded=2020",
        Has("Observation", "subject", (Has("Provenance", "target", (DateRange("recorded", YEAR_2020),)),)),
    ),
    (
        "Observation?code-value-concept=s|1$t|2",
        AllOf((TextEquals("code", ("1\ts",)), TextEquals("value-concept", ("2\tt",)))),
    ),
    (
        "Observation?component-code-value-quantity=s|1$gt5",
        TextParts(
            "component-code-value-quantity",
            (
                (0, TextEquals("", ("1\ts",))),
                (1, QuantityRange("", ((Bound("hi", ">", Decimal(5)),),))),
            ),
        ),
    ),
    ("Patient?_id=b,a,b", IdIn(("a", "b"))),
    ("Encounter?subject=Patient/1", TextEquals("subject", ("Patient/1",))),
    ("Encounter?subject=1", TextEquals("subject", ("Group/1", "Patient/1"))),
    ("Encounter?subject:Patient=1", TextEquals("subject", ("Patient/1",))),
    ("Encounter?patient=1", TextEquals("subject", ("Patient/1",))),
    ("Encounter?patient=Group/1", NOTHING),
    ("Encounter?patient=http://a/fhir/Patient/1", TextEquals("subject", ("http://a/fhir/Patient/1",))),
    ("Encounter?patient=http://a/fhir/Group/1", NOTHING),
    ("Encounter?subject=urn:uuid:1", TextEquals("subject", ("urn:uuid:1",))),
    (
        "Encounter?patient:missing=false",
        AnyOf((TextPrefix("subject", "Patient/"), TextContains("subject", "/Patient/"))),
    ),
    (
        "ValueSet?url=http://a|1",
        AnyOf(
            (
                TextEquals("url", ("http://a|1",)),
                AllOf((TextEquals("url", ("http://a",)), TextEquals("version", ("1\t",)))),
            )
        ),
    ),
    ("Subscription?url=http://a|1", TextEquals("url", ("http://a|1",))),
    ("QuestionnaireResponse?questionnaire=http://a|1", TextEquals("questionnaire", ("http://a|1",))),
    ("ValueSet?url:below=http://a", AnyOf((TextEquals("url", ("http://a",)), TextPrefix("url", "http://a/")))),
    ("ValueSet?url:below=urn:a", NOTHING),
    (
        "ValueSet?url:above=http://a/b/c",
        TextEquals("url", ("http://a", "http://a/", "http://a/b", "http://a/b/", "http://a/b/c")),
    ),
    (
        "Observation?value-quantity=gt5.40|http://unitsofmeasure.org|mg",
        QuantityIn("value-quantity", ((Bound("hi", ">", Decimal("5.40")),),), "mg"),
    ),
    (
        "Observation?value-quantity=gt5.40|urn:units|mg",
        QuantityRange("value-quantity", ((Bound("hi", ">", Decimal("5.40")),),), unit_prefix="urn:units\tmg\t"),
    ),
    (
        "Observation?value-quantity=le5||mg",
        QuantityRange("value-quantity", ((Bound("lo", "<=", Decimal(5)),),), unit_part="\tmg\t"),
    ),
    (
        "Patient?_lastUpdated=ge2024",
        LastUpdated(((Bound("at", ">=", datetime(2024, 1, 1, tzinfo=UTC)),),)),
    ),
]
REFUSED = [
    ("Patient?foo=1", "foo", Category.NOT_SUPPORTED),
    ("Nonsense?x=1", None, Category.NOT_SUPPORTED),
    ("Encounter?subject.foo=x", "subject.foo", Category.NOT_SUPPORTED),
    ("Encounter?subject:Device.type=x", "subject:Device.type", Category.VALUE),
    ("Encounter?subject:Nonsense.name=x", "subject:Nonsense.name", Category.NOT_SUPPORTED),
    ("Encounter?status.name=x", "status.name", Category.VALUE),
    ("Encounter?patient.identifier:of-type=a|b|c", "patient.identifier:of-type", Category.NOT_SUPPORTED),
    ("Provenance?target.target.target.target.target=x", "target.target.target.target.target", Category.VALUE),
    (f"Patient?{'link:Patient.' * 12}name=x", "link:Patient." * 12 + "name", Category.VALUE),
    ("Patient?_has:Observation=1", "_has:Observation", Category.VALUE),
    ("Patient?_has:Nonsense:patient:code=1", "_has:Nonsense:patient:code", Category.NOT_SUPPORTED),
    ("Patient?_has:Encounter:location:status=1", "_has:Encounter:location:status", Category.VALUE),
    ("Patient?_include=Patient:name", "_include", Category.NOT_SUPPORTED),
    ("Patient?_include=organization", "_include", Category.VALUE),
    ("Patient?_include:sideways=*", "_include:sideways", Category.NOT_SUPPORTED),
    ("Patient?_filter=nme eq x", "_filter", Category.NOT_SUPPORTED),
    ("Patient?_filter=", "_filter", Category.VALUE),
    ("Patient?_filter=name like x", "_filter", Category.VALUE),
    ("Patient?_filter=name eq", "_filter", Category.VALUE),
    ("Patient?_filter=(name eq x", "_filter", Category.VALUE),
    ("Patient?_filter=name eq x)", "_filter", Category.VALUE),
    ("Patient?_filter=name gt x", "_filter", Category.VALUE),
    ("Patient?_filter=not name eq x", "_filter", Category.VALUE),
    ("Patient?_filter=name eq x or", "_filter", Category.VALUE),
    ('Patient?_filter=name eq "x', "_filter", Category.VALUE),
    ("Patient?_filter=_text co x", "_filter", Category.NOT_SUPPORTED),
    ("Patient?_filter=birthdate eq soon", "_filter", Category.VALUE),
    ("Patient?_filter=" + "(" * 30 + "name eq x" + ")" * 30, "_filter", Category.VALUE),
    ("Basic?_filter=" + "subject." * 7 + "code eq x", "_filter", Category.VALUE),
    ("Patient?_filter=gender pr maybe", "_filter", Category.VALUE),
    ("Patient?_filter=_id pr true", "_filter", Category.VALUE),
    ("Patient?organization._filter=name eq x", "organization._filter", Category.NOT_SUPPORTED),
    ("Patient?_filter=organization[name eq x] eq y", "_filter", Category.VALUE),
    ("Location?near=1|2|3|kg", "near", Category.VALUE),
    ("Location?near=91|2", "near", Category.VALUE),
    ("Location?near=1", "near", Category.VALUE),
    ("Location?near=x|2", "near", Category.VALUE),
    ("Location?near=1|nan", "near", Category.VALUE),
    ("Location?near=1|2|-3", "near", Category.VALUE),
    ("Patient?near=1|2", "near", Category.NOT_SUPPORTED),
    ("Location?near:exact=1|2", "near:exact", Category.NOT_SUPPORTED),
    ("Encounter?location.near=1|2", "location.near", Category.NOT_SUPPORTED),
    ("Patient?_list=$current-problems", "_list", Category.VALUE),
    ("Patient?identifier:of-type=b|c", "identifier:of-type", Category.VALUE),
    ("Condition?code:below=1", "code:below", Category.VALUE),
    ("Patient?_content=(a", "_content", Category.VALUE),
    ("Patient?_text=a)", "_text", Category.VALUE),
    ("Patient?_text=--", "_text", Category.VALUE),
    ("Patient?_text:exact=a", "_text:exact", Category.NOT_SUPPORTED),
    ("Observation?patient._content=a", "patient._content", Category.NOT_SUPPORTED),
    ("Patient?gender:text=x", "gender:text", Category.VALUE),
    ("Patient?identifier:exact=x", "identifier:exact", Category.NOT_SUPPORTED),
    ("Encounter?subject:Device=x", "subject:Device", Category.VALUE),
    ("Observation?code-value-quantity=1", "code-value-quantity", Category.VALUE),
    ("Observation?code-value-quantity=1$a", "code-value-quantity", Category.VALUE),
    ("Patient?_summary=true", "_summary", Category.NOT_SUPPORTED),
    ("Patient?_sort=foo", "_sort", Category.NOT_SUPPORTED),
    ("Patient?_count=-1", "_count", Category.VALUE),
    ("Patient?_total=xyz", "_total", Category.VALUE),
    ("Patient?_contained=true", "_contained", Category.NOT_SUPPORTED),
    ("Patient?_contained=both", "_contained", Category.NOT_SUPPORTED),
    ("Patient?_contained=yes", "_contained", Category.VALUE),
    ("Patient?_containedType=x", "_containedType", Category.VALUE),
    ("Patient?identifier=", "identifier", Category.VALUE),
    ("Patient?identifier=,", "identifier", Category.VALUE),
    ("Patient?identifier=a|b|c", "identifier", Category.VALUE),
    ("Patient?identifier=|", "identifier", Category.VALUE),
    ("Patient?identifier:missing=1", "identifier:missing", Category.VALUE),
    ("Patient?name=%20", "name", Category.VALUE),
    ("Patient?birthdate=soon", "birthdate", Category.VALUE),
    ("Patient?birthdate=ap2020", "birthdate", Category.VALUE),
    ("Patient?birthdate:exact=2020", "birthdate:exact", Category.NOT_SUPPORTED),
    ("Patient?_id:not=a", "_id:not", Category.NOT_SUPPORTED),
    ("Encounter?subject=a/b", "subject", Category.VALUE),
    ("Observation?value-quantity=5|mg", "value-quantity", Category.VALUE),
    ("Observation?value-quantity=five", "value-quantity", Category.VALUE),
    ("Observation?value-quantity=1e9999", "value-quantity", Category.VALUE),
]


class Terms(TestCase):
    """One parameter, one test."""

    def test_tests(self) -> None:
        for criteria, expected in TESTS:
            (term,) = parse_criteria(criteria).terms
            self.assertEqual(term.test, expected, criteria)

    def test_contained_resources_are_not_searched(self) -> None:
        for pair in ("_contained=false", "_containedType=container", "_containedType=contained"):
            self.assertEqual(parse_criteria(f"Patient?gender=male&{pair}"), parse_criteria("Patient?gender=male"))
        for which in ("true", "both"):
            with self.assertRaises(Problem):
                parse_criteria(f"Patient?gender=male&_contained={which}", strict=False)

    def test_refused_by_name(self) -> None:
        for criteria, name, category in REFUSED:
            problem = self.assertRaises(Problem, parse_criteria, criteria)
            self.assertEqual((problem.place, problem.category), (name, category), criteria)
            self.assertIn((name or criteria).partition("?")[0], problem.text)

    def test_an_invalid_unit_is_refused_with_the_unit_that_was_meant(self) -> None:
        for code, text in (("mmHg", "did you mean 'mm[Hg]'?"), ("qqqzz", "the unit 'qqqzz' is not known")):
            criteria = f"Observation?value-quantity=5|http://unitsofmeasure.org|{code}"
            problem = self.assertRaises(Problem, parse_criteria, criteria)
            self.assertEqual((problem.category, problem.place), (Category.VALUE, "value-quantity"))
            self.assertIn(text, problem.text)
        parse_criteria("Observation?value-quantity=5|http://acme.org/units|mmHg")
        parse_criteria("Observation?value-quantity=5||mmHg")

    def test_very_many_values(self) -> None:
        problem = self.assertRaises(Problem, parse_query, "Patient", [("name", "x," * 3_000), ("gender", "a," * 3_000)])
        self.assertEqual((problem.category, problem.place), (Category.COSTLY, "gender"))
        self.assertIn("more than 5000 values", problem.text)

    def test_unknown_parameter_error_lists_known_ones(self) -> None:
        """The error lists the parameters of the type; in a chain it only names the unknown one."""
        with self.assertRaises(Problem) as raised:
            parse_criteria("Encounter?patiend=1")
        text = raised.exception.text
        self.assertIn("patiend is unknown for Encounter, which has account, appointment, ", text)
        self.assertIn(" type, _content, _filter, _id, _lastUpdated, _list, _profile", text)
        with self.assertRaises(Problem) as raised:
            parse_criteria("Encounter?patient.foo=1")
        self.assertTrue(raised.exception.text.endswith("is unknown for Patient"), raised.exception.text)

    def test_implicit_precision_of_numbers(self) -> None:
        table = [
            ("100", "99.5", "100.5"),
            ("100.00", "99.995", "100.005"),
            ("1e2", "95", "105"),
            ("-1.0", "-1.05", "-0.95"),
        ]
        for value, lo, hi in table:
            (term,) = parse_query("RiskAssessment", [("probability", value)]).terms
            bounds = ((Bound("lo", ">=", Decimal(lo)), Bound("hi", "<", Decimal(hi))),)
            self.assertEqual(term.test, QuantityRange("probability", bounds))

    def test_plus_decoded_as_blank_is_restored(self) -> None:
        sent = parse_criteria("Observation?date=2024-01-01T00:00:00+01:00")
        meant = parse_criteria("Observation?date=2024-01-01T00:00:00%2B01:00")
        self.assertEqual(sent.terms[0].test, meant.terms[0].test)


class Anything(TestCase):
    """Any input."""

    @settings(max_examples=200, deadline=None)
    @given(
        some.sampled_from(
            ["identifier", "name", "birthdate", "phone", "organization", "_id", "_lastUpdated", "_profile"]
        ),
        some.sampled_from(["", ":exact", ":not", ":missing", ":contains", ":Organization", ":above", ":below"]),
        some.text(alphabet="aeglt0123456789-:.TZ|,\\$ /\x00\u00e9", max_size=25) | some.text(max_size=9),
    )
    def test_any_input_gives_a_query_or_a_problem(self, code: str, modifier: str, value: str) -> None:
        with contextlib.suppress(Problem):
            hash(parse_query("Patient", [(code + modifier, value)]))


def _answer(criteria: str) -> object:
    """The query, or the text of the Problem."""
    try:
        return parse_criteria(criteria)
    except Problem as problem:
        return str(problem)


class Queries(TestCase):
    """Result parameters, and properties of the whole query."""

    def test_result_parameters(self) -> None:
        text = "Patient?_sort=-birthdate,_lastUpdated,phonetic,-_id&_count=5&_total=accurate&_format=json&_pretty=true"
        query = parse_criteria(text)
        order = (
            Sort("birthdate", "date", True),
            Sort("_lastUpdated", "last_updated"),
            Sort("name", "text", others=("family", "given")),
            Sort("_id", "id", True),
        )
        self.assertEqual((query.terms, query.sort, query.count, query.total), ((), order, 5, "accurate"))
        self.assertFalse(query.summary_count)
        self.assertTrue(parse_criteria("Patient?_summary=count").summary_count)
        self.assertTrue(parse_criteria("Patient?_count=0").summary_count)

    def test_lenient_parsing_ignores_unknown_parameters(self) -> None:
        pairs = [("foo", "1"), ("gender", "male"), ("_query", "x"), ("name", ""), ("_sort", "foo")]
        query = parse_query("Patient", pairs, strict=False)
        self.assertEqual(query.ignored, (pairs[0], *pairs[2:]))
        self.assertEqual([term.name for term in query.terms], ["gender"])
        for name, value in (
            ("birthdate", "soon"), ("gender:text", "x"), ("birthdate.x", "x"), ("gender:foo", "x"), ("_count", "x"),
            ("_include:foo", "Patient:organization"), ("_include", "Patient"),
        ):  # fmt: skip
            self.assertRaises(Problem, parse_query, "Patient", [(name, value)], strict=False)

    def test_all_of_a_type(self) -> None:
        for text in ("Patient", "Patient?"):
            self.assertEqual((parse_criteria(text).terms, parse_criteria(text).canonical), ((), "Patient?"))

    def test_single_equality_is_recognized(self) -> None:
        table = [
            ("Patient?identifier=urn:a|1", ("identifier", "1\turn:a")),
            ("Encounter?patient=1", ("subject", "Patient/1")),
            ("ValueSet?url=http://a", ("url", "http://a")),
            ("Patient?identifier=1", None),
            ("Patient?identifier:not=urn:a|1", None),
            ("Patient?identifier=urn:a|1,urn:a|2", None),
            ("Patient?identifier=urn:a|1&gender=male", None),
            ("Patient", None),
        ]
        for criteria, expected in table:
            self.assertEqual(parse_criteria(criteria).single_token, expected)

    def test_fast_path_of_tokens_agrees(self) -> None:
        for resource_type in ("Patient", "Observation", "Bundle", "Group"):
            for code in definitions().search_parameters(resource_type):
                for token in ("urn:a|1", "phone|5", "active|x", f"http://x y|\x01{'z' * 1500}"):
                    criteria = f"{resource_type}?{code}={token}"
                    self.assertEqual(_answer(criteria), _answer(criteria + "&"), criteria)

    def test_canonical_form(self) -> None:
        same = ["Encounter?patient=1&status=planned", "Encounter?status=planned&subject=Patient/1&_count=3"]
        other = "Encounter?patient=2&status=planned"
        forms = {parse_criteria(text).canonical for text in same}
        self.assertEqual(len(forms), 1)
        self.assertNotIn(parse_criteria(other).canonical, forms)
        self.assertEqual(len({parse_criteria(text) for text in (other, other)}), 1)

    def test_approximate_dates_depend_on_now(self) -> None:
        now = datetime(2024, 1, 1, tzinfo=UTC)
        (near,) = parse_query("Patient", [("birthdate", "ap2023-12-31")], now=now).terms
        (far,) = parse_query("Patient", [("birthdate", "ap1924-01-01")], now=now).terms
        self.assertNotEqual(near.test, far.test)
