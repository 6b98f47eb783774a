"""JSON keeps digits and order, and refuses ambiguous text."""

from __future__ import annotations

import copy
import json as standard
import pickle
from decimal import Decimal
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as some
from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem
from ipf.fhir.model import json
from tests.fhir.examples import examples
from tests.reference import needs_reference

EXACT = [
    b'{"value":1.10}',
    b'{"value":-0.00}',
    b'{"value":1E-7,"more":[1e2,2.50]}',
    b"[-0]",
    b"[12345678901234567890]",
    b'["a",1.50]',
    b'[[1.0],{"a":[2.0]}]',
    b'{"urn":"urn:oid:1.2.3","time":"10:00:00.000Z"}',
    b"1.0",
    b"{}",
]
REFUSED = [
    (b'{"a":1,"b":{"a":1,"a":2}}', "'a' appears twice"),
    (b'{"a":1.5,"a":1.5}', "'a' appears twice"),
    (b'{"a":NaN}', "NaN"),
    (b'{"a":-Infinity}', "-Infinity"),
    (b'{"a":"\\ud800"}', "not valid Unicode"),
    ('{"a":"\ud800"}', "not UTF-8"),
    (b'{"a":"\xff"}', "not UTF-8"),
    (b"[" * 300 + b"]" * 300, "nested too deeply"),
    (b"[" * 200_000, "nested too deeply"),
    (b'{"a":1e99999999999999999999999}', "out of range"),
    (b'{"a":1e2000}', "out of range"),
    (b'{"a":' + b"1" * 5000 + b"}", "out of range"),
    (b'{"b":1.5,\n "a":1.' + b"1" * 20_000 + b"}", "out of range at line 2 column 6: at most 1000 characters"),
    (b'{"a":0.' + b"0" * 2000 + b"1}", "out of range"),
    (b"", "line 1 column 1"),
    (b'{"a":01}', "line 1 column 7"),
]


class Reading(TestCase):
    """`loads` and `dumps` on chosen texts."""

    def test_compact_text_round_trips(self) -> None:
        for text in EXACT:
            self.assertEqual(json.dumps(json.loads(text)), text)

    def test_lossy_or_ambiguous_text_is_refused(self) -> None:
        for text, reason in REFUSED:
            problem = self.assertRaises(Problem, json.loads, text)
            self.assertEqual(problem.category, Category.MALFORMED)
            self.assertIn(reason, problem.text)

    def test_decimals_keep_their_text(self) -> None:
        (value,) = json.loads(b"[1.50e1]")
        self.assertIsInstance(value, Decimal)
        self.assertEqual((value, value.literal), (Decimal(15), "1.50e1"))
        for twin in (copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
            self.assertEqual(json.dumps(twin), b"1.50e1")

    def test_texts_with_very_many_values(self) -> None:
        """They are read in Python, with the same result and the same refusals; above the limit they are not read."""
        many = b"".join(b'{"a":[%d,1.50,"x,["]},' % number for number in range(40_000))
        text = b'{"x":[' + many + b"1]}"
        self.assertEqual(json.dumps(json.loads(text)), text)
        for end, reason in (
            (b'{"a":1,"a":2}]}', "'a' appears twice"),
            (b"1e2000]}", "out of range"),
            (b"x]}", "not JSON"),
        ):
            problem = self.assertRaises(Problem, json.loads, b'{"x":[' + many + end)
            self.assertEqual((problem.category, reason in problem.text), (Category.MALFORMED, True), problem.text)
        problem = self.assertRaises(Problem, json.loads, b"[" + b"[]," * 500_000 + b"1]")
        self.assertEqual(problem.category, Category.TOO_LARGE)

    def test_what_is_refused_by_count_is_counted_in_pieces(self) -> None:
        """Before it is parsed, and no further than to the limit."""
        counted: list[int] = []

        class Text(bytes):
            def count(self, *given: Any) -> int:
                found = super().count(*given)
                counted.append(found)
                return found

        for text, what in (
            (b"[" + b"1," * 15_000_000 + b"1]", "commas"),
            (b'["' + b"\\n" * 15_000_000 + b'"]', "escaped characters"),
        ):
            counted.clear()
            problem = self.assertRaises(Problem, json.loads, Text(text))
            self.assertEqual((problem.category, what in problem.text), (Category.TOO_LARGE, True), problem.text)
            self.assertLess(max(counted), 1_100_000)
            self.assertLess(sum(counted), 6_200_000)

    def test_a_very_long_number_is_not_computed(self) -> None:
        problem = self.assertRaises(Problem, json.loads, b"[" + b"1" * 3_000_000 + b"]")
        self.assertIn("out of range at line 1 column 2", problem.text)

    def test_computed_decimals_are_written_with_all_digits(self) -> None:
        self.assertEqual(json.dumps([Decimal("0.10"), Decimal("1E+2"), Decimal("1E-9")]), b"[0.10,100,0.000000001]")
        self.assertRaises(TypeError, json.dumps, Decimal("NaN"))

    def test_white_space_and_byte_order_mark_are_ignored(self) -> None:
        self.assertEqual(json.loads(b'\xef\xbb\xbf { "a" : [ 1.0 , "x" ] }'), {"a": [Decimal("1.0"), "x"]})
        self.assertEqual(json.loads('{"a":"\u00e9"}'), {"a": "\u00e9"})


@needs_reference
class Examples(TestCase):
    """The published examples."""

    def test_examples_round_trip(self) -> None:
        for name, text in examples().items():
            self.assertEqual(_literal(json.dumps(json.loads(text))), _literal(text), name)


class Properties(TestCase):
    """Any JSON at all."""

    @settings(max_examples=150, deadline=None)
    @given(
        some.recursive(
            some.none()
            | some.booleans()
            | some.integers(-(2**70), 2**70)
            | some.text()
            | some.decimals(-9, 9, places=3),
            lambda inner: some.lists(inner) | some.dictionaries(some.text(), inner),
            max_leaves=20,
        )
    )
    def test_any_value_round_trips(self, value: Any) -> None:
        text = _standard(value)
        self.assertEqual(_literal(json.dumps(json.loads(text))), _literal(text))


def _standard(value: Any) -> bytes:
    """JSON by hand, decimals with their digits."""
    if isinstance(value, dict):
        return b"{" + b", ".join(_standard(name) + b": " + _standard(one) for name, one in value.items()) + b"}"
    if isinstance(value, list):
        return b"[" + b",".join(map(_standard, value)) + b"]"
    return str(value).encode() if isinstance(value, Decimal) else standard.dumps(value).encode()


def _literal(text: bytes) -> Any:
    """The value with numbers as their text and objects as lists of pairs."""
    return standard.loads(text, parse_float=_number, parse_int=_number, object_pairs_hook=list)


def _number(text: str) -> tuple[str, str]:
    return ("number", text)
