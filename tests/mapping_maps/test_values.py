"""Values that HL7 v2 and R4 disagree on: numbers, comparators and times become values or text, never another value.

Each class goes from the text of a message through the maps to the resource; oracles are of the standard library.
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from decimal import Decimal, InvalidOperation
from itertools import product
from random import Random
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.fhir.model.json import JsonDecimal
from tests.corpus import samples
from tests.mapping_maps import generator
from tests.mapping_maps.validity import errors

FAMILY = "maps"

HEAD = "MSH|^~\\&|A|B|||20260310120000||ORU^R01^ORU_R01|1|P|2.5.1\nPID|1||1^^^B^MR||X\nOBR|1|||T^Test^L\n"
COMPARATORS = {"<": "<", "<=": "<=", "=<": "<=", "≤": "<=", ">": ">", ">=": ">=", "=>": ">=", "≥": ">="}
CHARACTERS = "0159.+-eE<>=≤≥ x_,"


def observed(*sent: tuple[str, str]) -> list[dict[str, Any]]:
    """The values (`value...` and what extends it) of results of these types and values, each in an OBX of its own."""
    results = "".join(
        f"OBX|{number}|{kind}|C{number}^X^L||{value}|mg/dL|||||F\n" for number, (kind, value) in enumerate(sent, 1)
    )
    bundle = samples.library().transform_message(samples.parse(HEAD + results))
    found = [one["resource"] for one in bundle["entry"] if one["resource"]["resourceType"] == "Observation"]
    return [{name: one[name] for name in one if "value" in name} for one in found]


def number_of(text: str) -> Decimal | None:
    """The number that a text is, by the standard library: digits of ASCII, with blanks around."""
    text = text.strip(" ")
    if not set(text) <= set("0123456789+-.eE") or len(text) > 40:
        return None
    try:
        return Decimal(text)
    except InvalidOperation:
        return None


def split(text: str) -> tuple[str, str]:
    """A comparator and the rest."""
    rest = text.lstrip(" ").lstrip("<>=≤≥")
    return text[: len(text) - len(rest)].strip(" "), rest


class NumberTests(TestCase):
    """NM: one rule decides what a number is."""

    def test_table(self) -> None:
        """Number and comparator, or the text."""
        table: list[tuple[str, Any, str | None]] = [
            ("7.2", "7.2", None), (" 7.2", "7.2", None), ("7.2 ", "7.2", None), ("+5", "5", None),
            ("-.5", "-0.5", None),
            ("5.", "5", None), ("007", "7", None), ("1e5", "1e5", None), ("1.5E-3", "1.5e-3", None),
            ("5.0", "5.0", None),
            ("<5", "5", "<"), (" < 5 ", "5", "<"), (">=5", "5", ">="), ("≥5", "5", ">="), ("=>5", "5", ">="),
        ]  # fmt: skip
        for (sent, number, comparator), found in zip(table, observed(*(("NM", one[0]) for one in table)), strict=True):
            with self.subTest(sent=sent):
                quantity = found["valueQuantity"]
                self.assertEqual((quantity["value"].literal, quantity.get("comparator")), (number, comparator))
                self.assertEqual(quantity["unit"], "mg/dL")

    def test_text(self) -> None:
        """What is no number is the text as sent, never a part of it."""
        table = (
            "1,5",
            "5 mg",
            "1.2.3",
            "+",
            "-",
            ".",
            "1_0",
            "٣",
            "5-10",
            "<>5",
            "==5",
            "<",
            "1e",
            "1e400",
            "NaN",
            "9" * 41,
        )
        for sent, found in zip(table, observed(*(("NM", one) for one in table)), strict=True):
            with self.subTest(sent=sent):
                self.assertEqual(found, {"valueString": sent})

    def test_generated(self) -> None:
        """What the standard library takes for a number is this number; all else is kept as sent."""
        random = Random(5)
        sent = ["".join(random.choice(CHARACTERS) for _ in range(random.randint(1, 6))) for _ in range(1500)]
        sent = [one for one in sent if one.strip()]
        numbers = 0
        for text, found in zip(sent, observed(*(("NM", one) for one in sent)), strict=True):
            comparator, rest = split(text)
            value = number_of(rest)
            is_number = value is not None and (not comparator or comparator in COMPARATORS)
            numbers += is_number
            with self.subTest(sent=text):
                if is_number:
                    quantity = found["valueQuantity"]
                    self.assertIsInstance(quantity["value"], JsonDecimal)
                    self.assertEqual(json.loads(quantity["value"].literal, parse_float=Decimal), value)
                    self.assertEqual(quantity.get("comparator"), COMPARATORS.get(comparator))
                else:
                    self.assertEqual(found, {"valueString": text})
        self.assertGreater(numbers, 100)

    def test_reference_ranges(self) -> None:
        """OBX-7: both ends, if both are numbers."""
        for sent, ends in (("3.5-5.0", ["3.5", "5.0"]), (" -5 - +5 ", ["-5", "5"]), ("1.2.3-4", None), ("3-5-7", None)):
            with self.subTest(sent=sent):
                made = samples.library().transform_message(samples.parse(HEAD + f"OBX|1|NM|C^X^L||5|mg/dL|{sent}||||F"))
                [found] = [
                    one["resource"]["referenceRange"][0] for one in made["entry"] if "referenceRange" in one["resource"]
                ]
                values = [found[end]["value"].literal for end in ("low", "high") if end in found]
                self.assertEqual((found["text"], values), (sent, ends or []))


class StructuredNumberTests(TestCase):
    """SN, NR, CQ: a comparator, a number or a separator is never left out of the value."""

    def test_comparators(self) -> None:
        """Every text of up to three characters: a comparator that FHIR has, no comparator, or the whole as text."""
        made = ["".join(one) for size in range(4) for one in product("<>=≥", repeat=size)]
        signs = made + [" ".join(one) for one in made]
        signs += [f" {one} " for one in (*COMPARATORS, "=", "<>", "", "GE")] + ["LT", "GE", "gt", "approx", "+/-", "!="]
        for sign, found in zip(signs, observed(*(("SN", f"{one}^5") for one in signs)), strict=True):
            with self.subTest(sign=sign):
                name = sign.strip(" ")
                if name in ("", "=", *COMPARATORS):
                    quantity = {"value": Decimal(5), "unit": "mg/dL"}
                    if name in COMPARATORS:
                        quantity["comparator"] = COMPARATORS[name]
                    self.assertEqual(found, {"valueQuantity": quantity})
                else:
                    self.assertEqual(found, {"valueString": f"{sign} 5 mg/dL".strip()})

    def test_unknown_comparators_are_unmapped_codes(self) -> None:
        """An operator sees them, and may say what they mean; `<>`, which R4 cannot say, is none."""
        text = HEAD + "OBX|1|SN|C^X^L||GE^5|||||||F\nOBX|2|SN|D^X^L||<>^5|||||||F\n"
        result = samples.library().run(samples.parse(text))
        found = [(one.table, one.code) for one in result.unmapped if "comparator" in one.table]
        self.assertEqual(found, [("urn:ipf:concepts:comparator", "GE")])

    def test_kinds(self) -> None:
        """The value for each separator, with odd numbers."""
        low, high = {"value": Decimal(5), "unit": "mg/dL"}, {"value": Decimal(10), "unit": "mg/dL"}
        table: list[tuple[str, str, str, Any]] = [
            ("SN", "^5^-^10", "valueRange", (low, high)),
            ("SN", "^ 5 ^ - ^ 10 ", "valueRange", (low, high)),
            ("SN", "^5^:^10", "valueRatio", (low, high)),
            ("SN", ">=^5^/^10", "valueRatio", (low | {"comparator": ">="}, high)),
            ("NR", " 5^10", "valueRange", (low, high)),
            ("SN", "<^5^-^10", "valueString", "< 5 - 10 mg/dL"),
            ("SN", "GE^5^:^10", "valueString", "GE 5 : 10 mg/dL"),
            ("SN", "^x^:^10", "valueString", "x : 10 mg/dL"),
            ("SN", "^5^:", "valueString", "5 : mg/dL"),
            ("SN", "^5^^6", "valueString", "5 6 mg/dL"),
            ("SN", "^2^+", "valueString", "2 + mg/dL"),
            ("SN", "^1,5", "valueString", "1,5 mg/dL"),
            ("NR", "x^10", "valueString", "x-10"),
            ("CQ", "x^mg", "valueString", "x mg"),
            ("CQ", " 5^mg", "valueQuantity", {"value": Decimal(5), "unit": "mg"}),
        ]
        for (kind, sent, key, value), found in zip(table, observed(*((one[0], one[1]) for one in table)), strict=True):
            with self.subTest(kind=kind, sent=sent):
                self.assertEqual(list(found), [key])
                held = found[key]
                if isinstance(value, tuple):
                    held = tuple(held[name] for name in held if name != "extension")
                self.assertEqual(held, value)


IMPOSSIBLE = (
    "20140630120030+1500", "20140630120030-1401", "20140630120030+0060", "201406302400", "20140630240000",
    "20140630120060", "201406301260", "20140630120030Z", "20140630120030 UTC", "20141330", "20140230", "20150229120000",
    "20140631", "00000101", "2014063", "20140630120030.", "20140630T120030", "today", "99999999", "+0100",
    "20140630 1200",
)  # fmt: skip


class TimeTests(TestCase):
    """TS, DTM, DT, TM."""

    def test_impossible_times_are_text(self) -> None:
        """In OBX-5: as sent."""
        for kind in ("TS", "DTM", "DT"):
            for sent, found in zip(IMPOSSIBLE, observed(*((kind, one) for one in IMPOSSIBLE)), strict=True):
                with self.subTest(kind=kind, sent=sent):
                    self.assertEqual(found, {"valueString": sent})
        clocks = ("2400", "1260", "120060", "1200Z", "1200+1500", "12:60", "noon", "1")
        for sent, found in zip(clocks, observed(*(("TM", one) for one in clocks)), strict=True):
            with self.subTest(kind="TM", sent=sent):
                self.assertEqual(found, {"valueString": sent})

    def test_generated(self) -> None:
        """Every time of day, date and offset that may be is a dateTime, and no other is."""
        random = Random(7)
        sent = [_any_time(random) for _ in range(600)]
        times = 0
        for text, found in zip(sent, observed(*(("TS", one) for one in sent)), strict=True):
            with self.subTest(sent=text):
                if _is_time(text):
                    times += 1
                    made = datetime.fromisoformat(found["valueDateTime"]).strftime("%Y%m%d%H%M%S%z")
                    self.assertEqual(made, text.replace("-0000", "+0000"))
                else:
                    self.assertEqual(found, {"valueString": text})
        self.assertGreater(times, 100)

    def test_elsewhere(self) -> None:
        """In a message of every type that has a map, with such a time in every field: it is converted, and valid."""
        for number, message_type in enumerate(samples.library().message_types):
            for sent in (IMPOSSIBLE[number % len(IMPOSSIBLE)], IMPOSSIBLE[(number + 7) % len(IMPOSSIBLE)]):
                with self.subTest(message_type=message_type, sent=sent):
                    self.assertEqual(errors(generator.with_time(message_type, number, sent)), [])

    def test_a_date_stays(self) -> None:
        """A date without its impossible time of day: a birth date identifies."""
        for sent in ("197104122400", "19710412120060", "19710412120000+1500"):
            text = f"MSH|^~\\&|A|B|||20260310||ADT^A01|1|P|2.5.1\nPID|1||1^^^B^MR||X||{sent}"
            made = samples.library().transform_message(samples.parse(text))
            [patient] = [one["resource"] for one in made["entry"] if one["resource"]["resourceType"] == "Patient"]
            self.assertEqual(patient["birthDate"], "1971-04-12")


def _any_time(random: Random) -> str:
    """A time with parts a little beyond what may be."""
    parts = [f"{random.randint(low, high):02}" for low, high in ((1, 13), (1, 32), (0, 24), (0, 61), (0, 61))]
    parts[random.randrange(5)] = "10"
    return f"{random.randint(1999, 2030)}" + "".join(parts) + random.choice("+-") + random.choice(
        ("0000", "0130", "0960", "1359", "1400", "1401", "1500", "9999")
    )  # fmt: skip


def _is_time(text: str) -> bool:
    try:
        datetime.strptime(text[:14], "%Y%m%d%H%M%S")
    except ValueError:
        return False
    return text[12:14] < "60" and re.fullmatch("(0[0-9]|1[0-3])[0-5][0-9]|1400", text[15:]) is not None
