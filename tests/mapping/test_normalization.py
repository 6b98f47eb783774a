"""Resources of another server: names, references, extensions, profiles and Provenance."""

from __future__ import annotations

import copy
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem
from ipf.mapping.bundle.transaction import finished
from ipf.mapping.normalization.extensions import stripped
from ipf.mapping.normalization.names import id_of
from ipf.mapping.normalization.references import with_own_references
from ipf.mapping.normalization.result import normalize
from ipf.mapping.normalization.us_core import BASE, BY_CATEGORY, BY_TYPE, claimed
from ipf.mapping.runtime.run import Run
from ipf.ports.messages.sources import FHIR_REST, NATIVE_API, Feed, PolledSource

NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
HOST = "https://ehr.test/fhir"
VENDOR = "https://vendor.test/"
SOURCE = PolledSource(
    "ehr", "lab", FHIR_REST, HOST, "EHR", (Feed("p", "Patient?a=1"), Feed("o", "Observation"), Feed("b", "Binary")),
    strip=(VENDOR,), identifier_base=HOST,
)  # fmt: skip
LAB = {
    "resourceType": "Observation", "status": "final",
    "category": [{"coding": [{"system": "http://terminology.hl7.org/CodeSystem/observation-category",
                              "code": "laboratory"}]}],
    "code": {"coding": [{"system": "http://loinc.org", "code": "2345-7"}]}, "subject": {"reference": "Patient/7"},
    "valueQuantity": {"value": 5},
}  # fmt: skip


def run_of(*resources: Any, source: PolledSource = SOURCE) -> tuple[list[Any], list[str]]:
    """The entries of the transaction, and the notes."""
    bundle: Any = {"resourceType": "Bundle", "type": "transaction", "entry": []}
    bundle["entry"] = [{"resource": copy.deepcopy(one)} for one in resources]
    run = Run(b"key", bundle, is_bundle=True)
    notes = normalize(bundle, run, source, "Observation/1/2", NOW)
    return finished(bundle, run).bundle()["entry"], notes


class NameTests(TestCase):
    def test_a_resource_is_found_again_by_the_id_of_the_source(self) -> None:
        entries, _ = run_of({**LAB, "id": "o|1", "identifier": [{"system": "urn:x", "value": "1"}]})
        resource = entries[0]["resource"]
        self.assertEqual(resource["identifier"], [{"system": f"{HOST}/Observation", "value": "o|1"},
                                                  {"system": "urn:x", "value": "1"}])  # fmt: skip
        self.assertNotIn("id", resource)
        self.assertEqual(entries[0]["request"]["url"], f"Observation?identifier={HOST}/Observation|o%5C%7C1")
        self.assertEqual(resource["meta"]["source"], f"{HOST}/Observation/o|1")

    def test_a_patient_is_found_by_numbers_of_the_person_first(self) -> None:
        number = {"system": "urn:mrn", "value": "M1", "type": {"coding": [{"system": "v2-0203", "code": "MR"}]}}
        entries, _ = run_of({"resourceType": "Patient", "id": "7", "identifier": [number]})
        found = entries[0]["resource"]["identifier"]
        self.assertEqual([one["value"] for one in found], ["M1", "7"])
        self.assertEqual(found[1]["type"]["coding"][0]["code"], "RI")
        self.assertNotIn("use", found[1])
        self.assertTrue(entries[0]["request"]["url"].startswith("Patient?identifier=urn:mrn|M1"))

    def test_reference_data_is_updated(self) -> None:
        entries, _ = run_of({"resourceType": "Practitioner", "id": "d1", "name": [{"family": "A"}]})
        self.assertEqual(entries[0]["request"], {"method": "PUT",
                                                 "url": f"Practitioner?identifier={HOST}/Practitioner|d1"})  # fmt: skip

    def test_types_without_identifiers(self) -> None:
        entries, _ = run_of({"resourceType": "Binary", "id": "b1", "contentType": "text/plain", "data": "YQ=="})
        id = id_of(SOURCE, "Binary", "b1")
        self.assertEqual((entries[0]["resource"]["id"], entries[0]["request"]["url"]), (id, f"Binary/{id}"))

    def test_the_version_of_the_source_is_not_ours(self) -> None:
        meta = {"versionId": "3", "lastUpdated": "2026-01-01T00:00:00Z", "source": "x", "tag": [{"code": "t"}]}
        entries, _ = run_of({**LAB, "id": "1", "meta": meta})
        self.assertEqual({name: entries[0]["resource"]["meta"].get(name) for name in (*meta, "source")},
                         {"versionId": None, "lastUpdated": None, "tag": [{"code": "t"}],
                          "source": f"{HOST}/Observation/1"})  # fmt: skip

    def test_the_same_row_gives_the_same_entries(self) -> None:
        self.assertEqual(run_of({**LAB, "id": "1"}), run_of({**LAB, "id": "1"}))


class ReferenceTests(TestCase):
    def test_each_kind(self) -> None:
        patient = f"Patient?identifier={HOST}/Patient|7"
        encounter = {"type": "Encounter", "identifier": {"system": f"{HOST}/Encounter", "value": "e1"}}
        binary = {"reference": f"Binary/{id_of(SOURCE, 'Binary', 'b')}"}
        for given, expected in (
            ({"reference": "Patient/7"}, {"reference": patient}),
            ({"reference": "Patient/7/_history/2"}, {"reference": patient}),
            ({"reference": f"{HOST}/Patient/7", "display": "A"}, {"reference": patient, "display": "A"}),
            ({"reference": "Encounter/e1"}, encounter),
            ({"reference": "Encounter/e1", "identifier": {"value": "v"}},
             {"type": "Encounter", "identifier": {"value": "v"}}),
            ({"reference": "Binary/b"}, binary),
            ({"reference": "#p"}, {"reference": "#p"}),
            ({"reference": "urn:uuid:1"}, {"reference": "urn:uuid:1"}),
            ({"reference": "https://other.test/fhir/Patient/7"}, {"reference": "https://other.test/fhir/Patient/7"}),
            ({"reference": "Nonsense/7"}, {"reference": "Nonsense/7"}),
            ({"identifier": {"value": "7"}}, {"identifier": {"value": "7"}}),
        ):  # fmt: skip
            for holder in (lambda one: {"subject": one}, lambda one: {"extension": [{"valueReference": one}]},
                           lambda one: {"contained": [{"resourceType": "X", "subject": one}]}):  # fmt: skip
                resource = holder(copy.deepcopy(given))
                with_own_references(resource, SOURCE)
                self.assertEqual(resource, holder(expected))

    def test_records_of_an_api_name_no_resource(self) -> None:
        with self.assertRaises(Problem) as raised:
            run_of(copy.deepcopy(LAB), source=replace(SOURCE, protocol=NATIVE_API))
        self.assertEqual(raised.exception.category, Category.MAPPING)


class ExtensionTests(TestCase):
    def test_those_of_the_vendor(self) -> None:
        own, theirs = {"url": "http://hl7.org/x", "valueString": "a"}, {"url": VENDOR + "x", "valueString": "b"}
        for given, expected in (
            ({"extension": [own, theirs]}, {"extension": [own]}),
            ({"extension": [theirs]}, {}),
            ({"name": [{"family": "A", "_family": {"extension": [theirs]}}]}, {"name": [{"family": "A"}]}),
            ({"given": ["A"], "_given": [{"extension": [theirs]}]}, {"given": ["A"]}),
            ({"extension": [{"url": "http://hl7.org/y", "extension": [theirs, own]}]},
             {"extension": [{"url": "http://hl7.org/y", "extension": [own]}]}),
            ({"contained": [{"id": "c", "extension": [theirs]}]}, {"contained": [{"id": "c"}]}),
        ):  # fmt: skip
            resource = copy.deepcopy(given)
            stripped(resource, (VENDOR,), "Patient")
            self.assertEqual(resource, expected)
        self.assertEqual(stripped({"extension": [theirs]}, (), "Patient"), [])

    def test_what_changes_the_meaning_is_refused(self) -> None:
        resource = {"component": [{"modifierExtension": [{"url": VENDOR + "not"}]}]}
        with self.assertRaises(Problem) as raised:
            stripped(resource, (VENDOR,), "Observation")
        self.assertEqual((raised.exception.place, raised.exception.is_permanent),
                         ("Observation.component.modifierExtension", True))  # fmt: skip


class UsCoreTests(TestCase):
    def test_a_profile_is_claimed_when_it_is_met(self) -> None:
        resource = copy.deepcopy(LAB)
        self.assertEqual(claimed(resource), [f"{BASE}observation-lab is claimed"])
        self.assertEqual(resource["meta"], {"profile": [f"{BASE}observation-lab"]})
        self.assertEqual(claimed(resource), [])

    def test_what_is_missing_is_said(self) -> None:
        resource = {name: one for name, one in copy.deepcopy(LAB).items() if name != "subject"}
        (note,) = claimed(resource)
        self.assertIn("is not claimed: Observation: Observation.subject is required", note)
        self.assertNotIn("meta", resource)

    def test_the_system_of_a_category(self) -> None:
        resource: Any = copy.deepcopy(LAB)
        del resource["category"][0]["coding"][0]["system"]
        claimed(resource)
        self.assertEqual(resource["category"], LAB["category"])

    def test_every_profile_is_defined(self) -> None:
        from ipf.fhir.profiles.library import own_structure

        names = {*BY_TYPE.values(), *(name for codes in BY_CATEGORY.values() for name in codes.values())}
        self.assertEqual([name for name in names if own_structure(BASE + name) is None], [])

    def test_others_have_none(self) -> None:
        for resource in ({"resourceType": "Basic"}, {"resourceType": "Observation"},
                         {"resourceType": "Condition", "category": [{"text": "x"}]}):  # fmt: skip
            self.assertEqual(claimed(copy.deepcopy(resource)), [])


class ProvenanceTests(TestCase):
    def test_it_targets_every_resource(self) -> None:
        entries, _ = run_of({**LAB, "id": "1"}, {"resourceType": "Patient", "id": "7"})
        statement = entries[-1]["resource"]
        self.assertEqual([one["reference"] for one in statement["target"]], [one["fullUrl"] for one in entries[:2]])
        self.assertEqual(statement["recorded"], "2026-03-04T05:06:07.000+00:00")
        self.assertEqual(statement["entity"][0]["what"]["identifier"]["value"], "Observation/1/2")
        self.assertEqual(statement["agent"][0]["who"]["display"], "EHR")
