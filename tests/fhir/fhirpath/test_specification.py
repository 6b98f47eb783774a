"""The text of the specification, as tables: equivalence, durations, texts, and the functions that must exist."""

from __future__ import annotations

from decimal import Decimal
from itertools import combinations
from typing import Any

from twisted.trial import unittest

from ipf.fhir.fhirpath import FhirNode, FhirPathError, compile
from ipf.fhir.fhirpath.evaluation.registry import FUNCTIONS
from ipf.fhir.fhirpath.functions.conversion import to_text
from ipf.fhir.fhirpath.items.nodes import plain
from ipf.fhir.model.json import loads

UCUM = "http://unitsofmeasure.org"
OBSERVATION: dict[str, Any] = {
    "resourceType": "Observation",
    "status": "final",
    "code": {"text": "A  b"},
    "effectiveDateTime": "2014-02-28",
    "valueQuantity": {"value": Decimal("1.0"), "system": UCUM, "code": "a"},
    "component": [
        {"code": {"text": "x"}, "valueQuantity": {"value": 1, "system": UCUM, "code": "a"}},
        {"code": {"text": "X"}, "valueQuantity": {"value": loads("1.04"), "system": UCUM, "code": "a"}},
        {"code": {"text": "x"}, "valueQuantity": {"value": 1, "unit": "a"}},
    ],
}
# http://hl7.org/fhirpath/N1/#functions
NORMATIVE = """
    empty exists all allTrue anyTrue allFalse anyFalse subsetOf supersetOf count distinct isDistinct where select repeat
    ofType single first last tail skip take intersect exclude union combine iif toBoolean convertsToBoolean toInteger
    convertsToInteger toDate convertsToDate toDateTime convertsToDateTime toDecimal convertsToDecimal toQuantity
    convertsToQuantity toString convertsToString toTime convertsToTime indexOf substring startsWith endsWith contains
    upper lower replace matches replaceMatches length toChars abs ceiling exp floor ln log power round sqrt truncate
    children descendants trace now timeOfDay today is as not aggregate type
"""
# https://hl7.org/fhir/R4/fhirpath.html#functions
R4 = """
    extension hasValue getValue resolve ofType elementDefinition slice checkModifiers conformsTo memberOf subsumes
    subsumedBy htmlChecks
"""
# https://hl7.org/fhirpath: marked as trial use
TRIAL_USE = """
    lastIndexOf matchesFull trim split join encode decode escape unescape defineVariable lowBoundary highBoundary
    precision comparable sort coalesce repeatAll sum min max avg yearOf monthOf dayOf hourOf minuteOf secondOf
    millisecondOf timezoneOffsetOf dateOf timeOf toLong convertsToLong
"""


class SpecificationTest(unittest.TestCase):
    """Each row is an expression and its result as text, or `error`."""

    def table(self, rows: dict[str, Any]) -> None:
        for text, wanted in rows.items():
            try:
                found: Any = [
                    item if isinstance(item, bool) else to_text(plain(item))
                    for item in compile(text).evaluate(OBSERVATION, typed=True)
                ]
            except FhirPathError:
                found = "error"
            self.assertEqual(wanted if wanted == "error" else list(wanted), found, text)

    def test_functions(self) -> None:
        wanted = {*NORMATIVE.split(), *R4.split(), *TRIAL_USE.split()}
        self.assertEqual(set(), wanted - set(FUNCTIONS))
        self.assertEqual({"hasExtension"}, set(FUNCTIONS) - wanted)  # of R4's own search parameter item-subject

    def test_refused_by_name(self) -> None:
        for text, reason in (
            ("code.elementDefinition()", "elementDefinition() needs definitions, and none are loaded"),
            ("code.slice('http://p', 'a')", "slice() needs profiles, and none are loaded"),
            ("conformsTo('http://p')", "conformsTo() does not know this profile"),
            ("code.memberOf('http://v')", "memberOf() needs value sets, and none are loaded"),
            ("code.subsumes(code)", "subsumes() needs code systems, and none are loaded"),
            ("code.subsumedBy(code)", "subsumedBy() needs code systems, and none are loaded"),
        ):
            error = self.assertRaises(FhirPathError, compile(text).evaluate, OBSERVATION)
            self.assertEqual(str(error), reason)
        self.assertRaises(FhirPathError, compile("%factory").evaluate, OBSERVATION)

    def test_equivalence_of_numbers(self) -> None:
        yes, no = [True], [False]
        self.table(
            {
                "1.10 ~ 1.1": yes,
                "1.14 ~ 1.10": yes,  # the trailing zero is no precision: both are 1.1
                "1.14 ~ 1.1001": no,
                "1.15 ~ 1.1": no,
                "100 ~ 100.4": yes,
                "100 ~ 100.5": no,
                "1.2 / 1.8 ~ 0.67": yes,
                "0.0 ~ 0": yes,
                "2 ~ 3": no,
                "23 ~ 23 '1'": yes,
                "(1.14 | 2) ~ (2.04 | 1.1)": yes,
                "1 ~ {}": no,
                "{} ~ {}": yes,
            }
        )

    def test_equivalence_of_texts(self) -> None:
        yes, no = [True], [False]
        self.table(
            {
                "'a' ~ 'A'": yes,
                "'Straße' ~ 'STRASSE'": yes,
                "'Σ' ~ 'ς'": yes,
                r"'a b' ~ 'A\tB'": yes,
                r"'a b' ~ 'a\u00a0b'": yes,
                r"'a\u2003b' ~ 'a\nb'": yes,
                "'a  b' ~ 'a b'": no,  # a run of white space is not collapsed
                "' a' ~ 'a'": no,
                "code.text ~ 'a  B'": yes,
                r"'a\u200bb' ~ 'a b'": no,  # a zero width space is no white space
            }
        )

    def test_equivalence_of_structures(self) -> None:
        self.table(
            {
                "component[0].code ~ component[1].code": [True],
                "component[0].code = component[1].code": [False],
                "component.take(2).code ~ component.skip(1).code": [True],
                "component[0] ~ component[1]": [True],  # 1 and 1.04 are equivalent, in structures too
                "component[0] ~ component[2]": [False],
            }
        )

    def test_durations(self) -> None:
        self.table(
            {
                "1 year = 1 'a'": [],
                "1 year ~ 1 'a'": [True],
                "1 year > 1 'a'": [],
                "1 month = 1 'mo'": [],
                "1 month ~ 1 'mo'": [True],
                "1 year = 12 'mo'": [],
                "1 year = 12 months": [True],
                "1 year = 365 days": [True],
                "1 month = 30 days": [True],
                "1 week = 7 'd'": [True],
                "1 hour = 3600 's'": [True],
                "1 year ~ 11 months": [True],
                "1 year ~ 1 month": [False],
                "21 'mm' ~ 2 'cm'": [True],
                "4 'g' ~ 4040 'mg'": [True],
                "4 'g' ~ 4 's'": [False],
                "6 months > 1 year": [False],
                "1 year.comparable(1 'a')": [False],
                "1.comparable(2 '1')": [True],
                "1 'a'.toQuantity('year')": ["1 year"],
                "1 year.toQuantity('a') = 1 'a'": [True],
                "182.5 days.toQuantity('a')": ["0.5 'a'"],
                "1 'a'.toQuantity('d')": ["365.25 'd'"],
                "7 days.toQuantity('wk')": ["1 'wk'"],
                "24 'm'.toQuantity('kg')": [],
                "45.toQuantity('m')": ["45 'm'"],
                "'1 \\'a\\''.toQuantity() = 1 year": [],
                "1 minute - 30 's'": ["30 's'"],
                "1 week + 14 days": ["21 days"],
                "1 year + 6 months": ["18 months"],
                "6 months + 1 year": ["18 months"],
                "(1 year | 6 months).sum()": ["18 months"],
                "1 hour - 1 'd'": ["-23 hours"],
                "1 'm' + 1 'cm'": ["101 'cm'"],
                "1 'cm' + 1 'm'": ["101 'cm'"],
                "1 'g' - 5 'mg'": ["995 'mg'"],
                "1 'm' + 1 'cm2'": [],
                "1 'min' + 1 minute": ["2 'min'"],
                "1 minute + 1 'min'": ["2 minutes"],
                "1 year + 1 'a'": [],
                "1 year * 2": ["2 years"],
                "1 year / 1 month": ["12 '1'"],
                "1 year * 1 'mg'": [],
            }
        )

    def test_a_sum_has_the_finer_unit(self) -> None:
        """In either order, and the sum is equal to both."""
        for coarser, finer in combinations(
            ("1 year", "1 month", "1 week", "1 day", "1 hour", "1 minute", "1 second", "1 millisecond"), 2
        ):
            self.table(
                {
                    f"({coarser} + {finer}) - {coarser} = {finer}": [True],
                    f"{coarser} + {finer} = {finer} + {coarser}": [True],
                }
            )
        for one, other in combinations(("1 'km'", "1 'm'", "1 '[ft_i]'", "1 'cm'", "1 'mm'"), 2):
            unit = other.removeprefix("1 ")
            self.table({f"({one} + {other}).unit = {unit}": [True], f"({other} - {one}).unit = {unit}": [True]})

    def test_scales(self) -> None:
        """A special unit of UCUM has no sums and multiples; its values have an order and, in one unit, a mean."""
        self.table({f"{one} {operator} {other}": [] for one in ("2 'Cel'", "2 '[degF]'", "2 '[pH]'", "2 'B'", "2 'dB'")
                    for operator in "+-*/" for other in (one, "1 'm'", "2")
                    if other != "2" or operator in "*/"})  # fmt: skip
        self.table(
            {
                "38 'Cel' > 99 '[degF]'": [True],
                "-2 'Cel' < 0 'Cel'": [True],
                "(36 'Cel' | 38 'Cel').avg()": ["37 'Cel'"],
                "(36 'Cel' | 38 'Cel').sum()": [],
                "(36 'Cel' | 100 '[degF]').avg()": [],
                "(1 'm' | 50 'cm').avg()": ["75 'cm'"],
            }
        )

    def test_durations_of_data(self) -> None:
        """A UCUM code of data is a calendar duration; a text that is no UCUM unit is not."""
        self.table(
            {
                "value = 1 year": [True],
                "value = 12 months": [True],
                "value = 1 'a'": [],
                "value ~ 1 'a'": [True],
                "effective + value": ["2015-02-28"],
                "effective - component[0].value": ["2013-02-28"],
                "component[2].value = 1 year": [],
            }
        )

    def test_quantities_of_data(self) -> None:
        """The code of another system is no unit of UCUM, however it is spelled; it is comparable with itself."""
        for more, wanted in (
            ({"system": UCUM, "code": "min"}, [True]),
            ({"unit": "min"}, [True]),
            ({"system": "http://other.test", "code": "min"}, [False]),
            ({"system": "http://other.test", "unit": "min"}, [False]),
            ({"system": UCUM, "code": "min", "comparator": "<"}, [False]),
        ):
            data = {"resourceType": "Observation", "valueQuantity": {"value": 4, **more}}
            self.assertEqual(wanted, compile("value = 4 'min'").evaluate(data), more)
        other = {"value": 4, "system": "http://other.test", "code": "min"}
        low = {"resourceType": "Observation", "valueRange": {"low": other, "high": {**other, "value": 5}}}
        for text, found in (
            ("value.low < value.high", [True]),
            ("value.low > value.high", [False]),
            ("value.low = value.low and value.low != value.high", [True]),
            ("value.low + value.high > value.high", [True]),
            ("value.low < 5 'min'", []),
            ("value.low.toQuantity('s')", []),
            ("value.low.code", ["min"]),
        ):
            self.assertEqual(found, compile(text).evaluate(low), text)

    def test_data_of_no_known_type(self) -> None:
        """The `resourceType` of a logical model begins a path; its values have the types of JSON."""
        data = {"resourceType": "LabSheet", "rows": [{"n": 1}, {"n": loads("2.5")}, {"n": "x"}, {"n": True}]}
        for text, wanted in (
            ("LabSheet.rows.n.count()", [4]),
            ("LabSheet.rows.n", [1, loads("2.5"), "x", True]),
            ("LabSheet.rows.n.ofType(Integer)", [1]),
            ("rows.n.ofType(System.Decimal)", [loads("2.5")]),
            ("rows.n.ofType(String)", ["x"]),
            ("rows.n.ofType(string)", ["x"]),
            ("rows.n.ofType(Boolean)", [True]),
            ("rows.n.first() is Integer and rows.n.first() is integer", [True]),
            ("rows.n.first() is FHIR.integer", [True]),
            ("rows.n.first() is System.String", [False]),
            ("OtherSheet.rows", []),
        ):
            self.assertEqual(wanted, compile(text).evaluate(data), text)
        self.assertEqual([5], compile("Sheet.n").evaluate({"Sheet": {"n": 5}}))
        self.assertEqual(
            [False], compile("Patient.gender is System.String").evaluate({"resourceType": "Patient", "gender": "male"})
        )

    def test_sums_with_an_element_without_value(self) -> None:
        data = {"resourceType": "Rows", "n": [1, None, 2], "_n": [None, {"id": "absent"}, None]}
        for name in ("sum", "avg", "min", "max"):
            self.assertEqual([], compile(f"Rows.n.{name}()").evaluate(data), name)

    def test_date_arithmetic(self) -> None:
        self.table(
            {
                "@2016-02-29 + 1 year": ["2017-02-28"],
                "@2026-01-31 + 1 month": ["2026-02-28"],
                "@2016-02-29 + 1 'a'": "error",
                "@2016-02-29 + 1 'mo'": "error",
                "@2016-02-29 + 1 'd'": ["2016-03-01"],
                "@2014 + 23 months": ["2015"],
                "@2014 - 1 month": ["2014"],
                "@2014 - 24 months": ["2012"],
                "@2016 + 365 days": ["2017"],
                "@2026-02 + 5 weeks": ["2026-03"],
                "@2026-02 - 1 day": ["2026-02"],
                "@1973-12-25 + 7.9 days": ["1974-01-01"],
                "@1973-12-25T00:00:00.000+10:00 + 42.53 seconds": ["1973-12-25T00:00:42.530+10:00"],
                "@T23:30:00 + 1 hour": ["00:30:00"],
                "@T23:30:00 + 1 day": "error",
                "@2014-01-01T08.highBoundary(17)": ["2014-01-01T08:59:59.999-12:00"],
            }
        )

    def test_numbers_of_json(self) -> None:
        """Numbers as our reader of JSON gives them, which keep their digits."""
        risk = {"probabilityDecimal": loads("101.0"), "probabilityRange": {"low": {"value": loads("7.50")}}}
        for base in ("RiskAssessment.prediction", None):
            for text, wanted in (
                ("(probability as decimal) <= 100", [False]),
                ("probability.ofType(decimal) + 1 = 102", [True]),
                ("probability.ofType(decimal).toString()", ["101.0"]),
                ("probability.ofType(decimal).round(0) in (101 | 7)", [True]),
                ("probability.low.value * 2", [Decimal(15)]),
                ("probability.low.value ~ 7.5 and probability.low > 7", [True]),
                ("probability.low.value is decimal", [True]),
            ):
                found = compile(text, base_type=base).evaluate(FhirNode(risk, "RiskAssessment.prediction"))
                self.assertEqual(wanted, found, text)
                if base is not None:
                    self.assertEqual(wanted, compile(text, base_type=base).evaluate(risk), text)

    def test_texts(self) -> None:
        self.table(
            {
                r"'\p' & '\\p' & '\3'": [r"p\p3"],
                r"'\u005'": ["u005"],
                r"'Ä'.matches('^\\p{L}$')": [True],
                r"'Äb'.replaceMatches('\\p{Lu}', 'x')": ["xb"],
                r"'α'.matches('\\p{Greek}')": [True],
                r"'a'.matches('\\P{L}')": [False],
                r"'a'.matches('\\p{IsLatin}')": "error",  # a class of Java, not of PCRE
                r"'first\nsecond'.matches('^second', 'm')": [True],
                r"'first\nsecond'.matches('^second')": [False],
                r"'first\nsecond'.matches('^SECOND', 'im')": [True],
                "'a'.matches('a', 'x')": "error",
                "'aB'.replaceMatches('b', 'c', 'i')": ["ac"],
                "'AB'.matchesFull('ab', 'i')": [True],
                "'é'.encode('ascii')": ["?"],
                "'ff'.decode('hex')": [],
            }
        )

    def test_lone_surrogates(self) -> None:
        """In expressions they are no FHIRPath; no function makes one."""
        for text in (r"'\ud800'", r"'\udc00\ud800'", "'\ud800'", "`\ud800`", r"%'\udfff'"):
            self.assertEqual("syntax", self.assertRaises(FhirPathError, compile, text).kind, ascii(text))
        self.table(
            {
                r"'\ud83d\ude00'.length()": ["1"],
                r"'\\ud83d\\ude00'.unescape('json') = '😀'": [True],
                r"'\\ud83d'.unescape('json')": "error",
            }
        )
        lone = {"resourceType": "Observation", "status": "\ud800"}
        self.assertRaises(FhirPathError, compile("status.encode('hex')").evaluate, lone)
        self.assertEqual([False], compile(r"status.matches('\\p{L}')").evaluate(lone))

    def test_aggregates_and_parts_of_dates(self) -> None:
        self.table(
            {
                "(1.0 | 2.0 | 3.0).sum()": ["6.0"],
                "(1 'mg' | 2 'mg').sum()": ["3 'mg'"],
                "(1 | 'a').sum()": "error",
                "{}.sum() | {}.min() | {}.avg()": [],
                "(5.5 | 4.7 | 4.8).avg()": ["5.0"],
                "(@2012-12-31 | @2013-01-01 | @2012-01-01).min()": ["2012-01-01"],
                "(2 | 4 | 8 | 6).max()": ["8"],
                "('b' | 'a').min()": ["a"],
                "(1 | 'a').max()": "error",
                "@2014-01-05T10:30:00.002.yearOf()": ["2014"],
                "@2012.monthOf()": [],
                "@2014-01-05.dayOf()": ["5"],
                "@2012-01-01T16:30:40.002-07:00.hourOf()": ["16"],
                "@T10:30.minuteOf()": ["30"],
                "@2012-01-01T12:30:40.002-07:00.secondOf()": ["40"],
                "@2012-01-01T12:30:40.002-07:00.millisecondOf()": ["2"],
                "@2012-01-01T12:30:00.000+08:45.timezoneOffsetOf()": ["8.75"],
                "@2012-01-01T12:30:00.000-07:00.dateOf()": ["2012-01-01"],
                "@2012-01-01T12:30:00.000-07:00.timeOf()": ["12:30:00.000"],
                "@2012-01-01.timeOf()": [],
                "component.repeatAll(code).count()": ["3"],
                "1.repeatAll($this)": "error",
            }
        )
