"""UCUM codes: grammar, conversion, names, and the unit that was meant."""

from __future__ import annotations

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import TestCase

from ipf.fhir import ucum
from ipf.fhir.ucum import UnitError, canonical_form, convert, is_unit, measure, name, parse, proposal, refusal, symbol
from ipf.fhir.ucum.table import table

VALID = (
    "m s g rad K C cd mol % 1 10 10* 10^ 10*3/uL 10*-6 10^3 mm[Hg] m[iU]/mL [iU] [IU]/L Cel [degF] kg/m2 kg.m/s2 /min"
    " /100{WBC} {score} {a}.{b} mL/min/{1.73_m2} 10.L/(min.m2) (m/s).kg ((m)) mg{creat}/dL s-1 m+2 B[SPL] dB B[10.nV]"
    " [m/s2/Hz^(1/2)] [p'diop] %[slope] ' '' [in_i'Hg] [Amb'a'1'U] KiBy Tibit dag 4.[pi].10*-7.N/A2 Cel/min"
)
INVALID = {
    "": "empty",
    "mmHg": "'mmHg' is not known",
    "qqqzz": "'qqqzz' is not known",
    "MM[HG]": "'MM[HG]' is not known",
    "k[lb_av]": "'k[lb_av]' is not known",
    "mm": None,
    "10mg": "'mg' is not expected after '10'",
    "mg/": "missing at the end",
    "mg//dL": "a unit is missing",
    ".m": "a unit is missing",
    "(/m)": "a unit is missing",
    "(m": "closing parenthesis",
    "m)": "')' is not expected",
    "m{a": "not closed",
    "m{a{b}}": "not closed",
    "m}": "not expected",
    "mg dL": "white space",
    "m\n": "white space",
    "µg": "'µ' is not allowed",
    "m0": "exponent",
    "m101": "exponent",
    "0": "factor",
    "m²": "not allowed",
    "m" * 201: "longer than 200",
    "(" * 11 + "m" + ")" * 11: "more than 10 brackets",
}
CONVERSIONS = [
    ("37", "Cel", "[degF]", "98.6"),
    ("98.6", "[degF]", "Cel", "37"),
    ("-40", "[degF]", "Cel", "-40"),
    ("80", "[degRe]", "Cel", "100"),
    ("0", "K", "Cel", "-273.15"),
    ("1500", "mCel", "Cel", "1.5"),
    ("120", "mm[Hg]", "kPa", "15.99864"),
    ("7", "[pH]", "mol/L", "1E-7"),
    ("1E-7", "mol/L", "[pH]", "7"),
    ("70", "dB", "B", "7"),
    ("6", "B[SPL]", "Pa", "0.02"),
    ("8", "bit_s", "1", "256"),
    ("3", "[hp'_X]", "1", "0.001"),
    ("1", "[lb_av]", "kg", "0.45359237"),
    ("1", "a", "d", "365.25"),
    ("90", "mg/dL", "g/L", "0.9"),
    ("5", "mmol/L", "mol/m3", "5"),
    ("2", "[IU]/L", "m[iU]/mL", "2"),
    ("1", "KiBy", "bit", "8192"),
    ("50", "%", "1", "0.5"),
    ("1", "1/m", "/m", "1"),
    ("1", "g", "m", None),
    ("1", "[iU]", "mg", None),
    ("1", "[iU]", "[arb'U]", None),
    ("1", "Cel/min", "K/min", None),
    ("0", "1", "B", None),
    ("9e99999", "kg", "g", None),
    ("9e99999", "B", "1", None),
    ("1", "qqqzz", "g", None),
]
PROPOSALS = {
    "mmHg": "mm[Hg]",
    "mmHg/min": "mm[Hg]/min",
    "mm[hg]": "mm[Hg]",
    "MM[HG]": "mm[Hg]",
    "cmH2O": "cm[H2O]",
    "Torr": "mm[Hg]",
    "°C": "Cel",
    "degF": "[degF]",
    "celcius": "Cel",
    "IU/L": "[iU]/L",
    "µg/mL": "ug/mL",
    "mcg/kg/min": "ug/kg/min",
    "MMOL/L": "mmol/L",
    "mEq/L": "meq/L",
    "mg per dL": "mg/dL",
    "mg / dL": "mg/dL",
    "milligram": "mg",
    "kilograms": "kg",
    "lbs": "[lb_av]",
    "mg/kg/day": "mg/kg/d",
    "kg/m^2": "kg/m2",
    "kg/m²": "kg/m2",
    "mL/min/1.73m2": "mL/min/{1.73_m2}",
    "10e3/uL": "10*3/uL",
    "cells/uL": "{cells}/uL",
    "10mg": "10.mg",
    "g/dl.": "g/dl",
    "bpm": "{beats}/min",
    "mgg": "mg",
    "qqqzz": None,
    "": None,
    "mg": None,
}


class GrammarTests(TestCase):
    def test_valid_codes(self) -> None:
        self.assertEqual([code for code in VALID.split() if not is_unit(code)], [])

    def test_every_atom_is_valid_alone_and_metric_ones_with_each_prefix(self) -> None:
        known = table()
        self.assertEqual((len(known.atoms), len(known.prefixes)), (312, 24))
        metric = [one.code for one in known.atoms.values() if one.metric]
        codes = [*known.atoms, *(prefix + code for code in metric for prefix in known.prefixes)]
        self.assertEqual([code for code in codes if measure(code) is None], [])

    def test_invalid_codes_name_the_rule(self) -> None:
        for code, rule in INVALID.items():
            with self.subTest(code):
                if rule is not None:
                    self.assertIn(rule, str(self.assertRaises(UnitError, parse, code)))

    def test_numbers_beyond_any_use_have_no_measure(self) -> None:
        self.assertIsNone(measure(".".join(["Ym100"] * 30)))

    @given(st.text(alphabet="mgsLK[]{}()./01*^-+Hd%' ", max_size=30))
    def test_any_text_is_a_unit_or_refused(self, text: str) -> None:
        self.assertEqual(is_unit(text), refusal(text) == "")
        measure(text)
        meant = proposal(text)
        self.assertTrue(meant is None or is_unit(meant))


class ConversionTests(TestCase):
    def test_conversions(self) -> None:
        for value, unit, other, expected in CONVERSIONS:
            with self.subTest(f"{value} {unit} in {other}"):
                found = convert(Decimal(value), unit, other)
                if found is not None:
                    found = found.quantize(Decimal("1e-12")) if abs(found) > Decimal("1e-6") else found
                self.assertEqual(found, None if expected is None else Decimal(expected))

    def test_slopes_are_angles(self) -> None:
        found = convert(Decimal(100), "%[slope]", "deg")
        self.assertAlmostEqual(float(found or 0), 45)

    def test_canonical_form(self) -> None:
        for code, expected in {
            "mm[Hg]": "133322 g.m-1.s-2",
            "mg/dL": "10 g.m-3",
            "%": "0.01 1",
            "[iU]/L": "1000 [iU].m-3",
            "Cel": None,
            "mmHg": None,
        }.items():
            self.assertEqual(canonical_form(code), expected, code)


class NameTests(TestCase):
    def test_names_and_symbols(self) -> None:
        for code, words, printed in (
            ("mg/dL", "milligram per deciliter", "mg/dL"),
            ("mm[Hg]", "millimeter of mercury column", "mm Hg"),
            ("Cel", "degree Celsius", "°C"),
            ("m2", "square meter", "m2"),
            ("10*3/uL", "thousand per microliter", "103/μL"),
            ("/min", "per minute", "/min"),
            ("(m/s).kg", "(meter per second) kilogram", "(m/s)·kg"),
            ("mg{dry_wt}", "milligram [dry wt]", "mg"),
        ):
            self.assertEqual((name(code), symbol(code)), (words, printed))
        self.assertIsNone(name("mmHg"))
        self.assertIsNone(symbol("mmHg"))


class ProposalTests(TestCase):
    def test_proposals(self) -> None:
        for text, meant in PROPOSALS.items():
            with self.subTest(text):
                self.assertEqual(proposal(text), meant)

    def test_well_known_spellings_lead_to_valid_codes(self) -> None:
        from ipf.fhir.ucum.proposals import _well_known

        self.assertEqual({text: code for text, code in _well_known().items() if not is_unit(code)}, {})

    def test_a_refusal_names_the_unit_that_was_meant(self) -> None:
        self.assertEqual(
            refusal("mmHg"), "'mmHg' is no UCUM unit: the unit 'mmHg' is not known; did you mean 'mm[Hg]'?"
        )
        self.assertEqual(refusal("mm[Hg]"), "")

    def test_the_system(self) -> None:
        self.assertEqual(ucum.SYSTEM, "http://unitsofmeasure.org")
