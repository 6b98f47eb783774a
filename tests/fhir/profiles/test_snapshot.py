"""Generated snapshots agree with the published ones, if the reference folder is present."""

from __future__ import annotations

import bz2
import json
import tarfile
from functools import cache
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.fhir.model.definitions import definitions
from ipf.fhir.model.json import loads
from ipf.fhir.profiles.element_ids import with_ids
from ipf.fhir.profiles.library import Structures, own_structure, own_urls
from ipf.fhir.profiles.snapshot import SnapshotError
from ipf.fhir.validation.validator import Validator
from tests.reference import REFERENCE, needs_reference

Json = dict[str, Any]
PACKAGE = REFERENCE / "us-core/hl7.fhir.us.core-7.0.0.tgz"
US_CORE = "http://hl7.org/fhir/us/core/StructureDefinition/"
BACKPORT = "http://hl7.org/fhir/uv/subscriptions-backport/StructureDefinition/"
CORE = "http://hl7.org/fhir/StructureDefinition/"
FACTS = ("min", "max", "sliceName", "maxLength")
NOT_INHERITED_BY_SLICES = {"us-core-provenance": "the publisher's slices do not have what the whole agent was given"}
OTHER_IDS = {  # value[x] of a slice is unfolded in place there, not as a slice of itself
    *("us-core-pulse-oximetry", "us-core-observation-occupation", "us-core-blood-pressure"),
    "us-core-average-blood-pressure",
}


@cache
def published() -> dict[str, Json]:
    """The StructureDefinitions of the package by id."""
    with tarfile.open(PACKAGE) as archive:
        names = [one for one in archive if "/StructureDefinition-" in one.name and one.name.count("/") == 1]
        found = [json.load(file) for one in names if (file := archive.extractfile(one)) is not None]
    return {one["id"]: one for one in found}


def facts(element: Json) -> Json:
    """The facts of an element in a comparable form."""
    found = {name: element[name] for name in FACTS if name in element}
    found.update({name: value for name, value in element.items() if name.startswith(("fixed", "pattern"))})
    found["types"] = [
        (one["code"], tuple(one.get("profile", ())), tuple(sorted(one.get("targetProfile", ()))))
        for one in element.get("type", ())
        if not one["code"].startswith("http://hl7.org/fhirpath/") and not element["path"].endswith(".id")
    ]
    if "binding" in element and element["binding"].get("valueSet"):
        found["binding"] = (element["binding"]["strength"], element["binding"]["valueSet"].removesuffix("|4.0.1"))
    found["must"] = element.get("mustSupport", False)
    return found


class Published(TestCase):
    """US Core 7.0.0."""

    @needs_reference
    def test_tables_agree_with_published_profiles(self) -> None:
        structures = Structures()
        self.assertEqual(set(own_urls("us-core")), {one["url"] for one in published().values()})
        same, other = 0, []
        for id, theirs in published().items():
            ours = {one["id"]: facts(one) for one in structures.snapshot(theirs["url"])}
            for element in theirs["snapshot"]["element"]:
                if ours.get(element["id"]) == facts(element):
                    same += 1
                elif id not in NOT_INHERITED_BY_SLICES and id not in OTHER_IDS:
                    other.append((element["id"], id))
        self.assertLess(len(other), 30, other)
        self.assertGreater(same, 3000)

    @needs_reference
    def test_generated_and_published_snapshots_validate_alike(self) -> None:
        brought = {one["url"]: one for one in published().values()}
        by_package, by_tables = Validator(Structures(brought.get)), Validator()
        for resource, profile in invalid_resources():
            ours = {(one.severity, one.code, one.location) for one in by_tables.validate(resource, [US_CORE + profile])}
            theirs = {
                (one.severity, one.code, one.location) for one in by_package.validate(resource, [US_CORE + profile])
            }
            self.assertEqual(ours, theirs, profile)
            self.assertIn("error", {severity for severity, _, _ in ours})

    @needs_reference
    def test_synthea_resources_validate_alike(self) -> None:
        brought = {one["url"]: one for one in published().values()}
        by_package, by_tables = Validator(Structures(brought.get)), Validator()
        bundle = loads(bz2.decompress(min((REFERENCE / "load").glob("[1-9]*.bz2")).read_bytes()))
        for entry in bundle["entry"]:
            resource = entry["resource"]
            if resource["resourceType"] != "Provenance":  # see NOT_INHERITED_BY_SLICES
                ours = {(one.severity, one.code, one.location) for one in by_tables.validate(resource)}
                theirs = {(one.severity, one.code, one.location) for one in by_package.validate(resource)}
                self.assertEqual(ours, theirs, resource["id"])


def invalid_resources() -> list[tuple[Json, str]]:
    """Resources that break a rule of a profile."""
    patient = {"resourceType": "Patient", "gender": "female"}
    race = {
        "url": US_CORE + "us-core-race",
        "extension": [{"url": "text", "valueString": "x"}, {"url": "text", "valueString": "y"}],
    }
    pressure = {
        "resourceType": "Observation",
        "status": "final",
        "code": {"coding": [{"system": "http://loinc.org", "code": "85354-9"}]},
        "component": [{"code": {"coding": [{"system": "http://loinc.org", "code": "8480-6"}]}}],
    }
    return [
        (patient, "us-core-patient"),
        ({**patient, "extension": [race]}, "us-core-patient"),
        ({**patient, "name": [{"text": "x"}], "identifier": [{"value": "1"}]}, "us-core-patient"),
        (pressure, "us-core-blood-pressure"),
        (
            {
                "resourceType": "Organization",
                "active": True,
                "name": "x",
                "identifier": [{"system": "http://hl7.org/fhir/sid/us-npi", "value": "1"}],
            },
            "us-core-organization",
        ),
    ]


class Stated(TestCase):
    """The shipped definitions."""

    def test_every_structure_has_a_snapshot(self) -> None:
        structures = Structures()
        for url in own_urls("r4", "us-core", "backport"):
            elements = structures.snapshot(url)
            ids = [one["id"] for one in elements]
            self.assertEqual(len(ids), len(set(ids)), url)
            self.assertTrue(all({"id", "path", "min", "max"} <= one.keys() for one in elements), url)

    def test_the_definitions_are_valid_resources(self) -> None:
        structures, validator = Structures(), Validator()
        for url in (US_CORE + "us-core-patient", US_CORE + "us-core-race", BACKPORT + "backport-subscription"):
            found = [one for one in validator.validate(structures.complete(url) or {}) if one.severity == "error"]
            self.assertEqual(found, [], url)

    def test_elements_agree_with_the_element_table(self) -> None:
        structures = Structures()
        for name in ("Patient", "Observation", "Bundle", "HumanName", "Timing", "ElementDefinition"):
            snapshot = {one["path"]: one for one in structures.snapshot(CORE + name)[1:] if one["path"].count(".") == 1}
            members = definitions().members(name)
            self.assertEqual({path.rpartition(".")[2].removesuffix("[x]") for path in snapshot}, set(members), name)
            for path, element in snapshot.items():
                member = members[path.rpartition(".")[2].removesuffix("[x]")]
                self.assertEqual(
                    (element["max"] not in ("0", "1"), element["min"] > 0), (member.many, member.required), path
                )

    def test_versions(self) -> None:
        self.assertIsNotNone(own_structure(US_CORE + "us-core-patient|7.0.0"))
        self.assertIsNone(own_structure(US_CORE + "us-core-patient|6.1.0"))
        self.assertIsNotNone(own_structure(CORE + "Patient|4.0.1"))

    def test_packages_precede_the_tables(self) -> None:
        url = US_CORE + "us-core-patient"
        other = {"resourceType": "StructureDefinition", "url": url, "type": "Patient", "name": "Other"}
        structures = Structures(lambda canonical: other if canonical == url else None)
        self.assertEqual((structures.get(url) or {})["name"], "Other")

    def test_invalid_differential_is_an_error(self) -> None:
        wrong = {
            "url": "http://x.test/p",
            "type": "Patient",
            "baseDefinition": CORE + "Patient",
            "derivation": "constraint",
            "differential": {"element": [{"id": "Patient.nothing", "path": "Patient.nothing", "min": 1}]},
        }
        structures = Structures(lambda url: wrong if url == "http://x.test/p" else None)
        self.assertIn("Patient.nothing", str(self.assertRaises(SnapshotError, structures.snapshot, "http://x.test/p")))


class WithoutIds(TestCase):
    """Profiles written by hand: paths and names of slices, no ids."""

    def test_ids(self) -> None:
        rows = [
            ("Observation", None, "Observation"),
            ("Observation.component", None, "Observation.component"),
            ("Observation.component", "a", "Observation.component:a"),
            ("Observation.component.code.coding", "loinc", "Observation.component:a.code.coding:loinc"),
            ("Observation.component.code.coding.system", None, "Observation.component:a.code.coding:loinc.system"),
            ("Observation.component", "b", "Observation.component:b"),
            ("Observation.component.code.coding.system", None, "Observation.component:b.code.coding.system"),
            ("Observation.valueQuantity", "valueQuantity", "Observation.valueQuantity"),
            ("Observation.value[x]", "valueString", "Observation.value[x]:valueString"),
        ]
        elements = [{"path": path} | ({"sliceName": name} if name else {}) for path, name, _ in rows]
        self.assertEqual([one["id"] for one in with_ids(elements)], [id for _, _, id in rows])

    def test_a_profile_without_ids_validates_as_one_with_ids(self) -> None:
        url = "http://x.test/p"
        coding = {"system": "http://loinc.org", "code": "8480-6"}
        elements: list[dict[str, Any]] = [
            {"path": "Observation"},
            {
                "path": "Observation.component",
                "slicing": {"discriminator": [{"type": "pattern", "path": "code"}], "rules": "open"},
            },
            {"path": "Observation.component", "sliceName": "systolic", "min": 1},
            {"path": "Observation.component.code", "patternCodeableConcept": {"coding": [coding]}},
            {"path": "Observation.component.valueQuantity", "min": 1},
            {"path": "Observation.component.valueQuantity.code", "min": 1, "patternCode": "mm[Hg]"},
            {"path": "Observation.component", "sliceName": "other", "max": "1"},
            {"path": "Observation.component.code", "patternCodeableConcept": {"coding": [{**coding, "code": "1"}]}},
            {"path": "Observation.method", "max": "0"},
        ]
        profile = {
            "resourceType": "StructureDefinition",
            "url": url,
            "type": "Observation",
            "baseDefinition": "http://hl7.org/fhir/StructureDefinition/Observation",
            "derivation": "constraint",
            "differential": {"element": elements},
        }
        validator = Validator(Structures(lambda wanted: profile if wanted == url else None))
        value = {"value": 120, "system": "http://unitsofmeasure.org", "code": "mm[Hg]", "unit": "mmHg"}

        def errors(**component: Any) -> list[str]:
            resource = {"resourceType": "Observation", "status": "final", "code": {"text": "x"}}
            whole = resource | ({"component": [component]} if component else {})
            return [one.location for one in validator.validate(whole, [url]) if one.severity == "error"]

        systolic = {"code": {"coding": [coding]}}
        self.assertEqual(errors(**systolic, valueQuantity=value), [])
        self.assertEqual(errors(), ["Observation"])
        self.assertEqual(errors(**systolic), ["Observation.component[0]"])
        wrong = errors(**systolic, valueQuantity={**value, "code": "kPa"})
        self.assertEqual(wrong, ["Observation.component[0].value.ofType(Quantity).code"])
