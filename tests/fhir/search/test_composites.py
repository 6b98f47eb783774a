"""Every composite search parameter of R4 on one resource each: what it finds, and what it must not find."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.fhir.index.extract import extract
from ipf.fhir.model.definitions import definitions
from ipf.fhir.search.evaluation.match import matches
from ipf.fhir.search.language.query import parse_query

Row = tuple[str, dict[str, Any], list[str], list[str]]
"""Code, the resource without its type, values that find it, values that do not."""


def _concept(code: str) -> dict[str, Any]:
    return {"coding": [{"system": "urn:s", "code": code}]}


def _quantity(value: float) -> dict[str, Any]:
    return {"value": value, "system": "http://unitsofmeasure.org", "code": "kg"}


CONTEXTS = {"useContext": [
    {"code": {"system": "urn:s", "code": "focus"}, "valueCodeableConcept": _concept("flu")},
    {"code": {"system": "urn:s", "code": "age"}, "valueRange": {"low": _quantity(5), "high": _quantity(9)}},
    {"code": {"system": "urn:s", "code": "weight"}, "valueQuantity": _quantity(70)},
]}  # fmt: skip
OF_CONTEXTS: tuple[Row, ...] = (
    ("context-type-value", CONTEXTS, ["focus$flu", "urn:s|focus$urn:s|flu", "age$x,focus$flu"],
     ["age$flu", "focus$x", "urn:t|focus$flu"]),
    ("context-type-quantity", CONTEXTS, ["weight$70", "age$gt8", "age$lt6", "weight$70000|http://unitsofmeasure.org|g"],
     ["age$70", "weight$7", "focus$70", "weight$lt6"]),
)  # fmt: skip
RELATED = {"relatesTo": [
    {"code": "replaces", "target": {"reference": "DocumentReference/1"}},
    {"code": "appends", "target": {"reference": "https://other.org/DocumentReference/2"}},
]}  # fmt: skip
SEQUENCE = {
    "referenceSeq": {"chromosome": _concept("1"), "referenceSeqId": _concept("NC"), "windowStart": 10, "windowEnd": 20},
    "variant": [{"start": 12, "end": 13}, {"start": 15, "end": 16}],
}
COMPONENTS = {"code": _concept("panel"), "component": [
    {"code": _concept("a"), "valueQuantity": _quantity(1)}, {"code": _concept("b"), "valueQuantity": _quantity(2)},
    {"code": _concept("c"), "valueCodeableConcept": _concept("yes")},
    {"code": _concept("d"), "valueCodeableConcept": _concept("no")},
]}  # fmt: skip
OTHERS: dict[str, tuple[Row, ...]] = {
    "DocumentReference": (
        ("relationship", RELATED,
         ["replaces$DocumentReference/1", "replaces$1", "DocumentReference/1$replaces", "1$replaces",
          "appends$https://other.org/DocumentReference/2", "replaces$9,replaces$1"],
         ["replaces$DocumentReference/2", "appends$1", "1$appends", "replaces$https://other.org/DocumentReference/2",
          "signs$1", "appends$DocumentReference/2"]),
    ),
    "Group": (
        ("characteristic-value", {"characteristic": [
            {"code": _concept("sex"), "valueCodeableConcept": _concept("f")},
            {"code": _concept("smoker"), "valueBoolean": True},
        ]}, ["sex$f", "urn:s|sex$urn:s|f", "smoker$true"], ["smoker$f", "sex$true", "sex$m"]),
    ),
    "MolecularSequence": (
        ("chromosome-variant-coordinate", SEQUENCE, ["1$12$13", "1$gt14$lt17"], ["1$12$16", "2$12$13", "1$gt15$lt14"]),
        ("referenceseqid-variant-coordinate", SEQUENCE, ["NC$15$16", "urn:s|NC$12$13"], ["NC$12$16", "1$12$13"]),
        ("chromosome-window-coordinate", SEQUENCE, ["1$10$20", "1$le10$ge20"], ["1$gt10$20", "2$10$20"]),
        ("referenceseqid-window-coordinate", SEQUENCE, ["NC$10$20"], ["NC$10$21", "1$10$20"]),
    ),
    "Observation": (
        ("code-value-concept", {"code": _concept("a"), "valueCodeableConcept": _concept("yes")}, ["a$yes"],
         ["b$yes", "a$no"]),
        ("code-value-date", {"code": _concept("a"), "valueDateTime": "2024-05-01"}, ["a$2024-05", "a$gt2023"],
         ["b$2024", "a$2023"]),
        ("code-value-quantity", {"code": _concept("a"), "valueQuantity": _quantity(3)}, ["a$3", "a$gt2"],
         ["b$3", "a$4"]),
        ("code-value-string", {"code": _concept("a"), "valueString": "Négatif"}, ["a$negat", "urn:s|a$Négatif"],
         ["b$negatif", "a$positif"]),
        ("combo-code-value-quantity", {**COMPONENTS, "valueQuantity": _quantity(9)}, ["a$1", "b$2", "panel$9"],
         ["a$2", "panel$1", "a$9"]),
        ("combo-code-value-concept", {**COMPONENTS, "valueCodeableConcept": _concept("both")}, ["c$yes", "panel$both"],
         ["c$no", "panel$yes"]),
        ("component-code-value-quantity", COMPONENTS, ["a$1", "b$gt1"], ["a$2", "panel$1", "c$1"]),
        ("component-code-value-concept", COMPONENTS, ["c$yes", "d$no"], ["c$no", "a$yes"]),
    ),
}  # fmt: skip


class CompositesTest(TestCase):
    """On index entries alone, as the store has them."""

    def test_every_composite_of_r4(self) -> None:
        """Each is in the table, and finds its values together only."""
        seen = 0
        for resource_type in sorted(definitions().resource_types):
            parameters = definitions().search_parameters(resource_type)
            composites = {code for code, one in parameters.items() if one.type == "composite"}
            rows = OTHERS.get(resource_type, OF_CONTEXTS)
            self.assertLessEqual(composites, {code for code, *_ in rows}, resource_type)
            for code, content, found, missed in rows:
                if code in composites:
                    seen += 1
                    self._check(resource_type, code, content, found, missed)
        self.assertEqual(seen, 72)

    def _check(self, kind: str, code: str, content: dict[str, Any], found: list[str], missed: list[str]) -> None:
        resource = {"resourceType": kind, **content}
        entries = extract(resource)
        for value, expected in [(one, True) for one in found] + [(one, False) for one in missed]:
            query = parse_query(kind, [(code, value)])
            passes = matches(query, entries, id="x", last_updated=datetime.now(UTC), resource=resource)
            self.assertEqual(passes, expected, (kind, code, value))
