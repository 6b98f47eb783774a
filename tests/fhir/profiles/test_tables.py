"""The tables of facts under `fhir/` match their generators, and hand-written profiles validate correctly."""

from __future__ import annotations

import hashlib
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.config.paths import folder
from ipf.fhir.profiles.tables import CODE_SYSTEMS, STRUCTURES, VALUE_SETS, tables
from ipf.fhir.terminology import Terminology
from ipf.fhir.validation.validator import Validator

BACKPORT = "http://hl7.org/fhir/uv/subscriptions-backport/StructureDefinition/"
Json = dict[str, Any]
NOT_CARRIED = {
    "http://terminology.hl7.org/ValueSet/v3-UnitsOfMeasureCaseSensitive",  # not in HL7's own package
    "http://cts.nlm.nih.gov/fhir/ValueSet/2.16.840.1.113762.1.4.1021.24",  # of NLM's Value Set Authority Center
}


def errors(resource: Json, profile: str) -> list[tuple[str, str]]:
    """(code, location) of the errors."""
    found = Validator().validate(resource, [BACKPORT + profile])
    return [(one.code, one.location) for one in found if one.severity == "error"]


class Tables(TestCase):
    """Files."""

    def test_content_matches_its_hash(self) -> None:
        for path in sorted(folder("fhir").glob("*/*.jsonl")):
            _, _, body = path.read_text(encoding="utf-8").partition("\n")
            for guide, table in tables(path.name):
                if guide == path.parent.name and "content_sha256" in table.head:
                    found = hashlib.sha256(body.rstrip("\n").encode()).hexdigest()
                    self.assertEqual(found, table.head["content_sha256"], path)

    def test_every_row_parses(self) -> None:
        for name, least in ((STRUCTURES, 700), (CODE_SYSTEMS, 1000), (VALUE_SETS, 1300)):
            rows = [table.get(url) for _, table in tables(name) for url in table]
            self.assertGreater(len(rows), least)
            self.assertTrue(all(rows))

    def test_required_bindings_are_loaded_with_known_exceptions(self) -> None:
        terminology = Terminology()
        value_sets = {
            facts["binding"][1].partition("|")[0]
            for _, table in tables(STRUCTURES)
            for url in table
            for _, facts in (table.get(url) or {})["elements"]
            if facts.get("binding", ("",))[0] == "required"
        }
        unknown = {url for url in value_sets if url and terminology.members(url) is None}
        self.assertEqual(unknown, NOT_CARRIED)
        # An answer list of LOINC is a value set that LOINC implies: undecided while LOINC is not loaded.
        self.assertIsNone(terminology.contains("http://loinc.org/vs/LL379-9", "http://loinc.org", "LA4489-6"))


class Backport(TestCase):
    """The hand-written profiles."""

    def subscription(self, *content: Json) -> Json:
        """A Subscription with these extensions on its payload."""
        return {
            "resourceType": "Subscription",
            "status": "requested",
            "reason": "x",
            "criteria": "http://x.test/topic",
            "channel": {
                "type": "rest-hook",
                "payload": "application/fhir+json",
                "_payload": {"extension": list(content)},
            },
        }

    def test_subscription(self) -> None:
        content = {"url": BACKPORT + "backport-payload-content", "valueCode": "id-only"}
        self.assertEqual(errors(self.subscription(content), "backport-subscription"), [])
        wrong = {**content, "valueCode": "all"}
        location = "Subscription.channel.payload.extension[0].value.ofType(code)"
        self.assertEqual(errors(self.subscription(wrong), "backport-subscription"), [("code-invalid", location)])
        other = {"url": "http://x.test/e", "valueCode": "x"}
        self.assertEqual(
            errors(self.subscription(other), "backport-subscription"), [("required", "Subscription.channel.payload")]
        )

    def test_notification(self) -> None:
        status = [
            {"name": "subscription", "valueReference": {"reference": "Subscription/1"}},
            {"name": "status", "valueCode": "active"},
            {"name": "type", "valueCode": "event-notification"},
            {"name": "notification-event", "part": [{"name": "event-number", "valueString": "1"}]},
        ]

        def notification(parameters: list[Json]) -> Json:
            resource = {"resourceType": "Parameters", "parameter": parameters}
            request = {"method": "GET", "url": "Subscription/1/$status"}
            entry = {
                "fullUrl": "urn:uuid:c757873d-ec9a-4326-a141-556f43239520",
                "resource": resource,
                "request": request,
                "response": {"status": "200"},
            }
            return {"resourceType": "Bundle", "type": "history", "entry": [entry]}

        profile = "backport-subscription-notification-r4"
        self.assertEqual(errors(notification(status), profile), [])
        self.assertEqual(errors(notification(status[1:]), profile), [("required", "Bundle.entry[0].resource")])
        wrong = [*status[:2], {"name": "type", "valueCode": "event"}, status[3]]
        self.assertEqual([code for code, _ in errors(notification(wrong), profile)], ["code-invalid"])
