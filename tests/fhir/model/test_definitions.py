"""The definitions agree with the pinned package; lookups give types, elements and search parameters."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from twisted.trial.unittest import TestCase

from ipf.config.paths import folder
from ipf.fhir.fhirpath.language.parser import parse
from ipf.fhir.model.definitions import definitions


class Files(TestCase):
    """`fhir/r4/*.json` agree with the generator."""

    def test_content_matches_its_hash(self) -> None:
        generator = (folder("fhir") / "r4/generate.py").read_text()
        for path in sorted((folder("fhir") / "r4").glob("*.json")):
            self.assertEqual(_stated_and_found(path)[0], _stated_and_found(path)[1], path.name)
            head = json.loads(path.read_text())
            self.assertIn(head["wheel_sha256"], generator)
            self.assertIn(head["package_sha256"], generator)

    def test_search_parameters_are_complete(self) -> None:
        rows = json.loads((folder("fhir") / "r4/search-parameters.json").read_text())["parameters"]
        with_expression = [row for row in rows if row[3]]
        self.assertEqual(len(with_expression), 1381)  # 1,384 of the package without its three examples
        for row in with_expression:
            parse(row[3])


class Elements(TestCase):
    """`element`, `members`, `is_a`."""

    def test_lookups(self) -> None:
        table = [
            ("Patient", "contact", ("Patient.contact",), True, "Patient.contact"),
            ("Patient.contact", "name", ("HumanName",), False, "Patient.contact.name"),
            ("Patient", "id", ("id",), False, "Resource.id"),
            ("Patient", "contained", ("Resource",), True, "DomainResource.contained"),
            ("Patient.contact", "extension", ("Extension",), True, "Element.extension"),
            ("HumanName", "given", ("string",), True, "HumanName.given"),
            ("Observation", "valueQuantity", ("Quantity",), False, "Observation.value"),
            ("Observation.component", "referenceRange", ("Observation.referenceRange",), True, None),
            ("Age", "value", ("decimal",), False, "Quantity.value"),
            ("Bundle.entry", "link", ("Bundle.link",), True, None),
        ]
        for type_path, name, types, many, path in table:
            found = definitions().element(type_path, name)
            assert found is not None, name
            self.assertEqual((found.types, found.many), (types, many))
            self.assertEqual(found.path, path or f"{type_path}.{name}")
        for type_path, name in (("Patient", "nonsense"), ("Nonsense", "id"), ("Observation", "valueAddress")):
            self.assertIsNone(definitions().element(type_path, name))

    def test_types_and_json_names_of_choices(self) -> None:
        value = definitions().element("Observation", "value")
        assert value is not None
        self.assertTrue(value.choice)
        self.assertEqual(len(value.types), 11)
        self.assertEqual(value.json_name("CodeableConcept"), "valueCodeableConcept")

    def test_reference_targets(self) -> None:
        subject = definitions().element("Encounter", "subject")
        assert subject is not None
        self.assertEqual(subject.targets, ("Group", "Patient"))
        status = definitions().element("Encounter", "status")
        assert status is not None
        self.assertTrue(status.required)

    def test_types(self) -> None:
        known = definitions()
        self.assertEqual((len(known.resource_types), len(known.primitive_types)), (147, 20))
        self.assertEqual((known.later_types, known.sent_types), ({"SubscriptionTopic"}, {"SubscriptionStatus"}))
        self.assertNotIn("DomainResource", known.resource_types)
        self.assertTrue(known.is_a("Patient", "Resource"))
        self.assertTrue(known.is_a("Age", "Quantity"))
        self.assertFalse(known.is_a("Bundle", "DomainResource"))
        self.assertFalse(known.is_type("Nonsense"))

    def test_every_type_that_an_element_names_exists(self) -> None:
        known = definitions()
        for resource_type in known.resource_types:
            for element in known.members(resource_type).values():
                for type_name in element.types:
                    self.assertTrue(known.is_type(type_name), element.path)

    def test_search_parameters_include_inherited_ones(self) -> None:
        found = definitions().search_parameters("Patient")
        self.assertEqual(found["birthdate"].type, "date")
        self.assertEqual(found["_tag"].url, "http://hl7.org/fhir/SearchParameter/Resource-tag")
        self.assertEqual(found["general-practitioner"].targets, ("Practitioner", "Organization", "PractitionerRole"))
        self.assertEqual(definitions().search_parameters("Nonsense"), {})


def _stated_and_found(path: Path) -> tuple[str, str]:
    content = json.loads(path.read_text())
    head = ("source", "licence", "wheel_sha256", "package_sha256", "content_sha256")
    stated = content["content_sha256"]
    rest = {name: value for name, value in content.items() if name not in head}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    return stated, hashlib.sha256(text.encode()).hexdigest()
