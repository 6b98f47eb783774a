"""US Core's own search parameters: defined by a table, compared with the guide if present, and indexed."""

from __future__ import annotations

import json
import tarfile
from datetime import UTC, datetime

from twisted.trial.unittest import TestCase

from ipf.errors import Problem
from ipf.fhir.index.extract import extract
from ipf.fhir.index.sources import sources
from ipf.fhir.model.packages import Packages
from ipf.fhir.search.evaluation.match import matches
from ipf.fhir.search.language.query import parse_criteria
from ipf.fhir.search.parameters.custom import served, ship
from ipf.fhir.search.parameters.shipped import backport, serve, us_core
from ipf.subscriptions.guide import CONTENT, FILTER
from tests.reference import REFERENCE, needs_reference

NOW = datetime(2026, 1, 31, tzinfo=UTC)
GUIDE = REFERENCE / "us-core/hl7.fhir.us.core-7.0.0.tgz"
EXTENSION = "http://hl7.org/fhir/us/core/StructureDefinition/us-core-race"
OMB = {"url": "ombCategory", "valueCoding": {"system": "urn:oid:2.16.840.1.113883.6.238", "code": "2106-3"}}
PATIENT = {"resourceType": "Patient", "extension": [{"url": EXTENSION, "extension": [OMB]}]}


class ShippedTest(TestCase):
    """Adds the parameters to this process, and removes them."""

    def setUp(self) -> None:
        self.addCleanup(ship, ())

    def test_parameters_are_loaded(self) -> None:
        serve(Packages())
        self.assertIn("2106-3\t", {value for code, value in extract(PATIENT).texts if code == "race"})
        for code in ("race", "ethnicity", "gender-identity"):  # otherwise every patient needs the general engine
            self.assertTrue(sources("Patient")[code].paths, code)
        parse_criteria("Goal?description=x")
        parse_criteria("CareTeam?role=x")
        parse_criteria("Condition?asserted-date=ge2020")

    @needs_reference
    def test_table_agrees_with_the_guide(self) -> None:
        stated = {one["url"]: served(one) for one in us_core()}
        with tarfile.open(GUIDE) as guide:
            files = [guide.extractfile(one) for one in guide if "/SearchParameter-" in one.name]
            published = [json.loads(file.read()) for file in files if file is not None]
        self.assertEqual(stated, {one["url"]: served(one) for one in published if served(one)})

    def test_parameters_of_the_backport_guide(self) -> None:
        """They index the guide's extensions; a criteria search is not a topic URL."""
        serve(Packages())
        subscription = {
            "resourceType": "Subscription",
            "criteria": "http://example.org/topics/admission",
            "_criteria": {"extension": [{"url": FILTER, "valueString": "Encounter?patient=Patient/1"}]},
            "channel": {
                "type": "rest-hook",
                "endpoint": "https://example.org/hook",
                "payload": "application/fhir+json",
                "_payload": {"extension": [{"url": CONTENT, "valueCode": "id-only"}]},
            },
        }
        found = extract(subscription)
        for search, expected in (
            ("topic=http://example.org/topics/admission", True),
            ("topic=http://example.org/topics", False),
            ("topic:below=http://example.org/topics", True),
            ("filter-criteria=encounter?patient", True),
            ("filter-criteria:contains=Patient/1", True),
            ("filter-criteria=Patient", False),
            ("payload-type=id-only", True),
            ("payload-type=full-resource", False),
            ("url=https://example.org/hook&type=rest-hook", True),
        ):
            query = parse_criteria(f"Subscription?{search}")
            self.assertEqual(matches(query, found, id="s", last_updated=NOW), expected, search)
        self.assertEqual({one["code"] for one in backport()}, {"topic", "filter-criteria", "payload-type"})
        self.assertRaises(Problem, parse_criteria, "Subscription?custom-channel=x")
