"""Extraction, parsing and matching in combination: tables, and the search cases of the reference folder."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.errors import Problem
from ipf.fhir.index.extract import extract
from ipf.fhir.search.evaluation.match import matches
from ipf.fhir.search.language.query import parse_criteria, parse_query
from ipf.ports.queries.index import Entries
from tests.reference import REFERENCE, needs_reference

CASES = REFERENCE / "search/search_cases.json"
LEFT_OUT = {"vendor", "vendor_strict", "system_search"}
NOON = datetime(2024, 5, 6, 12, tzinfo=UTC)

# prefix -> which of these entries match the search value 2024-05 (a month)
MONTH = {
    "day in it": "2024-05-06",
    "the month": "2024-05",
    "the year": "2024",
    "before": "2024-04-30",
    "after": "2024-06-01",
}
DATES = [
    ("", {"day in it", "the month"}),
    ("eq", {"day in it", "the month"}),
    ("ne", {"the year", "before", "after"}),
    ("gt", {"the year", "after"}),
    ("lt", {"the year", "before"}),
    ("ge", {"day in it", "the month", "the year", "after"}),
    ("le", {"day in it", "the month", "the year", "before"}),
    ("sa", {"after"}),
    ("eb", {"before"}),
]
# prefix -> which of these quantities match 5.4
QUANTITIES: dict[str, dict[str, Any]] = {
    "less": {"value": Decimal("5.3")},
    "near": {"value": Decimal("5.42")},
    "equal": {"value": Decimal("5.4")},
    "more": {"value": Decimal("6")},
    "under 5": {"value": 5, "comparator": "<"},
    "over 5": {"value": 5, "comparator": ">"},
}
NUMBERS = [
    ("", {"near", "equal"}),
    ("ne", {"less", "more", "under 5", "over 5"}),
    ("gt", {"near", "more", "over 5"}),
    ("ge", {"near", "equal", "more", "over 5"}),
    ("lt", {"less", "under 5", "over 5"}),
    ("le", {"less", "equal", "under 5", "over 5"}),
    ("sa", {"near", "more"}),
    ("eb", {"less", "under 5"}),
    ("ap", {"less", "near", "equal", "under 5", "over 5"}),
]


class Prefixes(TestCase):
    """Every prefix on dates, instants and quantities."""

    def test_dates(self) -> None:
        entries = {name: extract({"resourceType": "Patient", "birthDate": text}) for name, text in MONTH.items()}
        for prefix, expected in DATES:
            self.assertEqual(_found(f"Patient?birthdate={prefix}2024-05", entries), expected, prefix)

    def test_quantities(self) -> None:
        entries = {
            name: extract({"resourceType": "Observation", "valueQuantity": value}) for name, value in QUANTITIES.items()
        }
        for prefix, expected in NUMBERS:
            self.assertEqual(_found(f"Observation?value-quantity={prefix}5.4", entries), expected, prefix)

    def test_units(self) -> None:
        ucum = "http://unitsofmeasure.org"
        values = {
            "coded": {"value": 5, "system": ucum, "code": "mg", "unit": "milligram"},
            "text": {"value": 5, "unit": "mg"},
            "other": {"value": 5, "system": ucum, "code": "kg"},
            "same": {"value": Decimal("0.005"), "system": ucum, "code": "g"},
            "warm": {"value": 37, "system": ucum, "code": "Cel"},
            "acid": {"value": 7, "system": ucum, "code": "[pH]"},
        }
        entries = {name: extract({"resourceType": "Observation", "valueQuantity": one}) for name, one in values.items()}
        table = [
            (f"5|{ucum}|mg", {"coded", "same"}),
            (f"0.000005|{ucum}|kg", {"coded", "same"}),
            (f"gt1|{ucum}|g", {"other"}),
            (f"5|{ucum}|mm", set()),
            (f"98.6|{ucum}|[degF]", {"warm"}),
            (f"lt99|{ucum}|[degF]", {"warm"}),
            (f"310.15|{ucum}|K", {"warm"}),
            (f"1e-7|{ucum}|mol/L", set()),
            (f"7|{ucum}|[pH]", {"acid"}),
            ("5||mg", {"coded", "text"}),
            ("5", {"coded", "text", "other"}),
            (f"5|{ucum}|", {"coded", "other"}),
        ]
        for value, expected in table:
            self.assertEqual(_found(f"Observation?combo-value-quantity={value}", entries), expected, value)

    def test_last_updated(self) -> None:
        table = [
            ("2024-05-06", 1),
            ("gt2024-05-06", 0),
            ("ge2024-05-06T12:00:00Z", 1),
            ("lt2024", 0),
            ("ne2023", 1),
            ("sa2023", 1),
        ]
        for value, expected in table:
            self.assertEqual(len(_found(f"Patient?_lastUpdated={value}", {"a": Entries()})), expected, value)

    def test_impossible_terms_match_nothing(self) -> None:
        entries = {"a": extract({"resourceType": "Encounter", "subject": {"reference": "Group/1"}})}
        table = [("patient=Group/1", 0), ("subject=Group/1", 1), ("patient:missing=true", 1), ("patient=Group/1,b", 0)]
        for search, expected in table:
            self.assertEqual(len(_found(f"Encounter?{search}", entries)), expected, search)

    def test_terms_are_joined_by_and(self) -> None:
        entries = {"a": extract({"resourceType": "Patient", "gender": "male", "active": True})}
        table = [
            ("gender=male&active=true", 1),
            ("gender=male&active=false", 0),
            ("gender=female,male&_id=a,b", 1),
            ("_id=b", 0),
        ]
        for search, expected in table:
            self.assertEqual(len(_found(f"Patient?{search}", entries)), expected, search)


@needs_reference
class ReferenceCases(TestCase):
    """101 cases of another server's suite; paging and order are tested with the store."""

    def test_suites(self) -> None:
        run = 0
        for suite in json.loads(CASES.read_text().replace("${tag}", "tag-1"))["suites"]:
            resources = [(one["label"], one["resource"]) for one in suite["fixture"]]
            for case in suite["cases"]:
                if not LEFT_OUT & set(case["flags"]):
                    run += 1
                    self._check(case, resources)
        self.assertEqual(run, 84)

    def _check(self, case: dict[str, Any], resources: list[tuple[str, dict[str, Any]]]) -> None:
        strict = case.get("headers", {}).get("Prefer") != "handling=lenient"
        pairs = [(name, value) for name, _, value in (one.partition("=") for one in case["query"].split("&"))]
        if "expect_status" in case:
            self.assertRaises(Problem, parse_query, case["type"], pairs, strict=strict)
            return
        query = parse_query(case["type"], pairs, strict=strict)
        found = [
            label
            for place, (label, one) in enumerate(resources)
            if one["resourceType"] == case["type"]
            and matches(query, extract(one), id=label, last_updated=NOON + timedelta(seconds=place), resource=one)
        ]
        if "expect" in case:
            self.assertEqual(sorted(found), sorted(case["expect"]), case["id"])
        else:
            self.assertEqual(len(found), case["expect_total"], case["id"])


def _found(criteria: str, entries: dict[str, Entries]) -> set[str]:
    query = parse_criteria(criteria)
    return {name for name, one in entries.items() if matches(query, one, id=name, last_updated=NOON)}
